//! Why the store can't do what it should.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use pumice_linux::files::is_for_want_of_room;

use super::unpack::LayerError;
use crate::digest::Digest;

/// Why content is not in the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the content of {expected} is another: {found}")]
    Digest { expected: Digest, found: Digest },
    #[error("{digest} goes on after the {size} bytes that its manifest names")]
    TooLong { digest: Digest, size: u64 },
    #[error("{digest} is not complete: {length} of {size} bytes")]
    Incomplete { digest: Digest, length: u64, size: u64 },
    #[error(
        "the disk of {} has {free_bytes} bytes free, and {reserve_bytes} must stay free after {wanted_bytes} more: remove images that \
         nobody uses (pumice image prune), or other files", path.display()
    )]
    Reserve { path: PathBuf, free_bytes: u64, reserve_bytes: u64, wanted_bytes: u64 },
    #[error(
        "the disk of {} has {free} inodes free, and {reserve} must stay free: remove images that nobody uses (pumice image \
         prune), or other files", path.display()
    )]
    Inodes { path: PathBuf, free: u64, reserve: u64 },
    #[error("{digest} is not in the store: pull the image again")]
    Missing { digest: Digest },
    #[error("{digest} was damaged on the disk and is removed: pull the image again")]
    Damaged { digest: Digest },
    #[error("the layer {blob} unpacks to {found}, and the image's configuration says {expected}")]
    DiffId { blob: Digest, expected: Digest, found: Digest },
    #[error("the layer {blob} can't be unpacked")]
    Layer {
        blob: Digest,
        #[source]
        source: LayerError,
    },
    #[error("the image has {bytes} bytes unpacked; {max} are taken at most")]
    ImageTooLarge { bytes: u64, max: u64 },
    #[error("{} is not a record of the store", path.display())]
    Record {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl StoreError {
    /// Whether it may go well later, once the disk has room.
    pub fn is_for_want_of_room(&self) -> bool {
        if matches!(self, StoreError::Reserve { .. } | StoreError::Inodes { .. }) {
            return true;
        }
        let mut cause: Option<&(dyn Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if matches!(error.downcast_ref(), Some(LayerError::NoRoom(_))) {
                return true;
            }
            if error.downcast_ref().is_some_and(is_for_want_of_room) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// Names what was done to which file.
pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { action, path, source }
}

/// The same for calls whose error is a number.
pub(super) fn errno_error(action: &'static str, path: &Path) -> impl FnOnce(nix::errno::Errno) -> StoreError {
    let with_path = io_error(action, path);
    move |errno| with_path(errno.into())
}
