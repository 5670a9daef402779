//! Files that only their owner may read.
//!
//! Invariant: a file written here is complete and mode 0600 from the moment it has its name.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The mode of keys, tokens and kubeconfigs: only their owner may read them.
const PRIVATE_MODE: u32 = 0o600;

/// Largest file that is read back: keys and certificates are far smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a file could not be read or written.
#[derive(Debug, Error)]
#[error("cannot {operation} {path}", path = path.display())]
pub struct FileError {
    pub operation: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

/// Replaces `path` by `contents`, mode 0600, synced; a reader sees the old file or the new one.
pub fn write_private(path: &Path, contents: &[u8]) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    let failed = |operation, source| FileError { operation, path: path.to_path_buf(), source };
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("replace", error));
        }
        _ => {}
    }
    let write = || -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(PRIVATE_MODE).open(&fresh)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| failed("write", error))
}

/// The text of `path`; `None` when there is no such file.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, FileError> {
    let failed = |source| FileError { operation: "read", path: path.to_path_buf(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    // INV-59
    #[test]
    fn replaces_and_stays_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, "old and readable").unwrap();
        write_private(&path, b"new").unwrap();
        assert_eq!(read_text(&path).unwrap().as_deref(), Some("new"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn names_the_file_it_cannot_write() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("absent").join("key");
        let text = write_private(&path, b"x").unwrap_err().to_string();
        assert!(text.contains("absent/key"), "{text}");
        assert_eq!(read_text(&path).unwrap(), None);
    }
}
