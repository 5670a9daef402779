//! Images out of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use jiff::Timestamp;
use oci_spec::image::ImageIndex;
use serde::Deserialize;

use super::{ArchiveError, BLOBS, COPY_BYTES, DOCKER_LIST, INDEX, NAME, Parts, REFERENCE, make_manifest, put};
use crate::config::CONFIG_BYTES_MAX;
use crate::digest::Digest;
use crate::manifest::{
    self, ACCEPTED, Blob, Document, INDEX_DEPTH_MAX, LAYERS_MAX, Layer, MANIFEST_BYTES_MAX, ManifestError,
};
use crate::provide;
use crate::store::unpack::entries::{Entries, Entry, Kind};
use crate::store::unpack::stream::{self, Stream};
use crate::store::{ImageRecord, Lease, Store};

/// Files of an archive of images.
const FILES_MAX: usize = 20_000;
/// Links from one file of an archive to another.
const LINKS_MAX: usize = 4;

/// Takes all images of an archive into the store: what `docker save` writes, of every age, or an OCI layout, compressed or not.
/// `name` is what the image is called in place of what the archive says, if it has only one.
pub fn load(
    store: &Store,
    archive: impl Read,
    name: Option<&str>,
    now: Timestamp,
) -> Result<Vec<ImageRecord>, ArchiveError> {
    let mut loading = Loading { store, lease: store.lease(&[])?, files: BTreeMap::new() };
    loading.read(archive)?;
    let parts = match (loading.small(INDEX)?, loading.small(DOCKER_LIST)?) {
        (Some(index), list) => loading.of_layout(&index, list.as_deref(), name)?,
        (None, Some(list)) => loading.of_docker(&list, name)?,
        (None, None) => return Err(ArchiveError::NoImage),
    };
    let count = parts.iter().map(|parts| &parts.target).collect::<BTreeSet<_>>().len();
    if name.is_some() && count > 1 {
        return Err(ArchiveError::OneName { count });
    }
    parts.into_iter().map(|parts| put(store, &mut loading.lease, parts, now)).collect()
}

/// What an archive has by a name.
enum Found {
    /// As a blob in the store.
    File(Blob),
    /// Another file of the archive.
    Link(Vec<u8>),
}

struct Loading<'s> {
    store: &'s Store,
    lease: Lease,
    files: BTreeMap<Vec<u8>, Found>,
}

/// One image of Docker's list.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    config: String,
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Vec<String>,
}

impl Loading<'_> {
    /// Puts every file of the archive into the store, as a blob that nobody names yet.
    fn read(&mut self, archive: impl Read) -> Result<(), ArchiveError> {
        let limits = self.store.limits();
        let decompressed = stream::decompressed(archive, limits.window_log_max).map_err(ArchiveError::Read)?;
        let mut entries = Entries::new(Stream::new(decompressed, limits.image_bytes_max), limits);
        let mut buffer = vec![0; COPY_BYTES];
        while let Some(entry) = entries.next_entry().map_err(ArchiveError::Read)? {
            let Entry { name, kind, .. } = entry;
            let found = match kind {
                Kind::File => {
                    let mut spool = self.store.spool()?;
                    let mut data = entries.data();
                    loop {
                        let count = data.read(&mut buffer).map_err(stream::failure).map_err(ArchiveError::Read)?;
                        let Some(bytes @ [_, ..]) = buffer.get(..count) else { break };
                        spool.append(bytes)?;
                    }
                    Found::File(spool.finish(&mut self.lease)?)
                }
                Kind::HardLink(target) => Found::Link(target),
                Kind::SymbolicLink(target) => Found::Link(beside(&name, &target)),
                Kind::Folder | Kind::Fifo | Kind::Device { .. } => continue,
            };
            self.files.insert(name, found);
            if self.files.len() > FILES_MAX {
                return Err(ArchiveError::TooManyFiles { max: FILES_MAX });
            }
        }
        entries.into_stream().drain().map_err(ArchiveError::Read)
    }

    /// The images of an OCI layout that are for this machine.
    fn of_layout(&mut self, index: &[u8], list: Option<&[u8]>, name: Option<&str>) -> Result<Vec<Parts>, ArchiveError> {
        let index = ImageIndex::from_reader(index).map_err(ManifestError::Form)?;
        let listed = list.map(read_list).transpose()?.unwrap_or_default();
        let mut images = Vec::new();
        let mut refused = None;
        for descriptor in index.manifests() {
            if !ACCEPTED.contains(&descriptor.media_type().to_string().as_str()) {
                continue;
            }
            let digest: Digest = (descriptor.digest().to_string().parse())
                .map_err(|source| ManifestError::Digest { field: format!("{INDEX}: manifests"), source })?;
            let (manifest, image) = match self.follow(digest.clone()) {
                Ok(found) => found,
                // Of another machine, as beside one for this.
                Err(error @ ArchiveError::Manifest(ManifestError::Platform { .. })) => {
                    refused.get_or_insert(error);
                    continue;
                }
                // Tools leave out what is for other machines.
                Err(error @ ArchiveError::Missing { .. }) if descriptor.platform().is_some() => {
                    refused.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let config = self.in_layout(&image.config.digest)?;
            let layers = image.layers.into_iter().map(|layer| {
                let blob = self.in_layout(&layer.blob.digest)?;
                Ok(Layer { blob, ..layer })
            });
            let layers = layers.collect::<Result<Vec<_>, ArchiveError>>()?;
            let annotations = descriptor.annotations().clone().unwrap_or_default();
            let names = match name {
                Some(name) => vec![name.to_owned()],
                None => names(&annotations, &listed, &config.digest),
            };
            for name in whole(names)? {
                let (config, layers) = (config.clone(), layers.clone());
                images.push(Parts { name, target: digest.clone(), manifest: manifest.clone(), config, layers });
            }
        }
        if images.is_empty() {
            return Err(refused.unwrap_or(ArchiveError::NoImage));
        }
        Ok(images)
    }

    /// The manifest for this machine that a document of the layout leads to.
    fn follow(&self, mut digest: Digest) -> Result<(Digest, manifest::Manifest), ArchiveError> {
        for _ in 0..=INDEX_DEPTH_MAX {
            self.in_layout(&digest)?;
            let file = format!("{BLOBS}{}", digest.hex());
            let bytes = self.small(&file)?.ok_or(ArchiveError::Missing { file })?;
            match manifest::read(&bytes, None)? {
                Document::Image(image) => return Ok((digest, image)),
                Document::Chosen(blob) => digest = blob.digest,
            }
        }
        Err(ManifestError::Depth.into())
    }

    /// The images of what `docker save` writes, which has no manifests.
    fn of_docker(&mut self, list: &[u8], name: Option<&str>) -> Result<Vec<Parts>, ArchiveError> {
        let mut images = Vec::new();
        for listed in read_list(list)? {
            let count = listed.layers.len();
            if count > LAYERS_MAX {
                return Err(ManifestError::TooManyLayers { count }.into());
            }
            let config = self.file(listed.config.as_bytes())?;
            if config.size > CONFIG_BYTES_MAX {
                let file = printable(listed.config.as_bytes());
                return Err(ArchiveError::TooLarge { file, size: config.size, max: CONFIG_BYTES_MAX });
            }
            let mut layers = Vec::new();
            for file in &listed.layers {
                let blob = self.file(file.as_bytes())?;
                let mut start = [0; 4];
                let read = self.store.open_blob(&blob.digest)?.read(&mut start);
                let count =
                    read.map_err(|source| ArchiveError::Folder { action: "reading", path: file.clone(), source })?;
                let compression = stream::compression(start.get(..count).unwrap_or_default());
                layers.push(Layer { blob, compression });
            }
            let manifest = make_manifest(self.store, &mut self.lease, &config, &layers)?;
            let names = name.map_or_else(|| listed.repo_tags.unwrap_or_default(), |name| vec![name.to_owned()]);
            for name in whole(names)? {
                let (config, layers) = (config.clone(), layers.clone());
                images.push(Parts { name, target: manifest.clone(), manifest: manifest.clone(), config, layers });
            }
        }
        if images.is_empty() { Err(ArchiveError::NoImage) } else { Ok(images) }
    }

    /// A blob of the layout, which is what its name says.
    fn in_layout(&self, digest: &Digest) -> Result<Blob, ArchiveError> {
        let file = format!("{BLOBS}{}", digest.hex());
        let blob = self.file(file.as_bytes())?;
        if blob.digest == *digest { Ok(blob) } else { Err(ArchiveError::Digest { file, found: blob.digest }) }
    }

    /// A file of the archive, itself or by links.
    fn file(&self, name: &[u8]) -> Result<Blob, ArchiveError> {
        let mut at = name;
        for _ in 0..=LINKS_MAX {
            match self.files.get(at) {
                Some(Found::File(blob)) => return Ok(blob.clone()),
                Some(Found::Link(target)) => at = target,
                None => break,
            }
        }
        Err(ArchiveError::Missing { file: printable(name) })
    }

    /// The content of a document of the archive; none if it has none by this name.
    fn small(&self, name: &str) -> Result<Option<Vec<u8>>, ArchiveError> {
        if !self.files.contains_key(name.as_bytes()) {
            return Ok(None);
        }
        let blob = self.file(name.as_bytes())?;
        if blob.size > MANIFEST_BYTES_MAX {
            return Err(ArchiveError::TooLarge { file: name.to_owned(), size: blob.size, max: MANIFEST_BYTES_MAX });
        }
        Ok(self.store.manifest(&blob.digest)?)
    }
}

fn read_list(bytes: &[u8]) -> Result<Vec<Listed>, ArchiveError> {
    serde_json::from_slice(bytes).map_err(|source| ArchiveError::Json { file: DOCKER_LIST.to_owned(), source })
}

/// What an image is called, by whoever says so in full.
fn names(annotations: &std::collections::HashMap<String, String>, listed: &[Listed], config: &Digest) -> Vec<String> {
    // Not every tool writes more than a tag.
    let reference = annotations.get(REFERENCE).filter(|name| name.contains(['/', ':']));
    if let Some(name) = annotations.get(NAME).or(reference) {
        return vec![name.clone()];
    }
    let is_it = |listed: &&Listed| listed.config.contains(config.hex());
    listed.iter().filter(is_it).flat_map(|listed| listed.repo_tags.clone().unwrap_or_default()).collect()
}

fn whole(names: Vec<String>) -> Result<BTreeSet<String>, ArchiveError> {
    if names.is_empty() {
        return Err(ArchiveError::NoName);
    }
    names.iter().map(|name| Ok(provide::parse(name)?.whole())).collect()
}

/// The name that a link in an archive leads to; one that leads out of it leads to nothing.
fn beside(link: &[u8], target: &[u8]) -> Vec<u8> {
    let slash = |byte: &u8| *byte == b'/';
    let mut names: Vec<&[u8]> = link.split(slash).collect();
    names.pop();
    for name in target.split(slash) {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join(&b'/')
}

fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(200).collect()
}
