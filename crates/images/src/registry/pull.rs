//! Bringing an image from a registry into the store.
//!
//! Invariant: what this registry has not given, or said to have for this repository and credential, is not taken from the store
//! either. Who knows the digest of somebody's private layer, and names it in an image or a registry of his own, gets nothing.

mod blobs;
mod origins;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use http::header::CONTENT_TYPE;
use pumice_clock as clock;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use crate::config::{CONFIG_BYTES_MAX, ConfigError, ImageConfig};
use crate::digest::Digest;
use crate::manifest::{
    self, ACCEPTED, Blob, Document, INDEX_DEPTH_MAX, Layer, MANIFEST_BYTES_MAX, Manifest, ManifestError,
};
use crate::registry::error::RegistryError;
use crate::registry::session::{Call, Session};
use crate::store::{Grant, ImageLayer, ImageRecord, Lease, Origin, Store, StoreError, Unpacking};

use blobs::fetch_blob;
pub(crate) use origins::Origins;

/// Layers that come at the same time.
const LAYERS_AT_ONCE: usize = 3;

/// Why an image was not pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The registry gave something else.
    #[error(
        "registry {host} gives {found} for {wanted}; push the image again, or have another mirror in the registries' file"
    )]
    Digest { host: String, wanted: Digest, found: Digest },
    #[error("{what} has {size} bytes; {limit} are read at most")]
    TooLarge { what: &'static str, size: u64, limit: u64 },
    /// The thread that wrote ended.
    #[error("the image was not written")]
    Task(#[source] tokio::task::JoinError),
}

impl PullError {
    /// Whether this machine's disk is full: no registry changes that.
    pub(crate) fn is_for_want_of_room(&self) -> bool {
        matches!(self, PullError::Store(error) if error.is_for_want_of_room())
    }

    /// Whether another credential, or none, might do.
    pub(crate) fn is_of_rights(&self) -> bool {
        matches!(self, PullError::Registry(error) if error.is_of_rights())
    }
}

/// How far a pull is, for those who watch it.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    received: AtomicU64,
    started: Notify,
}

impl Progress {
    /// Waits until a registry is asked for the image itself, which it is not where the store has it or another pull brings it. For one
    /// who waits, once. Cancel safe.
    pub async fn started(&self) {
        self.started.notified().await;
    }

    pub(crate) fn start(&self) {
        self.started.notify_one();
    }

    /// Bytes that are there, and bytes in all as far as they are known.
    pub fn bytes(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Bytes of layers that a registry sent.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// What an earlier try had counts for nothing: this one finds in the store what came of it.
    fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    fn receive(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
        self.add(bytes);
    }

    fn take_back(&self, bytes: u64) {
        self.done.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What a name or a digest stands for at a registry.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// Of the document that was asked for: an index or a manifest.
    pub target: Digest,
    /// Of the manifest for this machine.
    pub digest: Digest,
    pub bytes: Vec<u8>,
    pub manifest: Manifest,
}

/// Asks what a tag or a digest stands for; of an index the manifest for this machine.
pub(crate) async fn resolve(session: &Session, version: &str) -> Result<Resolved, PullError> {
    let (mut version, mut target) = (version.to_owned(), None);
    for _ in 0..=INDEX_DEPTH_MAX {
        let accept = ACCEPTED.join(", ");
        let path = format!("manifests/{version}");
        let call = Call { accept: Some(&accept), ..Call::new(Method::GET, path) };
        let (headers, bytes) = session.get(&call, MANIFEST_BYTES_MAX).await?;
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).map(str::to_owned);
        let digest = Digest::of(&bytes);
        check(session, &version, &digest)?;
        let target = target.get_or_insert_with(|| digest.clone()).clone();
        match manifest::read(&bytes, kind.as_deref())? {
            Document::Image(manifest) => return Ok(Resolved { target, digest, bytes, manifest }),
            Document::Chosen(blob) => version = blob.digest.to_string(),
        }
    }
    Err(ManifestError::Depth.into())
}

/// What was asked for by its digest is what it says.
fn check(session: &Session, version: &str, found: &Digest) -> Result<(), PullError> {
    match version.parse::<Digest>() {
        Ok(wanted) if wanted != *found => Err(PullError::Digest { host: session.host(), wanted, found: found.clone() }),
        _ => Ok(()),
    }
}

/// What a tag or digest stands for now, without its content. None where the registry does not say.
pub(crate) async fn target(session: &Session, version: &str) -> Result<Option<Digest>, PullError> {
    let accept = ACCEPTED.join(", ");
    let call = Call { accept: Some(&accept), ..Call::new(Method::HEAD, format!("manifests/{version}")) };
    let answer = match session.call(&call).await {
        // It has no such requests.
        Err(RegistryError::Answer { .. }) => return Ok(None),
        answer => answer?,
    };
    let told = answer.headers().get("docker-content-digest").and_then(|digest| digest.to_str().ok());
    Ok(told.and_then(|digest| digest.parse().ok()))
}

/// Where an image comes from, and where it goes.
#[derive(Clone, Copy)]
pub(crate) struct Pull<'p> {
    pub session: &'p Session,
    pub store: &'p Arc<Store>,
    pub origins: &'p Origins,
    pub progress: &'p Progress,
}

/// An image whose content is there. It stays as long as this does; then its record must be in the store.
pub(crate) struct Fetched {
    pub record: ImageRecord,
    _lease: Lease,
}

/// Brings all of an image into the store. The record names its layers; it is not in the store yet.
pub(crate) async fn fetch(pull: Pull<'_>, name: &str, resolved: Resolved) -> Result<Fetched, PullError> {
    let Pull { session, store, origins, progress } = pull;
    let Manifest { config, layers } = &resolved.manifest;
    let sizes = layers.iter().map(|layer| layer.blob.size);
    let total = sizes.fold(0_u64, u64::saturating_add);
    progress.begin(total);
    let bytes = fetch_config(session, config).await?;
    let diff_ids = ImageConfig::read(&bytes, layers.len())?.diff_ids;
    let origin = Origin::of(&session.endpoint.host, session.credential.is_some());
    origins.refresh(store).await?;
    let digests = layers.iter().map(|layer| layer.blob.digest.clone()).chain(diff_ids.iter().cloned());
    let digests: Vec<_> = digests.chain([resolved.digest.clone(), config.digest.clone()]).collect();
    let leased = Arc::clone(store);
    let lease = blocking(move || leased.lease(&digests)).await?;
    let (mut fetched, mut begun) = (Vec::new(), BTreeSet::new());
    for (layer, diff_id) in layers.iter().zip(&diff_ids) {
        if !begun.insert((&layer.blob.digest, diff_id)) {
            progress.add(layer.blob.size);
            continue;
        }
        fetched.push(fetch_layer(pull, layer, diff_id).boxed());
    }
    // In the image's order, whichever comes first.
    let _: Vec<()> = stream::iter(fetched).buffered(LAYERS_AT_ONCE).try_collect().await?;
    let layers = layers.iter().zip(diff_ids).map(|(layer, diff_id)| ImageLayer {
        blob: layer.blob.digest.clone(),
        size_bytes: layer.blob.size,
        compression: layer.compression.into(),
        diff_id,
        origins: vec![origin.clone()],
    });
    let layers: Vec<_> = layers.collect();
    let (small, manifest, config) = (Arc::clone(store), resolved.digest.clone(), config.digest.clone());
    let written = (manifest.clone(), config.clone());
    blocking(move || {
        small.put_small(&written.0, &resolved.bytes)?;
        small.put_small(&written.1, &bytes)
    })
    .await?;
    let now = clock::now();
    let record = ImageRecord {
        name: name.to_owned(),
        target: resolved.target,
        manifest,
        config,
        layers,
        size_bytes: total,
        loaded: false,
        pulled_at: now,
        used_at: now,
        grants: vec![grant(session)],
    };
    Ok(Fetched { record, _lease: lease })
}

/// What a registry says by giving an image: whoever has this credential may use it, or everybody.
pub(crate) fn grant(session: &Session) -> Grant {
    let host = &session.endpoint.host;
    Grant {
        registry: host.clone(),
        repository: session.repository.clone(),
        credential: session.credential.as_ref().map(|credential| credential.mark(host)),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, PullError> {
    spawn_blocking(work).await.map_err(PullError::Task)?.map_err(PullError::Store)
}

async fn fetch_config(session: &Session, config: &Blob) -> Result<Vec<u8>, PullError> {
    if config.size > CONFIG_BYTES_MAX {
        return Err(PullError::TooLarge {
            what: "the image's configuration",
            size: config.size,
            limit: CONFIG_BYTES_MAX,
        });
    }
    let path = format!("blobs/{}", config.digest);
    let call = Call::new(Method::GET, path);
    let (_, bytes) = session.get(&call, config.size).await?;
    check(session, &config.digest.to_string(), &Digest::of(&bytes))?;
    Ok(bytes)
}

async fn fetch_layer(pull: Pull<'_>, layer: &Layer, diff_id: &Digest) -> Result<(), PullError> {
    let Pull { store, origins, progress, .. } = pull;
    let blob = &layer.blob.digest;
    // Also where the layer is unpacked: whoever saves or pushes the image needs the blob.
    if store.has_blob(blob) && is_given(pull, &layer.blob).await? {
        progress.add(layer.blob.size);
        if store.has_layer(diff_id) && origins.is_compared(blob, diff_id) {
            return Ok(());
        }
    } else {
        fetch_blob(pull, &layer.blob).await?;
    }
    let is_compared = origins.is_compared(blob, diff_id);
    let (owned, unpacked, owned_diff_id) = (Arc::clone(store), layer.clone(), diff_id.clone());
    blocking(move || match owned.unpack(&unpacked, &owned_diff_id)? {
        // A layer of this name may be somebody else's, whom the registry's blob has nothing to do with.
        Unpacking::WasThere if !is_compared => owned.check_layer(&unpacked, &owned_diff_id),
        _ => Ok(()),
    })
    .await?;
    origins.add_compared(blob, diff_id);
    Ok(())
}

/// Whether the store's copy may stand for the registry's: everybody may have it, or it is this registry's own and its
/// word counts for who may have it.
async fn is_given(pull: Pull<'_>, blob: &Blob) -> Result<bool, PullError> {
    let session = pull.session;
    let origins = pull.origins.of(pull.store, &blob.digest).await?;
    if origins.contains(&Origin::Public) {
        return Ok(true);
    }
    if !origins.contains(&Origin::Registry(session.endpoint.host.clone())) {
        return Ok(false);
    }
    is_said_to_be_there(session, blob).await
}

/// Whether the registry has a blob for this credential.
async fn is_said_to_be_there(session: &Session, blob: &Blob) -> Result<bool, PullError> {
    let call = Call::new(Method::HEAD, format!("blobs/{}", blob.digest));
    match session.call(&call).await {
        Ok(_) => Ok(true),
        // Hosts of content refuse such requests by many codes. What they give will show.
        Err(RegistryError::Answer { .. } | RegistryError::NotFound { .. } | RegistryError::Denied { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
