//! A folder as a place: a file for each object, on a volume that the pods see at the same path.
//!
//! Invariant: a file has its name only when all of it is on disk, and never gets another content. It is written under
//! `tmp`, synced, and then linked to its name, which fails if the name is taken; so a kill at any point leaves at most a
//! file in `tmp`, which a later [`Folder::make`] sweeps away. Works over NFS, whose links are atomic, too.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};

use super::chunk::STORED_BYTES_MAX;
use super::store::{EntryName, Made, Name, RunId, Store, StoreError, random_name};

/// What the file [`FORMAT_FILE`] says.
const FORMAT: &str = "pumice bundles, format 1\n";
/// The file that makes a folder one of ours. A volume that is not mounted lacks it.
const FORMAT_FILE: &str = "FORMAT";
/// Where files are until they have their name.
const TEMPORARY: &str = "tmp";
/// What is left in [`TEMPORARY`] for so long belongs to nobody.
const TEMPORARY_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Shards whose results share a folder.
const SHARDS_PER_FOLDER: u32 = 1000;

/// What Linux answers where a file system has no links.
const EPERM: i32 = 1;

/// A folder for bundles and results. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
    /// Files are read and written by the thread that asks.
    on_caller: bool,
}

impl Folder {
    /// Makes the folder one for bundles, if it is none yet. Who may read it is up to the umask: pods that run as other
    /// users must be able to write there. Blocks.
    pub fn make(root: &Path) -> Result<Self, StoreError> {
        let folder = Folder { root: root.to_owned(), on_caller: false };
        folder.ensure_folder(&root.join(TEMPORARY))?;
        folder.create_file(&root.join(FORMAT_FILE), FORMAT.as_bytes())?;
        folder.sweep()?;
        Self::open(root)
    }

    /// A folder that was made one for bundles. Blocks.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        let folder = Folder { root: root.to_owned(), on_caller: false };
        match folder.read_file(&root.join(FORMAT_FILE))? {
            Some(format) if format == FORMAT.as_bytes() => Ok(folder),
            Some(found) => Err(StoreError::OtherFormat {
                folder: folder.root,
                found: String::from_utf8_lossy(&found).chars().take(80).collect(),
                known: FORMAT,
            }),
            None => Err(StoreError::NoFolder { folder: folder.root }),
        }
    }

    /// The same, whose futures block instead of waiting for other threads: for a program that must have none, because it
    /// forks. They need no runtime.
    #[must_use]
    pub fn on_caller(self) -> Self {
        Folder { on_caller: true, ..self }
    }

    /// Where the file of an object is.
    pub fn path_of(&self, name: &Name) -> PathBuf {
        match name {
            Name::Chunk(id) => {
                let id = id.to_string();
                self.root.join("chunks").join(&id[..2]).join(&id)
            }
            Name::Entry(EntryName { run, shard, number }) => {
                let thousand = (shard / SHARDS_PER_FOLDER).to_string();
                self.run(run).join(thousand).join(format!("{shard}.{number}"))
            }
        }
    }

    /// Makes the folder in which a record keeps, over its attempts, what lets it go on where it stopped. It may be there
    /// already. Blocks.
    pub fn make_checkpoint(&self, run: &RunId, record: u64) -> Result<PathBuf, StoreError> {
        let path = self.checkpoint(run, record);
        // Not synced: whether it lasts is up to the program that writes into it.
        fs::create_dir_all(&path).map_err(|error| self.failed("make folder", &path, error))?;
        Ok(path)
    }

    /// Whether a record was begun, and has not succeeded with nothing left in its folder. Blocks.
    pub fn has_checkpoint(&self, run: &RunId, record: u64) -> bool {
        self.checkpoint(run, record).is_dir()
    }

    /// Removes all that a run has left, its checkpoints too; chunks stay. Blocks.
    pub fn remove_run(&self, run: &RunId) -> Result<(), StoreError> {
        let path = self.run(run);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.failed("remove folder", &path, error)),
            _ => Ok(()),
        }
    }

    /// Removes the folder of a record that is done, if nothing is in it. Blocks.
    pub fn remove_empty_checkpoint(&self, run: &RunId, record: u64) -> Result<(), StoreError> {
        let path = self.checkpoint(run, record);
        match fs::remove_dir(&path) {
            Err(error) if !matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => {
                Err(self.failed("remove folder", &path, error))
            }
            _ => Ok(()),
        }
    }

    fn checkpoint(&self, run: &RunId, record: u64) -> PathBuf {
        self.run(run).join("checkpoints").join(record.to_string())
    }

    fn run(&self, run: &RunId) -> PathBuf {
        self.root.join("runs").join(run.as_str())
    }

    fn read_file(&self, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            let most = STORED_BYTES_MAX as u64;
            File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > most {
                return Err(io::Error::new(ErrorKind::FileTooLarge, format!("larger than {most} bytes")));
            }
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read", path, error)),
        }
    }

    fn create_file(&self, path: &Path, bytes: &[u8]) -> Result<Made, StoreError> {
        let parent = path.parent().unwrap_or(&self.root);
        let made = if path.exists() {
            Made::Existing
        } else {
            self.ensure_folder(parent)?;
            let temporary = self.root.join(TEMPORARY).join(random_name()?);
            let linked = self.write_and_link(&temporary, path, bytes);
            // One that stays is swept away some day.
            let _ = fs::remove_file(&temporary);
            linked?
        };
        // Also where another made it: whoever builds on it must find it after a loss of power.
        self.sync_folder(parent)?;
        Ok(made)
    }

    fn write_and_link(&self, temporary: &Path, path: &Path, bytes: &[u8]) -> Result<Made, StoreError> {
        let write = || -> io::Result<()> {
            let mut file = File::options().write(true).create_new(true).open(temporary)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(|error| self.failed("write", temporary, error))?;
        match fs::hard_link(temporary, path) {
            Ok(()) => Ok(Made::New),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Made::Existing),
            Err(source) if source.kind() == ErrorKind::Unsupported || source.raw_os_error() == Some(EPERM) => {
                Err(StoreError::NoLinks { folder: self.root.clone(), source })
            }
            Err(error) => Err(self.failed("link", path, error)),
        }
    }

    fn ensure_folder(&self, folder: &Path) -> Result<(), StoreError> {
        if folder.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(folder).map_err(|error| self.failed("make folder", folder, error))?;
        folder.ancestors().take_while(|one| one.starts_with(&self.root)).try_for_each(|one| self.sync_folder(one))
    }

    fn sync_folder(&self, folder: &Path) -> Result<(), StoreError> {
        File::open(folder).and_then(|file| file.sync_all()).map_err(|error| self.failed("sync", folder, error))
    }

    /// Removes what killed writers left long ago, by the clock that stamps the files.
    fn sweep(&self) -> Result<(), StoreError> {
        let folder = self.root.join(TEMPORARY);
        let failed = |error| self.failed("sweep", &folder, error);
        let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
        let probe = folder.join(random_name()?);
        File::create_new(&probe).map_err(failed)?;
        let now = modified(&probe).map_err(failed);
        fs::remove_file(&probe).map_err(failed)?;
        let now = now?;
        for file in fs::read_dir(&folder).map_err(failed)?.flatten() {
            // Another may sweep at the same time, so nothing here has to work.
            let age = modified(&file.path()).ok().and_then(|then| now.duration_since(then).ok());
            if age.is_some_and(|age| age > TEMPORARY_LIFE) {
                let _ = fs::remove_file(file.path());
            }
        }
        Ok(())
    }

    fn failed(&self, doing: &'static str, path: &Path, source: io::Error) -> StoreError {
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full { folder: self.root.clone(), source },
            _ => StoreError::File { doing, path: path.to_owned(), source },
        }
    }

    /// Runs what blocks: beside the runtime, if not on the caller's thread. There it runs to its end, also when nobody waits
    /// for it any more.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Folder) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let folder = self.clone();
        if self.on_caller {
            return work(folder);
        }
        tokio::task::spawn_blocking(move || work(folder)).await.map_err(|_| StoreError::Stopped)?
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "folder {}", self.root.display())
    }
}

impl Store for Folder {
    fn get(&self, name: Name) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        let path = self.path_of(&name);
        self.blocking(move |folder| Ok(folder.read_file(&path)?.map(Bytes::from))).boxed()
    }

    fn create(&self, name: Name, bytes: Bytes) -> BoxFuture<'_, Result<Made, StoreError>> {
        let path = self.path_of(&name);
        self.blocking(move |folder| folder.create_file(&path, &bytes)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_says_what_to_do() {
        let folder = Folder { root: "/data".into(), on_caller: false };
        // ENOSPC, EDQUOT, EIO.
        for (code, full) in [(28, true), (122, true), (5, false)] {
            let text = folder.failed("write", Path::new("/data/tmp/x"), io::Error::from_raw_os_error(code)).to_string();
            assert_eq!(text.contains("no space is left in /data: free some there"), full, "{text}");
        }
    }
}
