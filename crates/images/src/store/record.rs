//! What the store remembers of an image, one file for each name.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::manifest::{Compression, Layer};

/// Digits that tell registries apart.
const MARK_DIGITS: usize = 16;

/// An image by a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageRecord {
    /// In full, with its registry and its tag or digest.
    pub name: String,
    /// What the name stood for at its registry: an index, or the manifest itself.
    pub target: Digest,
    pub manifest: Digest,
    pub config: Digest,
    /// The lowest first.
    pub layers: Vec<ImageLayer>,
    /// What its layers take as the registry has them.
    pub size_bytes: u64,
    /// From a file, so that no registry has it again. It goes only when somebody removes it.
    #[serde(default)]
    pub loaded: bool,
    pub pulled_at: Timestamp,
    /// When a container was last made of it.
    pub used_at: Timestamp,
    /// Who may use it.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

impl ImageRecord {
    /// Adds one that may use it.
    pub fn grant(&mut self, grant: Grant) {
        if !self.grants.contains(&grant) {
            self.grants.push(grant);
        }
    }
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageLayer {
    /// As the registry has it.
    pub blob: Digest,
    pub size_bytes: u64,
    pub compression: LayerCompression,
    /// Of its tar, by which the store has it unpacked.
    pub diff_id: Digest,
    /// Who gave it: who only knows its digest has no right to it.
    #[serde(default)]
    pub origins: Vec<Origin>,
}

impl ImageLayer {
    /// As manifests name it.
    pub fn layer(&self) -> Layer {
        let blob = crate::manifest::Blob { digest: self.blob.clone(), size: self.size_bytes };
        Layer { blob, compression: self.compression.into() }
    }
}

/// Where content came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// Somewhere that gives it to everybody, or a file.
    Public,
    /// A registry that gave it for a credential.
    Registry(String),
}

impl Origin {
    /// Tells it from others in the name of a file.
    pub(super) fn mark(&self) -> String {
        match self {
            Origin::Public => "public".to_owned(),
            Origin::Registry(host) => Digest::of(host.as_bytes()).hex().chars().take(MARK_DIGITS).collect(),
        }
    }

    /// Of what a registry gave.
    pub fn of(host: &str, with_credential: bool) -> Origin {
        if with_credential { Origin::Registry(host.to_owned()) } else { Origin::Public }
    }
}

/// How a layer's tar is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LayerCompression {
    Plain,
    Gzip,
    Zstd,
}

impl From<LayerCompression> for Compression {
    fn from(compression: LayerCompression) -> Compression {
        match compression {
            LayerCompression::Plain => Compression::Plain,
            LayerCompression::Gzip => Compression::Gzip,
            LayerCompression::Zstd => Compression::Zstd,
        }
    }
}

impl From<Compression> for LayerCompression {
    fn from(compression: Compression) -> LayerCompression {
        match compression {
            Compression::Plain => LayerCompression::Plain,
            Compression::Gzip => LayerCompression::Gzip,
            Compression::Zstd => LayerCompression::Zstd,
        }
    }
}

/// One that may use an image: whoever has a credential that a registry once took for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    pub registry: String,
    pub repository: String,
    /// What the credential is recognised by, not the credential. None is anybody.
    #[serde(default)]
    pub credential: Option<String>,
}

/// What the store remembers of an unpacked layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayerRecord {
    /// Bytes of its tar.
    pub tar_bytes: u64,
    /// Bytes that its files take on the disk, about.
    pub disk_bytes: u64,
    /// Files, folders and links.
    pub entries: u64,
    /// Devices that were left out.
    #[serde(default)]
    pub devices: u64,
    /// Which run of the kernel unpacked it, as long as not all of it is on the disk: a loss of power may have torn it.
    #[serde(default)]
    pub boot: Option<String>,
}
