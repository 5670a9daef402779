//! Groups as directories: made while others remove them, listed, and removed with what is in them.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use super::{EXEC_GROUP, own};

/// How often a group is made anew that others remove meanwhile. On a busy machine a hundred were once too few.
const MAKE_ATTEMPTS: u32 = 1000;

/// Makes a group and those above it. Another node that ends removes groups that are empty, which those above are until the
/// one below is made.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    for _ in 0..MAKE_ATTEMPTS {
        match fs::create_dir_all(dir) {
            // The second is one that was found, and gone when it was looked at.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {}
            made => return made,
        }
    }
    fs::create_dir_all(dir)
}

pub(super) fn children(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

pub(super) fn processes(dir: &Path) -> Vec<i32> {
    let own = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<i32> = own.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let children = children(dir).into_iter().filter(|name| name != own::AGENT);
    pids.extend(children.flat_map(|name| processes(&dir.join(name))));
    pids
}

pub(super) fn kill_all(pids: Vec<i32>) {
    for pid in pids {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// How often a group that is still busy is tried again, 5 ms apart.
const REMOVE_ATTEMPTS: u32 = 40;
/// Attempts before the processes of [`EXEC_GROUP`] and shims are killed too: they see by themselves that the container has
/// ended, and tell how its program did.
const OWN_ATTEMPTS: u32 = 20;

pub(super) fn remove_tree(dir: &Path) {
    match fs::remove_dir(dir) {
        // Something is in it, or below it.
        Err(error) if error.kind() != io::ErrorKind::NotFound => {}
        _ => return,
    }
    for child in children(dir) {
        remove_tree(&dir.join(child));
    }
    let spared = match dir.file_name().and_then(OsStr::to_str) {
        Some(EXEC_GROUP | own::SHIMS) => OWN_ATTEMPTS,
        Some(own::AGENT) => REMOVE_ATTEMPTS,
        _ => 0,
    };
    for attempt in 0..REMOVE_ATTEMPTS {
        match fs::remove_dir(dir) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if attempt >= spared {
                    kill_all(processes(dir));
                }
                if attempt > 0 {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::thread;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a pause of one that gets in the way, not a wait")]
    fn a_group_is_made_while_others_remove_what_is_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let (above, group) = (dir.path().join("pumice"), dir.path().join("pumice/node/uid"));
        let over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = fs::remove_dir(above.join("node")).and_then(|()| fs::remove_dir(&above));
                    thread::sleep(std::time::Duration::from_micros(20));
                }
            });
            let made: io::Result<Vec<()>> =
                (0..4_000).map(|_| make_dir(&group).and_then(|()| fs::remove_dir(&group))).collect();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            made.unwrap();
        });
    }
}
