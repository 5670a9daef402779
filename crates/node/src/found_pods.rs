//! The pods on the disk that an earlier agent has left, for the next one to take over.
//!
//! Invariant: every directory is either a pod that runs, one that has ended, or one that never
//! started; which it is follows from its files and its lock alone.

use std::fs;
use std::path::Path;

use pumice_shim::control;
use pumice_shim::spec::ShimSpec;
use pumice_shim::status::{ShimPhase, ShimStatus};

/// A pod found on disk.
pub(crate) struct Found {
    pub uid: String,
    pub spec: ShimSpec,
    pub status: Option<ShimStatus>,
    pub state: FoundState,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundState {
    Running,
    /// It came to its end.
    Ended,
    /// Its shim is gone without having said how it ended.
    Lost,
    /// Its shim was never started.
    Unstarted,
}

/// All pods on disk, and the directories that hold no pod.
pub(crate) fn scan(pods_dir: &Path, boot_id: &str) -> (Vec<Found>, Vec<String>) {
    let (mut found, mut empty) = (Vec::new(), Vec::new());
    let names =
        fs::read_dir(pods_dir).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    for uid in names {
        let dir = pods_dir.join(&uid);
        match ShimSpec::read(&dir).ok() {
            Some(spec) => {
                let (status, state) = state(&dir, spec.boot_id == boot_id);
                found.push(Found { uid, spec, status, state });
            }
            None => empty.push(uid),
        }
    }
    (found, empty)
}

fn state(dir: &Path, same_boot: bool) -> (Option<ShimStatus>, FoundState) {
    // Before the status: a shim that ends in between has written it first.
    let alive = control::is_alive(dir);
    let status = ShimStatus::read(dir);
    let state = match &status {
        Ok(status) if status.phase == ShimPhase::Done => FoundState::Ended,
        _ if alive => FoundState::Running,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && same_boot => FoundState::Unstarted,
        _ => FoundState::Lost,
    };
    (status.ok(), state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use pumice_linux::files::Durability;

    #[test]
    fn files_and_lock_tell_what_became_of_a_pod() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(state(dir, true).1, FoundState::Unstarted);
        assert_eq!(state(dir, false).1, FoundState::Lost);
        let lock = control::lock(dir).unwrap();
        assert_eq!(state(dir, true).1, FoundState::Running);
        let mut status = ShimStatus::new([].into_iter(), ["c"].into_iter(), Timestamp::UNIX_EPOCH);
        status.write(dir, Durability::Process).unwrap();
        assert_eq!(state(dir, true).1, FoundState::Running);
        drop(lock);
        assert_eq!(state(dir, true).1, FoundState::Lost);
        status.phase = ShimPhase::Done;
        status.write(dir, Durability::Process).unwrap();
        assert_eq!(state(dir, true).1, FoundState::Ended);
        std::fs::write(dir.join(pumice_shim::status::STATUS_FILE), "torn").unwrap();
        assert_eq!(state(dir, true).1, FoundState::Lost);
    }
}
