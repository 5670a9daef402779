//! Containers that are added to a pod that runs: a file each in the folder `ephemeral` of the pod's directory.
//!
//! Invariant: a file is written whole, once, and stays as long as the pod's directory; so a container that was asked for is started
//! once, whoever ends meanwhile. Written by the agent; read by the shim when it is woken, and by whoever enters the container.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::control;
use super::spec::{ContainerSpec, SPEC_BYTES_MAX};
use pumice_linux::files::{Durability, private_dir, read_bounded, write_atomic};

const FOLDER: &str = "ephemeral";
const SUFFIX: &str = ".json";
/// How many a pod can have: what is left of those that have ended stays as long as the pod.
pub const EPHEMERAL_MAX: usize = 128;

/// One container that is added to a pod.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EphemeralContainer {
    pub container: ContainerSpec,
    /// The container of the pod whose processes it sees.
    #[serde(default)]
    pub target: Option<String>,
    /// What it runs, as the pod's status says it.
    #[serde(default)]
    pub image_id: String,
}

/// Has the shim of `dir` start a container beside those that the pod has. One that was asked for before is left as it was.
///
/// # Errors
/// When the file can't be written, or the shim not be woken.
pub fn request(dir: &Path, added: &EphemeralContainer) -> io::Result<()> {
    let file = file(dir, &added.container.name);
    if !file.exists() {
        private_dir(&dir.join(FOLDER))?;
        let bytes = serde_json::to_vec(added).map_err(io::Error::other)?;
        write_atomic(&file, &bytes, Durability::Process)?;
    }
    control::wake(dir)
}

/// The container of this name that was added to the pod of `dir`.
///
/// # Errors
/// When there is none, or its file is not one.
pub fn read(dir: &Path, name: &str) -> io::Result<EphemeralContainer> {
    let bytes = read_bounded(&file(dir, name), SPEC_BYTES_MAX)?;
    serde_json::from_slice(&bytes).map_err(io::Error::other)
}

/// The names of those that were added to the pod of `dir`.
pub fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir.join(FOLDER)).into_iter().flatten().flatten();
    // A file that is being written ends otherwise.
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(SUFFIX)?.to_owned()));
    names.take(EPHEMERAL_MAX).collect()
}

/// Names of containers are labels, so they can be part of a file's.
fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(FOLDER).join(format!("{name}{SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, argument: &str) -> EphemeralContainer {
        let container =
            ContainerSpec { name: name.into(), argv: vec![argument.to_owned()], ..ContainerSpec::default() };
        EphemeralContainer { container, target: Some("main".into()), image_id: "an image".into() }
    }

    #[test]
    fn what_was_asked_for_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(names(dir.path()), BTreeSet::new());
        request(dir.path(), &named("b", "first")).unwrap();
        request(dir.path(), &named("a", "other")).unwrap();
        request(dir.path(), &named("b", "second")).unwrap();
        assert_eq!(names(dir.path()), BTreeSet::from(["a".to_owned(), "b".to_owned()]));
        assert_eq!(read(dir.path(), "b").unwrap(), named("b", "first"));
        assert!(read(dir.path(), "c").is_err());
    }

    #[test]
    fn asking_wakes_the_shim() {
        let dir = tempfile::tempdir().unwrap();
        let mut pipe = control::open_pipe(dir.path()).unwrap();
        for _ in 0..2 {
            request(dir.path(), &named("a", "x")).unwrap();
            assert!(control::was_woken(&mut pipe));
        }
    }
}
