//! Tokens of a pod's service account, as files that programs in it read.
//!
//! Invariant: a token is of this very pod and ends with it; its file is replaced whole, long before it expires. A token is
//! never logged.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use pumice_clock as clock;
use pumice_cluster::{Change, WatchScope};
use tokio::sync::watch;

use crate::pod_spec::volumes;

/// Seconds that a token holds where its volume says nothing.
const SECONDS_DEFAULT: i64 = 3600;
/// What a server may cut a longer wish to, in seconds.
const SECONDS_MAX: i64 = 24 * 3600;
/// Pause after a renewal that failed, and the longest time without a look at the clock of the wall.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// Where the authorities are in each namespace, and the namespace that every cluster has.
const AUTHORITIES_MAP: &str = "kube-root-ca.crt";
const AUTHORITIES_KEY: &str = "ca.crt";
const AUTHORITIES_NAMESPACE: &str = "kube-system";

/// One token: a file of a projected volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TokenFile {
    pub volume: String,
    /// Within the volume.
    pub path: String,
    /// Whom it is for; the API server where it says nothing.
    audience: Option<String>,
    /// How long it is to hold.
    seconds: i64,
}

#[cfg(test)]
impl TokenFile {
    pub(crate) fn of(volume: &str, path: &str) -> TokenFile {
        TokenFile { volume: volume.to_owned(), path: path.to_owned(), audience: None, seconds: SECONDS_DEFAULT }
    }
}

/// The tokens of a pod.
pub(crate) type Tokens = BTreeMap<TokenFile, String>;

/// The tokens that `pod` asks for.
pub(crate) fn files(pod: &Pod) -> Vec<TokenFile> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let parts = volumes.flat_map(|volume| {
        let parts = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        parts.filter_map(|part| Some((&volume.name, part.service_account_token.as_ref()?)))
    });
    let file = |(volume, token): (&String, &k8s_openapi::api::core::v1::ServiceAccountTokenProjection)| TokenFile {
        volume: volume.clone(),
        path: token.path.clone(),
        audience: token.audience.clone().filter(|audience| !audience.is_empty()),
        seconds: token.expiration_seconds.unwrap_or(SECONDS_DEFAULT),
    };
    parts.map(file).collect()
}

/// Asks for all tokens of `pod`.
pub(crate) async fn request_all(client: &Client, pod: &Pod) -> Result<Tokens, kube::Error> {
    let mut tokens = Tokens::new();
    for file in files(pod) {
        let token = request(client, pod, &file).await?;
        tokens.insert(file, token);
    }
    Ok(tokens)
}

async fn request(client: &Client, pod: &Pod, file: &TokenFile) -> Result<String, kube::Error> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
    let wish = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: Some(file.audience.iter().cloned().collect()),
            expiration_seconds: Some(file.seconds),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: pod.metadata.name.clone(),
                uid: pod.metadata.uid.clone(),
            }),
        }),
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let answer: TokenRequest = accounts.create_subresource("token", account, &PostParams::default(), &wish).await?;
    let token = answer.status.and_then(|status| status.token);
    token.ok_or_else(|| kube::Error::SerdeError(serde::de::Error::custom("the answer has no token")))
}

/// The authorities that pods trust, as the API server says them; nothing while it is not known.
pub(crate) type Authorities = watch::Receiver<Option<Arc<str>>>;

/// Renews the tokens of `pod` under `folder`, where its volumes are, and the authorities beside them, until it is dropped.
pub(crate) async fn keep(client: Client, pod: Arc<Pod>, folder: PathBuf, mut authorities: Authorities) {
    let files = files(&pod);
    let authority_files = authority_files(&pod);
    authorities.mark_changed();
    loop {
        if authorities.has_changed().unwrap_or(false) {
            let text = authorities.borrow_and_update().clone();
            if let Some(text) = text {
                trust(&pod, &authority_files, &folder, text).await;
            }
        }
        let mut next = LOOK_EVERY;
        for file in &files {
            let path = folder.join(&file.volume).join(&file.path);
            let mut wait = due_in(&path, file.seconds, clock::now());
            if wait.is_zero() {
                let renewed = renew(&client, &pod, file, folder.join(&file.volume)).await;
                wait = due_in(&path, file.seconds, clock::now()).max(AGAIN_AFTER);
                if let Err(error) = renewed {
                    let name = pod.metadata.name.as_deref().unwrap_or_default();
                    tracing::warn!(pod = name, volume = file.volume, %error, "token not renewed, will try again");
                }
            }
            next = next.min(wait);
        }
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            // Without the agent's watch there is nothing to wait for.
            changed = authorities.changed() => match changed {
                Ok(()) => authorities.mark_changed(),
                Err(_) => tokio::time::sleep(next).await,
            }
        }
    }
}

/// Where volumes of `pod` have the authorities: by volume and path.
fn authority_files(pod: &Pod) -> Vec<(String, String)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let parts = volumes.flat_map(|volume| {
        let parts = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        parts.filter_map(|part| Some((&volume.name, part.config_map.as_ref()?)))
    });
    let ours = parts.filter(|(_, source)| source.name == AUTHORITIES_MAP);
    let paths = ours.flat_map(|(volume, source)| {
        let listed = source.items.iter().flatten().filter(|item| item.key == AUTHORITIES_KEY);
        let listed: Vec<_> = listed.map(|item| (volume.clone(), item.path.clone())).collect();
        if source.items.is_none() { vec![(volume.clone(), AUTHORITIES_KEY.to_owned())] } else { listed }
    });
    paths.collect()
}

/// Puts the authorities in place of those that a running pod has, where they are others.
async fn trust(pod: &Pod, files: &[(String, String)], folder: &Path, text: Arc<str>) {
    for (volume, path) in files {
        let (volume, path, text) = (folder.join(volume), path.clone(), Arc::clone(&text));
        let written = tokio::task::spawn_blocking(move || {
            let is_same = std::fs::read(volume.join(&path)).is_ok_and(|found| found == text.as_bytes());
            if is_same { Ok(()) } else { volumes::replace(&volume, &path, text.as_bytes()) }
        });
        let written = written.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        if let Err(error) = written {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(pod = name, %error, "the authorities that a pod trusts stay as they were");
        }
    }
}

/// Follows what the API server says of its authorities, until it is dropped. All namespaces have the same.
pub(crate) async fn follow_authorities(client: Client, told: watch::Sender<Option<Arc<str>>>) {
    let maps: Api<ConfigMap> = Api::namespaced(client, AUTHORITIES_NAMESPACE);
    let scope = WatchScope::fields(format!("metadata.name={AUTHORITIES_MAP}"));
    let mut changes = std::pin::pin!(pumice_cluster::watch(maps, scope));
    while let Some(change) = changes.next().await {
        let found = match change {
            Change::Replace(all) => all.into_iter().next(),
            Change::Applied(map) => Some(map),
            Change::Deleted(_) => None,
        };
        let text = found.and_then(|map| map.data?.remove(AUTHORITIES_KEY));
        if let Some(text) = text {
            let text: Arc<str> = text.into();
            told.send_if_modified(|before| {
                let is_new = before.as_ref() != Some(&text);
                *before = Some(text);
                is_new
            });
        }
    }
}

/// What stood in the way of a renewal.
#[derive(Debug, thiserror::Error)]
enum RenewError {
    #[error(transparent)]
    Request(#[from] kube::Error),
    #[error("can't write the file: {0}")]
    Write(#[from] io::Error),
}

async fn renew(client: &Client, pod: &Pod, file: &TokenFile, volume: PathBuf) -> Result<(), RenewError> {
    let token = request(client, pod, file).await?;
    let path = file.path.clone();
    let written = tokio::task::spawn_blocking(move || volumes::replace(&volume, &path, token.as_bytes())).await;
    Ok(written.unwrap_or_else(|error| Err(io::Error::other(error)))?)
}

/// How long until the token in `path` is renewed: when four fifths of its time are over, as a kubelet does it.
fn due_in(path: &Path, seconds: i64, now: Timestamp) -> Duration {
    let written = std::fs::metadata(path).and_then(|found| found.modified()).ok();
    let Some(written) = written.and_then(|at| Timestamp::try_from(at).ok()) else { return Duration::ZERO };
    let due = written + SignedDuration::from_secs(seconds.clamp(0, SECONDS_MAX) / 5 * 4);
    Duration::try_from(due.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_are_found_in_projected_volumes() {
        let pod = json!({"spec": {"containers": [], "volumes": [
            {"name": "a", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "c"}},
                {"serviceAccountToken": {"path": "x/vault", "audience": "vault"}},
            ]}},
            {"name": "b", "emptyDir": {}},
        ]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let file = |path: &str, audience: Option<&str>, seconds| TokenFile {
            volume: "a".into(),
            path: path.into(),
            audience: audience.map(str::to_owned),
            seconds,
        };
        assert_eq!(files(&pod), [file("token", None, 3607), file("x/vault", Some("vault"), 3600)]);
    }

    #[test]
    fn authorities_are_found_where_volumes_have_them() {
        let pod = json!({"spec": {"containers": [], "volumes": [
            {"name": "a", "projected": {"sources": [
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "x/ca.pem"}]}},
                {"configMap": {"name": "other"}},
            ]}},
            {"name": "b", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}},
            {"name": "c", "emptyDir": {}},
        ]}});
        let pair = |volume: &str, path: &str| (volume.to_owned(), path.to_owned());
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert_eq!(authority_files(&pod), [pair("a", "x/ca.pem"), pair("b", "ca.crt")]);
    }

    #[test]
    fn a_token_is_renewed_long_before_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let now = clock::now();
        assert_eq!(due_in(&path, 3600, now), Duration::ZERO, "there is none");
        std::fs::write(&path, "t").unwrap();
        let written = Timestamp::try_from(std::fs::metadata(&path).unwrap().modified().unwrap()).unwrap();
        let after = |seconds| written + SignedDuration::from_secs(seconds);
        for (holds, age, wait) in
            [(3600, 0, 2880), (3600, 2879, 1), (3600, 2880, 0), (3600, 9999, 0), (i64::MAX, 0, 69120)]
        {
            assert_eq!(due_in(&path, holds, after(age)).as_secs(), wait, "{holds} {age}");
        }
    }
}
