//! Who is at the other end of a local socket, by the kernel's word.
//!
//! Invariant: what comes back is the user who connected, whatever he has become since, and whoever holds the descriptor now. The
//! process that connected lived while it was looked at, and is on the platform's side of every wall: in its mount, process, user and
//! control-group namespaces, with its root folder. So a pod, a container and `unshare` have no identity, though they reach a
//! socket. Called by the API server's listener, once for each connection.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{FileStat, Mode, fstatat};
use pumice_linux::pidfd;
use thiserror::Error;

/// Not in the C library's headers yet: `SO_PEERPIDFD` of Linux 6.5, the same number on all architectures that we build for.
const SO_PEERPIDFD: libc::c_int = 77;

/// What a process shares with the platform if it is no pod's and no container's, below `/proc/PID`, and how messages call it.
const SHARED: [(&str, &str); 5] = [
    ("ns/mnt", "mount namespace"),
    ("ns/pid", "process namespace"),
    ("ns/user", "user namespace"),
    ("ns/cgroup", "control group namespace"),
    ("root", "root folder"),
];

/// The user at the other end of a local socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPeer {
    /// His user id when he connected.
    pub uid: u32,
    /// The process that connected.
    pub pid: i32,
}

/// Why nobody is known to be at the other end.
#[derive(Debug, Error)]
pub enum PeerError {
    /// The kernel does not say.
    #[error("the kernel does not say who connected")]
    Credentials(#[source] io::Error),
    /// Who connected is gone, so nothing is known of where it ran.
    #[error("the process that connected has ended: connect and ask by one process")]
    Ended,
    /// It is a pod's or a container's.
    #[error(
        "process {pid} has a {what} other than the platform's: connect from outside of pods, containers and sandboxes"
    )]
    Elsewhere { pid: i32, what: &'static str },
    /// Its namespaces can't be read.
    #[error("the {what} of process {pid} can't be read")]
    Unreadable {
        pid: i32,
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

/// A file, whatever its names.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
}

impl From<FileStat> for Inode {
    fn from(stat: FileStat) -> Self {
        Self { device: stat.st_dev, number: stat.st_ino }
    }
}

/// The platform's side of the walls between pods and the machine.
#[derive(Clone)]
pub struct LocalPeers {
    own: [Inode; SHARED.len()],
}

impl fmt::Debug for LocalPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalPeers").finish_non_exhaustive()
    }
}

impl LocalPeers {
    /// Takes this process for the platform.
    ///
    /// # Errors
    /// Where `/proc` is not mounted.
    pub fn of_this_process() -> io::Result<Self> {
        let own = open_folder("/proc/self")?;
        let mut inodes = [Inode { device: 0, number: 0 }; SHARED.len()];
        for (inode, (path, _)) in inodes.iter_mut().zip(SHARED) {
            *inode = fstatat(own.as_fd(), path, nix::fcntl::AtFlags::empty())?.into();
        }
        Ok(Self { own: inodes })
    }

    /// Who connected to this end of a socket.
    ///
    /// # Errors
    /// Where the kernel does not say it, and where who connected is a pod's, a container's, or gone.
    pub fn identify(&self, socket: BorrowedFd<'_>) -> Result<LocalPeer, PeerError> {
        let credentials = getsockopt(&socket, PeerCredentials).map_err(|errno| PeerError::Credentials(errno.into()))?;
        let peer = LocalPeer { uid: credentials.uid(), pid: credentials.pid() };
        if peer.pid <= 0 {
            // The number of a process that this one's process namespace doesn't have.
            return Err(PeerError::Elsewhere { pid: peer.pid, what: "process namespace" });
        }
        let (process, is_sure) = peer_process(socket, peer.pid)?;
        let folder = open_folder(&format!("/proc/{}", peer.pid)).map_err(|_| PeerError::Ended)?;
        // The folder is that of the process: its number was its own when the folder was opened, as it lived afterwards.
        if has_ended(process.as_fd()) || !is_sure && owner(folder.as_fd()) != Some(peer.uid) {
            return Err(PeerError::Ended);
        }
        self.compare(peer.pid, folder.as_fd())?;
        Ok(peer)
    }

    /// Refuses a process, by its folder in `/proc`, that does not share what the platform's processes do.
    fn compare(&self, pid: i32, folder: BorrowedFd<'_>) -> Result<(), PeerError> {
        for (own, (path, what)) in self.own.iter().zip(SHARED) {
            let found = match fstatat(folder, path, nix::fcntl::AtFlags::empty()) {
                Ok(stat) => Inode::from(stat),
                Err(Errno::ENOENT | Errno::ESRCH) => return Err(PeerError::Ended),
                Err(errno) => return Err(PeerError::Unreadable { pid, what, source: errno.into() }),
            };
            if found != *own {
                return Err(PeerError::Elsewhere { pid, what });
            }
        }
        Ok(())
    }
}

/// Stands for the process that connected, and whether that is sure. A kernel before 6.5 gives the one that has its number now, which
/// may be another one that got it since: it counts if it is the same user's.
fn peer_process(socket: BorrowedFd<'_>, pid: i32) -> Result<(OwnedFd, bool), PeerError> {
    match peer_pidfd(socket) {
        Ok(process) => Ok((process, true)),
        Err(Errno::ENOPROTOOPT | Errno::EOPNOTSUPP) => {
            pidfd::open(pid).map(|process| (process, false)).map_err(|_| PeerError::Ended)
        }
        Err(Errno::ESRCH | Errno::ENODATA | Errno::EINVAL) => Err(PeerError::Ended),
        Err(errno) => Err(PeerError::Credentials(errno.into())),
    }
}

#[allow(unsafe_code)]
fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut descriptor: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the call, and the kernel writes at most `length` bytes into `descriptor`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            std::ptr::from_mut(&mut descriptor).cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    if descriptor < 0 {
        return Err(Errno::ESRCH);
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// The user that a process runs as, by its folder in `/proc`.
fn owner(folder: BorrowedFd<'_>) -> Option<u32> {
    nix::sys::stat::fstat(folder).ok().map(|stat| stat.st_uid)
}

fn has_ended(process: BorrowedFd<'_>) -> bool {
    // What can't be looked at is not known to live.
    poll(&mut [PollFd::new(process, PollFlags::POLLIN)], PollTimeout::ZERO).map_or(true, |ready| ready > 0)
}

fn open_folder(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(path, flags, Mode::empty())?)
}
