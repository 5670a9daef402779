//! Files of the kernel in `/proc` and `/sys` that are about the whole machine.

use std::fs;
use std::io;

use super::{has_content, is_so, open_to_write, write_same};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const fn row(name: &'static str, control: Control, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control }
}

const fn covered(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    row(name, Control::Unprivileged, attempt)
}

pub const ROWS: &[Row] = &[
    covered("write kernel.core_pattern", |_| write_same("/proc/sys/kernel/core_pattern")),
    covered("write kernel.modprobe", |_| write_same("/proc/sys/kernel/modprobe")),
    covered("write kernel.randomize_va_space", |_| write_same("/proc/sys/kernel/randomize_va_space")),
    covered("write kernel.panic", |_| write_same("/proc/sys/kernel/panic")),
    covered("write vm.overcommit_memory", |_| write_same("/proc/sys/vm/overcommit_memory")),
    covered("write fs.suid_dumpable", |_| write_same("/proc/sys/fs/suid_dumpable")),
    covered("write fs.protected_symlinks", |_| write_same("/proc/sys/fs/protected_symlinks")),
    covered("write net.ipv4.ip_forward", |_| write_same("/proc/sys/net/ipv4/ip_forward")),
    covered("write kernel.hostname", |_| write_same("/proc/sys/kernel/hostname")),
    covered("choose the CPUs of interrupts", |_| write_same("/proc/irq/default_smp_affinity")),
    // Opened only: what is written there takes effect at once.
    covered("open /proc/sysrq-trigger", |_| open_to_write("/proc/sysrq-trigger")),
    covered("open what drops caches", |_| open_to_write("/proc/sys/vm/drop_caches")),
    covered("read /proc/kcore", |_| has_content("/proc/kcore")),
    covered("read /proc/keys", |_| has_content("/proc/keys")),
    covered("read /proc/timer_list", |_| has_content("/proc/timer_list")),
    covered("read /proc/interrupts", |_| has_content("/proc/interrupts")),
    covered("list /sys/firmware", |_| is_so(fs::read_dir("/sys/firmware")?.next().is_some())),
    row("write a parameter of memory in /sys", Control::OwnSys, |_| {
        write_same("/sys/kernel/mm/transparent_hugepage/enabled")
    }),
    row("write where devices are announced", Control::OwnSys, |_| write_same("/sys/kernel/uevent_helper")),
    row("join a control group of the host", Control::NoControlGroups, |_| open_to_write("/sys/fs/cgroup/cgroup.procs")),
    row("make a control group of the host", Control::NoControlGroups, |_| {
        let path = format!("/sys/fs/cgroup/pumice-ways-out-{}", std::process::id());
        fs::create_dir(&path)?;
        fs::remove_dir(&path)
    }),
    row("list control groups of the host", Control::NoControlGroups, |_| list_control_groups()),
];

pub const NOT_HELD_YET: &[Row] = &[Row {
    name: "list control groups of the host as the root of a user",
    attempt: |_| list_control_groups(),
    pod: PodKind::Rootless,
    control: Control::Missing("a /sys that is not the host's, which takes a network of one's own"),
}];

fn list_control_groups() -> io::Result<()> {
    is_so(fs::read_dir("/sys/fs/cgroup")?.next().is_some())
}
