//! Namespaces of the container's own making, in which it would have rights that it lacks, and those of others.

use std::fs::File;
use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::syscall::call;
use super::{is_so, mounts};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const fn admin(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Capability("SYS_ADMIN") }
}

const fn filtered(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Seccomp }
}

pub const ROWS: &[Row] = &[
    admin("unshare mounts", |_| unshared(CloneFlags::CLONE_NEWNS)),
    admin("unshare processes", |_| unshared(CloneFlags::CLONE_NEWPID)),
    admin("unshare the network", |_| unshared(CloneFlags::CLONE_NEWNET)),
    admin("unshare System V objects", |_| unshared(CloneFlags::CLONE_NEWIPC)),
    admin("unshare the host name", |_| unshared(CloneFlags::CLONE_NEWUTS)),
    admin("unshare control groups", |_| unshared(CloneFlags::CLONE_NEWCGROUP)),
    admin("clone into a new network", |_| cloned(CloneFlags::CLONE_NEWNET)),
    admin("clone into new mounts", |_| cloned(CloneFlags::CLONE_NEWNS)),
    admin("setns", |_| {
        let namespace = File::open("/proc/self/ns/uts")?;
        Ok(setns(namespace, CloneFlags::CLONE_NEWUTS)?)
    }),
    admin("sethostname", |_| {
        let name = nix::unistd::gethostname()?;
        Ok(nix::unistd::sethostname(name)?)
    }),
    filtered("unshare users", |_| unshared(CloneFlags::CLONE_NEWUSER)),
    filtered("clone into a new user namespace", |_| cloned(CloneFlags::CLONE_NEWUSER)),
    filtered("clone3 into a new user namespace", |_| cloned_by_clone3(CloneFlags::CLONE_NEWUSER)),
    filtered("mount as root of a new user namespace", |facts| {
        let at = mounts::folder(facts)?;
        unshared(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        mounts::mount_at(&at, "tmpfs", None)
    }),
    filtered("be root of the network of a new user namespace", |_| {
        unshared(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
        super::network::raise_loopback()
    }),
    filtered("lay a view of the host's files over others in a new user namespace", |facts| {
        const NONE: Option<&str> = None;
        let at = mounts::folder(facts)?;
        unshared(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        Ok(mount(Some("/"), &at, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?)
    }),
];

fn unshared(flags: CloneFlags) -> io::Result<()> {
    Ok(unshare(flags)?)
}

fn cloned(namespaces: CloneFlags) -> io::Result<()> {
    let flags = namespaces.bits() | libc::SIGCHLD;
    born(call!(SYS_clone, flags, 0, 0, 0, 0)?)
}

fn cloned_by_clone3(namespaces: CloneFlags) -> io::Result<()> {
    const FLAGS: usize = 0;
    const EXIT_SIGNAL: usize = 4;
    let mut arguments = [0_u64; 8];
    arguments[FLAGS] = u64::from(namespaces.bits().unsigned_abs());
    arguments[EXIT_SIGNAL] = u64::from(libc::SIGCHLD.unsigned_abs());
    born(call!(SYS_clone3, &mut arguments, size_of::<[u64; 8]>())?)
}

/// What follows such a call in both processes; the attempt has one thread, so its copy goes on as after `fork`.
#[allow(unsafe_code)]
fn born(pid: libc::c_long) -> io::Result<()> {
    if pid == 0 {
        // SAFETY: ends the copy without exit handlers of the harness.
        unsafe { libc::_exit(0) };
    }
    is_so(matches!(waitpid(Pid::from_raw(pid as i32), None)?, WaitStatus::Exited(_, 0)))
}
