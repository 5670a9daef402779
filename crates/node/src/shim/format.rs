//! The version of what agent and shim keep in a pod's directory.
//!
//! Invariant: a file without a version is of the first one; one of a newer version can't be read as if it were of this. Part of
//! `spec.json` and `status.json`; asked by the agent before it takes pods over.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::files::read_bounded;
use crate::shim::spec::{SPEC_BYTES_MAX, SPEC_FILE};
use crate::shim::status::{STATUS_BYTES_MAX, STATUS_FILE};

/// The version that is written, and the newest that is read. Format 1 is the first.
pub const FORMAT: u32 = 1;

/// Written as [`FORMAT`]; reads it and what is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Format;

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(FORMAT)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            0 => Err(D::Error::custom("it names no format")),
            1..=FORMAT => Ok(Format),
            found => Err(D::Error::custom(format!("it has format {found}, newer than {FORMAT}"))),
        }
    }
}

/// A file that a newer version has written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Newer {
    pub path: PathBuf,
    pub found: u32,
}

/// The first file of a newer version below the folder of all pods.
pub(crate) fn newer(pods_dir: &Path) -> Option<Newer> {
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
    use serde_json::Value;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        #[serde(default)]
        format: Format,
        name: String,
    }

    // INV-61
    #[test]
    fn what_is_older_is_read_and_what_is_newer_is_not() {
        let file = File { format: Format, name: "a".into() };
        assert_eq!(serde_json::to_string(&file).unwrap(), "{\"format\":1,\"name\":\"a\"}");
        let read = |json: &str| serde_json::from_str::<File>(json);
        assert_eq!(read("{\"format\":1,\"name\":\"a\"}").unwrap(), file);
        assert_eq!(read("{\"name\":\"a\"}").unwrap(), file, "from before there were versions");
        for (text, wanted) in [("2", "newer than 1"), ("0", "names no format"), ("-1", "invalid value")] {
            let json = format!("{{\"format\":{text},\"name\":\"a\"}}");
            let error = read(&json).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

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
            again::<crate::shim::spec::ShimSpec>(&folder.join(SPEC_FILE));
            again::<crate::shim::status::ShimStatus>(&folder.join(STATUS_FILE));
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
