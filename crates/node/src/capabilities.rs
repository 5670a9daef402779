//! What this host lets us do, found out by doing it once at the start.
//!
//! Invariant: every step down from full isolation has a sentence in `notes`, which is logged and
//! shown on the Node; pods run either way. [`lacking`] is the table of these.

mod lacking;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::Uid;
use pumice_units::with_causes;

use crate::firewall::{self, Ground};
use crate::launcher::Launcher;
use crate::subordinate_ids::listed::Missing;
use lacking::{Lack, lacking};
use pumice_linux::cgroup::Hierarchy;
use pumice_linux::files;
use pumice_shim::PROBE;
use pumice_shim::spec::{Isolation, RootKind};

/// What this host lets us do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Own pid and mount namespaces for containers, and what their root is.
    pub isolation: Isolation,
    /// Own network namespaces for pods.
    pub network: bool,
    /// Rules for these networks: NetworkPolicies, and limits between tenants.
    pub network_policy: bool,
    /// Where memory and cpu are limited.
    pub cgroup: Option<Hierarchy>,
    /// Filters of system calls.
    pub seccomp: bool,
    /// Users and groups of their own for pods, where root runs the platform.
    pub own_users: bool,
    /// What keeps containers' own files to their limit.
    pub layer_limit: LayerLimit,
    /// A sentence for each thing that can't be had.
    pub notes: Vec<String>,
    /// What the profile `restricted` needs beyond that, and what gives it: a line for each thing.
    pub missing_for_restricted: Vec<String>,
}

/// What keeps a container's own files to the limit of `ephemeral-storage`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerLimit {
    /// The kernel counts them and lets them grow little beyond; a pod with more is evicted.
    ProjectQuota,
    /// They are counted every few seconds, and a pod with more is evicted.
    Walk,
    /// They lie in memory, whose limit holds.
    Memory,
    /// They are the host's own files, which nobody counts.
    None,
}

impl LayerLimit {
    fn of(root: RootKind, projects: bool) -> LayerLimit {
        match root {
            RootKind::Overlay | RootKind::AllowList if projects => LayerLimit::ProjectQuota,
            RootKind::Overlay | RootKind::OverlayByFolder | RootKind::AllowList => LayerLimit::Walk,
            RootKind::OverlayInMemory => LayerLimit::Memory,
            RootKind::Host => LayerLimit::None,
        }
    }

    /// Whether a pod that keeps on writing is stopped.
    pub fn is_enforced(self) -> bool {
        self != LayerLimit::None
    }

    fn word(self) -> &'static str {
        match self {
            LayerLimit::ProjectQuota => "project-quota",
            LayerLimit::Walk => "walk",
            LayerLimit::Memory => "memory",
            LayerLimit::None => "none",
        }
    }
}

/// What was found before, by making it.
pub(crate) struct Given {
    /// What came of making the bridge.
    pub network: Result<(), String>,
    /// Whether the disk has quotas of projects.
    pub projects: bool,
    /// What came of showing files with other owners.
    pub users: Result<(), String>,
    /// What came of naming ids of this user's.
    pub ids: Result<(), Missing>,
}

/// What the probes found.
struct Probes {
    namespaces: io::Result<()>,
    overlay: io::Result<()>,
    overlay_in_memory: io::Result<()>,
    rootless: Result<(), String>,
    network: Result<(), String>,
    cgroup: Result<Hierarchy, String>,
    /// What is less than it should be about the shim's program.
    shim: Option<String>,
    /// Whether the kernel counts what is in pods' folders.
    projects: bool,
    /// Users of their own for pods.
    users: Result<(), String>,
    /// For pods of a user without root, ids beside that user.
    ids: Result<(), Missing>,
    /// What the kernel says of the filters that it takes.
    seccomp: io::Result<String>,
}

/// Where the kernel lists what a filter of system calls may do.
const FILTER_ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";

impl Capabilities {
    /// Tries everything but what was `given`.
    pub(crate) fn detect(node_dir: &Path, cgroup_node: &Path, given: Given, shim: &Launcher) -> Capabilities {
        let probe = node_dir.join("probe");
        let namespaces = in_thread({
            let probe = probe.clone();
            move || try_namespaces(&probe)
        });
        let overlay = in_thread({
            let probe = probe.clone();
            move || try_overlay(&probe, false)
        });
        let overlay_in_memory = in_thread({
            let probe = probe.clone();
            move || try_overlay(&probe, true)
        });
        let rootless = if namespaces.is_err() { try_rootless(&probe.join("user"), shim) } else { Ok(()) };
        let _ = files::remove(&probe);
        let mut cgroup = try_cgroup(cgroup_node);
        if let Ok(hierarchy) = &mut cgroup
            && let Err(error) = hierarchy.add_disk(cgroup_node, node_dir)
        {
            tracing::debug!(%error, "what pods read and write is not limited");
        }
        let shim = shim.shortfall();
        let seccomp = fs::read_to_string(FILTER_ACTIONS);
        Capabilities::decide(Probes {
            namespaces,
            overlay,
            overlay_in_memory,
            rootless,
            network: given.network,
            cgroup,
            shim,
            projects: given.projects,
            users: given.users,
            ids: given.ids,
            seccomp,
        })
    }

    fn decide(probes: Probes) -> Capabilities {
        let lacks = lacking(&probes);
        let user = probes.namespaces.is_err() && probes.rootless.is_ok();
        let namespaces = probes.namespaces.is_ok() || user;
        let root = match (probes.overlay, probes.overlay_in_memory) {
            _ if !namespaces => RootKind::Host,
            _ if user => RootKind::OverlayByFolder,
            (Ok(()), _) => RootKind::Overlay,
            (Err(_), Ok(())) => RootKind::OverlayInMemory,
            (Err(_), Err(_)) => RootKind::Host,
        };
        let notes = lacks.iter().map(Lack::sentence).chain(probes.shim).collect();
        Capabilities {
            // Where there is no root, all pods are in user namespaces or none is.
            own_users: namespaces && !user && probes.users.is_ok() && root != RootKind::Host,
            seccomp: probes.seccomp.is_ok(),
            layer_limit: LayerLimit::of(root, probes.projects),
            isolation: Isolation { namespaces, user, root },
            network: probes.network.is_ok(),
            // Tried when the network is there.
            network_policy: false,
            cgroup: probes.cgroup.ok(),
            notes,
            missing_for_restricted: lacks.iter().filter(|lack| lack.restricted).map(Lack::item).collect(),
        }
    }

    /// One line for the log and the Node's annotation.
    pub fn summary(&self) -> String {
        let root = match self.isolation.root {
            RootKind::Overlay => "overlay",
            RootKind::OverlayInMemory => "overlay-in-memory",
            RootKind::OverlayByFolder => "overlay-by-folder",
            RootKind::AllowList => "allow-list",
            RootKind::Host => "host",
        };
        let cgroup = match self.cgroup {
            Some(Hierarchy::V1 { .. }) => "v1",
            Some(Hierarchy::V2 { .. }) => "v2",
            None => "none",
        };
        let yes = |flag| if flag { "yes" } else { "no" };
        let (namespaces, network) = (yes(self.isolation.namespaces), yes(self.network));
        let (policy, disk_limit) = (yes(self.network_policy), self.layer_limit.word());
        // The API server looks for the word about policies when somebody makes one.
        let mut text = format!(
            "namespaces={namespaces} root={root} network={network} network-policy={policy} cgroup={cgroup} \
             disk-limit={disk_limit}"
        );
        for note in &self.notes {
            text.push_str("; ");
            text.push_str(note);
        }
        text
    }
}

/// Namespaces are entered by a thread of its own, which takes them with it when it ends.
fn in_thread(probe: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    thread::spawn(probe).join().unwrap_or_else(|_| Err(io::Error::other("the probe failed")))
}

const NONE: Option<&str> = None;

fn try_namespaces(probe: &Path) -> io::Result<()> {
    fs::create_dir_all(probe)?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    mount(Some("tmpfs"), probe, Some("tmpfs"), MsFlags::empty(), NONE)?;
    Ok(())
}

fn try_overlay(probe: &Path, in_memory: bool) -> io::Result<()> {
    let dir = probe.join(if in_memory { "memory" } else { "disk" });
    fs::create_dir_all(&dir)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    if in_memory {
        mount(Some("tmpfs"), &dir, Some("tmpfs"), MsFlags::empty(), NONE)?;
    }
    let sub = |name: &str| -> io::Result<PathBuf> {
        let path = dir.join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    };
    let (upper, work, root) = (sub("upper")?, sub("work")?, sub("root")?);
    let options = format!("lowerdir=/,upperdir={},workdir={}", upper.display(), work.display());
    mount(Some("overlay"), &root, Some("overlay"), MsFlags::empty(), Some(options.as_str()))?;
    fs::write(root.join("pumice-probe"), "")
}

/// A user namespace wants a process with one thread; the shim's program lends one.
fn try_rootless(probe: &Path, shim: &Launcher) -> Result<(), String> {
    fs::create_dir_all(probe).map_err(|error| error.to_string())?;
    let mut launch = shim.launch();
    launch.command().arg(PROBE).arg(probe);
    let out = launch.output().map_err(|error| error.to_string())?;
    match out.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&out.stderr).lines().last().unwrap_or("no user namespace").to_owned()),
    }
}

/// Whether this thread may make a network namespace.
pub(crate) fn try_network() -> io::Result<()> {
    in_thread(|| Ok(unshare(CloneFlags::CLONE_NEWNET)?))
}

/// Whether rules for pods can be had, tried in a network of its own.
pub(crate) fn try_firewall(ground: &Ground) -> io::Result<()> {
    let ground = ground.clone();
    in_thread(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        firewall::try_rules(&ground).map_err(|error| io::Error::other(with_causes(&error)))
    })
}

fn try_cgroup(node: &Path) -> Result<Hierarchy, String> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
    let whole = Hierarchy::find(&mounts).ok_or("none is mounted")?;
    let delegated =
        if Uid::effective().is_root() { None } else { whole.delegated().map_err(|error| error.to_string())? };
    let hierarchy = delegated.unwrap_or(whole);
    // With as much as can be had.
    let without_pids = hierarchy.clone().without_pids();
    let tried = [hierarchy.clone(), hierarchy.without_devices(), without_pids.clone(), without_pids.without_devices()];
    let mut failed = None;
    for hierarchy in tried {
        match hierarchy.prepare(node) {
            Ok(()) => return Ok(hierarchy),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.map(|error| with_causes(&error)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied() -> io::Error {
        io::Error::from_raw_os_error(libc::EPERM)
    }

    fn v2() -> Hierarchy {
        Hierarchy::V2 { root: "/sys/fs/cgroup".into(), pids: true, devices: true, disk: None }
    }

    /// Of a machine that has everything.
    fn full() -> Probes {
        Probes {
            namespaces: Ok(()),
            overlay: Ok(()),
            overlay_in_memory: Ok(()),
            rootless: Ok(()),
            network: Ok(()),
            cgroup: Ok(v2()),
            shim: None,
            projects: false,
            users: Ok(()),
            ids: Ok(()),
            seccomp: Ok("kill_process".into()),
        }
    }

    /// Of a machine that has what an ordinary user can have.
    fn of_user() -> Probes {
        Probes {
            namespaces: Err(denied()),
            overlay: Err(denied()),
            users: Err("not root".into()),
            network: Err("not root".into()),
            ..full()
        }
    }

    #[test]
    fn each_step_down_is_taken_alone_and_told() {
        let cases = [
            (full(), "namespaces=yes root=overlay network=yes network-policy=no cgroup=v2 disk-limit=walk", 0),
            (
                Probes { projects: true, ..full() },
                "namespaces=yes root=overlay network=yes network-policy=no cgroup=v2 disk-limit=project-quota",
                0,
            ),
            (
                Probes { overlay: Err(denied()), ..full() },
                "namespaces=yes root=overlay-in-memory network=yes network-policy=no cgroup=v2 disk-limit=memory; no overlay on the data",
                1,
            ),
            (
                Probes { overlay: Err(denied()), overlay_in_memory: Err(denied()), ..full() },
                "namespaces=yes root=host network=yes network-policy=no cgroup=v2 disk-limit=none; no overlay on the data",
                1,
            ),
            (
                Probes { network: Err("x".into()), ..full() },
                "namespaces=yes root=overlay network=no network-policy=no cgroup=v2 disk-limit=walk; no network",
                1,
            ),
            (
                Probes { cgroup: Err("x".into()), ..full() },
                "namespaces=yes root=overlay network=yes network-policy=no cgroup=none disk-limit=walk; no",
                1,
            ),
            (
                Probes { shim: Some("no read-only view".into()), ..full() },
                "namespaces=yes root=overlay network=yes network-policy=no cgroup=v2 disk-limit=walk; no read-only view",
                1,
            ),
            (
                Probes { users: Err("x".into()), ..full() },
                "namespaces=yes root=overlay network=yes network-policy=no cgroup=v2 disk-limit=walk; no users of their own for pods (x)",
                1,
            ),
            (
                Probes { cgroup: Ok(v2().without_pids()), ..full() },
                "namespaces=yes root=overlay network=yes network-policy=no cgroup=v2 disk-limit=walk; no control group that counts",
                1,
            ),
            (
                Probes { cgroup: Ok(v2().without_devices()), ..full() },
                "namespaces=yes root=overlay network=yes network-policy=no cgroup=v2 disk-limit=walk; no control group that limits devices",
                1,
            ),
            (
                of_user(),
                "namespaces=yes root=overlay-by-folder network=no network-policy=no cgroup=v2 disk-limit=walk; no users of their own for each",
                3,
            ),
            (
                Probes { namespaces: Err(denied()), rootless: Err("x".into()), ..full() },
                "namespaces=no root=host network=yes network-policy=no cgroup=v2 disk-limit=none; no namesp",
                1,
            ),
        ];
        for (probes, expected, notes) in cases {
            let found = Capabilities::decide(probes);
            assert!(found.summary().starts_with(expected), "{}", found.summary());
            assert_eq!(found.notes.len(), notes, "{expected}");
            assert_eq!(found.layer_limit.is_enforced(), !expected.contains("disk-limit=none"));
        }
    }

    #[test]
    fn what_restricted_needs_is_told_with_what_gives_it() {
        let none: [&str; 0] = [];
        assert_eq!(Capabilities::decide(full()).missing_for_restricted, none);
        let one_user = Missing { why: "newuidmap is not there".into(), remedy: "install the package uidmap".into() };
        for (probes, starts) in [
            (
                of_user(),
                vec![
                    "users of their own for each pod (Operation not permitted (os error 1)): run pumice as root",
                    "network namesp",
                ],
            ),
            (
                Probes { ids: Err(one_user), cgroup: Err("x".into()), ..of_user() },
                vec![
                    "users for pods but this one (newuidmap is not there): install the package uidmap",
                    "network namespaces (not root): run pumice as root",
                    "control groups (x): have systemd hand some over",
                ],
            ),
            (
                Probes { namespaces: Err(denied()), rootless: Err("x".into()), ..full() },
                vec!["namespaces (Operation not permitted (os error 1); x): run pumice as root"],
            ),
            (Probes { overlay: Err(denied()), ..full() }, vec!["overlay on the data"]),
            (Probes { users: Err("why".into()), ..full() }, vec!["users of their own for pods (why): use Linux"]),
            (Probes { seccomp: Err(denied()), ..full() }, vec!["filters of system calls"]),
            (Probes { network: Err("x".into()), ..full() }, vec!["network namespaces"]),
            (Probes { cgroup: Err("x".into()), ..full() }, vec!["control groups (x)"]),
            (
                Probes { cgroup: Ok(v2().without_pids().without_devices()), ..full() },
                vec!["control group that counts", "control group that limits"],
            ),
        ] {
            let found = Capabilities::decide(probes).missing_for_restricted;
            assert_eq!(found.len(), starts.len(), "{found:?}");
            assert!(found.iter().zip(starts).all(|(found, start)| found.starts_with(start)), "{found:?}");
        }
    }
}
