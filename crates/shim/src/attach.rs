//! How a client is attached to a container that runs: where agent and shim meet, and what they say to each other.
//!
//! The agent listens at a socket in the pod's directory, which is named after the container, and wakes the shim; that connects to
//! it. So a pod that nobody attaches to costs nothing. A message is the number of a channel, one byte, and data of at most
//! [`DATA_BYTES_MAX`]. Invariant: whoever can reach the folder is the agent: it is private, as all of the pod's directory is.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::fcntl::{OFlag, open};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, listen as listen_at, recvmsg,
    sendmsg, socket,
};
use nix::sys::stat::Mode;
use pumice_linux::detached_mount::descriptor_path;
use pumice_linux::files::private_dir;

/// What a client types. A first message of it, be it empty, says that this client types at all.
pub const STDIN: u8 = 0;
/// What the container writes.
pub const STDOUT: u8 = 1;
/// What it complains of.
pub const STDERR: u8 = 2;
/// The size of a client's window: columns and rows, two bytes each.
pub const RESIZE: u8 = 4;
/// The client is attached: all that the container writes from now on comes.
pub const ATTACHED: u8 = 5;
/// It is not, and why.
pub const REFUSED: u8 = 6;
/// The container's run has ended, and all that it wrote has come.
pub const ENDED: u8 = 7;
/// The client types no more.
pub const INPUT_ENDED: u8 = 8;

/// Data of a message at most, in bytes.
pub const DATA_BYTES_MAX: usize = 32 << 10;
/// Folder of the sockets, in the pod's directory.
const FOLDER: &str = "attach";
/// What the name of a socket begins with at which nobody listens yet.
const HIDDEN: char = '.';
/// Tells sockets of one process apart.
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// Sockets that a shim looks at in one turn.
const REQUESTS_MAX: usize = 256;

/// The agent's socket, at which the shim is to come. What others see of it goes when this is dropped.
#[derive(Debug)]
pub struct Listener {
    pub socket: OwnedFd,
    path: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The shim may have removed it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes a socket at which the shim of `dir` comes once it is woken, for a client of `container`. Neither it nor what is accepted
/// from it blocks.
pub fn listen(dir: &Path, container: &str) -> io::Result<Listener> {
    let folder = dir.join(FOLDER);
    private_dir(&folder)?;
    let within = open_folder(&folder)?;
    let socket = new_socket()?;
    // Names of containers are labels, so they can be part of a file's.
    let name = format!("{container}.{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let hidden = format!("{HIDDEN}{name}");
    let mut listener = Listener { socket, path: folder.join(&hidden) };
    // What a process of this pid has left that was killed.
    let _ = fs::remove_file(&listener.path);
    bind(listener.socket.as_raw_fd(), &address(&within, &hidden)?)?;
    listen_at(&listener.socket, Backlog::new(1)?)?;
    // The shim may look at any moment, and one at which nobody listens yet is of no use to it.
    fs::rename(&listener.path, folder.join(&name))?;
    listener.path = folder.join(name);
    Ok(listener)
}

/// Connects to all who wait in `dir`; with each the container that is meant.
pub(crate) fn take_requests(dir: &Path) -> Vec<(String, OwnedFd)> {
    let folder = dir.join(FOLDER);
    let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
    let Ok(within) = open_folder(&folder) else { return Vec::new() };
    let mut requests = Vec::new();
    for entry in entries.flatten().take(REQUESTS_MAX) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(HIDDEN) {
            continue;
        }
        let connected = reach(&within, &name);
        // Nobody else comes to it, and one of an agent that is gone is of no use.
        let _ = fs::remove_file(entry.path());
        if let (Ok(socket), Some((container, _))) = (connected, name.rsplit_once('.')) {
            requests.push((container.to_owned(), socket));
        }
    }
    requests
}

fn reach(within: &File, name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    connect(socket.as_raw_fd(), &address(within, name)?)?;
    Ok(socket)
}

fn new_socket() -> nix::Result<OwnedFd> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK, None)
}

fn open_folder(folder: &Path) -> nix::Result<File> {
    open(folder, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).map(File::from)
}

/// By the folder's descriptor: an address is shorter than many a path.
fn address(within: &File, name: &str) -> nix::Result<UnixAddr> {
    UnixAddr::new(format!("{}/{name}", descriptor_path(within)).as_str())
}

/// Sends one message whole, or fails; `EAGAIN` says that the other side has to read first.
pub fn send(socket: impl AsFd, channel: u8, data: &[u8]) -> nix::Result<()> {
    let parts = [IoSlice::new(std::slice::from_ref(&channel)), IoSlice::new(data)];
    sendmsg::<()>(socket.as_fd().as_raw_fd(), &parts, &[], MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

/// Receives one message into `buffer`: its channel and how many bytes of data it has; none when the other side is gone.
pub fn receive(socket: impl AsFd, buffer: &mut [u8; DATA_BYTES_MAX]) -> nix::Result<Option<(u8, usize)>> {
    let mut channel = [0];
    let mut parts = [IoSliceMut::new(&mut channel), IoSliceMut::new(buffer)];
    let received = recvmsg::<()>(socket.as_fd().as_raw_fd(), &mut parts, None, MsgFlags::MSG_CMSG_CLOEXEC)?.bytes;
    Ok(received.checked_sub(1).map(|length| (channel[0], length)))
}

/// A window's size as data of [`RESIZE`].
pub fn window(columns: u16, rows: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (columns.to_le_bytes(), rows.to_le_bytes());
    [a, b, c, d]
}

/// Columns and rows, as [`window`] has written them.
pub(crate) fn window_of(data: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *data else { return None };
    Some((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::errno::Errno;
    use nix::sys::socket::accept;
    use std::os::fd::FromRawFd;

    #[allow(unsafe_code)]
    fn accepted(listener: &Listener) -> OwnedFd {
        let descriptor = accept(listener.socket.as_raw_fd()).unwrap();
        // SAFETY: the kernel has just made it for us, and nobody else knows it.
        unsafe { OwnedFd::from_raw_fd(descriptor) }
    }

    #[test]
    fn both_sides_meet_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(take_requests(dir.path()).is_empty(), "nobody waits");
        let long = "a".repeat(63);
        let (one, two) = (listen(dir.path(), "main").unwrap(), listen(dir.path(), &long).unwrap());
        drop(listen(dir.path(), "gone").unwrap());
        let mut requests = take_requests(dir.path());
        requests.sort_by(|a, b| b.0.cmp(&a.0));
        assert_eq!(requests.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["main", &long]);
        assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), 0, "each is taken once");
        let (ours, theirs) = (accepted(&one), &requests[0].1);
        let mut buffer = [0; DATA_BYTES_MAX];
        for data in [&b""[..], b"text", &[7; DATA_BYTES_MAX]] {
            send(&ours, STDIN, data).unwrap();
            assert_eq!(receive(theirs, &mut buffer).unwrap(), Some((STDIN, data.len())));
            assert_eq!(&buffer[..data.len()], data);
        }
        assert_eq!(receive(theirs, &mut buffer), Err(Errno::EAGAIN));
        drop(ours);
        assert_eq!(receive(theirs, &mut buffer).unwrap(), None);
        drop((one, two));
    }

    #[test]
    fn a_socket_of_an_agent_that_was_killed_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut killed = listen(dir.path(), "main").unwrap();
        let path = std::mem::replace(&mut killed.path, dir.path().join("nothing"));
        drop(killed);
        assert!(path.exists(), "it left its file behind");
        let _next = listen(dir.path(), "main").unwrap();
        assert_eq!(take_requests(dir.path()).len(), 1);
        assert!(!path.exists());
    }

    #[test]
    fn windows_have_two_sides() {
        assert_eq!(window_of(&window(132, 43)), Some((132, 43)));
        assert_eq!(window_of(b"abc"), None);
    }
}
