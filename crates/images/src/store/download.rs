//! One blob on its way into the store.
//!
//! Invariant: a blob has its name in `blobs` only once all its bytes are on the disk and are what its digest says. What a
//! broken download leaves is gone on with by the next from the same origin: nobody has the beginning of somebody's private
//! layer for knowing its end.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use super::error::{StoreError, io_error};
use super::locks::Lock;
use super::room::Reserve;
use super::{BLOB, Origin, PARTIAL, Store, origins};
use crate::digest::{Digest, Hasher};
use crate::manifest::Blob;

/// Bytes that are read at a time.
const READ_BYTES: usize = 128 << 10;

/// What came of beginning a download.
#[derive(Debug)]
pub enum Begun {
    /// The blob is there.
    There,
    Now(Box<Download>),
    /// Somebody else brings it from the same origin, and has so many bytes.
    Elsewhere {
        length: u64,
    },
}

/// A blob of which some bytes may be there.
pub struct Download {
    /// In which all of the store is.
    dir: PathBuf,
    blob: Blob,
    origin: Origin,
    partial: PathBuf,
    target: PathBuf,
    /// Whether nobody goes on with what is left of it.
    is_beside: bool,
    file: File,
    hasher: Hasher,
    length: u64,
    reserve: Reserve,
    _lock: Lock,
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes of {}", self.length, self.blob.size, self.blob.digest)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if self.is_beside {
            // Nothing is there if it became a blob.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

impl Store {
    /// Begins to bring a blob from an origin, or goes on. Does not wait for somebody else who is at it.
    pub fn download(&self, blob: &Blob, origin: &Origin) -> Result<Begun, StoreError> {
        if self.has_blob(&blob.digest) {
            return Ok(Begun::There);
        }
        let name = format!("{BLOB}{}-{}", blob.digest.hex(), origin.mark());
        let partial = self.dir.join(PARTIAL).join(&name);
        let Some(lock) = self.lock_if_free(&name)? else {
            return Ok(Begun::Elsewhere { length: fs::metadata(&partial).map_or(0, |found| found.len()) });
        };
        if self.has_blob(&blob.digest) {
            return Ok(Begun::There);
        }
        self.open_download(blob, origin, partial, lock).map(|download| Begun::Now(Box::new(download)))
    }

    /// Begins to bring a blob beside somebody who brings it too slowly. Nobody goes on with what is left of it.
    pub fn download_beside(&self, blob: &Blob, origin: &Origin) -> Result<Download, StoreError> {
        let (partial, lock) = self.place_of_its_maker()?;
        let mut download = self.open_download(blob, origin, partial, lock)?;
        download.is_beside = true;
        download.restart()?;
        Ok(download)
    }

    fn open_download(
        &self,
        blob: &Blob,
        origin: &Origin,
        partial: PathBuf,
        lock: Lock,
    ) -> Result<Download, StoreError> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&partial);
        let file = file.map_err(io_error("opening", &partial))?;
        let mut download = Download {
            dir: self.dir.clone(),
            blob: blob.clone(),
            origin: origin.clone(),
            partial,
            target: self.blob_path(&blob.digest),
            is_beside: false,
            file,
            hasher: Hasher::new(),
            length: 0,
            reserve: self.reserve(),
            _lock: lock,
        };
        download.read_what_is_there()?;
        let has_room = download.reserve.check(blob.size.saturating_sub(download.length));
        if has_room.is_err() && download.length == 0 {
            fs::remove_file(&download.partial).map_err(io_error("removing", &download.partial))?;
        }
        has_room.map(|()| download)
    }
}

impl Download {
    /// The blob that it brings.
    pub fn blob(&self) -> &Blob {
        &self.blob
    }

    /// Bytes that are there, from the first.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds the bytes that follow.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let count = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if count > self.blob.size.saturating_sub(self.length) {
            return Err(StoreError::TooLong { digest: self.blob.digest.clone(), size: self.blob.size });
        }
        self.reserve.take_bytes(count)?;
        if let Err(error) = self.file.write_all(bytes) {
            // Some of them may be there; what is not in the hash must not be in the file.
            let _ = self.file.set_len(self.length).and_then(|()| self.file.seek(io::SeekFrom::Start(self.length)));
            return Err(io_error("writing", &self.partial)(error));
        }
        self.hasher.update(bytes);
        self.length += count;
        Ok(())
    }

    /// Forgets the bytes that are there, as where a server sends them all again.
    pub fn restart(&mut self) -> Result<(), StoreError> {
        self.hasher = Hasher::new();
        self.length = 0;
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.map_err(io_error("emptying", &self.partial))
    }

    /// Puts the blob into the store if it is complete and what its digest says; one with other content is removed.
    pub fn finish(self) -> Result<(), StoreError> {
        let Blob { digest, size } = self.blob.clone();
        if self.length < size {
            return Err(StoreError::Incomplete { digest, length: self.length, size });
        }
        let found = self.hasher.clone().finish();
        if found != digest {
            fs::remove_file(&self.partial).map_err(io_error("removing", &self.partial))?;
            return Err(StoreError::Digest { expected: digest, found });
        }
        self.file.sync_data().map_err(io_error("writing", &self.partial))?;
        origins::add(&self.dir, &digest, &self.origin)?;
        fs::rename(&self.partial, &self.target).map_err(io_error("renaming", &self.partial))?;
        super::sync_parent(&self.target)
    }

    /// Takes in what an earlier download left, if it can be a beginning of this blob.
    fn read_what_is_there(&mut self) -> Result<(), StoreError> {
        let length = self.file.metadata().map_err(io_error("reading", &self.partial))?.len();
        if length > self.blob.size {
            return self.restart();
        }
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = self.file.read(&mut buffer).map_err(io_error("reading", &self.partial))?;
            let Some(bytes @ [_, ..]) = buffer.get(..count) else { return Ok(()) };
            self.hasher.update(bytes);
            self.length += u64::try_from(count).unwrap_or(u64::MAX);
        }
    }
}

/// What a blob's file has as content.
pub(super) fn digest_of(file: &mut File) -> io::Result<Digest> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = file.read(&mut buffer)?;
        let Some(bytes @ [_, ..]) = buffer.get(..count) else { return Ok(hasher.finish()) };
        hasher.update(bytes);
    }
}
