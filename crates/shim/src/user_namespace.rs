//! A user namespace for users without root, in which this user is root.
//!
//! Invariant: nothing is gained on the host: inside, user 0 is this user, and every other one is of the ids that the machine gives to
//! this user, if it gives any. Those come with a namespace that the agent has made once ([`crate::spec::Users`]): each pod has one
//! of its own within that, so that no pod has rights over another.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, dup2_stdin, getpid, pipe2};

use super::fork;
use super::program;
use super::spec::{IdRange, Users};

/// Flag that has all else done in the user namespace that standard input is.
pub const INSIDE: &str = "--in-user-namespace";

/// Becomes root of a new user namespace with these users, or with this one alone. Needs a process with one thread.
pub(crate) fn enter(users: Option<&Users>) -> io::Result<()> {
    match users {
        Some(users) => {
            enter_given()?;
            enter_within(users)
        }
        None => enter_alone(),
    }
}

fn enter_alone() -> io::Result<()> {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Becomes root of the user namespace that standard input is. Needs a process with one thread.
pub(crate) fn enter_given() -> io::Result<()> {
    let entered = setns(io::stdin().as_fd(), CloneFlags::CLONE_NEWUSER);
    entered
        .map_err(|errno| io::Error::other(format!("can't enter the user namespace of this user's pods: {errno}")))?;
    // It is there as long as somebody has it.
    Ok(dup2_stdin(program::null()?)?)
}

/// Becomes root of a new user namespace within the one of now, with the same users. A process that stays outside says which they are,
/// since the kernel takes that from nobody else.
fn enter_within(users: &Users) -> io::Result<()> {
    let (begun, begins) = pipe2(OFlag::O_CLOEXEC)?;
    let this = getpid();
    let child = match fork::fork()? {
        ForkResult::Child => {
            drop(begins);
            let file = |name: &str| format!("/proc/{this}/{name}");
            let heard = File::from(begun).read(&mut [0]);
            let done = heard.and_then(|bytes| if bytes == 1 { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) });
            let done = done.and_then(|()| fs::write(file("uid_map"), same(&users.uids)));
            let done = done.and_then(|()| fs::write(file("gid_map"), same(&users.gids)));
            fork::exit(done.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO)))
        }
        ForkResult::Parent { child } => child,
    };
    drop(begun);
    let made = unshare(CloneFlags::CLONE_NEWUSER);
    let mut begins = File::from(begins);
    let written = if made.is_ok() { begins.write_all(&[1]) } else { Ok(()) };
    drop(begins);
    let mapped = waitpid(child, None);
    made?;
    written?;
    match mapped? {
        WaitStatus::Exited(_, 0) => Ok(()),
        WaitStatus::Exited(_, errno) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::other("the process that names the users of a namespace was killed")),
    }
}

/// Ids that are called the same within and outside, a line for each range.
fn same(ranges: &[IdRange]) -> String {
    ranges.iter().map(|IdRange { inside, count, .. }| format!("{inside} {inside} {count}\n")).collect()
}
