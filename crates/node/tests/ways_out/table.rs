//! What a row of the table consists of: an attempt, the pod that makes it, the control that is to stop it.
//!
//! Invariant: each [`Control`] is one thing that a pod's spec or its shim's says, so that the same pod without it differs in
//! nothing else.

use std::fmt;
use std::io;

use crate::attempts;
use crate::facts::Facts;

/// One way out of a pod.
pub struct Row {
    /// What is tried; no other row is called so.
    pub name: &'static str,
    pub attempt: fn(&Facts) -> io::Result<()>,
    pub pod: PodKind,
    pub control: Control,
}

/// The pods that attempts are made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodKind {
    /// One that says nothing of its security.
    Usual,
    /// The same, whose attempts are made by another program in it, as probes, hooks and `kubectl exec` start one.
    Exec,
    /// User 65534, a read-only root, no way to gain rights.
    Tenant,
    /// Root of the container, without any of root's rights.
    RightsDropped,
    /// Of a platform that an ordinary user runs.
    Rootless,
    /// Of a namespace that enforces `restricted`, but as root, so that nothing but its root directory stops it.
    Restricted,
    /// One that says nothing but `hostUsers: false`.
    OwnUsers,
    /// A privileged one with users of its own.
    OwnRoot,
    /// One with users of its own that sees the host's processes, as the API lets none.
    OwnUsersHostProcesses,
    /// With limits of memory and processes.
    Limited,
    /// One that mounts the platform's data directory, by a link that was exchanged after the agent had looked.
    DataMounted,
    /// One that mounts the folder that holds the data directory.
    ParentMounted,
    /// One with the right to make nodes of devices.
    MakesNodes,
    /// One that may open every device of the machine.
    AllDevices,
    /// One whose program is `/proc/self/exe`, which is the platform's own while the container starts.
    PlatformProgram,
}

/// What stops an attempt, and can be switched off by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Control {
    /// A right of root that the container does not have, with the system calls that its filter allows for it.
    Capability(&'static str),
    /// The filter of system calls; off is `seccompProfile: Unconfined`.
    Seccomp,
    /// Own devices, a `/proc` with covered parts, no right of root but the usual ones; off is `privileged`.
    Unprivileged,
    NoNewPrivileges,
    /// An ordinary user; off is user 0.
    User,
    ReadOnlyRoot,
    ReadOnlyVolume,
    /// The network namespace; off is `hostNetwork`.
    OwnNetwork,
    MemoryLimit,
    ProcessLimit,
    /// The control group of devices; off is one that allows all.
    DeviceGroup,
    /// The container's own read-only `/sys`; off is the host's as a volume over it.
    OwnSys,
    /// That the container sees no control groups; off is a hierarchy of them as a volume.
    NoControlGroups,
    /// Namespaces of processes, mounts, System V objects and host names.
    Namespaces,
    /// The user namespace in which an ordinary user is the container's root; off is a platform that root runs.
    UserNamespace,
    /// Users of the pod's own, where root runs the platform; off is those of the machine.
    OwnUsers,
    /// That volumes lie outside of the data directory, and that an empty folder covers it wherever it is shown.
    HiddenFolder,
    /// The root with the host's programs and settings alone; off is one with all of its files.
    AllowList,
    /// The root whose changes are thrown away; off is the host's own.
    Overlay,
    /// The read-only view that shims are started from; off is the program's file itself.
    ProgramView,
    /// There is none yet that stops the attempt, and this is the one that would.
    Missing(&'static str),
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Control::Capability(name) => return write!(f, "no {name}"),
            Control::Missing(name) => return write!(f, "missing: {name}"),
            Control::Seccomp => "seccomp",
            Control::Unprivileged => "not privileged",
            Control::NoNewPrivileges => "no_new_privs",
            Control::User => "user",
            Control::ReadOnlyRoot => "read-only root",
            Control::ReadOnlyVolume => "read-only volume",
            Control::OwnNetwork => "network namespace",
            Control::MemoryLimit => "memory limit",
            Control::ProcessLimit => "process limit",
            Control::DeviceGroup => "device group",
            Control::OwnSys => "own /sys",
            Control::NoControlGroups => "no cgroup mounts",
            Control::Namespaces => "namespaces",
            Control::UserNamespace => "user namespace",
            Control::OwnUsers => "users of the pod's own",
            Control::HiddenFolder => "hidden folder",
            Control::AllowList => "allow-listed root",
            Control::Overlay => "overlay root",
            Control::ProgramView => "view of the program",
        };
        f.write_str(name)
    }
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Out,
    /// Refused: by an error, by a signal, or since there is no such pod.
    Refused(String),
    /// This kernel has no such call.
    Absent,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Out => f.write_str("out"),
            Outcome::Refused(why) => write!(f, "held {why}"),
            Outcome::Absent => f.write_str("absent"),
        }
    }
}

impl Outcome {
    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Outcome> {
        match text {
            "out" => Some(Outcome::Out),
            "absent" => Some(Outcome::Absent),
            text => text.strip_prefix("held ").map(|why| Outcome::Refused(why.to_owned())),
        }
    }
}

/// The rows that a control stops.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    attempts::TABLES.iter().copied().flatten()
}

/// The rows that nothing stops yet.
pub fn not_held_yet() -> impl Iterator<Item = &'static Row> {
    attempts::TABLES_NOT_HELD_YET.iter().copied().flatten()
}
