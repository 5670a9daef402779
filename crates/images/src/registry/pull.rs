//! Bringing an image from a registry into the store.
//!
//! Invariant: what this registry has not given, or said to have for this repository and credential, is not taken from the store
//! either. Who knows the digest of somebody's private layer, and names it in an image or a registry of his own, gets nothing.

mod origins;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::header::{CONTENT_RANGE, CONTENT_TYPE};
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use pumice_clock as clock;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use crate::config::{CONFIG_BYTES_MAX, ConfigError, ImageConfig};
use crate::digest::{Digest, Hasher};
use crate::manifest::{
    self, ACCEPTED, Blob, Document, INDEX_DEPTH_MAX, Layer, MANIFEST_BYTES_MAX, Manifest, ManifestError,
};
use crate::registry::error::RegistryError;
use crate::registry::session::{Call, Session};
use crate::store::{Download, Grant, ImageLayer, ImageRecord, Lease, Origin, Store, StoreError};

pub(crate) use origins::Origins;
use origins::Unpacking;

/// Layers that come at the same time.
const LAYERS_AT_ONCE: usize = 3;
/// What is gathered before it is written, in bytes.
const WRITTEN_AT_ONCE: usize = 1 << 20;

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
}

impl Progress {
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
    blocking(move || {
        let _alone = Unpacking::begin(&owned_diff_id);
        // A layer of this name may be somebody else's, whom the registry's blob has nothing to do with.
        if !is_compared && owned.has_layer(&owned_diff_id) {
            return owned.check_layer(&unpacked, &owned_diff_id);
        }
        owned.unpack(&unpacked, &owned_diff_id)
    })
    .await?;
    origins.add_compared(blob, diff_id);
    Ok(())
}

/// Whether the store's copy may stand for the registry's: everybody may have it, or it is this registry's own and its
/// word counts for who may have it.
async fn is_given(pull: Pull<'_>, blob: &Blob) -> Result<bool, PullError> {
    let (session, origins) = (pull.session, pull.origins.of(&blob.digest));
    if origins.contains(&Origin::Public) {
        return Ok(true);
    }
    if !origins.contains(&Origin::Registry(session.endpoint.host.clone())) {
        return Ok(false);
    }
    let call = Call::new(Method::HEAD, format!("blobs/{}", blob.digest));
    match session.call(&call).await {
        Ok(_) => Ok(true),
        // Hosts of content refuse such requests by many codes. What they give will show.
        Err(RegistryError::Answer { .. } | RegistryError::NotFound { .. } | RegistryError::Denied { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Where the bytes of a blob go.
trait Sink {
    /// Bytes that are there already.
    fn length(&self) -> u64;
    async fn append(&mut self, bytes: Vec<u8>) -> Result<(), PullError>;
    async fn restart(&mut self) -> Result<(), PullError>;
}

/// Into the store. None while a thread writes.
struct Stored(Option<Download>);

impl Stored {
    async fn with(
        &mut self,
        work: impl FnOnce(&mut Download) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), PullError> {
        let Some(mut download) = self.0.take() else { return Ok(()) };
        let (download, result) = spawn_blocking(move || {
            let result = work(&mut download);
            (download, result)
        })
        .await
        .map_err(PullError::Task)?;
        self.0 = Some(download);
        Ok(result?)
    }
}

impl Sink for Stored {
    fn length(&self) -> u64 {
        self.0.as_ref().map_or(0, Download::length)
    }

    async fn append(&mut self, bytes: Vec<u8>) -> Result<(), PullError> {
        self.with(move |download| download.append(&bytes)).await
    }

    async fn restart(&mut self) -> Result<(), PullError> {
        self.with(Download::restart).await
    }
}

/// Only what they are.
struct Hashed {
    hasher: Hasher,
    length: u64,
}

impl Sink for Hashed {
    fn length(&self) -> u64 {
        self.length
    }

    async fn append(&mut self, bytes: Vec<u8>) -> Result<(), PullError> {
        self.length += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.hasher.update(&bytes);
        Ok(())
    }

    async fn restart(&mut self) -> Result<(), PullError> {
        *self = Hashed { hasher: Hasher::new(), length: 0 };
        Ok(())
    }
}

async fn fetch_blob(pull: Pull<'_>, blob: &Blob) -> Result<(), PullError> {
    let Pull { session, store, origins, progress } = pull;
    let origin = Origin::of(&session.endpoint.host, session.credential.is_some());
    let mut is_again = false;
    loop {
        let (opened, wanted) = (Arc::clone(store), blob.clone());
        let Some(download) = blocking(move || opened.download(&wanted)).await? else {
            // It is there, maybe for others alone: then this registry must show that it has it, too.
            if is_given(pull, blob).await? {
                progress.add(blob.size);
            } else {
                stream_blob(session, blob, progress).await?;
                origins.add(&blob.digest, origin);
            }
            return Ok(());
        };
        let beginning = download.length();
        let mut sink = Stored(Some(download));
        progress.add(beginning);
        receive(session, blob, &mut sink, progress).await?;
        let Some(download) = sink.0 else { continue };
        match blocking(move || download.finish()).await {
            // The bad bytes may be those that another registry began with.
            Err(PullError::Store(StoreError::Digest { .. })) if beginning > 0 && !is_again => {
                progress.take_back(blob.size);
                is_again = true;
            }
            Err(PullError::Store(StoreError::Digest { expected, found })) => {
                return Err(PullError::Digest { host: session.host(), wanted: expected, found });
            }
            Err(error) => return Err(error),
            Ok(()) => {
                origins.add(&blob.digest, origin);
                return Ok(());
            }
        }
    }
}

async fn stream_blob(session: &Session, blob: &Blob, progress: &Progress) -> Result<(), PullError> {
    let mut sink = Hashed { hasher: Hasher::new(), length: 0 };
    receive(session, blob, &mut sink, progress).await?;
    check(session, &blob.digest.to_string(), &sink.hasher.finish())
}

/// Gets all bytes of a blob, going on where the connection ended.
async fn receive(session: &Session, blob: &Blob, sink: &mut impl Sink, progress: &Progress) -> Result<(), PullError> {
    let (mut failures, mut most) = (0, sink.length());
    while sink.length() < blob.size {
        let result = receive_some(session, blob, sink, progress).await;
        let Err(error) = result else { continue };
        // A call that failed has had its tries.
        let is_cut = matches!(
            &error,
            PullError::Registry(RegistryError::Cut { .. } | RegistryError::Short { .. } | RegistryError::Slow { .. })
        );
        // Bytes that come again, as from a registry without ranges, are no progress.
        failures = if sink.length() >= most.saturating_add(session.patience.bytes) { 0 } else { failures + 1 };
        most = most.max(sink.length());
        if !is_cut || failures >= session.patience.tries {
            return Err(error);
        }
        tokio::time::sleep(session.patience.pause.pause(failures)).await;
    }
    Ok(())
}

/// Gets what one answer brings, which may end early.
async fn receive_some(
    session: &Session,
    blob: &Blob,
    sink: &mut impl Sink,
    progress: &Progress,
) -> Result<(), PullError> {
    let path = format!("blobs/{}", blob.digest);
    let from = sink.length();
    let whole = Call::new(Method::GET, path.clone());
    let mut answer = match session.call(&Call { from, ..Call::new(Method::GET, path) }).await {
        Err(RegistryError::Answer { status: 416, .. }) if from > 0 => {
            progress.take_back(from);
            sink.restart().await?;
            session.call(&whole).await?
        }
        answer => answer?,
    };
    if sink.length() > 0 && !goes_on_at(&answer, sink.length()) {
        // It does not do ranges: all of it comes again.
        progress.take_back(sink.length());
        sink.restart().await?;
        if answer.status() == StatusCode::PARTIAL_CONTENT {
            // It is another part, or nobody knows which.
            answer = session.call(&whole).await?;
        }
    }
    let mut body = answer.into_body();
    let mut gathered: Vec<u8> = Vec::new();
    let mut received = 0;
    let result = loop {
        match next(session, &mut body, &mut received).await {
            Ok(Some(data)) => {
                let there = sink.length() + u64::try_from(gathered.len() + data.len()).unwrap_or(u64::MAX);
                if there > blob.size {
                    let (host, what, limit) = (session.host(), blob.digest.to_string(), blob.size);
                    break Err(RegistryError::TooLarge { host, what, limit }.into());
                }
                gathered.extend_from_slice(&data);
                progress.receive(u64::try_from(data.len()).unwrap_or(u64::MAX));
                if gathered.len() >= WRITTEN_AT_ONCE {
                    sink.append(std::mem::take(&mut gathered)).await?;
                }
            }
            Ok(None) if sink.length() + u64::try_from(gathered.len()).unwrap_or(u64::MAX) < blob.size => {
                break Err(
                    RegistryError::Short { host: session.host(), what: blob.digest.to_string(), received }.into()
                );
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        }
    };
    if !gathered.is_empty() {
        sink.append(gathered).await?;
    }
    result
}

/// Whether an answer is the rest from this byte on.
fn goes_on_at(answer: &Response<Incoming>, from: u64) -> bool {
    let range = answer.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
    answer.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {from}-")))
}

/// The next piece of a body; an error where too little comes for too long.
async fn next(session: &Session, body: &mut Incoming, received: &mut u64) -> Result<Option<Bytes>, RegistryError> {
    let patience = &session.patience;
    let (deadline, mut within) = (Instant::now() + patience.window, Vec::new());
    loop {
        let Ok(frame) = timeout_at(deadline, body.frame()).await else {
            let seconds = patience.window.as_secs();
            return Err(RegistryError::Slow { host: session.host(), received: *received, seconds });
        };
        let data = match frame {
            None => return Ok((!within.is_empty()).then(|| Bytes::from(within))),
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            // The next look at the body says that it is over.
            Some(Err(_)) if !within.is_empty() => return Ok(Some(Bytes::from(within))),
            Some(Err(source)) => {
                return Err(RegistryError::Cut { host: session.host(), received: *received, source });
            }
        };
        *received += u64::try_from(data.len()).unwrap_or(u64::MAX);
        if within.is_empty() && u64::try_from(data.len()).unwrap_or(u64::MAX) >= patience.bytes {
            return Ok(Some(data));
        }
        within.extend_from_slice(&data);
        if u64::try_from(within.len()).unwrap_or(u64::MAX) >= patience.bytes {
            return Ok(Some(Bytes::from(within)));
        }
    }
}
