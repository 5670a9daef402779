//! What the containers of a pod share and nobody else has: mounts, host name, System V objects.
//!
//! Invariant: the shim itself is in these namespaces, so that they end with the pod. Called once, before anything of the pod runs.

use std::fs;
use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::rootless;
use super::spec::ShimSpec;

/// Where the shared memory of a pod is mounted, in its directory.
pub(crate) const SHARED_MEMORY: &str = "shm";

/// Own mounts, host name and System V objects for the pod; its shared memory and memory volumes.
pub(super) fn share(spec: &ShimSpec, dir: &Path) -> io::Result<()> {
    const NONE: Option<&str> = None;
    if spec.isolation.user {
        rootless::enter_user_namespace()?;
    }
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    nix::unistd::sethostname(&spec.hostname)?;
    let shared = dir.join(SHARED_MEMORY);
    fs::create_dir_all(&shared)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), &shared, Some("tmpfs"), flags, Some("mode=1777"))?;
    for volume in &spec.memory_volumes {
        fs::create_dir_all(&volume.path)?;
        let mode = if volume.group.is_some() { "2777" } else { "0777" };
        let size = volume.size_bytes.map(|bytes| format!(",size={bytes}")).unwrap_or_default();
        let group = volume.group.map(|gid| format!(",gid={gid}")).unwrap_or_default();
        let options = format!("mode={mode}{size}{group}");
        mount(Some("tmpfs"), &volume.path, Some("tmpfs"), flags, Some(options.as_str()))?;
    }
    Ok(())
}
