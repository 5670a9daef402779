//! What the root of a pod's own users tries, with all rights that a container can have: its rights are over what is the pod's.
//!
//! Most of it others try, too, and are stopped by what this one does not have: a filter, covers, a right that was dropped.

use std::fs;
use std::io;

use super::{data, devices, kernel, mounts, proc_files, processes, rights};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

/// The row of this name again, in a pod whose users are its own.
macro_rules! again {
    ($rows:path, $name:literal, $pod:ident) => {
        Row {
            name: concat!($name, ", with users of the pod's own"),
            attempt: attempt_of($rows, $name),
            pod: PodKind::$pod,
            control: Control::OwnUsers,
        }
    };
}

const fn attempt_of(rows: &'static [Row], name: &str) -> fn(&Facts) -> io::Result<()> {
    let mut at = 0;
    while at < rows.len() {
        if is_same(rows[at].name.as_bytes(), name.as_bytes()) {
            return rows[at].attempt;
        }
        at += 1;
    }
    panic!("there is no such row")
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    one.len() == other.len() && at == one.len()
}

const fn foreign(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::OwnRoot, control: Control::OwnUsers }
}

pub const ROWS: &[Row] = &[
    again!(mounts::ROWS, "mount debugfs", OwnRoot),
    again!(mounts::ROWS, "change release_agent of control groups", OwnRoot),
    again!(mounts::ROWS, "make /sys writable", OwnRoot),
    again!(mounts::ROWS, "make /sys writable by mount_setattr", OwnRoot),
    again!(mounts::ROWS, "make a read-only volume writable", OwnRoot),
    again!(mounts::ROWS, "take away what covers the data directory", OwnRoot),
    again!(proc_files::ROWS, "write kernel.core_pattern", OwnRoot),
    again!(proc_files::ROWS, "write kernel.modprobe", OwnRoot),
    again!(proc_files::ROWS, "write vm.overcommit_memory", OwnRoot),
    again!(proc_files::ROWS, "write fs.suid_dumpable", OwnRoot),
    again!(proc_files::ROWS, "open /proc/sysrq-trigger", OwnRoot),
    again!(proc_files::ROWS, "choose the CPUs of interrupts", OwnRoot),
    again!(devices::ROWS, "make the node of a disk in a volume and open it", OwnRoot),
    again!(devices::ROWS, "open a disk by the host's node", OwnRoot),
    again!(devices::ROWS, "open a disk by its node in a volume", OwnRoot),
    again!(devices::ROWS, "open the kernel's log", OwnRoot),
    again!(devices::ROWS, "open memory by /dev/mem", OwnRoot),
    again!(devices::ROWS, "open /dev/loop-control", OwnRoot),
    again!(kernel::ROWS, "reboot", OwnRoot),
    again!(kernel::ROWS, "init_module", OwnRoot),
    again!(kernel::ROWS, "delete_module", OwnRoot),
    again!(kernel::ROWS, "settimeofday", OwnRoot),
    again!(kernel::ROWS, "change how fast the clock goes", OwnRoot),
    again!(kernel::ROWS, "read the kernel's log", OwnRoot),
    again!(kernel::ROWS, "acct", OwnRoot),
    again!(kernel::ROWS, "iopl", OwnRoot),
    again!(kernel::ROWS, "ioperm", OwnRoot),
    again!(kernel::ROWS, "watch all accesses by fanotify", OwnRoot),
    again!(kernel::ROWS, "swapon", OwnRoot),
    again!(data::ROWS, "open a file of the data directory by its handle", OwnRoot),
    again!(processes::ROWS, "see a process of another pod", OwnUsersHostProcesses),
    again!(processes::ROWS, "signal a process of another pod", OwnUsersHostProcesses),
    again!(processes::ROWS, "signal the shim of another pod", OwnUsersHostProcesses),
    again!(processes::ROWS, "trace a process of another pod", OwnUsersHostProcesses),
    again!(processes::ROWS, "read the memory of another pod", OwnUsersHostProcesses),
    again!(processes::ROWS, "set the limits of a process of another pod", OwnUsersHostProcesses),
    again!(processes::ROWS, "read the volume of another pod through its process", OwnUsersHostProcesses),
    foreign("read a file of another pod's users", |facts| fs::read(facts.volume.join("of-other-pod")).map(drop)),
    foreign("change the mode of a file of another pod's users", |facts| {
        fs::set_permissions(
            facts.volume.join("of-other-pod"),
            fs::metadata(facts.volume.join("of-other-pod"))?.permissions(),
        )
    }),
    foreign("take a file of another pod's users over", |facts| {
        use std::os::unix::fs::{MetadataExt, chown};
        let path = facts.volume.join("of-other-pod");
        let now = fs::metadata(&path)?;
        chown(&path, Some(now.uid()), Some(now.gid()))
    }),
    foreign("become another pod's user by a program in a volume", |facts| {
        rights::gains(&facts.volume.join("set-id-of-other-pod"), "other")
    }),
];
