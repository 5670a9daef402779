//! What goes when room is needed, or when somebody tidies up.
//!
//! Rules: what a pod uses and what a lease names stays. Blobs and layers that no image has go at once. When the disk is fuller
//! than the high mark, images go, those first that were not used for the longest, until it is down to the low mark, as with a
//! kubelet; not those that came from a file, which no registry has again, nor those that came a moment ago.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};

use super::error::{StoreError, io_error};
use super::room::Usage;
use super::{BLOB, BLOBS, ImageRecord, JSON, LAYER, LAYERS, PARTIAL, SetAside, Store, WHOLE};
use crate::digest::Digest;

/// How long an image stays that no pod has used yet, as with a kubelet.
const AGE_MIN: SignedDuration = SignedDuration::from_mins(2);
/// How long a broken download can be gone on with.
const PARTIAL_AGE_MAX: SignedDuration = SignedDuration::from_hours(24);

/// How far a pruning goes: which images are given up besides content that none has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// None: only content that no image has.
    Unnamed,
    /// Those that bring the disk down from the high mark to the low one.
    Marks,
    /// All that no pod uses.
    Unused,
}

/// What a pruning removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// By the names that they had.
    pub images: Vec<String>,
    pub blobs: u64,
    pub layers: u64,
    /// Room on the disk that was given back, about.
    pub bytes: u64,
    /// Bytes on the disk above the low mark that pods, files and images in use have.
    pub bytes_above: u64,
}

impl Store {
    /// Removes what nobody needs. `in_use` says of manifests, blobs and unpacked layers whether a pod has them.
    pub fn prune(
        &self,
        extent: Extent,
        in_use: &dyn Fn(&Digest) -> bool,
        now: Timestamp,
    ) -> Result<Pruned, StoreError> {
        let mut aside = Vec::new();
        let pruned = self.set_aside(extent, in_use, now, &mut aside);
        // Large trees take a while, in which others may use the store.
        aside.into_iter().try_for_each(SetAside::remove)?;
        pruned
    }

    fn set_aside(
        &self,
        extent: Extent,
        in_use: &dyn Fn(&Digest) -> bool,
        now: Timestamp,
        aside: &mut Vec<SetAside>,
    ) -> Result<Pruned, StoreError> {
        let _whole = self.lock(WHOLE)?;
        let leased = self.leased()?;
        let stays = |digest: &Digest| leased.contains(digest) || in_use(digest);
        let mut images = self.images()?;
        let mut pruned = Pruned::default();
        self.remove_old_downloads(now)?;
        self.remove_damaged_records()?;
        aside.extend(self.remove_unnamed(&images, &stays, &mut pruned)?);
        let mut candidates: Vec<ImageRecord> = match extent {
            Extent::Unnamed => Vec::new(),
            Extent::Unused => images.clone(),
            Extent::Marks => images.iter().filter(|image| !image.loaded).cloned().collect(),
        };
        candidates.retain(|image| !stays(&image.manifest) && !stays(&image.config));
        let mut wanted = 0;
        if extent == Extent::Marks {
            candidates.retain(|image| now.duration_since(image.pulled_at) >= AGE_MIN);
            candidates.sort_by(|a, b| (a.used_at, &a.name).cmp(&(b.used_at, &b.name)));
            let usage = Usage::of(&self.dir)?;
            if usage.above(self.limits.high_percent) == 0 {
                return Ok(pruned);
            }
            wanted = usage.above(self.limits.low_percent);
        }
        let before = pruned.bytes;
        for image in candidates {
            if extent == Extent::Marks && pruned.bytes - before >= wanted {
                break;
            }
            self.remove_image_record(&image.name)?;
            images.retain(|other| other.name != image.name);
            aside.extend(self.remove_unnamed(&images, &stays, &mut pruned)?);
            pruned.images.push(image.name);
        }
        pruned.bytes_above = wanted.saturating_sub(pruned.bytes - before);
        Ok(pruned)
    }

    /// Removes blobs and layers that none of the images has.
    fn remove_unnamed(
        &self,
        images: &[ImageRecord],
        stays: &dyn Fn(&Digest) -> bool,
        pruned: &mut Pruned,
    ) -> Result<Vec<SetAside>, StoreError> {
        let mut aside = Vec::new();
        let named: BTreeSet<&Digest> = (images.iter())
            .flat_map(|image| {
                let layers = image.layers.iter().flat_map(|layer| [&layer.blob, &layer.diff_id]);
                [&image.manifest, &image.config].into_iter().chain(layers)
            })
            .collect();
        for (digest, path) in self.digests(BLOBS, "")? {
            if named.contains(&digest) || stays(&digest) {
                continue;
            }
            let bytes = fs::metadata(&path).map_or(0, |found| found.len());
            self.remove_blob(&digest)?;
            pruned.blobs += 1;
            pruned.bytes += bytes;
        }
        for (digest, _) in self.digests(LAYERS, "")? {
            if named.contains(&digest) || stays(&digest) {
                continue;
            }
            pruned.bytes += self.layer_record(&digest).ok().flatten().map_or(0, |found| found.disk_bytes);
            aside.push(self.set_layer_aside(&digest)?);
            pruned.layers += 1;
        }
        self.remove_origins(stays)?;
        // Of a crash just before the layer got its name.
        for (digest, path) in self.digests(LAYERS, JSON)? {
            let is_free = || self.lock_if_free(&format!("{LAYER}{}", digest.hex()));
            if !self.layer_dir(&digest).is_dir() && is_free()?.is_some() {
                fs::remove_file(&path).map_err(io_error("removing", &path))?;
            }
        }
        Ok(aside)
    }

    fn remove_old_downloads(&self, now: Timestamp) -> Result<(), StoreError> {
        for (name, path) in self.entries(PARTIAL)? {
            if !name.starts_with(BLOB) {
                continue;
            }
            let changed = fs::metadata(&path).and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            let is_old = Timestamp::try_from(changed).is_ok_and(|at| now.duration_since(at) > PARTIAL_AGE_MAX);
            if is_old && let Some(_lock) = self.lock_if_free(&name)? {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(io_error("removing", &path)(error));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A record that can't be read names nothing.
    fn remove_damaged_records(&self) -> Result<(), StoreError> {
        for (_, path) in self.entries(super::IMAGES)? {
            if let Err(StoreError::Record { .. }) = super::read_record::<ImageRecord>(&path) {
                fs::remove_file(&path).map_err(io_error("removing", &path))?;
            }
        }
        Ok(())
    }
}
