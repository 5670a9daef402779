//! Filters of system calls as files: the agent compiles and writes them once, shims read them.
//!
//! Invariant: a file is called by its content, so that pods with the same rules share it and no file changes under a pod. A
//! shim reads it before it enters the container, and installs it as the last thing before the program.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use caps::Capability;
use seccompiler::BackendError;

use super::docker_profile::{self, Here, ProfileError};
use super::{Profile, ProfileChoice, compile, runtime_default};
use pumice_linux::files::{Durability, private_dir, read_bounded, write_atomic};
use pumice_shim::filter_file::encode;

/// Longest profile in JSON, in bytes.
const PROFILE_BYTES_MAX: u64 = 1 << 20;

/// Why a container can't have the filter that it asks for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("this node's kernel filters no system calls")]
    NoFilters,
    #[error("localhostProfile {path:?} must be a path within {folder} without '..'")]
    Path { path: String, folder: PathBuf },
    #[error("can't read the profile {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the profile {path} can't be used here")]
    Profile {
        path: PathBuf,
        #[source]
        source: ProfileError,
    },
    #[error("the rules for system calls can't be made into a filter")]
    Compile(#[from] BackendError),
    #[error("can't write the filter of system calls")]
    Write(#[source] io::Error),
}

/// The node's folders of profiles that people lay there, and of filters made of profiles.
#[derive(Debug)]
pub(crate) struct FilterFolder {
    profiles: PathBuf,
    filters: PathBuf,
    /// Files of the default profile, by the rights that they are for: most pods have the same.
    defaults: Mutex<HashMap<u64, PathBuf>>,
}

impl FilterFolder {
    /// Nothing is made before the first filter.
    pub(crate) fn new(profiles: PathBuf, filters: PathBuf) -> Self {
        Self { profiles, filters, defaults: Mutex::default() }
    }

    /// The file with the filter of a container; none where it has none.
    pub(crate) fn file(
        &self,
        choice: &ProfileChoice,
        rights: &HashSet<Capability>,
    ) -> Result<Option<PathBuf>, FilterError> {
        match choice {
            ProfileChoice::Unconfined => Ok(None),
            ProfileChoice::Localhost(path) => self.write(&self.localhost(path, rights)?).map(Some),
            ProfileChoice::RuntimeDefault => {
                let mut defaults = self.defaults.lock().unwrap_or_else(PoisonError::into_inner);
                let known = rights.iter().fold(0, |all, right| all | right.bitmask());
                let path = match defaults.get(&known) {
                    // People remove what they do not know.
                    Some(path) if path.exists() => path.clone(),
                    _ => self.write(&runtime_default::profile(rights)?)?,
                };
                defaults.insert(known, path.clone());
                Ok(Some(path))
            }
        }
    }

    fn write(&self, profile: &Profile) -> Result<PathBuf, FilterError> {
        let bytes = encode(&compile(profile)?);
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let path = self.filters.join(format!("{:016x}", hasher.finish()));
        if !path.exists() {
            private_dir(&self.filters).map_err(FilterError::Write)?;
            write_atomic(&path, &bytes, Durability::Power).map_err(FilterError::Write)?;
        }
        Ok(path)
    }

    fn localhost(&self, path: &str, rights: &HashSet<Capability>) -> Result<Profile, FilterError> {
        let named = Path::new(path);
        let is_within = !path.is_empty() && named.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_within {
            return Err(FilterError::Path { path: path.to_owned(), folder: self.profiles.clone() });
        }
        let path = self.profiles.join(named);
        let json = read_bounded(&path, PROFILE_BYTES_MAX)
            .map_err(|source| FilterError::Read { path: path.clone(), source })?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let here = Here { rights, kernel: docker_profile::kernel(&release).unwrap_or_default() };
        docker_profile::parse(&json, &here).map_err(|source| FilterError::Profile { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_shim::capability_set::retained;
    use pumice_shim::filter_file::read;

    #[test]
    fn filters_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let folder = FilterFolder::new(dir.path().join("profiles"), dir.path().join("filters"));
        let (usual, admin) = (retained(&[], &[]), retained(&["SYS_ADMIN".to_owned()], &[]));
        let file = |choice: &ProfileChoice, rights| folder.file(choice, rights).unwrap();
        let default = file(&ProfileChoice::RuntimeDefault, &usual).unwrap();
        assert_eq!(file(&ProfileChoice::RuntimeDefault, &usual).as_ref(), Some(&default), "it is shared");
        assert_ne!(file(&ProfileChoice::RuntimeDefault, &admin).as_ref(), Some(&default));
        assert_eq!(file(&ProfileChoice::Unconfined, &usual), None);
        let expected = compile(&runtime_default::profile(&usual).unwrap()).unwrap();
        let found = read(&default).unwrap();
        assert_eq!(encode(&found), encode(&expected));
        assert_eq!(found.len(), 1, "each program costs every call some time");
    }

    #[test]
    fn profiles_lie_in_their_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = FilterFolder::new(dir.path().join("profiles"), dir.path().join("filters"));
        fs::create_dir_all(folder.profiles.join("team")).unwrap();
        fs::write(folder.profiles.join("team/open.json"), r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#).unwrap();
        fs::write(folder.profiles.join("bad.json"), r#"{"defaultAction": "SCMP_ACT_NOTIFY"}"#).unwrap();
        fs::write(dir.path().join("outside.json"), r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#).unwrap();
        let file = |path: &str| folder.file(&ProfileChoice::Localhost(path.to_owned()), &retained(&[], &[]));
        assert!(read(&file("team/open.json").unwrap().unwrap()).unwrap().is_empty());
        for path in ["", "../outside.json", "/etc/passwd", "team/../bad.json"] {
            assert!(matches!(file(path), Err(FilterError::Path { .. })), "{path:?}");
        }
        assert!(matches!(file("none.json"), Err(FilterError::Read { .. })));
        assert!(matches!(file("bad.json"), Err(FilterError::Profile { .. })));
    }
}
