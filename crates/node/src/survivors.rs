//! Processes that are still there after they were killed: which, why, and what helps.
//!
//! A process ends when the kernel lets it run once more, and there are two that it doesn't let: one in a frozen control group of
//! version 1, and one that waits uninterruptibly for a device or a file system. Invariant: only a pod's own groups are thawed; what
//! others froze is told. Called by the shim before it kills, by the agent and by the teardown.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::{CgroupSpec, group_of};
use crate::procfs;
use crate::shim::control::ShimProcess;

/// Most processes named in one message.
const NAMED_MAX: usize = 5;
/// Most levels of control groups that are looked through for the one that is frozen.
const GROUP_LEVELS_MAX: usize = 64;

/// A process that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Survivor {
    /// Its pid on the host.
    pub pid: i32,
    /// Its command's name.
    pub name: String,
    /// What keeps it.
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
        (Some(cause), _) => cause,
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

/// Where groups can be frozen, and how.
struct Freezer {
    mount: PathBuf,
    v2: bool,
}

impl Freezer {
    /// All of them in the text of `/proc/self/mounts`.
    fn find(mounts: &str) -> Vec<Freezer> {
        let fields = mounts.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let found = fields.filter_map(|fields| match fields[..] {
            [_, at, "cgroup2", ..] => Some(Freezer { mount: at.into(), v2: true }),
            [_, at, "cgroup", options, ..] if options.split(',').any(|option| option == "freezer") => {
                Some(Freezer { mount: at.into(), v2: false })
            }
            _ => None,
        });
        found.collect()
    }

    /// The group of a process, by the text of its `/proc/PID/cgroup`.
    fn group(&self, groups: &str) -> Option<PathBuf> {
        let path = group_of(groups, (!self.v2).then_some("freezer"))?;
        Some(self.mount.join(path.trim_start_matches('/')))
    }

    /// Which group at or above `group` is frozen by itself.
    fn frozen(&self, group: PathBuf) -> Option<Cause> {
        let (asked, on, file, thawed) = if self.v2 {
            ("cgroup.freeze", "1", "cgroup.freeze", "0")
        } else {
            ("freezer.self_freezing", "1", "freezer.state", "THAWED")
        };
        let groups = group.ancestors().take_while(|dir| dir.starts_with(&self.mount)).take(GROUP_LEVELS_MAX);
        let mut frozen = groups.filter(|dir| fs::read_to_string(dir.join(asked)).is_ok_and(|text| text.trim() == on));
        frozen.next().map(|dir| Cause::Frozen { file: dir.join(file), thawed })
    }
}

/// Thaws a pod's own groups and its containers'. One that never froze costs a look.
pub(crate) fn thaw(pod: &CgroupSpec) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for freezer in Freezer::find(&mounts) {
        let own = freezer.mount.join(&pod.path);
        let containers = fs::read_dir(&own).into_iter().flatten().flatten().map(|entry| entry.path());
        for group in std::iter::once(own.clone()).chain(containers) {
            if let Some(Cause::Frozen { file, thawed }) = freezer.frozen(group)
                && file.starts_with(&own)
            {
                // One that can't be thawed is told as what it is.
                let _ = fs::write(file, thawed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Hierarchy;

    #[test]
    fn a_frozen_group_is_found_in_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("freezer"), dir.path().join("unified"));
        let mounts = format!(
            "proc /proc proc rw 0 0\ncgroup {} cgroup rw,freezer 0 0\ncgroup2 {} cgroup2 rw 0 0\nnonsense\n",
            one.display(),
            two.display()
        );
        for (file, text) in [
            ("freezer/a/freezer.self_freezing", "1\n"),
            ("freezer/a/b/freezer.self_freezing", "0\n"),
            ("unified/a/cgroup.freeze", "0\n"),
            ("unified/a/b/cgroup.freeze", "1\n"),
        ] {
            fs::create_dir_all(dir.path().join(file).parent().unwrap()).unwrap();
            fs::write(dir.path().join(file), text).unwrap();
        }
        let frozen = |groups: &str| {
            let causes = Freezer::find(&mounts);
            let causes = causes.iter().map(|freezer| freezer.frozen(freezer.group(groups)?));
            causes.collect::<Vec<_>>()
        };
        let by = |file: &str, thawed| Some(Cause::Frozen { file: dir.path().join(file), thawed });
        let cases = [
            ("6:freezer:/a/b\n0::/a\n", vec![by("freezer/a/freezer.state", "THAWED"), None]),
            ("5:cpu,freezer:/\n0::/a/b\n", vec![None, by("unified/a/b/cgroup.freeze", "0")]),
            ("0::/gone\n", vec![None, None]),
            ("", vec![None, None]),
        ];
        for (groups, expected) in cases {
            assert_eq!(frozen(groups), expected, "{groups:?}");
        }
    }

    #[test]
    fn thawing_a_pod_without_groups_does_nothing() {
        let hierarchy = Hierarchy::V2 { root: "/nowhere".into(), pids: true };
        thaw(&CgroupSpec::of(hierarchy, "pumice/nowhere/u".into()));
    }

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
