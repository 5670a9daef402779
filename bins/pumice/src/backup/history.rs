//! The history's file in backups.
//!
//! Invariant: what is saved is the file as of one commit, made before the store is read: what it lacks it learns again from
//! the objects. A history that can't be copied is left out and said; the platform itself is worth a backup without it. One in
//! Postgres is saved as databases are.

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::args::history::FILE;
use crate::data_dir::DataDir;
use crate::output;

/// Bytes of the file in one frame.
const PIECE_BYTES: usize = 4 << 20;
/// What SQLite keeps beside its file.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// A copy, which is removed when it is dropped.
pub struct Copy(PathBuf);

impl Copy {
    /// Copies the history beside `backup`, if there is one.
    pub async fn make(data: &DataDir, backup: &Path) -> Option<Copy> {
        let file = data.history();
        if !file.exists() {
            return None;
        }
        let mut name = backup.file_name()?.to_owned();
        name.push(format!(".{}.history", std::process::id()));
        let copy = Copy(backup.with_file_name(name));
        // SQLite writes into an empty file that is there, and would make one that others may read.
        let made = File::options().write(true).create_new(true).mode(0o600).open(&copy.0);
        let copied = match made {
            Ok(_) => pumice_history::copy_file(&file, &copy.0).await.map_err(anyhow::Error::new),
            Err(error) => Err(error.into()),
        };
        match copied {
            Ok(()) => Some(copy),
            Err(error) => {
                output::note(format_args!("pumice: the history is not in the backup: {error:#}"));
                None
            }
        }
    }

    /// Gives the copy to `keep` in pieces, each a file of the backup by the same name.
    pub fn pieces(&self, mut keep: impl FnMut(&str, &[u8]) -> Result<()>) -> Result<()> {
        let read = || format!("read {}", self.0.display());
        let mut file = File::open(&self.0).with_context(read)?;
        let mut piece = Vec::new();
        loop {
            piece.clear();
            Read::take(&mut file, PIECE_BYTES as u64).read_to_end(&mut piece).with_context(read)?;
            if piece.is_empty() {
                return Ok(());
            }
            keep(FILE, &piece)?;
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Whether a file of a backup is a piece of the history.
pub fn is_piece(name: &str) -> bool {
    name == FILE
}

/// Adds a piece to the file that is being restored.
pub fn put_back(data: &DataDir, piece: &[u8]) -> Result<()> {
    let path = data.history();
    let write = || -> std::io::Result<()> {
        let mut file = File::options().append(true).create(true).mode(0o600).open(&path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(piece)?;
        file.sync_all()
    };
    write().with_context(|| format!("write {}", path.display()))
}

/// The files of a history that is there.
pub fn files(data: &DataDir) -> Vec<PathBuf> {
    let path = data.history();
    let beside = BESIDE.map(|end| {
        let mut name = path.clone().into_os_string();
        name.push(end);
        PathBuf::from(name)
    });
    std::iter::once(path).chain(beside).filter(|path| path.exists()).collect()
}
