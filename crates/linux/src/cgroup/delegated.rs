//! Groups of version 2 that systemd has handed over to a service, such as one of an ordinary user's.
//!
//! Invariant: only a group of which it or systemd says that it was handed over is used, since all others are systemd's to change. A
//! group either has processes or shares out to those below, so what runs in it moves into one of its own.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::directory::make_dir;
use super::own::move_process;
use super::{Hierarchy, group_of};

/// What the machine's systemd writes on a group that it has handed over. A user's own writes nothing, and is asked.
const MARK: &std::ffi::CStr = c"user.delegate";
/// Of the processes that were in such a group itself. It is beside those of all nodes.
const SERVICE: &str = "service.processes";
/// How often processes are moved that begin meanwhile.
const MOVES: u32 = 10;

impl Hierarchy {
    /// The part of version 2 that was handed over to this process, if one was: pods' groups can be made there without root. Moves
    /// this process into a group of its own there.
    ///
    /// # Errors
    /// Where it was handed over, and can't be used all the same.
    pub fn delegated(&self) -> io::Result<Option<Hierarchy>> {
        let Hierarchy::V2 { root, pids, devices, disk } = self else { return Ok(None) };
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let Some(found) = handed_over(root, &groups, |group| is_marked(group) || is_of_user(group)) else {
            return Ok(None);
        };
        vacate(&found)?;
        Ok(Some(Hierarchy::V2 { root: found, pids: *pids, devices: *devices, disk: disk.clone() }))
    }
}

/// The group of a process if it was handed over, or the one above: a service may have its processes in a group below its own
/// (`DelegateSubgroup=`).
fn handed_over(root: &Path, groups: &str, is_delegated: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let own = root.join(group_of(groups, None)?.trim_start_matches('/'));
    let units = [".service", ".scope"];
    let is_unit = own.to_str().is_some_and(|path| units.iter().any(|kind| path.ends_with(kind)));
    own.ancestors()
        .take(if is_unit { 1 } else { 2 })
        .take_while(|group| *group != root)
        .find(|group| is_delegated(group))
        .map(Path::to_owned)
}

#[allow(unsafe_code)]
fn is_marked(group: &Path) -> bool {
    let Ok(path) = CString::new(group.as_os_str().as_bytes()) else { return false };
    let mut value = [0_u8; 1];
    // SAFETY: both texts end with a zero byte, and the kernel writes no more than the length says.
    let length = unsafe { libc::getxattr(path.as_ptr(), MARK.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    length == 1 && value == *b"1"
}

/// Whether this user's systemd has handed over the group of a unit.
fn is_of_user(group: &Path) -> bool {
    let Some(unit) = group.file_name() else { return false };
    let mut systemctl = Command::new("systemctl");
    systemctl.args(["--user", "show", "--property=Delegate", "--value", "--"]).arg(unit);
    systemctl.stdin(Stdio::null()).output().is_ok_and(|told| told.stdout.trim_ascii() == b"yes")
}

/// Moves what is in a group itself into one below.
fn vacate(group: &Path) -> io::Result<()> {
    let service = group.join(SERVICE);
    for _ in 0..MOVES {
        let inside = fs::read_to_string(group.join("cgroup.procs"))?;
        if inside.trim().is_empty() {
            return Ok(());
        }
        make_dir(&service)?;
        for pid in inside.lines().filter_map(|line| line.trim().parse().ok()) {
            match move_process(&service, pid) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                moved => moved?,
            }
        }
    }
    Err(io::Error::other("processes begin in the service's group faster than they can be moved"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_group_that_was_handed_over_is_used() {
        let root = Path::new("/sys/fs/cgroup");
        let marked =
            |names: &'static [&'static str]| move |group: &Path| names.iter().any(|name| group.ends_with(name));
        let found = |groups: &str, names| handed_over(root, groups, marked(names));
        let service = "0::/user.slice/u@1.service/app.slice/p.service\n";
        assert_eq!(found(service, &["p.service"]), Some(root.join("user.slice/u@1.service/app.slice/p.service")));
        assert_eq!(found("0::/u@1.service/p.service\n", &["u@1.service"]), None, "it is the manager's");
        let below = "0::/user.slice/u@1.service/app.slice/p.service/main\n";
        assert_eq!(found(below, &["p.service"]), Some(root.join("user.slice/u@1.service/app.slice/p.service")));
        assert_eq!(found("0::/\n", &["cgroup"]), None);
        assert_eq!(found("4:memory:/a\n", &["a"]), None);
    }

    #[test]
    fn what_is_in_a_group_moves_below() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        vacate(dir.path()).unwrap();
        assert!(!dir.path().join(SERVICE).exists(), "nothing was in it");
        // Here writing moves nothing.
        fs::write(dir.path().join("cgroup.procs"), "7\n").unwrap();
        vacate(dir.path()).unwrap_err();
        assert_eq!(fs::read_to_string(dir.path().join(SERVICE).join("cgroup.procs")).unwrap(), "7");
        assert!(!is_marked(dir.path()));
    }
}
