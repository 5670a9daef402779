//! Manifests and indexes: what an image consists of, and which of several is for this machine.

use oci_spec::image::{Arch, Descriptor, ImageIndex, ImageManifest, MediaType, Os, Platform};
use serde::Deserialize;

use crate::digest::{Digest, DigestError};

/// Largest manifest or index that is read, in bytes: what registries take.
pub const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Most layers of an image: what the kernel lays over each other.
pub const LAYERS_MAX: usize = 127;
/// Indexes within indexes that are followed.
pub const INDEX_DEPTH_MAX: usize = 3;

/// What is asked for, best first.
pub const ACCEPTED: [&str; 4] = [OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST];
/// Several manifests, each for a platform, by the image specification.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// A manifest by the image specification.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Several manifests, each for a platform, as Docker wrote them before.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// A manifest as Docker wrote it before.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// Why a document names no image that can run here.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// More bytes than are read.
    #[error("the manifest has {size} bytes; {MANIFEST_BYTES_MAX} are read at most")]
    TooLarge { size: u64 },
    /// Not JSON of the right form.
    #[error("the manifest is not one")]
    Parse(#[source] serde_json::Error),
    #[error("the manifest is not one")]
    Form(#[source] oci_spec::OciSpecError),
    /// The first version of manifests, or another document.
    #[error("the manifest is of the kind {kind:?}, which is not an image's; push the image again with a tool of today")]
    Kind { kind: String },
    #[error("the manifest's {field} is of no use")]
    Digest {
        field: String,
        #[source]
        source: DigestError,
    },
    #[error("the image has {count} layers; {LAYERS_MAX} are mounted at most")]
    TooManyLayers { count: usize },
    /// A layer that no container can mount.
    #[error(
        "layers[{index}] of the manifest is of the kind {kind:?}; tar, alone or compressed with gzip or zstd, is mounted"
    )]
    LayerKind { index: usize, kind: String },
    /// None of an index's.
    #[error("the image is not for {wanted}; it is for {}: take another tag, or build it for {wanted}", list(.found))]
    Platform { wanted: String, found: Vec<String> },
    #[error("indexes of the image lie in each other more than {INDEX_DEPTH_MAX} deep")]
    Depth,
}

/// Of which kind a manifest says that it is; without a word, of the image specification's.
pub(crate) fn kind(bytes: &[u8]) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        media_type: Option<String>,
    }
    let kind: Kind = serde_json::from_slice(bytes)?;
    Ok(kind.media_type.unwrap_or_else(|| OCI_MANIFEST.to_owned()))
}

fn list(found: &[String]) -> String {
    if found.is_empty() { "no machine".to_owned() } else { found.join(", ") }
}

/// A part of an image by its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub digest: Digest,
    /// In bytes.
    pub size: u64,
}

/// How a layer's tar is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Plain,
    Gzip,
    Zstd,
}

/// One layer as a registry has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    pub blob: Blob,
    pub compression: Compression,
}

/// What an image for one platform consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub config: Blob,
    /// The lowest first.
    pub layers: Vec<Layer>,
}

/// What a name or digest stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    Image(Manifest),
    /// Another manifest, the best of an index for this machine.
    Chosen(Blob),
}

/// What tells the kinds of documents apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    media_type: Option<String>,
    schema_version: Option<u32>,
    config: Option<serde::de::IgnoredAny>,
    manifests: Option<serde::de::IgnoredAny>,
}

/// Reads a manifest or an index. What the document says of its own kind counts more than the kind that it was sent as.
pub fn read(bytes: &[u8], sent_as: Option<&str>) -> Result<Document, ManifestError> {
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size > MANIFEST_BYTES_MAX {
        return Err(ManifestError::TooLarge { size });
    }
    let kind: Kind = serde_json::from_slice(bytes).map_err(ManifestError::Parse)?;
    let named = kind.media_type.as_deref().or(sent_as.filter(|sent| ACCEPTED.contains(sent)));
    match named {
        Some(OCI_INDEX | DOCKER_LIST) if kind.config.is_none() => index(bytes),
        Some(OCI_MANIFEST | DOCKER_MANIFEST) if kind.manifests.is_none() => image(bytes),
        None if kind.schema_version == Some(2) && kind.config.is_none() && kind.manifests.is_some() => index(bytes),
        None if kind.schema_version == Some(2) && kind.config.is_some() && kind.manifests.is_none() => image(bytes),
        other => {
            let kind = other.or(sent_as).unwrap_or("unknown");
            Err(ManifestError::Kind { kind: kind.chars().take(100).collect() })
        }
    }
}

fn image(bytes: &[u8]) -> Result<Document, ManifestError> {
    let manifest = ImageManifest::from_reader(bytes).map_err(ManifestError::Form)?;
    let count = manifest.layers().len();
    if count > LAYERS_MAX {
        return Err(ManifestError::TooManyLayers { count });
    }
    let config = blob(manifest.config(), || "config.digest".to_owned())?;
    let layers = manifest.layers().iter().enumerate().map(|(index, layer)| {
        let blob = blob(layer, || format!("layers[{index}].digest"))?;
        let kind = layer.media_type().to_string();
        let compression = compression(&kind).ok_or(ManifestError::LayerKind { index, kind })?;
        Ok(Layer { blob, compression })
    });
    Ok(Document::Image(Manifest { config, layers: layers.collect::<Result<_, _>>()? }))
}

fn blob(descriptor: &Descriptor, field: impl Fn() -> String) -> Result<Blob, ManifestError> {
    let digest = descriptor.digest().to_string().parse();
    let digest = digest.map_err(|source| ManifestError::Digest { field: field(), source })?;
    Ok(Blob { digest, size: descriptor.size() })
}

/// By the kinds of OCI and of Docker; layers that may not be handed on are layers all the same.
fn compression(kind: &str) -> Option<Compression> {
    match kind {
        "application/vnd.oci.image.layer.v1.tar" | "application/vnd.oci.image.layer.nondistributable.v1.tar" => {
            Some(Compression::Plain)
        }
        "application/vnd.docker.image.rootfs.diff.tar" => Some(Compression::Plain),
        "application/vnd.oci.image.layer.v1.tar+gzip"
        | "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
        | "application/vnd.docker.image.rootfs.diff.tar.gzip"
        | "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" => Some(Compression::Gzip),
        "application/vnd.oci.image.layer.v1.tar+zstd"
        | "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
        | "application/vnd.docker.image.rootfs.diff.tar.zstd" => Some(Compression::Zstd),
        _ => None,
    }
}

fn index(bytes: &[u8]) -> Result<Document, ManifestError> {
    let index = ImageIndex::from_reader(bytes).map_err(ManifestError::Form)?;
    let here = machine();
    let is_image = |kind: &MediaType| ACCEPTED.contains(&kind.to_string().as_str());
    let candidates: Vec<_> =
        index.manifests().iter().enumerate().filter(|(_, candidate)| is_image(candidate.media_type())).collect();
    // The first of those that fit as well as the best.
    let best = candidates.iter().filter_map(|(at, candidate)| {
        let rank = match candidate.platform() {
            Some(platform) => rank(platform, &here)?,
            // Nobody says for whom it is: its config will.
            None => 0,
        };
        Some((rank, std::cmp::Reverse(*at), candidate))
    });
    let Some((_, std::cmp::Reverse(at), chosen)) = best.max_by_key(|(rank, at, _)| (*rank, *at)) else {
        let found = candidates.iter().filter_map(|(_, candidate)| candidate.platform().as_ref());
        let found = found.filter(|platform| platform.os().to_string() != "unknown").map(text).take(20).collect();
        return Err(ManifestError::Platform { wanted: text(&here), found });
    };
    Ok(Document::Chosen(blob(chosen, || format!("manifests[{at}].digest"))?))
}

/// How well an image for this platform runs on `here`; none where it does not. Without a variant it is for the first of them.
fn rank(platform: &Platform, here: &Platform) -> Option<u32> {
    if platform.os() != here.os() || platform.architecture() != here.architecture() {
        return None;
    }
    let variant = |platform: &Platform| -> Option<u32> {
        platform.variant().as_ref().map_or(Some(0), |variant| variant.trim_start_matches('v').parse().ok())
    };
    // This machine's own newest variant is not known: what all of its kind run is taken.
    let most = match here.architecture() {
        Arch::ARM64 => 8,
        _ => 1,
    };
    variant(platform).filter(|variant| *variant <= most).map(|variant| variant + 1)
}

/// The platform that images must be for.
pub fn machine() -> Platform {
    let mut platform = Platform::default();
    platform.set_os(Os::Linux);
    platform.set_architecture(match std::env::consts::ARCH {
        "x86_64" => Arch::Amd64,
        "aarch64" => Arch::ARM64,
        other => Arch::Other(other.to_owned()),
    });
    platform
}

/// As `docker` writes it, such as `linux/arm64/v8`.
pub fn text(platform: &Platform) -> String {
    let variant = platform.variant().as_ref().map_or_else(String::new, |variant| format!("/{variant}"));
    format!("{}/{}{variant}", platform.os(), platform.architecture())
}
