//! Images into a file.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use serde_json::json;
use tar::{Builder, EntryType, Header};

use super::{ArchiveError, BLOBS, DOCKER_LIST, INDEX, LAYOUT, NAME, REFERENCE};
use crate::digest::{Digest, HashingReader};
use crate::manifest;
use crate::store::{ImageRecord, Store, StoreError};

/// Writes images as an OCI layout, with the list by which Docker reads it. The same images give the same bytes.
pub fn save(store: &Store, images: &[ImageRecord], to: impl Write) -> Result<(), ArchiveError> {
    let mut manifests = Vec::new();
    let mut list = Vec::new();
    for image in images {
        let missing = || StoreError::Missing { digest: image.manifest.clone() };
        let bytes = store.manifest(&image.manifest)?.ok_or_else(missing)?;
        let kind =
            manifest::kind(&bytes).map_err(|source| ArchiveError::Json { file: image.manifest.to_string(), source })?;
        let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        manifests.push(json!({
            "mediaType": kind,
            "digest": image.manifest,
            "size": bytes.len(),
            "annotations": {(NAME): image.name, (REFERENCE): tag},
        }));
        let path = |digest: &Digest| format!("{BLOBS}{}", digest.hex());
        let layers: Vec<_> = image.layers.iter().map(|layer| path(&layer.blob)).collect();
        list.push(json!({"Config": path(&image.config), "RepoTags": [image.name], "Layers": layers}));
    }
    let blobs: BTreeSet<&Digest> = (images.iter())
        .flat_map(|image| {
            let layers = image.layers.iter().map(|layer| &layer.blob);
            [&image.manifest, &image.config].into_iter().chain(layers)
        })
        .collect();
    if let Some(digest) = blobs.iter().find(|digest| !store.has_blob(digest)) {
        return Err(StoreError::Missing { digest: (*digest).clone() }.into());
    }
    let mut archive = Builder::new(to);
    append(&mut archive, LAYOUT, json!({"imageLayoutVersion": "1.0.0"}).to_string().as_bytes())?;
    let index = json!({"schemaVersion": 2, "mediaType": manifest::OCI_INDEX, "manifests": manifests});
    append(&mut archive, INDEX, index.to_string().as_bytes())?;
    append(&mut archive, DOCKER_LIST, json!(list).to_string().as_bytes())?;
    for folder in ["blobs/", BLOBS] {
        let mut header = header(0, EntryType::Directory);
        archive.append_data(&mut header, folder, io::empty()).map_err(ArchiveError::Write)?;
    }
    for digest in blobs {
        append_blob(&mut archive, store, digest)?;
    }
    let mut to = archive.into_inner().map_err(ArchiveError::Write)?;
    to.flush().map_err(ArchiveError::Write)
}

fn append(archive: &mut Builder<impl Write>, name: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
    let mut header = header(u64::try_from(bytes.len()).unwrap_or(u64::MAX), EntryType::Regular);
    archive.append_data(&mut header, name, bytes).map_err(ArchiveError::Write)
}

/// Looks at the blob's digest once more, now that it is read anyway.
fn append_blob(archive: &mut Builder<impl Write>, store: &Store, digest: &Digest) -> Result<(), ArchiveError> {
    let file = store.open_blob(digest)?;
    let size = file.metadata().map_err(ArchiveError::Write)?.len();
    let mut header = header(size, EntryType::Regular);
    let mut reader = HashingReader::new(file.take(size));
    let name = format!("{BLOBS}{}", digest.hex());
    archive.append_data(&mut header, name, &mut reader).map_err(ArchiveError::Write)?;
    if reader.finish() == *digest { Ok(()) } else { Err(StoreError::Damaged { digest: digest.clone() }.into()) }
}

fn header(size: u64, kind: EntryType) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(if kind == EntryType::Directory { 0o755 } else { 0o644 });
    header
}
