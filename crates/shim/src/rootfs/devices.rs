//! A container's own `/dev`: a few devices, terminals, shared memory, message queues.
//!
//! Invariant: no node of it is one of the host's, but where none can be made; there a view shows the host's that can't be changed.
//! A privileged container sees the host's `/dev`.

use std::ffi::{CStr, CString};
use std::os::fd::AsFd;
use std::path::Path;

use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, makedev, mkdirat, mknodat};
use nix::unistd::symlinkat;

use super::{Attributes, KERNELS_OWN, Layers, Root, RootError, mounted, new_tmpfs, not_made};
use crate::spec::ContainerSpec;
use pumice_linux::cgroup::OWN_DEVICES;
use pumice_linux::detached_mount::DetachedMount;
use pumice_linux::paths::{Missing, open_in_root};

const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

/// The group `tty`, to which programs such as `wall` belong.
const TTY: u32 = 5;
/// Options of the file system of terminals.
const TERMINALS: [(&CStr, Option<&CStr>); 3] =
    [(c"newinstance", None), (c"ptmxmode", Some(c"0666")), (c"mode", Some(c"0620"))];

/// The pod's message queues as files. A kernel may have none, and a user may not show them.
fn mount_queues(root: &Root<'_>, devices: &DetachedMount) -> Result<(), RootError> {
    let at = Path::new("/dev/mqueue");
    mkdirat(devices.as_fd(), "mqueue", Mode::from_bits_truncate(0o755)).map_err(|errno| not_made(at, errno))?;
    let target = root.mount_point(at, Missing::Refuse)?;
    let _ = DetachedMount::new(c"mqueue", &[], KERNELS_OWN).and_then(|queues| queues.attach(target.as_fd()));
    Ok(())
}

pub(super) fn mount_dev(root: &Root<'_>, container: &ContainerSpec, layers: &Layers) -> Result<(), RootError> {
    let target = root.system_folder("dev")?;
    let at = Path::new("/dev");
    if container.privileged {
        let hosts = DetachedMount::of_path(at);
        return mounted("devices", at, hosts.and_then(|hosts| hosts.attach(target.as_fd())));
    }
    let devices = new_tmpfs(c"0755", c"65536k", Attributes::NO_SET_UID.and(Attributes::EXACT_ACCESS_TIMES))
        .and_then(|devices| devices.attach(target.as_fd()).map(|()| devices))
        .map_err(|source| RootError::Mount { what: "devices".into(), target: at.into(), source })?;
    for (name, major, minor) in OWN_DEVICES {
        device(&devices, name, major.into(), minor.into())?;
    }
    for (to, name) in LINKS {
        symlinkat(to, devices.as_fd(), name).map_err(|errno| not_made(&at.join(name), errno))?;
    }
    mkdirat(devices.as_fd(), "pts", Mode::from_bits_truncate(0o755))
        .map_err(|errno| not_made(&at.join("pts"), errno))?;
    mount_queues(root, &devices)?;
    let tty = CString::new(root.owners.gid(TTY).to_string()).unwrap_or_default();
    let new =
        |options: &[_]| DetachedMount::new(c"devpts", options, Attributes::NO_SET_UID.and(Attributes::NO_PROGRAMS));
    // An ordinary user's namespace has no such group.
    let terminals = new(&[&[(c"gid", Some(&*tty))], &TERMINALS[..]].concat()).or_else(|_| new(&TERMINALS));
    if let (Ok(terminals), Ok(target)) = (terminals, root.mount_point(&at.join("pts"), Missing::Refuse)) {
        // Terminals are for people; a batch job runs without.
        let _ = terminals.attach(target.as_fd());
    }
    root.attach(&root.owners.view(&layers.shared_memory)?, &at.join("shm"), false)
}

/// A device of the container's own, or where it may make none a view of the host's that it can't change.
fn device(devices: &DetachedMount, name: &str, major: u64, minor: u64) -> Result<(), RootError> {
    let path = Path::new("/dev").join(name);
    let everybody = Mode::from_bits_truncate(0o666);
    if mknodat(devices.as_fd(), name, SFlag::S_IFCHR, everybody, makedev(major, minor)).is_ok() {
        let opened = fchmodat(devices.as_fd(), name, everybody, FchmodatFlags::FollowSymlink);
        return opened.map_err(|errno| not_made(&path, errno));
    }
    let target = open_in_root(devices.as_fd(), Path::new(name), Missing::MakeFile);
    let target = target.map_err(|source| RootError::Create { path: path.clone(), source })?;
    mounted(name, &path, DetachedMount::of_path(&path).and_then(|hosts| hosts.attach_read_only(target.as_fd())))
}
