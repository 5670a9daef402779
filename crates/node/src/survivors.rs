//! Processes that are still there after they were killed: which, why, and what helps.
//!
//! A process ends when the kernel lets it run once more, and there are two that it doesn't let: one in a frozen control group of
//! version 1 (see `freezer`), and one that waits uninterruptibly for a device or a file system. Called by the agent and by the
//! teardown.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use pumice_linux::freezer::{Freezer, Frozen};
use pumice_linux::procfs;
use pumice_shim::control::ShimProcess;

/// Most processes named in one message.
const NAMED_MAX: usize = 5;

/// A process that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Survivor {
    /// Its pid on the host.
    pub pid: i32,
    pub name: String,
    pub cause: Cause,
}

/// What keeps a process that was killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A control group is frozen; by writing this text to this file it is thawed.
    Frozen { file: PathBuf, thawed: &'static str },
    /// It waits for the kernel, in this function where that is known.
    Uninterruptible { function: Option<String> },
    /// Nothing that can be seen: it may be about to end.
    Unknown { state: char },
}

impl fmt::Display for Survivor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "process {} ({}) ", self.pid, self.name)?;
        match &self.cause {
            Cause::Frozen { file, thawed } => {
                let file = file.display();
                write!(out, "is in a frozen control group: echo {thawed} > {file}")
            }
            Cause::Uninterruptible { function } => {
                let place = function.as_ref().map(|function| format!(" in {function}")).unwrap_or_default();
                write!(
                    out,
                    "waits uninterruptibly{place} (state D), mostly for a disk or a file system that does not answer: it ends when \
                     that answers"
                )
            }
            Cause::Unknown { state } => write!(out, "has not ended yet (state {state})"),
        }
    }
}

/// All of `survivors` in one sentence.
pub(crate) fn sentence(survivors: &[Survivor]) -> String {
    let named: Vec<String> = survivors.iter().take(NAMED_MAX).map(Survivor::to_string).collect();
    let more = survivors.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    named.join("; ") + &more
}

/// What is left of the pod in `dir`, but for its shim and the first processes of its containers, which wait for the others.
pub(crate) fn of_pod(dir: &Path) -> Vec<Survivor> {
    let Ok(shim) = ShimProcess::read(dir) else { return Vec::new() };
    if !shim.is_current() {
        return Vec::new();
    }
    let mut left = procfs::descendants(shim.pid);
    let first = procfs::children(shim.pid);
    if left.len() > first.len() {
        left.retain(|pid| !first.contains(pid));
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let freezers = Freezer::find(&mounts);
    left.into_iter().filter_map(|pid| survivor(pid, &freezers)).collect()
}

fn survivor(pid: i32, freezers: &[Freezer]) -> Option<Survivor> {
    let (name, state) = procfs::name_and_state(pid)?;
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let frozen = freezers.iter().find_map(|freezer| freezer.frozen(freezer.group(&groups)?));
    let cause = match (frozen, state) {
        (_, 'Z' | 'X') => return None,
        (Some(Frozen { file, thawed }), _) => Cause::Frozen { file, thawed },
        (None, 'D') => Cause::Uninterruptible { function: waits_in(pid) },
        (None, state) => Cause::Unknown { state },
    };
    Some(Survivor { pid, name, cause })
}

/// The kernel's function in which a process sleeps; not all kernels say.
fn waits_in(pid: i32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/wchan")).ok()?;
    Some(text).filter(|text| !text.is_empty() && text != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_said_with_what_helps() {
        let of = |pid, cause| Survivor { pid, name: "solve".into(), cause };
        let frozen = Cause::Frozen { file: "/f/freezer.state".into(), thawed: "THAWED" };
        let survivors = [of(7, frozen), of(8, Cause::Uninterruptible { function: Some("nfs_wait".into()) })];
        assert_eq!(
            sentence(&survivors),
            "process 7 (solve) is in a frozen control group: echo THAWED > /f/freezer.state; process 8 (solve) waits \
             uninterruptibly in nfs_wait (state D), mostly for a disk or a file system that does not answer: it ends when that answers"
        );
        let many: Vec<_> = (0..7).map(|pid| of(pid, Cause::Unknown { state: 'R' })).collect();
        assert!(sentence(&many).ends_with("process 4 (solve) has not ended yet (state R); and 2 more"));
    }
}
