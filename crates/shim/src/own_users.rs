//! Users and groups that a pod has for itself: a user namespace, which root makes for it.
//!
//! Invariant: the shim stays outside, with the machine's rights; the pod's host name, System V objects and network belong to the
//! namespace, and so do the mounts of its containers, which take none of those away that were made before. Who enters it becomes its
//! root at once: until then a process is the machine's root, whose files are not the pod's.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Gid, Pid, Uid, pipe2, setgroups, setresgid, setresuid};

use super::fork::{clone_self, exit};
use super::spec::{IdRange, Users};
use pumice_linux::pidfd;

/// A pod's user namespace; it is there as long as this value or a process in it.
#[derive(Debug)]
pub(crate) struct UserNamespace {
    handle: File,
    users: Users,
}

/// Namespaces that were made with it and belong to it.
pub(crate) struct Belongings {
    pub users: UserNamespace,
    /// Not entered yet: a link to it is made from outside.
    pub network: Option<File>,
}

impl UserNamespace {
    /// Makes one, and moves this process into namespaces of host names and System V objects that belong to it. Needs a process with
    /// one thread, which is root.
    pub(crate) fn create(users: &Users, network: bool) -> io::Result<Belongings> {
        let mut flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC;
        flags.set(CloneFlags::CLONE_NEWNET, network);
        let (waits, goes_on) = pipe2(OFlag::O_CLOEXEC)?;
        let child = match clone_self(flags)? {
            ForkResult::Child => {
                drop(goes_on);
                wait_for_parent(waits)
            }
            ForkResult::Parent { child } => child,
        };
        let made = belongings(child, users, network);
        drop(goes_on);
        let _ = waitpid(child, None);
        made
    }

    /// The user of the machine that `uid` of the namespace is.
    pub(crate) fn uid(&self, uid: u32) -> Option<u32> {
        outside(&self.users.uids, uid)
    }

    /// The group of the machine that `gid` of the namespace is.
    pub(crate) fn gid(&self, gid: u32) -> Option<u32> {
        outside(&self.users.gids, gid)
    }

    /// Moves this process into it, and into mounts that belong to it and begin as those of now. They can't be taken off one by
    /// one, nor lose their limits. Needs a process with one thread.
    pub(crate) fn enter_with_mounts(&self) -> nix::Result<()> {
        setns(&self.handle, CloneFlags::CLONE_NEWUSER)?;
        unshare(CloneFlags::CLONE_NEWNS)
    }

    /// Does something as its root, in a process of its own.
    pub(crate) fn run_inside(&self, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let failed = |what: &str, error: io::Error| format!("can't {what}: {error}");
        let (read, write) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| failed("make a pipe", errno.into()))?;
        let child = match clone_self(CloneFlags::empty()).map_err(|errno| failed("make a process", errno.into()))? {
            ForkResult::Child => {
                drop(read);
                let entered = setns(&self.handle, CloneFlags::CLONE_NEWUSER).and_then(|()| become_root());
                let done = entered.map_err(|errno| failed("enter the pod's user namespace", errno.into()));
                let text = done.and_then(|()| work()).err().unwrap_or_default();
                let _ = io::Write::write_all(&mut File::from(write), text.as_bytes());
                exit(i32::from(!text.is_empty()))
            }
            ForkResult::Parent { child } => child,
        };
        drop(write);
        let mut text = String::new();
        let heard = File::from(read).read_to_string(&mut text);
        let _ = waitpid(child, None);
        match heard {
            Err(error) => Err(failed("hear of a process", error)),
            Ok(_) if !text.is_empty() => Err(text),
            Ok(_) => Ok(()),
        }
    }
}

impl AsFd for UserNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

fn wait_for_parent(waits: OwnedFd) -> ! {
    // If the shim dies the pipe closes, too.
    let _ = File::from(waits).read(&mut [0]);
    exit(0)
}

fn belongings(child: Pid, users: &Users, network: bool) -> io::Result<Belongings> {
    let file = |name: &str| format!("/proc/{child}/{name}");
    fs::write(file("uid_map"), map(&users.uids))?;
    fs::write(file("gid_map"), map(&users.gids))?;
    let handle = File::open(file("ns/user"))?;
    let network = if network { Some(File::open(file("ns/net"))?) } else { None };
    setns(&pidfd::open(child.as_raw())?, CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC)?;
    Ok(Belongings { users: UserNamespace { handle, users: users.clone() }, network })
}

/// What the process in a new user namespace is called on standard output; its pid follows.
pub const PROCESS_INSIDE: &str = "process in a user namespace: ";

/// Makes a user namespace without ids, with a process in it that is there until standard input ends. For who has threads, and so can't
/// make one.
pub(crate) fn show() -> io::Result<()> {
    match clone_self(CloneFlags::CLONE_NEWUSER)? {
        ForkResult::Child => {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            exit(0)
        }
        ForkResult::Parent { child } => {
            io::Write::write_all(&mut io::stdout(), format!("{PROCESS_INSIDE}{child}\n").as_bytes())?;
            Ok(waitpid(child, None).map(drop)?)
        }
    }
}

/// Becomes root of the user namespace that this process is in, and nobody's member.
pub(crate) fn become_root() -> nix::Result<()> {
    setgroups(&[])?;
    let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// The same, for who is to end with its parent: the kernel forgets that with the identity. `parent` is a pipe that the parent alone
/// reads, which tells if it has ended meanwhile.
pub(crate) fn become_root_beside(parent: &File) -> nix::Result<()> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    become_root()?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let mut watched = [PollFd::new(parent.as_fd(), PollFlags::empty())];
    poll(&mut watched, PollTimeout::ZERO)?;
    let is_gone = watched[0].revents().is_some_and(|found| found.contains(PollFlags::POLLERR));
    if is_gone { Err(Errno::EPIPE) } else { Ok(()) }
}

/// As the kernel takes it, a line each.
pub fn map(ranges: &[IdRange]) -> String {
    ranges.iter().map(|range| format!("{} {} {}\n", range.inside, range.outside, range.count)).collect()
}

/// The id of the machine that `id` is.
pub(crate) fn outside(ranges: &[IdRange], id: u32) -> Option<u32> {
    let found = ranges.iter().find(|range| id.checked_sub(range.inside).is_some_and(|offset| offset < range.count))?;
    found.outside.checked_add(id - found.inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_looked_up_in_all_ranges() {
        let range = |inside, outside, count| IdRange { inside, outside, count };
        let ranges = [range(0, 100_000, 1000), range(1000, 1000, 1), range(1001, 101_001, 9)];
        for (inside, expected) in [
            (0, Some(100_000)),
            (999, Some(100_999)),
            (1000, Some(1000)),
            (1001, Some(101_001)),
            (1009, Some(101_009)),
            (1010, None),
            (u32::MAX, None),
        ] {
            assert_eq!(outside(&ranges, inside), expected, "{inside}");
        }
        assert_eq!(map(&ranges[..2]), "0 100000 1000\n1000 1000 1\n");
    }
}
