//! The files that make who a platform is: its authority and its keys. They go into backups.
//!
//! Invariant: no other file is read or written here, whatever a backup says. Called by `pumice backup` and `pumice restore`.

use std::path::Path;

use thiserror::Error;

use crate::files::{FileError, read_text, write_private};
use crate::{authority, ca, tokens};

/// Names of all files of a platform's identity; a new one must be listed here to go into backups.
const FILES: [&str; 7] = [
    ca::CERTIFICATE_FILE,
    ca::KEY_FILE,
    tokens::KEY_FILE,
    ca::NEXT_CERTIFICATE_FILE,
    ca::NEXT_KEY_FILE,
    tokens::OLD_KEY_FILE,
    authority::ROTATION_FILE,
];

/// Why such a file can't be put back.
#[derive(Debug, Error)]
pub enum IdentityFileError {
    /// It is none of ours.
    #[error("{name:?} is no file of a platform's identity")]
    Unknown { name: String },
    /// It cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Those that are in `directory`, by name.
pub fn identity_files(directory: &Path) -> Result<Vec<(&'static str, String)>, FileError> {
    let read = |name: &'static str| Ok(read_text(&directory.join(name))?.map(|text| (name, text)));
    FILES.into_iter().filter_map(|name| read(name).transpose()).collect()
}

/// Puts one back into `directory`, which exists, for its owner's eyes alone.
pub fn write_identity_file(directory: &Path, name: &str, contents: &[u8]) -> Result<(), IdentityFileError> {
    let Some(name) = FILES.into_iter().find(|kept| *kept == name) else {
        return Err(IdentityFileError::Unknown { name: name.to_owned() });
    };
    Ok(write_private(&directory.join(name), contents)?)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{Authority, Ca, TokenKey};

    #[test]
    fn what_is_kept_makes_the_same_authority_elsewhere() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert!(identity_files(old.path()).unwrap().is_empty());
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let ca = Ca::open_or_create(old.path(), now).unwrap();
        TokenKey::open_or_create(old.path()).unwrap();
        Authority::open(old.path(), now).unwrap().rotate(now, false).unwrap();
        let kept = identity_files(old.path()).unwrap();
        assert_eq!(kept.len(), std::fs::read_dir(old.path()).unwrap().count(), "a new file must be kept, too");
        for (name, contents) in kept {
            write_identity_file(new.path(), name, contents.as_bytes()).unwrap();
        }
        assert_eq!(Ca::open_or_create(new.path(), now).unwrap().pem(), ca.pem());
    }

    #[test]
    fn no_other_file_is_written() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["../ca.key", "store.redb", "", "/etc/passwd"] {
            let error = write_identity_file(directory.path(), name, b"x").unwrap_err();
            assert!(matches!(error, IdentityFileError::Unknown { .. }), "{name}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
