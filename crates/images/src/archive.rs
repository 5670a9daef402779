//! Images from files and into files, and of folders, without a network.
//!
//! - [`load()`]: what `docker save`, `podman save`, `skopeo` and [`save()`] write
//! - [`save()`]: an OCI layout with Docker's list beside, which all of them read
//! - [`from_root()`]: a folder as an image of one layer
//!
//! *Invariant*: a file is read once, from its first byte to its last, and with bounds; an image of it consists of what is in the file
//! only, never of what the store has from others.
//! *Called by*: `pumice image`.

mod from_root;
mod load;
mod save;

use std::io;

use jiff::Timestamp;
use serde_json::json;

use crate::config::{ConfigError, ImageConfig};
use crate::digest::Digest;
use crate::manifest::{Blob, Compression, Layer, ManifestError, OCI_MANIFEST};
use crate::provide::ProvideError;
use crate::store::unpack::LayerError;
use crate::store::{ImageLayer, ImageRecord, Lease, Origin, Store, StoreError, Unpacking};

pub use self::from_root::{Folder, from_root};
pub use self::load::load;
pub use self::save::save;

/// The files of an OCI layout.
const LAYOUT: &str = "oci-layout";
const INDEX: &str = "index.json";
const BLOBS: &str = "blobs/sha256/";
/// Docker's list of images.
const DOCKER_LIST: &str = "manifest.json";
/// Where an index says what an image is called.
const NAME: &str = "io.containerd.image.name";
const REFERENCE: &str = "org.opencontainers.image.ref.name";
const CONFIG_KIND: &str = "application/vnd.oci.image.config.v1+json";
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 128 << 10;

/// Why an archive can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the archive can't be read")]
    Read(#[source] LayerError),
    #[error("the archive has more than {max} files")]
    TooManyFiles { max: usize },
    #[error("the archive has no image: neither {INDEX} (OCI) nor {DOCKER_LIST} (docker save)")]
    NoImage,
    #[error("{file} of the archive is not what it should be")]
    Json {
        file: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("{file} of the archive has {size} bytes; {max} are read at most")]
    TooLarge { file: String, size: u64, max: u64 },
    #[error("the archive has no file {file:?}, which its image consists of")]
    Missing { file: String },
    #[error("the archive's file {file:?} has another content: {found}")]
    Digest { file: String, found: Digest },
    #[error("an image of the archive")]
    Manifest(#[from] ManifestError),
    #[error("an image of the archive")]
    Config(#[from] ConfigError),
    #[error("the archive does not say what its image is called: give it a name (--name)")]
    NoName,
    #[error("the archive has {count} images, so that one name is not enough")]
    OneName { count: usize },
    #[error(transparent)]
    Name(#[from] ProvideError),
    #[error("{action} {path}")]
    Folder {
        action: &'static str,
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("writing the archive")]
    Write(#[source] io::Error),
}

/// All that an image consists of, as it is in the store.
struct Parts {
    name: String,
    /// Of the document that names it, and of its manifest.
    target: Digest,
    manifest: Digest,
    config: Blob,
    layers: Vec<Layer>,
}

/// Unpacks the layers and puts the image into the store, for everybody.
fn put(store: &Store, lease: &mut Lease, parts: Parts, now: Timestamp) -> Result<ImageRecord, ArchiveError> {
    let missing = || StoreError::Missing { digest: parts.config.digest.clone() };
    let bytes = store.manifest(&parts.config.digest)?.ok_or_else(missing)?;
    let config = ImageConfig::read(&bytes, parts.layers.len())?;
    let mut layers = Vec::new();
    for (layer, diff_id) in parts.layers.iter().zip(config.diff_ids) {
        store.extend_lease(lease, &diff_id)?;
        // A layer that is there may be somebody else's: who brings its content may have it.
        if store.unpack(layer, &diff_id)? == Unpacking::WasThere {
            store.check_layer(layer, &diff_id)?;
        }
        layers.push(ImageLayer {
            blob: layer.blob.digest.clone(),
            size_bytes: layer.blob.size,
            compression: layer.compression.into(),
            diff_id,
            origins: vec![Origin::Public],
        });
    }
    let record = ImageRecord {
        name: parts.name,
        target: parts.target,
        manifest: parts.manifest,
        config: parts.config.digest,
        size_bytes: layers.iter().map(|layer| layer.size_bytes).fold(0, u64::saturating_add),
        layers,
        loaded: true,
        pulled_at: now,
        used_at: now,
        grants: Vec::new(),
    };
    store.put_image(&record)?;
    Ok(record)
}

/// A manifest for content that has none of its own, in the store.
fn make_manifest(store: &Store, lease: &mut Lease, config: &Blob, layers: &[Layer]) -> Result<Digest, ArchiveError> {
    let descriptor = |kind: &str, blob: &Blob| json!({"mediaType": kind, "digest": blob.digest, "size": blob.size});
    let layers: Vec<_> = layers.iter().map(|layer| descriptor(layer_kind(layer.compression), &layer.blob)).collect();
    let config = descriptor(CONFIG_KIND, config);
    put_json(store, lease, &json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": layers}))
        .map(|blob| blob.digest)
}

fn put_json(store: &Store, lease: &mut Lease, value: &serde_json::Value) -> Result<Blob, ArchiveError> {
    let mut spool = store.spool()?;
    spool.append(value.to_string().as_bytes())?;
    Ok(spool.finish(lease)?)
}

fn layer_kind(compression: Compression) -> &'static str {
    match compression {
        Compression::Plain => "application/vnd.oci.image.layer.v1.tar",
        Compression::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
        Compression::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
    }
}
