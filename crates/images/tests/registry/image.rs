//! Images made by the test.

use std::io::Write as _;

use pumice_images::digest::Digest;
use pumice_images::manifest::{OCI_INDEX, OCI_MANIFEST, machine};
use serde_json::{Value, json};

/// How a layer is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed {
    Plain,
    Gzip,
    Zstd,
}

impl Packed {
    fn kind(self) -> String {
        let ending = match self {
            Packed::Plain => "",
            Packed::Gzip => "+gzip",
            Packed::Zstd => "+zstd",
        };
        format!("application/vnd.oci.image.layer.v1.tar{ending}")
    }

    pub fn pack(self, tar: &[u8]) -> Vec<u8> {
        match self {
            Packed::Plain => tar.to_vec(),
            Packed::Gzip => {
                let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                packed.write_all(tar).unwrap();
                packed.finish().unwrap()
            }
            Packed::Zstd => zstd::encode_all(tar, 1).unwrap(),
        }
    }
}

/// An image as a registry has it.
#[derive(Debug, Clone)]
pub struct Image {
    pub kind: &'static str,
    pub manifest: Vec<u8>,
    pub config: Vec<u8>,
    pub layers: Vec<Vec<u8>>,
}

impl Image {
    pub fn new(layers: &[(Packed, Vec<u8>)]) -> Image {
        let diff_ids: Vec<_> = layers.iter().map(|(_, tar)| Digest::of(tar)).collect();
        let packed: Vec<_> = layers.iter().map(|(packed, tar)| (packed.kind(), packed.pack(tar))).collect();
        Image::of_parts(&packed, &diff_ids)
    }

    /// Of layers by their kind, and of what the configuration says they are when unpacked.
    pub fn of_parts(layers: &[(String, Vec<u8>)], diff_ids: &[Digest]) -> Image {
        let here = machine();
        let config = json!({
            "os": "linux", "architecture": here.architecture().to_string(), "config": {"Cmd": ["/bin/true"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}});
        let config = config.to_string().into_bytes();
        let descriptors: Vec<_> = layers.iter().map(|(kind, content)| descriptor(kind, content)).collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config), "layers": descriptors});
        let layers = layers.iter().map(|(_, content)| content.clone()).collect();
        Image { kind: OCI_MANIFEST, manifest: manifest.to_string().into_bytes(), config, layers }
    }

    /// One file with this content, in one layer.
    pub fn small(content: &str) -> Image {
        Image::new(&[(Packed::Gzip, tar(&[("file", content.as_bytes())]))])
    }

    /// One file that can't be compressed.
    pub fn large(bytes: usize) -> Image {
        Image::new(&[(Packed::Gzip, tar(&[("file", &noise(bytes))]))])
    }

    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    pub fn layer_digest(&self) -> Digest {
        Digest::of(&self.layers[0])
    }

    pub fn layer_path(&self) -> String {
        format!("/blobs/{}", self.layer_digest())
    }

    pub fn config_path(&self) -> String {
        format!("/blobs/{}", Digest::of(&self.config))
    }

    /// What a registry has at a path that ends in this.
    pub fn part(&self, path: &str) -> &[u8] {
        let parts = [&self.manifest, &self.config, &self.layers[0]];
        parts.into_iter().find(|part| path.contains(&Digest::of(part).to_string())).unwrap()
    }

    pub fn diff_id(&self) -> Digest {
        let config: Value = serde_json::from_slice(&self.config).unwrap();
        config["rootfs"]["diff_ids"][0].as_str().unwrap().parse().unwrap()
    }

    /// With another manifest.
    pub fn change(&mut self, change: impl FnOnce(&mut Value)) {
        let mut manifest = serde_json::from_slice(&self.manifest).unwrap();
        change(&mut manifest);
        self.manifest = manifest.to_string().into_bytes();
    }
}

pub fn descriptor(kind: &str, content: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": Digest::of(content), "size": content.len()})
}

/// An index of manifests, each with its platform as `linux/amd64`.
pub fn index(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let entries = entries.iter().map(|(platform, manifest)| {
        let mut entry = descriptor(OCI_MANIFEST, manifest);
        let (os, architecture) = platform.split_once('/').unwrap();
        entry["platform"] = json!({"os": os, "architecture": architecture});
        entry
    });
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries.collect::<Vec<_>>()});
    index.to_string().into_bytes()
}

pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(content.len()).unwrap());
        header.set_mode(0o644);
        archive.append_data(&mut header, name, *content).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Bytes that are the same each time and can't be compressed.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
