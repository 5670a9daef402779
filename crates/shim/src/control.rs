//! How the agent talks to a shim: a lock that says it lives, and a pipe that says «look at stop.json».
//!
//! Invariant: a request is a file first and a wake-up second, so a request made while the shim is
//! busy, starting or not there yet is never lost. No signals: a pid may be somebody else by now.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::Mode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::status::EVICTED;
use pumice_linux::files::{Durability, read_bounded, write_atomic};
use pumice_linux::procfs;

/// Locked by the agent that brings the last statuses of this node's pods to the disk, in the folder around that of its pods.
pub const EXITS_FILE: &str = "exits";
const LOCK_FILE: &str = "lock";
const PIPE_FILE: &str = "control";
const STOP_FILE: &str = "stop.json";
/// Called so since evictions were the only reason: shims of earlier releases look for it.
const TERMINATION_FILE: &str = "eviction.json";
const SHIM_FILE: &str = "shim.json";
/// Largest request read, in bytes: a message names containers.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// The request to stop a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Seconds between SIGTERM and SIGKILL; 0 kills at once.
    pub grace_seconds: u64,
}

/// The request to end one run of a container; what follows is the restart policy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restart {
    /// How often it had been started before: a later run is not meant.
    pub run: u32,
    /// Seconds between SIGTERM and SIGKILL; 0 kills at once.
    pub grace_seconds: u64,
}

/// The word that a run of a sidecar is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Started {
    /// How often it had been started before.
    run: u32,
}

/// Why a pod is about to be stopped, where that is to stand in its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Termination {
    /// A CamelCase word. An earlier release wrote none: there was one reason only.
    #[serde(default = "evicted")]
    pub reason: String,
    /// A sentence.
    pub message: String,
}

fn evicted() -> String {
    EVICTED.to_owned()
}

/// Which process a shim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimProcess {
    pub pid: i32,
    /// Its start time, so that a later process with this pid is not taken for it.
    pub start_ticks: u64,
}

impl ShimProcess {
    /// The process that asks.
    pub fn of_self() -> ShimProcess {
        let pid = std::process::id().cast_signed();
        ShimProcess { pid, start_ticks: procfs::start_ticks(pid).unwrap_or(0) }
    }

    /// Tells who the shim of `dir` is.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec(self).map_err(io::Error::other)?;
        write_atomic(&dir.join(SHIM_FILE), &bytes, Durability::Process)
    }

    /// Whether the process of this pid still is the one that was meant. Ask after having opened something of it: then what was
    /// opened is its own, whoever has the pid later.
    pub fn is_current(&self) -> bool {
        procfs::start_ticks(self.pid) == Some(self.start_ticks)
    }

    /// Who the shim of `dir` was when it started.
    pub fn read(dir: &Path) -> io::Result<ShimProcess> {
        serde_json::from_slice(&read_bounded(&dir.join(SHIM_FILE), 4096)?).map_err(io::Error::other)
    }
}

/// Takes the lock that a shim holds for as long as it or a container of it lives.
pub fn lock(dir: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(dir.join(LOCK_FILE))?;
    lock_file(&file)?;
    Ok(file)
}

/// Locks a file for as long as it is open.
pub fn lock_file(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file()))?;
    Ok(())
}

/// Whether an agent brings the last status in `dir` to the disk before it tells anybody.
pub fn agent_syncs(dir: &Path) -> bool {
    dir.ancestors().nth(2).is_some_and(|node| is_locked(&node.join(EXITS_FILE)))
}

/// Whether a shim holds the lock of `dir`; asks without taking it.
pub fn is_alive(dir: &Path) -> bool {
    is_locked(&dir.join(LOCK_FILE))
}

fn is_locked(path: &Path) -> bool {
    let Ok(file) = OpenOptions::new().write(true).open(path) else { return false };
    let mut found = whole_file();
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut found)).is_ok() && i32::from(found.l_type) != libc::F_UNLCK
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// The shim's end of the pipe; opened for both ways so that it never reads an end of file.
pub fn open_pipe(dir: &Path) -> io::Result<File> {
    let path = dir.join(PIPE_FILE);
    match nix::unistd::mkfifo(&path, Mode::from_bits_truncate(0o600)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)
}

/// Empties the pipe; whether somebody had written to it.
pub fn was_woken(pipe: &mut File) -> bool {
    let mut sink = [0; 64];
    let mut woken = false;
    while matches!(pipe.read(&mut sink), Ok(n) if n > 0) {
        woken = true;
    }
    woken
}

/// The request of now to stop the pod, if any.
pub fn requested_stop(dir: &Path) -> Option<Stop> {
    read_request(&dir.join(STOP_FILE))
}

/// The latest request to end a run of `container`, if any.
pub fn requested_restart(dir: &Path, container: &str) -> Option<Restart> {
    read_request(&restart_file(dir, container))
}

/// Asks the shim of `dir` to stop its pod. A shim that is not there reads the request when it starts.
pub fn request_stop(dir: &Path, stop: Stop) -> io::Result<()> {
    request(dir, &dir.join(STOP_FILE), &stop)
}

/// Stops the pod of `dir` and says why; a pod that is being stopped already keeps the reason that it has.
pub fn request_termination(dir: &Path, why: &Termination, stop: Stop) -> io::Result<()> {
    request(dir, &dir.join(TERMINATION_FILE), why)?;
    request_stop(dir, stop)
}

/// Why the pod is to be stopped, if somebody said.
pub fn requested_termination(dir: &Path) -> Option<Termination> {
    read_request(&dir.join(TERMINATION_FILE))
}

/// Asks the shim of `dir` to end one run of `container`.
pub fn request_restart(dir: &Path, container: &str, restart: Restart) -> io::Result<()> {
    request(dir, &restart_file(dir, container), &restart)
}

/// Tells the shim of `dir` that a run of `container` is up: what comes after it may start.
pub fn tell_started(dir: &Path, container: &str, run: u32) -> io::Result<()> {
    request(dir, &started_file(dir, container), &Started { run })
}

/// Whether this run of `container` is up, or was one before it.
pub fn has_started(dir: &Path, container: &str, run: u32) -> bool {
    read_request::<Started>(&started_file(dir, container)).is_some_and(|started| started.run <= run)
}

fn started_file(dir: &Path, container: &str) -> PathBuf {
    dir.join(format!("started.{container}.json"))
}

/// Names of containers are labels, so they can be part of a file's.
fn restart_file(dir: &Path, container: &str) -> PathBuf {
    dir.join(format!("restart.{container}.json"))
}

fn read_request<T: DeserializeOwned>(file: &Path) -> Option<T> {
    serde_json::from_slice(&read_bounded(file, REQUEST_BYTES_MAX).ok()?).ok()
}

fn request(dir: &Path, file: &Path, request: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(request).map_err(io::Error::other)?;
    write_atomic(file, &bytes, Durability::Process)?;
    wake(dir)
}

/// Has the shim of `dir` look at what is asked of it.
pub fn wake(dir: &Path) -> io::Result<()> {
    let pipe =
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(dir.join(PIPE_FILE));
    match pipe {
        // A full pipe has woken it already.
        Ok(mut pipe) => match pipe.write(b"s") {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        },
        // No pipe yet, or no reader: the file is enough.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENOENT)) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_seen_whether_made_before_or_after_the_pipe() {
        let dir = tempfile::tempdir().unwrap();
        request_stop(dir.path(), Stop { grace_seconds: 30 }).unwrap();
        let mut pipe = open_pipe(dir.path()).unwrap();
        assert_eq!(requested_stop(dir.path()), Some(Stop { grace_seconds: 30 }));
        assert!(!was_woken(&mut pipe));
        request_stop(dir.path(), Stop { grace_seconds: 1 }).unwrap();
        assert!(was_woken(&mut pipe));
        assert_eq!(requested_stop(dir.path()), Some(Stop { grace_seconds: 1 }));
        let restart = Restart { run: 2, grace_seconds: 5 };
        request_restart(dir.path(), "a", restart).unwrap();
        assert!(was_woken(&mut pipe) && !was_woken(&mut pipe));
        assert_eq!(requested_restart(dir.path(), "a"), Some(restart));
        assert_eq!(requested_restart(dir.path(), "b"), None);
        tell_started(dir.path(), "a", 3).unwrap();
        assert!(was_woken(&mut pipe));
        let heard = [("a", 2), ("a", 3), ("a", 4), ("b", 3)].map(|(name, run)| has_started(dir.path(), name, run));
        assert_eq!(heard, [false, true, true, false]);
    }

    #[test]
    fn a_reason_of_an_earlier_release_is_an_eviction() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(TERMINATION_FILE), r#"{"message": "too large"}"#).unwrap();
        let expected = Termination { reason: "Evicted".into(), message: "too large".into() };
        assert_eq!(requested_termination(dir.path()), Some(expected));
        let why = Termination { reason: "Terminated".into(), message: "shutdown".into() };
        request_termination(dir.path(), &why, Stop { grace_seconds: 7 }).unwrap();
        assert_eq!(requested_termination(dir.path()), Some(why));
        assert_eq!(requested_stop(dir.path()), Some(Stop { grace_seconds: 7 }));
    }

    #[test]
    fn a_lock_says_that_somebody_lives() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_alive(dir.path()));
        let held = lock(dir.path()).unwrap();
        assert!(is_alive(dir.path()));
        assert!(lock(dir.path()).is_err());
        drop(held);
        assert!(!is_alive(dir.path()));
    }
}
