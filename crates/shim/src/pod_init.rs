//! Process 1 of a pod whose containers see each other's processes (`shareProcessNamespace`). It does nothing but be there, and take
//! the ends of those that nobody else does.
//!
//! Invariant: it ends with the shim, and the kernel ends everything in its pid namespace with it. A program of the pod finds nothing
//! in it: no file, no right, an empty root folder. Made once, before anything of the pod runs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use caps::CapSet;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{ForkResult, chdir, pause, pipe2, pivot_root};

use super::fork::clone_self;
use super::fork::exit;
use pumice_linux::pidfd;

/// Has later children of this process in a pid namespace of their own. Needs a process with one thread.
pub(super) fn share_processes(dir: &Path) -> io::Result<()> {
    let (ready, report) = pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
    let child = match clone_self(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)? {
        ForkResult::Child => {
            drop(ready);
            run(dir, File::from(report))
        }
        ForkResult::Parent { child } => child,
    };
    drop(report);
    let mut text = String::new();
    File::from(ready).read_to_string(&mut text)?;
    if text != READY {
        return Err(io::Error::other(if text.is_empty() { "its first process ended".to_owned() } else { text }));
    }
    let child = pidfd::open(child.as_raw())?;
    Ok(setns(&child, CloneFlags::CLONE_NEWPID)?)
}

/// What it tells the shim when nothing can be taken from it any more.
const READY: &str = "ready\n";

fn run(dir: &Path, mut report: File) -> ! {
    let become_idle = leave_everything(dir);
    let text = become_idle.as_ref().map_or_else(ToString::to_string, |()| READY.to_owned());
    // A shim that is gone before it could be tied to its end reads no more.
    if report.write_all(text.as_bytes()).is_err() || become_idle.is_err() {
        exit(1);
    }
    drop(report);
    // The lock, too, which says that the shim lives.
    close_all();
    loop {
        pause();
    }
}

fn leave_everything(dir: &Path) -> io::Result<()> {
    ignore_ends()?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    mount(Some("tmpfs"), dir, Some("tmpfs"), flags, Some("mode=0555,size=4k"))?;
    chdir(dir)?;
    // Both on the same spot: the old root is then on top of the new one, and is taken off.
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    prctl::set_dumpable(false)?;
    Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
}

/// The kernel takes the ends of children for a process that ignores them.
#[allow(unsafe_code)]
fn ignore_ends() -> nix::Result<()> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring a signal installs no handler of ours, so no handler can break an invariant.
    unsafe { sigaction(Signal::SIGCHLD, &ignore) }.map(drop)
}

#[allow(unsafe_code)]
fn close_all() {
    // SAFETY: this copy of the shim uses none of its descriptors again, and its values are never dropped.
    unsafe { libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, 0_u32) };
}
