//! Network namespaces of pods: a loopback, and a link whose other end is this host's.
//!
//! Invariant: a namespace ends, and its links with it, when no process is in it and nobody has it open. Called by the shim, and by
//! the agent for those that it makes ahead.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

use crate::links::{self, HostEnd};
use crate::netlink::{Netlink, NetlinkError};

/// The name of a pod's link.
const POD_LINK: &str = "eth0";
/// Whose programs may send echoes: a first and a last group.
const PING_GROUPS: &str = "/proc/sys/net/ipv4/ping_group_range";
const EVERYBODY: &str = "0 2147483647";

/// Why there is no network namespace.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    #[error("can't make a network namespace")]
    Unshare(#[source] Errno),
    #[error("can't open a network namespace")]
    Open(#[source] io::Error),
    #[error("can't enter a network namespace")]
    Enter(#[source] Errno),
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// Moves this thread into a new namespace, whose link has no address yet. The other end is in the namespace that `outside` was opened
/// in; its index there comes along.
pub fn enter_new(outside: &mut Netlink, outer: HostEnd<'_>) -> Result<(File, u32), NamespaceError> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(NamespaceError::Unshare)?;
    furnish(outside, outer)
}

/// The same with one that is there already and has nothing in it.
pub fn enter_empty(
    outside: &mut Netlink,
    outer: HostEnd<'_>,
    namespace: BorrowedFd<'_>,
) -> Result<(File, u32), NamespaceError> {
    enter(namespace)?;
    furnish(outside, outer)
}

fn furnish(outside: &mut Netlink, outer: HostEnd<'_>) -> Result<(File, u32), NamespaceError> {
    let own = current()?;
    let index = links::create_pair(outside, outer, POD_LINK, own.as_fd())?;
    links::set_up(&mut links::open()?, links::LOOPBACK)?;
    // Echoes need no right to packets of any kind then; a kernel without it needs one.
    let _ = fs::write(PING_GROUPS, EVERYBODY);
    Ok((own, index))
}

/// Gives this thread's namespace its address, and a way to everything else.
pub fn configure(address: Ipv4Addr, gateway: Ipv4Addr) -> Result<(), NamespaceError> {
    Ok(links::configure(&mut links::open()?, POD_LINK, address, gateway)?)
}

/// The namespace of this thread.
pub fn current() -> Result<File, NamespaceError> {
    File::open("/proc/thread-self/ns/net").map_err(NamespaceError::Open)
}

/// Moves this thread into a namespace.
pub fn enter(namespace: BorrowedFd<'_>) -> Result<(), NamespaceError> {
    setns(namespace, CloneFlags::CLONE_NEWNET).map_err(NamespaceError::Enter)
}

/// Whether a descriptor is of a network namespace.
#[allow(unsafe_code)]
pub fn is_one(file: BorrowedFd<'_>) -> bool {
    // SAFETY: takes an open descriptor; no memory is passed.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), libc::NS_GET_NSTYPE) };
    kind == libc::CLONE_NEWNET
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_told_from_other_files() {
        assert!(is_one(current().unwrap().as_fd()));
        for path in ["/dev/null", "/proc/self/ns/mnt", "/proc"] {
            assert!(!is_one(File::open(path).unwrap().as_fd()), "{path}");
        }
    }
}
