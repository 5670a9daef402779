//! What the containers of a pod share and nobody else has: mounts, host name, System V objects.
//!
//! Invariant: the shim itself is in these namespaces, so that they end with the pod. Called once, before anything of the pod runs.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use pumice_units::with_causes;

use super::own_users::{Belongings, UserNamespace};
use super::rootfs::images;
use super::spec::{Network, SHARED_MEMORY, ShimSpec, Sysctl};
use super::user_namespace;

const HOSTS_SHARED_MEMORY: &str = "/dev/shm";

/// The folder that a pod's containers have as shared memory.
pub(super) fn shared_memory(spec: &ShimSpec, dir: &Path) -> PathBuf {
    if spec.host_ipc { PathBuf::from(HOSTS_SHARED_MEMORY) } else { dir.join(SHARED_MEMORY) }
}

/// Own mounts, host name and System V objects for the pod; its shared memory and memory volumes. Returns its user namespace, where
/// root has made one, with what belongs to that.
pub(super) fn share(spec: &ShimSpec, dir: &Path) -> io::Result<Option<Belongings>> {
    const NONE: Option<&str> = None;
    if spec.isolation.user {
        user_namespace::enter(spec.users.as_ref())?;
    }
    let belongings = match spec.users_by_root() {
        Some(users) => Some(UserNamespace::create(users, spec.network != Network::Host)?),
        None => None,
    };
    let mut own = CloneFlags::CLONE_NEWNS;
    if belongings.is_none() {
        own |= CloneFlags::CLONE_NEWUTS;
        own.set(CloneFlags::CLONE_NEWIPC, !spec.host_ipc);
    }
    unshare(own)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    nix::unistd::sethostname(&spec.hostname)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    if !spec.host_ipc {
        let shared = dir.join(SHARED_MEMORY);
        fs::create_dir_all(&shared)?;
        mount(Some("tmpfs"), &shared, Some("tmpfs"), flags, Some("mode=1777"))?;
    }
    for volume in &spec.memory_volumes {
        fs::create_dir_all(&volume.path)?;
        let mode = if volume.group.is_some() { "2777" } else { "0777" };
        let size = volume.size_bytes.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
        let group = volume.group.map(|gid| format!(",gid={gid}")).unwrap_or_default();
        let options = format!("mode={mode}{size}{group}");
        mount(Some("tmpfs"), &volume.path, Some("tmpfs"), flags, Some(options.as_str()))?;
    }
    let users = belongings.as_ref().map(|belongings| &belongings.users);
    images::mount_volumes(spec, users, dir).map_err(|error| io::Error::other(with_causes(&error)))?;
    Ok(belongings)
}

/// Sets parameters of the kernel in the namespaces of this process. Those that aren't a namespace's the agent has refused. Those of a
/// user namespace are its root's to set, and name its groups.
pub(super) fn set_sysctls(sysctls: &[Sysctl], users: Option<&UserNamespace>) -> Result<(), String> {
    match users {
        Some(users) if !sysctls.is_empty() => users.run_inside(|| write_sysctls(sysctls)),
        _ => write_sysctls(sysctls),
    }
}

fn write_sysctls(sysctls: &[Sysctl]) -> Result<(), String> {
    for Sysctl { name, value } in sysctls {
        let file = Path::new("/proc/sys").join(name.replace('.', "/"));
        let mut options = OpenOptions::new();
        let written = options.write(true).open(file).and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|error| format!("can't set the sysctl {name} to {value:?}: {error}"))?;
    }
    Ok(())
}
