//! A kubeconfig with a certificate, as `pumice apiserver` writes them for components and nodes, and how it stays good: its holder has
//! the certificate renewed long before it ends, and comes to know another authority before that takes the place of the first.
//!
//! Invariant: the file is replaced as a whole, and what is used is what stands in it. A cluster that renews nothing is asked once.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pumice_auth::{kubeconfig_of, write_private};
use pumice_cluster::Client;
use pumice_cluster::connect::{ReplaceableClient, client_from};
use pumice_units::with_causes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::certificates::service::RENEWALS;

/// How often it is asked whether there is anything new.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What a kubeconfig with embedded certificates says about its holder, PEM.
pub struct Credentials {
    server: String,
    pub authorities: String,
    pub certificate: String,
    pub key: String,
}

/// What the API server answers.
#[derive(Deserialize)]
struct Renewed {
    renewed: bool,
    #[serde(default)]
    authorities: String,
    #[serde(default)]
    certificate: String,
    #[serde(default)]
    key: String,
}

impl Credentials {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let parsed: Value =
            serde_saphyr::from_str(&text).with_context(|| format!("{} is no kubeconfig", path.display()))?;
        let lacks =
            |what: &str| format!("{} has no {what}; use one that `pumice apiserver` writes for a node", path.display());
        let get = |of: &Value, what: &str| -> Result<String> {
            let data = of[what].as_str().with_context(|| lacks(what))?;
            let bytes = STANDARD.decode(data).with_context(|| lacks(what))?;
            String::from_utf8(bytes).with_context(|| lacks(what))
        };
        let (cluster, user) = (&parsed["clusters"][0]["cluster"], &parsed["users"][0]["user"]);
        Ok(Credentials {
            server: cluster["server"].as_str().with_context(|| lacks("server"))?.to_owned(),
            authorities: get(cluster, "certificate-authority-data")?,
            certificate: get(user, "client-certificate-data")?,
            key: get(user, "client-key-data")?,
        })
    }

    fn write(&self, path: &Path) -> Result<()> {
        let text = kubeconfig_of(&self.server, &self.authorities, &self.certificate, &self.key);
        Ok(write_private(path, text.as_bytes())?)
    }
}

/// The client of a kubeconfig, which is renewed together with it by what comes back beside it and never ends. `used` is told of
/// credentials that are new.
pub async fn renewed_client(
    kubeconfig: Option<&Path>,
    address: Option<&str>,
    used: impl Fn(&Credentials) -> Result<()>,
) -> Result<(Client, impl Future<Output = ()>)> {
    let client = client_from(kubeconfig, address).await?;
    let cell = ReplaceableClient::new(client);
    let client = cell.client();
    let of = kubeconfig.map(|path| (path.to_owned(), address.map(str::to_owned)));
    let renewing = async move {
        if let Some((path, address)) = of
            && let Ok(credentials) = Credentials::read(&path)
        {
            follow(&cell, &path, address.as_deref(), credentials, used).await;
        }
        std::future::pending().await
    };
    Ok((client, renewing))
}

/// Ends where the API server renews nothing.
async fn follow(
    cell: &ReplaceableClient,
    path: &Path,
    address: Option<&str>,
    mut credentials: Credentials,
    used: impl Fn(&Credentials) -> Result<()>,
) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let fresh = match ask(&cell.now(), &credentials).await {
            Ok(Answer::Nothing) => continue,
            Ok(Answer::NotServed) => return,
            Ok(Answer::Renewed(fresh)) => fresh,
            Err(error) => {
                tracing::debug!(error = with_causes(&*error), "whether the certificate is to be renewed is not known");
                continue;
            }
        };
        credentials = Credentials { server: credentials.server, ..fresh };
        let taken = async {
            credentials.write(path)?;
            used(&credentials)?;
            anyhow::Ok(client_from(Some(path), address).await?)
        };
        match taken.await {
            Ok(client) => {
                cell.replace(client);
                tracing::info!(kubeconfig = %path.display(), "the certificate was renewed");
            }
            Err(error) => {
                let kubeconfig = path.display();
                tracing::warn!(%kubeconfig, error = with_causes(&*error), "the certificate was not renewed, will try again");
            }
        }
    }
}

enum Answer {
    Renewed(Credentials),
    Nothing,
    /// It is a cluster with an authority of its own.
    NotServed,
}

async fn ask(client: &Client, credentials: &Credentials) -> Result<Answer> {
    let body = json!({"certificate": credentials.certificate, "authorities": credentials.authorities});
    let request = http::Request::post(RENEWALS).header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(body.to_string().into_bytes()).context("ask for a renewal")?;
    let text = match client.request_text(request).await {
        Ok(text) => text,
        Err(kube::Error::Api(status)) if matches!(status.code, 403..=405) => return Ok(Answer::NotServed),
        Err(error) => return Err(error).context("ask for a renewal"),
    };
    let Renewed { renewed, authorities, certificate, key } =
        serde_json::from_str(&text).context("read the answer to a renewal")?;
    if !renewed {
        return Ok(Answer::Nothing);
    }
    Ok(Answer::Renewed(Credentials { server: String::new(), authorities, certificate, key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("k");
        let text = |text: &str| text.to_owned();
        let credentials =
            Credentials { server: text("https://h:1"), authorities: text("a"), certificate: text("c"), key: text("k") };
        credentials.write(&path).unwrap();
        let read = Credentials::read(&path).unwrap();
        assert_eq!(
            (read.server, read.authorities, read.certificate, read.key),
            (text("https://h:1"), text("a"), text("c"), text("k"))
        );
        std::fs::write(&path, "users: []").unwrap();
        assert!(Credentials::read(&path).err().unwrap().to_string().contains("has no server"));
    }
}
