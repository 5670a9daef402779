//! The images of a machine, by their content.
//!
//! ```text
//!  blobs/<hex>          manifests, configurations, layers, as a registry has them
//!  layers/<hex>         a layer unpacked, by the digest of its tar; <hex>.json says what it takes
//!  images/<hex>.json    what a name stands for; <hex> is of the name
//!  partial/             what is not complete: downloads, layers being unpacked, what is being removed
//!  origins/<hex>.json   who gave a blob
//!  locks/, leases/      who is at what, and what must stay though no image has it yet
//! ```
//!
//! *Invariant*: what has its name in `blobs` or `layers` is complete and is what its digest says; whatever a crash leaves half done
//! lies in `partial`. Blobs are on the disk when they get their names. A layer may be used before it is; it counts until the
//! machine starts anew, or for good once it is ([`Store::settle`]). Several processes may have the same folder open. Nothing here is asynchronous.
//! *Called by*: pulling, archives, the node agent, `pumice image`.

mod download;
mod error;
mod leases;
mod limits;
mod locks;
mod origins;
mod prune;
mod record;
mod room;
mod spool;
pub mod unpack;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use pumice_linux::files::{self, Durability, private_dir};

pub use self::download::{Begun, Download};
pub use self::error::StoreError;
pub use self::leases::Lease;
pub use self::limits::Limits;
pub use self::prune::{Extent, Pruned};
pub use self::record::{Grant, ImageLayer, ImageRecord, LayerCompression, LayerRecord, Origin};
pub use self::spool::Spool;
pub use self::unpack::Owners;

use self::error::io_error;
use self::locks::Lock;
use self::room::Reserve;

use crate::digest::Digest;
use crate::manifest::Layer;

const BLOBS: &str = "blobs";
const LAYERS: &str = "layers";
const IMAGES: &str = "images";
const PARTIAL: &str = "partial";
const LOCKS: &str = "locks";
const LEASES: &str = "leases";
const ORIGINS: &str = "origins";
/// The lock of everything that is no single blob or layer.
const WHOLE: &str = "whole";
/// What records and the like end in.
const JSON: &str = ".json";
/// What names in `partial` and `locks` begin with: a blob, a layer being unpacked, what is being removed, and content whose digest
/// is not known yet.
const BLOB: &str = "blob-";
const LAYER: &str = "layer-";
const REMOVED: &str = "removed-";
const SPOOL: &str = "spool-";
/// What is another each time the machine starts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Largest record that is read, in bytes.
const RECORD_BYTES_MAX: u64 = 4 << 20;

/// What came of unpacking a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unpacking {
    /// The blob is what the layer is called.
    Done,
    /// Of another blob, maybe, with which the one at hand was not compared.
    WasThere,
}

/// The images of a machine.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    limits: Limits,
    owners: Owners,
    /// Which run of the kernel this is.
    boot: String,
    /// Makes names in `partial`.
    counter: AtomicU64,
}

impl Store {
    /// Opens the store in this folder, which is made for this user only. What a crash left half done is removed, unless
    /// somebody is at it.
    pub fn open(dir: &Path, limits: Limits) -> Result<Store, StoreError> {
        private_dir(dir).map_err(io_error("making", dir))?;
        let dir = dir.canonicalize().map_err(io_error("opening", dir))?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).map_err(io_error("closing to others", &dir))?;
        let boot = fs::read_to_string(BOOT_ID).map_err(io_error("reading", Path::new(BOOT_ID)))?.trim().to_owned();
        let store = Store { dir, limits, owners: Owners::of_this_process(), boot, counter: AtomicU64::new(0) };
        for name in [BLOBS, LAYERS, IMAGES, PARTIAL, LOCKS, LEASES, ORIGINS] {
            let folder = store.dir.join(name);
            private_dir(&folder).map_err(io_error("making", &folder))?;
        }
        store.remove_half_done()?;
        Ok(store)
    }

    /// The same, with owners of files as in another process: this one's for all where it isn't root.
    #[doc(hidden)]
    pub fn with_owners(self, owners: Owners) -> Store {
        Store { owners, ..self }
    }

    /// How much it takes in.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A manifest, an index or a configuration; none if it isn't there, or was damaged and is removed.
    pub fn manifest(&self, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.blob_path(digest);
        let bytes = match files::read_bounded(&path, crate::manifest::MANIFEST_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("reading", &path)(error)),
        };
        if Digest::of(&bytes) == *digest {
            return Ok(Some(bytes));
        }
        self.remove_damaged(digest)?;
        Ok(None)
    }

    /// Takes in a manifest, an index or a configuration.
    pub fn put_small(&self, digest: &Digest, bytes: &[u8]) -> Result<(), StoreError> {
        let found = Digest::of(bytes);
        if found != *digest {
            return Err(StoreError::Digest { expected: digest.clone(), found });
        }
        if self.has_blob(digest) {
            return Ok(());
        }
        let mut spool = self.spool()?;
        spool.append(bytes)?;
        spool.put().map(|_| ())
    }

    /// Whether this blob is there.
    pub fn has_blob(&self, digest: &Digest) -> bool {
        self.blob_path(digest).is_file()
    }

    /// Opens a blob that is there, to be read.
    pub fn open_blob(&self, digest: &Digest) -> Result<File, StoreError> {
        let path = self.blob_path(digest);
        File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Missing { digest: digest.clone() },
            _ => io_error("opening", &path)(error),
        })
    }

    /// Bytes of a blob that is there.
    pub fn blob_size(&self, digest: &Digest) -> Option<u64> {
        Some(fs::metadata(self.blob_path(digest)).ok()?.len())
    }

    /// Removes a blob that was found to be another than its digest says.
    pub fn remove_damaged(&self, digest: &Digest) -> Result<(), StoreError> {
        tracing::warn!(%digest, "a blob was damaged on the disk and is removed");
        self.remove_blob(digest)
    }

    /// Whether this layer is there, unpacked.
    pub fn has_layer(&self, diff_id: &Digest) -> bool {
        let is_whole = |record: LayerRecord| record.boot.is_none_or(|boot| boot == self.boot);
        self.layer_dir(diff_id).is_dir() && self.layer_record(diff_id).is_ok_and(|record| record.is_some_and(is_whole))
    }

    /// Where a layer is, or would be, unpacked.
    pub fn layer_dir(&self, diff_id: &Digest) -> PathBuf {
        self.dir.join(LAYERS).join(diff_id.hex())
    }

    /// What the store remembers of an unpacked layer.
    pub fn layer_record(&self, diff_id: &Digest) -> Result<Option<LayerRecord>, StoreError> {
        read_record(&self.layer_record_path(diff_id))
    }

    /// Unpacks a layer whose blob is there, once: waits as long as somebody else unpacks the same one. A layer that can't be
    /// unpacked, or is another than `diff_id`, leaves nothing.
    pub fn unpack(&self, layer: &Layer, diff_id: &Digest) -> Result<Unpacking, StoreError> {
        if self.has_layer(diff_id) {
            return Ok(Unpacking::WasThere);
        }
        let name = format!("{LAYER}{}", diff_id.hex());
        let _lock = self.lock(&name)?;
        if self.has_layer(diff_id) {
            return Ok(Unpacking::WasThere);
        }
        let digest = &layer.blob.digest;
        let mut blob = self.open_blob(digest)?;
        let work = self.dir.join(PARTIAL).join(name);
        files::remove(&work).map_err(io_error("removing", &work))?;
        let unpacked = self.unpack_in(&work, &blob, layer, diff_id);
        if unpacked.is_err() {
            files::remove(&work).map_err(io_error("removing", &work))?;
        }
        if let Err(StoreError::Layer { .. } | StoreError::DiffId { .. }) = &unpacked {
            // Is it the image, or the disk?
            let path = self.blob_path(digest);
            io::Seek::rewind(&mut blob).map_err(io_error("reading", &path))?;
            if download::digest_of(&mut blob).map_err(io_error("reading", &path))? != *digest {
                self.remove_blob(digest)?;
                return Err(StoreError::Damaged { digest: digest.clone() });
            }
        }
        unpacked.map(|()| Unpacking::Done)
    }

    /// Compares a blob that is there with the unpacked layer that it is said to be: who has the one may have the other then.
    pub fn check_layer(&self, layer: &Layer, diff_id: &Digest) -> Result<(), StoreError> {
        let digest = || layer.blob.digest.clone();
        let blob = self.open_blob(&layer.blob.digest)?;
        let found = unpack::diff_id(&blob, &self.limits);
        let found = found.map_err(|source| StoreError::Layer { blob: digest(), source })?;
        if found == *diff_id {
            return Ok(());
        }
        Err(StoreError::DiffId { blob: digest(), expected: diff_id.clone(), found })
    }

    fn unpack_in(&self, work: &Path, blob: &File, layer: &Layer, diff_id: &Digest) -> Result<(), StoreError> {
        private_dir(work).map_err(io_error("making", work))?;
        let job = unpack::Job { work, limits: &self.limits, owners: self.owners, reserve: self.reserve() };
        let unpacked = unpack::unpack(blob, job).map_err(|error| match error {
            unpack::Failure::Store(error) => error,
            unpack::Failure::Layer(source) => StoreError::Layer { blob: layer.blob.digest.clone(), source },
        })?;
        if unpacked.diff_id != *diff_id {
            let blob = layer.blob.digest.clone();
            return Err(StoreError::DiffId { blob, expected: diff_id.clone(), found: unpacked.diff_id });
        }
        // A folder without its record, or the other way round, is none of ours.
        self.remove_layer(diff_id)?;
        // Whoever waits for the layer doesn't wait for the disk.
        let record = LayerRecord { boot: Some(self.boot.clone()), ..unpacked.record };
        write_record(&self.layer_record_path(diff_id), &record, Durability::Process)?;
        let target = self.layer_dir(diff_id);
        fs::rename(work.join(unpack::ROOT), &target).map_err(io_error("renaming to", &target))?;
        files::remove(work).map_err(io_error("removing", work))
    }

    /// Brings all layers to the disk, so that they are there when the machine starts anew, and says how many were not. It takes
    /// as long as the disk does for all that anybody wrote: not for those who wait for a container.
    pub fn settle(&self) -> Result<u64, StoreError> {
        let is_new = |digest: &Digest| self.layer_record(digest).is_ok_and(|it| it.is_some_and(|it| it.boot.is_some()));
        let identity = |digest: &Digest| fs::metadata(self.layer_dir(digest)).ok().map(|found| found.ino());
        let mut layers = self.digests(LAYERS, JSON)?;
        layers.retain(|(digest, _)| self.has_layer(digest) && is_new(digest));
        let layers: Vec<_> = layers.into_iter().map(|(digest, _)| (identity(&digest), digest)).collect();
        if layers.is_empty() {
            return Ok(0);
        }
        let folder = File::open(&self.dir).map_err(io_error("opening", &self.dir))?;
        // One call for all files, each of which would wait for the disk by itself.
        nix::unistd::syncfs(&folder).map_err(error::errno_error("writing to the disk of", &self.dir))?;
        let mut settled = 0;
        for (found, digest) in &layers {
            let _lock = self.lock(&format!("{LAYER}{}", digest.hex()))?;
            // It may have been removed meanwhile, and unpacked again.
            let is_same = identity(digest) == *found && self.has_layer(digest);
            let Some(record) = self.layer_record(digest)?.filter(|_| is_same) else { continue };
            write_record(&self.layer_record_path(digest), &LayerRecord { boot: None, ..record }, Durability::Power)?;
            settled += 1;
        }
        Ok(settled)
    }

    /// All images, by their names.
    pub fn images(&self) -> Result<Vec<ImageRecord>, StoreError> {
        let mut records = Vec::new();
        for (name, path) in self.entries(IMAGES)? {
            if !name.ends_with(JSON) {
                continue;
            }
            match read_record::<ImageRecord>(&path) {
                Ok(record) => records.extend(record),
                Err(StoreError::Record { path, source }) => {
                    tracing::warn!(path = %path.display(), %source, "passing over a damaged record of an image");
                }
                Err(error) => return Err(error),
            }
        }
        records.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(records)
    }

    /// The image by this name.
    pub fn image(&self, name: &str) -> Result<Option<ImageRecord>, StoreError> {
        Ok(read_record::<ImageRecord>(&self.image_path(name))?.filter(|record| record.name == name))
    }

    /// Makes a name stand for this image, whose content is there.
    pub fn put_image(&self, record: &ImageRecord) -> Result<(), StoreError> {
        let _whole = self.lock(WHOLE)?;
        let mut bytes = 0_u64;
        for layer in &record.layers {
            let Some(found) = self.layer_record(&layer.diff_id)?.filter(|_| self.has_layer(&layer.diff_id)) else {
                return Err(StoreError::Missing { digest: layer.diff_id.clone() });
            };
            bytes = bytes.saturating_add(found.tar_bytes);
        }
        if bytes > self.limits.image_bytes_max {
            return Err(StoreError::ImageTooLarge { bytes, max: self.limits.image_bytes_max });
        }
        if let Some(digest) = [&record.manifest, &record.config].into_iter().find(|digest| !self.has_blob(digest)) {
            return Err(StoreError::Missing { digest: digest.clone() });
        }
        write_record(&self.image_path(&record.name), record, Durability::Power)
    }

    /// Changes what is remembered of an image, if there is one by this name.
    pub fn change_image(
        &self,
        name: &str,
        change: impl FnOnce(&mut ImageRecord),
    ) -> Result<Option<ImageRecord>, StoreError> {
        let _whole = self.lock(WHOLE)?;
        let Some(mut record) = self.image(name)? else { return Ok(None) };
        change(&mut record);
        write_record(&self.image_path(name), &record, Durability::Power)?;
        Ok(Some(record))
    }

    /// Remembers that a container was made of an image. It may be forgotten in a loss of power.
    pub fn mark_used(&self, name: &str, now: Timestamp) -> Result<(), StoreError> {
        let _whole = self.lock(WHOLE)?;
        let Some(mut record) = self.image(name)? else { return Ok(()) };
        record.used_at = now;
        write_record(&self.image_path(name), &record, Durability::Process)
    }

    /// Forgets a name, and says whether there was one. Its content goes with the next [`Store::prune`].
    pub fn remove_image(&self, name: &str) -> Result<bool, StoreError> {
        let _whole = self.lock(WHOLE)?;
        self.remove_image_record(name)
    }

    fn remove_image_record(&self, name: &str) -> Result<bool, StoreError> {
        let path = self.image_path(name);
        match fs::remove_file(&path) {
            Ok(()) => sync_parent(&path).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io_error("removing", &path)(error)),
        }
    }

    fn remove_half_done(&self) -> Result<(), StoreError> {
        for (name, path) in self.entries(PARTIAL)? {
            // Downloads are gone on with.
            let is_of_its_maker = [LAYER, REMOVED, SPOOL].iter().any(|prefix| name.starts_with(prefix));
            if is_of_its_maker && let Some(_lock) = self.lock_if_free(&name)? {
                files::remove(&path).map_err(io_error("removing", &path))?;
            }
        }
        let mut torn = Vec::new();
        for (diff_id, _) in self.digests(LAYERS, JSON)? {
            let is_torn = || {
                let boot = self.layer_record(&diff_id).ok().flatten().and_then(|record| record.boot);
                boot.is_some_and(|boot| boot != self.boot)
            };
            if !is_torn() {
                continue;
            }
            // Another process may have seen it, too, and may have unpacked it again by now.
            if let Some(_lock) = self.lock_if_free(&format!("{LAYER}{}", diff_id.hex()))?
                && is_torn()
            {
                self.remove_layer(&diff_id)?;
                torn.push(diff_id);
            }
        }
        self.unpack_again(&torn)
    }

    /// Brings back layers of images whose blobs are there.
    fn unpack_again(&self, torn: &[Digest]) -> Result<(), StoreError> {
        if torn.is_empty() {
            return Ok(());
        }
        for layer in self.images()?.into_iter().flat_map(|image| image.layers) {
            if torn.contains(&layer.diff_id)
                && let Err(error) = self.unpack(&layer.layer(), &layer.diff_id)
            {
                tracing::warn!(layer = %layer.diff_id, %error, "a layer that a loss of power may have torn is gone");
            }
        }
        Ok(())
    }

    fn remove_blob(&self, digest: &Digest) -> Result<(), StoreError> {
        let path = self.blob_path(digest);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("removing", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Removes a layer; nobody sees a part of it.
    fn remove_layer(&self, diff_id: &Digest) -> Result<(), StoreError> {
        self.set_layer_aside(diff_id)?.remove()
    }

    /// Takes a layer out of the store, so that it can be removed while others go on.
    fn set_layer_aside(&self, diff_id: &Digest) -> Result<SetAside, StoreError> {
        let path = self.layer_dir(diff_id);
        let name = format!("{REMOVED}{}-{}", std::process::id(), self.counter.fetch_add(1, Ordering::Relaxed));
        let lock = self.lock(&name)?;
        let aside = SetAside { path: self.dir.join(PARTIAL).join(&name), _lock: lock };
        match fs::rename(&path, &aside.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(io_error("renaming", &path))?,
        }
        let record = self.layer_record_path(diff_id);
        files::remove(&record).map_err(io_error("removing", &record))?;
        Ok(aside)
    }

    fn lock(&self, name: &str) -> Result<Lock, StoreError> {
        let path = self.dir.join(LOCKS).join(name);
        Lock::wait(&path).map_err(io_error("locking", &path))
    }

    fn lock_if_free(&self, name: &str) -> Result<Option<Lock>, StoreError> {
        let path = self.dir.join(LOCKS).join(name);
        Lock::attempt(&path).map_err(io_error("locking", &path))
    }

    fn reserve(&self) -> Reserve {
        Reserve::new(&self.dir, &self.limits)
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.dir.join(BLOBS).join(digest.hex())
    }

    fn layer_record_path(&self, diff_id: &Digest) -> PathBuf {
        self.dir.join(LAYERS).join(format!("{}{JSON}", diff_id.hex()))
    }

    fn image_path(&self, name: &str) -> PathBuf {
        self.dir.join(IMAGES).join(format!("{}{JSON}", Digest::of(name.as_bytes()).hex()))
    }

    /// Names and paths of what is in one of its folders.
    fn entries(&self, folder: &str) -> Result<Vec<(String, PathBuf)>, StoreError> {
        let folder = self.dir.join(folder);
        let listed = fs::read_dir(&folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let listed = listed.map_err(io_error("listing", &folder))?;
        let named = listed.into_iter().filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
        Ok(named.collect())
    }

    /// What is in a folder by names that are digests with this ending.
    fn digests(&self, folder: &str, ending: &str) -> Result<Vec<(Digest, PathBuf)>, StoreError> {
        let digest = |name: &str| format!("sha256:{}", name.strip_suffix(ending)?).parse().ok();
        Ok(self.entries(folder)?.into_iter().filter_map(|(name, path)| Some((digest(&name)?, path))).collect())
    }
}

/// A layer that is out of the store and still on the disk.
struct SetAside {
    path: PathBuf,
    _lock: Lock,
}

impl SetAside {
    fn remove(self) -> Result<(), StoreError> {
        files::remove(&self.path).map_err(io_error("removing", &self.path))
    }
}

fn read_record<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    match files::read_bounded(path, RECORD_BYTES_MAX) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|source| {
            let path = path.to_owned();
            StoreError::Record { path, source }
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("reading", path)(error)),
    }
}

fn write_record<T: serde::Serialize>(path: &Path, record: &T, durability: Durability) -> Result<(), StoreError> {
    let bytes = serde_json::to_vec_pretty(record).map_err(|source| {
        let path = path.to_owned();
        StoreError::Record { path, source }
    })?;
    files::write_atomic(path, &bytes, durability).map_err(io_error("writing", path))
}

/// Brings what was renamed to the disk.
fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let synced = File::open(parent).and_then(|folder| folder.sync_all());
    synced.map_err(io_error("writing", parent))
}
