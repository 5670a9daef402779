//! Files of pods that a newer version has written, which this one can't take over.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use pumice_linux::files::read_bounded;

use crate::format::FORMAT;
use crate::spec::{SPEC_BYTES_MAX, SPEC_FILE};
use crate::status::{STATUS_BYTES_MAX, STATUS_FILE};

/// A file that a newer version has written.
#[derive(Debug, PartialEq, Eq)]
pub struct Newer {
    pub path: PathBuf,
    pub found: u32,
}

/// The first file of a newer version below the folder of all pods.
pub fn newer(pods_dir: &Path) -> Option<Newer> {
    #[derive(Deserialize)]
    struct Found {
        #[serde(default)]
        format: Option<u32>,
    }
    let files = [(SPEC_FILE, SPEC_BYTES_MAX), (STATUS_FILE, STATUS_BYTES_MAX)];
    let pods = fs::read_dir(pods_dir).into_iter().flatten().flatten();
    pods.flat_map(|pod| files.map(|(name, most)| (pod.path().join(name), most))).find_map(|(path, most)| {
        // What can't be read at all is looked at when the pod is taken over.
        let bytes = read_bounded(&path, most).ok()?;
        let found = serde_json::from_slice::<Found>(&bytes).ok()?.format.filter(|found| *found > FORMAT)?;
        Some(Newer { path, found })
    })
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_earlier_versions_wrote_is_read_and_written_again() {
        fn has(all: &Value, part: &Value) -> bool {
            match (all, part) {
                (Value::Object(all), Value::Object(part)) => {
                    part.iter().all(|(key, part)| all.get(key).is_some_and(|all| has(all, part)))
                }
                (Value::Array(all), Value::Array(part)) => {
                    all.len() == part.len() && all.iter().zip(part).all(|(all, part)| has(all, part))
                }
                _ => all == part,
            }
        }
        fn again<T: Serialize + serde::de::DeserializeOwned>(path: &Path) {
            let before: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
            let read: T = serde_json::from_value(before.clone()).unwrap();
            let written = serde_json::to_value(&read).unwrap();
            assert!(has(&written, &before), "{}: {written:#} lacks some of {before:#}", path.display());
        }
        let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/upgrade");
        let folders = fs::read_dir(versions).unwrap().map(|entry| entry.unwrap().path());
        let folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
        assert!(!folders.is_empty());
        for folder in folders {
            again::<crate::spec::ShimSpec>(&folder.join(SPEC_FILE));
            again::<crate::status::ShimStatus>(&folder.join(STATUS_FILE));
        }
    }

    #[test]
    fn pods_of_a_newer_version_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let pod = dir.path().join("uid");
        fs::create_dir(&pod).unwrap();
        assert_eq!(newer(dir.path()), None);
        fs::write(pod.join(SPEC_FILE), "{\"name\":\"a\"}").unwrap();
        fs::write(pod.join(STATUS_FILE), "{\"format\":1}").unwrap();
        assert_eq!(newer(dir.path()), None);
        fs::write(pod.join(STATUS_FILE), "{\"format\":7, \"what\":\"else\"}").unwrap();
        assert_eq!(newer(dir.path()), Some(Newer { path: pod.join(STATUS_FILE), found: 7 }));
        assert_eq!(newer(&dir.path().join("absent")), None);
    }
}
