//! Control groups that are frozen: which, and thawing those of a pod.
//!
//! Invariant: only a pod's own groups are thawed; what others froze is reported. Called by the shim before it kills, and by
//! `survivors`.

use std::fs;
use std::path::PathBuf;

use crate::cgroup::{CgroupSpec, group_of};

/// Most levels of control groups that are looked through for the one that is frozen.
const GROUP_LEVELS_MAX: usize = 64;

/// A frozen control group: by writing this text to this file it is thawed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frozen {
    pub file: PathBuf,
    pub thawed: &'static str,
}

/// Where groups can be frozen, and how.
pub struct Freezer {
    mount: PathBuf,
    v2: bool,
}

impl Freezer {
    /// All of them in the text of `/proc/self/mounts`.
    pub fn find(mounts: &str) -> Vec<Freezer> {
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
    pub fn group(&self, groups: &str) -> Option<PathBuf> {
        let path = group_of(groups, (!self.v2).then_some("freezer"))?;
        Some(self.mount.join(path.trim_start_matches('/')))
    }

    /// Which group at or above `group` is frozen by itself.
    pub fn frozen(&self, group: PathBuf) -> Option<Frozen> {
        let (switch, on, file, thawed) = if self.v2 {
            ("cgroup.freeze", "1", "cgroup.freeze", "0")
        } else {
            ("freezer.self_freezing", "1", "freezer.state", "THAWED")
        };
        let groups = group.ancestors().take_while(|dir| dir.starts_with(&self.mount)).take(GROUP_LEVELS_MAX);
        let mut frozen = groups.filter(|dir| fs::read_to_string(dir.join(switch)).is_ok_and(|text| text.trim() == on));
        frozen.next().map(|dir| Frozen { file: dir.join(file), thawed })
    }
}

/// Thaws a pod's own groups and its containers'. One that never froze costs a look.
pub fn thaw(pod: &CgroupSpec) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for freezer in Freezer::find(&mounts) {
        let own = freezer.mount.join(&pod.path);
        let containers = fs::read_dir(&own).into_iter().flatten().flatten().map(|entry| entry.path());
        for group in std::iter::once(own.clone()).chain(containers) {
            if let Some(Frozen { file, thawed }) = freezer.frozen(group)
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
        let by = |file: &str, thawed| Some(Frozen { file: dir.path().join(file), thawed });
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
        let hierarchy = Hierarchy::V2 { root: "/nowhere".into(), pids: true, devices: true, disk: None };
        thaw(&CgroupSpec::of(hierarchy, "pumice/nowhere/u".into()));
    }
}
