//! Trees that can't be removed: out of everybody's way, with a note that says why, until an administrator removes them.
//!
//! Invariant: each has a folder of its own that holds its note and, where it could be moved, the tree. A tree that could not
//! be moved is where it was, and is not tried again as long as there is the note.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use pumice_clock as clock;
use serde::{Deserialize, Serialize};

use crate::agent::leftovers::{Folders, Owner, OwnerKind};
use crate::launcher::{Launcher, ShimProgram};
use crate::subordinate_ids::SubordinateIds;
use pumice_linux::files::{Durability, private_dir, read_bounded, write_atomic};
use pumice_linux::tree::removal::{self, RemovalError};

const NOTE_FILE: &str = "why.json";
const TREE: &str = "tree";
/// Largest note read, in bytes.
const NOTE_BYTES_MAX: u64 = 64 << 10;

/// A tree that could not be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetAside {
    /// By which it is asked for.
    pub name: String,
    /// `Pod` or `PersistentVolumeClaim`: what it belonged to.
    pub kind: String,
    /// The namespace of that; empty where nobody knows.
    pub namespace: String,
    /// The name of that; empty where nobody knows.
    pub object: String,
    /// Where the tree is.
    pub path: PathBuf,
    /// Why it is still there.
    pub reason: String,
    /// Since when.
    pub since: Timestamp,
}

/// Why a tree that was set aside is still there.
#[derive(Debug, thiserror::Error)]
pub enum SetAsideError {
    #[error("nothing of the name {name:?} was set aside\nnext: pumice node list --set-aside")]
    Unknown { name: String },
    /// Its note or the folder of the notes can't be read.
    #[error("can't read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It still can't be removed.
    #[error("something of {} is left", path.display())]
    Left {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// All trees of a data directory that were set aside, by name.
pub fn set_aside(data_dir: &Path) -> Result<Vec<SetAside>, SetAsideError> {
    let folder = Folders::of(data_dir).set_aside;
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|source| SetAsideError::Read { path: folder, source })?,
    };
    let mut all: Vec<SetAside> = entries.flatten().filter_map(|entry| read(&entry.path()).ok()).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// Removes a tree that was set aside, and its note; blocks for as long as that takes.
pub fn remove_set_aside(data_dir: &Path, name: &str, shim: &ShimProgram) -> Result<(), SetAsideError> {
    let unknown = || SetAsideError::Unknown { name: name.to_owned() };
    // Not a path: of those that are there, the one of this name.
    let found = set_aside(data_dir)?.into_iter().find(|one| one.name == name).ok_or_else(unknown)?;
    let left = |path: &Path, error: RemovalError| SetAsideError::Left { path: path.to_owned(), source: error.into() };
    let removed = removal::remove(&found.path, &mut || true);
    if let Err(error) = removed {
        // A pod of a user without root has files of other users, too.
        let ids = SubordinateIds::of_user(data_dir, &Launcher::new(shim.clone())).ok().flatten();
        let ids = ids.filter(|_| error.is_for_rights()).ok_or_else(|| left(&found.path, error))?;
        ids.remove(&found.path)
            .map_err(|error| SetAsideError::Left { path: found.path.clone(), source: error.into() })?;
    }
    let folder = Folders::of(data_dir).set_aside.join(&found.name);
    removal::remove(&folder, &mut || true).map_err(|error| left(&folder, error))?;
    Ok(())
}

fn read(folder: &Path) -> io::Result<SetAside> {
    serde_json::from_slice(&read_bounded(&folder.join(NOTE_FILE), NOTE_BYTES_MAX)?).map_err(io::Error::other)
}

impl SetAside {
    /// Whose it was, for people.
    pub fn owner(&self) -> String {
        match (self.kind.as_str(), self.object.as_str()) {
            (_, "") => format!("a pod ({})", self.name),
            ("Pod", object) => format!("pod {}/{object}", self.namespace),
            (_, object) => format!("claim {}/{object}", self.namespace),
        }
    }

    /// What happened, in a sentence.
    pub fn sentence(&self) -> String {
        format!(
            "What {} left can't be removed and was set aside in {}: {}. Remove it by: pumice node remove-set-aside {}",
            self.owner(),
            self.path.display(),
            self.reason,
            self.name
        )
    }
}

impl Folders {
    /// Moves a tree out of the way and notes why. One that was noted before and could not be moved keeps its note.
    pub(crate) fn set_aside(&self, path: &Path, owner: &Owner, reason: String) -> SetAside {
        if let Some(before) = self.noted(path) {
            return before;
        }
        let kind = match owner.kind {
            OwnerKind::Pod(_) => "Pod",
            OwnerKind::Claim => "PersistentVolumeClaim",
        };
        let mut aside = SetAside {
            name: String::new(),
            kind: kind.to_owned(),
            namespace: owner.namespace.clone(),
            object: owner.name.clone(),
            path: path.to_owned(),
            reason,
            since: clock::now(),
        };
        if let Err(error) = self.note(&mut aside, owner) {
            tracing::error!(path = %path.display(), %error, "can't note that a tree was set aside");
        }
        tracing::warn!(path = %aside.path.display(), reason = aside.reason, "what {} left was set aside", aside.owner());
        aside
    }

    fn note(&self, aside: &mut SetAside, owner: &Owner) -> io::Result<()> {
        private_dir(&self.set_aside)?;
        for name in owner.folder_names() {
            let folder = self.set_aside.join(&name);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            aside.name = name;
            let moved = folder.join(TREE);
            if fs::rename(&aside.path, &moved).is_ok() {
                aside.path = moved;
            }
            let bytes = serde_json::to_vec(aside).map_err(io::Error::other)?;
            return write_atomic(&folder.join(NOTE_FILE), &bytes, Durability::Power);
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The note about a tree that is where it was.
    pub(super) fn noted(&self, path: &Path) -> Option<SetAside> {
        let notes = fs::read_dir(&self.set_aside).into_iter().flatten().flatten();
        notes.filter_map(|entry| read(&entry.path()).ok()).find(|aside| aside.path == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_is_told_and_goes_when_asked_for() {
        let data = tempfile::tempdir().unwrap();
        let folders = Folders::of(data.path());
        assert!(set_aside(data.path()).unwrap().is_empty());
        let trees = ["a", "b"].map(|name| data.path().join(name));
        for tree in &trees {
            fs::create_dir_all(tree.join("deep")).unwrap();
            let aside = folders.set_aside(tree, &Owner::pod("ns", "p", "u"), "it is stuck".to_owned());
            assert!(aside.path.join("deep").is_dir() && !tree.exists());
            assert!(aside.sentence().starts_with("What pod ns/p left can't be removed"), "{}", aside.sentence());
        }
        let all = set_aside(data.path()).unwrap();
        assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["pod_ns_p_u", "pod_ns_p_u+2"]);
        assert!(all.iter().all(|one| one.reason == "it is stuck" && one.object == "p"));
        let shim = ShimProgram { embedded: None, program: "/none".into(), args: vec![] };
        for wrong in ["", ".", "..", "../pods", "pod_ns_p"] {
            assert!(
                matches!(remove_set_aside(data.path(), wrong, &shim), Err(SetAsideError::Unknown { .. })),
                "{wrong}"
            );
        }
        remove_set_aside(data.path(), "pod_ns_p_u", &shim).unwrap();
        assert_eq!(set_aside(data.path()).unwrap(), all[1..]);
        assert!(!all[0].path.exists() && all[1].path.exists());
    }

    #[test]
    fn what_can_not_be_moved_is_noted_once_where_it_is() {
        let data = tempfile::tempdir().unwrap();
        let folders = Folders::of(data.path());
        // Nothing can be moved that is not there.
        let path = data.path().join("volumes/ns/c");
        let first = folders.set_aside(&path, &Owner::claim("ns", "c"), "busy".to_owned());
        assert_eq!(first.path, path);
        assert_eq!(folders.set_aside(&path, &Owner::claim("ns", "c"), "again".to_owned()), first);
        assert_eq!(set_aside(data.path()).unwrap().len(), 1);
    }
}
