//! Bringing an image of the store to a registry.
//!
//! Invariant: what is sent is what the store has from the image's registry or file, byte for byte, so that the registry has
//! the image by the same digest. The manifest goes last: no tag stands for half an image.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::header::LOCATION;
use http::{Method, Response, StatusCode, Uri};
use hyper::body::Incoming;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::digest::Digest;
use crate::manifest::{self, Blob};
use crate::registry::error::RegistryError;
use crate::registry::session::{Call, Content, Final, Session, Upload, next};
use crate::store::{ImageRecord, Store, StoreError};

/// Blobs that go at the same time.
const BLOBS_AT_ONCE: usize = 3;

/// Why an image was not pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Neither here nor there.
    #[error(
        "{digest}, which {name} consists of, is not in the store, and registry {host} does not have it; bring the image again: {}",
        again(.name, *.loaded)
    )]
    Missing { digest: Digest, name: String, host: String, loaded: bool },
    #[error("{digest}, which {name} consists of, was damaged on the disk and is removed; bring the image again: {}", again(.name, *.loaded))]
    Damaged { digest: Digest, name: String, loaded: bool },
    /// It is not JSON.
    #[error("the manifest {digest} can't be read")]
    Manifest {
        digest: Digest,
        #[source]
        source: serde_json::Error,
    },
    #[error("registry {host} says that it has {found} now, and {wanted} was pushed")]
    Digest { host: String, wanted: Digest, found: Digest },
    /// The thread that read ended.
    #[error("the image was not read")]
    Task(#[from] tokio::task::JoinError),
}

impl PushError {
    /// Whether another credential, or none, might do.
    pub(crate) fn is_of_rights(&self) -> bool {
        matches!(self, PushError::Registry(error) if error.is_of_rights())
    }
}

fn again(name: &str, loaded: bool) -> String {
    if loaded { format!("load the file that {name} came from") } else { format!("pumice image pull {name}") }
}

/// How far a push is, for those who watch it.
#[derive(Debug, Default)]
pub struct PushProgress {
    total: AtomicU64,
    /// That the registry has, or was sent by now.
    done: Arc<AtomicU64>,
    /// Of these, those that it had before, or took from another repository of its own.
    there: AtomicU64,
}

impl PushProgress {
    /// Bytes that the registry has, and bytes in all as far as they are known.
    pub fn bytes(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Bytes that did not have to be sent.
    pub fn there(&self) -> u64 {
        self.there.load(Ordering::Relaxed)
    }

    fn begin(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.there.store(0, Ordering::Relaxed);
    }

    fn add_there(&self, bytes: u64) {
        self.there.fetch_add(bytes, Ordering::Relaxed);
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What goes, and where to.
#[derive(Clone, Copy)]
pub(crate) struct Push<'p> {
    pub session: &'p Session,
    pub store: &'p Arc<Store>,
    pub image: &'p ImageRecord,
    /// Repositories of the same registry, each with a session that may take from it.
    pub others: &'p BTreeMap<String, Session>,
    /// Which of them has a blob.
    pub sources: &'p BTreeMap<Digest, String>,
    pub progress: &'p PushProgress,
}

/// Brings all of an image to a registry, by this tag or digest.
pub(crate) async fn push(push: Push<'_>, version: &str) -> Result<(), PushError> {
    let Push { session, store, image, progress, .. } = push;
    let digests: BTreeSet<&Digest> =
        image.layers.iter().map(|layer| &layer.blob).chain([&image.config, &image.manifest]).collect();
    let digests: Vec<Digest> = digests.into_iter().cloned().collect();
    let (leased, owned) = (Arc::clone(store), digests.clone());
    let _lease = spawn_blocking(move || leased.lease(&owned)).await??;
    let (small, digest) = (Arc::clone(store), image.manifest.clone());
    let bytes = spawn_blocking(move || small.manifest(&digest)).await??.ok_or_else(|| push.missing(&image.manifest))?;
    let kind =
        manifest::kind(&bytes).map_err(|source| PushError::Manifest { digest: image.manifest.clone(), source })?;
    let blobs: Vec<Blob> = digests
        .into_iter()
        .filter(|digest| *digest != image.manifest)
        .map(|digest| {
            let layer = image.layers.iter().find(|layer| layer.blob == digest);
            let size = layer.map_or_else(|| store.blob_size(&digest).unwrap_or(0), |layer| layer.size_bytes);
            Blob { digest, size }
        })
        .collect();
    progress.begin(blobs.iter().map(|blob| blob.size).fold(0, u64::saturating_add));
    // Boxed: the compiler can't tell how long closures over several sessions live.
    let sent: Vec<_> = blobs.iter().map(|blob| send_blob(push, blob).boxed()).collect();
    let _: Vec<()> = stream::iter(sent).buffer_unordered(BLOBS_AT_ONCE).try_collect().await?;
    let content = Content::Small { kind, bytes: bytes.into() };
    let call = Call { content, ..Call::new(Method::PUT, format!("manifests/{version}")) };
    let answer = session.call(&call).await?;
    let found = answer.headers().get("docker-content-digest").and_then(|digest| digest.to_str().ok()?.parse().ok());
    match found {
        Some(found) if found != image.manifest => {
            Err(PushError::Digest { host: session.host(), wanted: image.manifest.clone(), found })
        }
        _ => Ok(()),
    }
}

impl Push<'_> {
    fn missing(self, digest: &Digest) -> PushError {
        let ImageRecord { name, loaded, .. } = self.image;
        let (digest, name, host) = (digest.clone(), name.clone(), self.session.host());
        PushError::Missing { digest, name, host, loaded: *loaded }
    }
}

async fn send_blob(push: Push<'_>, blob: &Blob) -> Result<(), PushError> {
    let (session, progress) = (push.session, push.progress);
    let mut failures = 0;
    loop {
        // Also after a failure: its answer may be what got lost.
        if is_there(session, &blob.digest).await? {
            progress.add_there(blob.size);
            return Ok(());
        }
        let Some(address) = begin(push, blob).await? else {
            progress.add_there(blob.size);
            return Ok(());
        };
        let pause = session.patience.pause.pause(failures);
        failures += 1;
        let may_try = failures < session.patience.tries;
        match put(push, blob, address).await {
            Ok(()) => return Ok(()),
            Err((PushError::Registry(error), named)) if may_try && error.is_passing() => {
                sleep(named.unwrap_or(pause)).await;
            }
            Err((error, _)) => return Err(error),
        }
    }
}

async fn is_there(session: &Session, digest: &Digest) -> Result<bool, PushError> {
    match session.call(&Call::new(Method::HEAD, format!("blobs/{digest}"))).await {
        Ok(_) => Ok(true),
        // Whoever may not look may be let in to write.
        Err(RegistryError::Answer { .. } | RegistryError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Where a blob is to be sent; none if the registry took it from another repository of its own.
async fn begin(push: Push<'_>, blob: &Blob) -> Result<Option<Uri>, PushError> {
    let session = push.session;
    if let Some(from) = push.sources.get(&blob.digest)
        && let Some(other) = push.others.get(from)
    {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("mount", &blob.digest.to_string())
            .append_pair("from", from)
            .finish();
        match other.call(&Call::new(Method::POST, format!("blobs/uploads/?{query}"))).await {
            Ok(answer) if answer.status() == StatusCode::CREATED => return Ok(None),
            Ok(answer) => return location(session, &answer, blob).map(Some),
            // It is sent then.
            Err(error) => tracing::debug!(%error, from, "the registry does not take a blob from another repository"),
        }
    }
    let answer = session.call(&Call::new(Method::POST, "blobs/uploads/".to_owned())).await?;
    location(session, &answer, blob).map(Some)
}

/// Where an answer says to go on, with the blob's digest.
fn location(session: &Session, answer: &Response<Incoming>, blob: &Blob) -> Result<Uri, PushError> {
    let missing = || RegistryError::NoLocation { host: session.host(), what: blob.digest.to_string() };
    let named = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let base = answer.extensions().get::<Final>();
    let address = named.zip(base).and_then(|(named, Final(base))| next(base, named)).ok_or_else(missing)?;
    let joint = if address.query().is_some() { '&' } else { '?' };
    let digest: String = form_urlencoded::byte_serialize(blob.digest.to_string().as_bytes()).collect();
    Ok(format!("{address}{joint}digest={digest}").parse().map_err(|_| missing())?)
}

/// Sends all of a blob; a failure comes with the pause that the registry names.
async fn put(push: Push<'_>, blob: &Blob, address: Uri) -> Result<(), (PushError, Option<Duration>)> {
    let alone = |error| (error, None);
    let session = push.session;
    let (file, blob) = open(push, blob).await.map_err(alone)?;
    let upload = Arc::new(Upload::new(file, blob.clone(), Arc::clone(&push.progress.done)));
    let content = Content::File(Arc::clone(&upload));
    let path = format!("blobs/{}", blob.digest);
    let call = Call { address: Some(address), content, ..Call::new(Method::PUT, path) };
    let answer = session.attempt(&call).await;
    if upload.is_damaged() {
        return Err(alone(damaged(push, &blob.digest).await));
    }
    let answer = match answer {
        Ok(answer) if answer.status().is_success() => return Ok(()),
        Ok(answer) => answer,
        Err(error) => {
            push.progress.done.fetch_sub(upload.taken(), Ordering::Relaxed);
            return Err(alone(error.into()));
        }
    };
    push.progress.done.fetch_sub(upload.taken(), Ordering::Relaxed);
    let named = session.named_pause(answer.headers());
    let error = match answer.status() {
        StatusCode::TOO_MANY_REQUESTS => RegistryError::Busy { host: session.host(), tries: session.patience.tries },
        _ => session.refusal(&call, answer).await,
    };
    Err((error.into(), named))
}

async fn open(push: Push<'_>, blob: &Blob) -> Result<(File, Blob), PushError> {
    let (store, digest) = (Arc::clone(push.store), blob.digest.clone());
    match spawn_blocking(move || store.open_blob(&digest)).await? {
        // What the file has is compared with the digest in any case.
        Ok(file) => Ok((file, blob.clone())),
        Err(StoreError::Missing { .. }) => Err(push.missing(&blob.digest)),
        Err(error) => Err(error.into()),
    }
}

/// Removes what is of no use any more, so that it can come again.
async fn damaged(push: Push<'_>, digest: &Digest) -> PushError {
    let (store, owned) = (Arc::clone(push.store), digest.clone());
    match spawn_blocking(move || store.remove_damaged(&owned)).await {
        Ok(Ok(())) => {
            let ImageRecord { name, loaded, .. } = push.image;
            PushError::Damaged { digest: digest.clone(), name: name.clone(), loaded: *loaded }
        }
        Ok(Err(error)) => error.into(),
        Err(error) => error.into(),
    }
}
