//! Terminals of containers: made where the container's files are, used from outside.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
};

/// Both ends of a terminal.
pub(crate) struct Terminal {
    /// What is typed goes in here, and what is written comes out.
    pub keyboard: File,
    /// The end that is their standard streams.
    pub screen: File,
}

/// A terminal of the file system that this process has at `/dev/pts`.
pub(crate) fn open_terminal() -> io::Result<Terminal> {
    let keyboard = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)?;
    grantpt(&keyboard)?;
    unlockpt(&keyboard)?;
    let name = ptsname_r(&keyboard)?;
    let screen = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name)?;
    Ok(Terminal { keyboard: File::from(OwnedFd::from(keyboard)), screen })
}

/// Ends of a socket by which process 1 of a container hands its terminal's keyboard to the shim. They don't block.
pub(crate) fn hand_over_sockets() -> nix::Result<(File, File)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    Ok((File::from(one), File::from(other)))
}

/// Hands a keyboard over; it does not block from then on.
pub(crate) fn hand_over(keyboard: &File, socket: &File) -> nix::Result<()> {
    nix::fcntl::fcntl(keyboard, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    let descriptors = [keyboard.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(b"t")], &rights, MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

/// What has come of a hand-over.
pub(crate) enum HandOver {
    /// Not yet.
    Awaited,
    Done(File),
    /// The other side has ended without.
    Failed,
}

/// Looks whether the keyboard has come.
#[allow(unsafe_code)]
pub(crate) fn take_over(socket: &File) -> HandOver {
    let mut byte = [0];
    let mut control = cmsg_space!([RawFd; 1]);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC) {
        Ok(received) => received,
        Err(Errno::EAGAIN | Errno::EINTR) => return HandOver::Awaited,
        Err(_) => return HandOver::Failed,
    };
    for message in received.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmRights(descriptors) = message
            && let [descriptor] = descriptors[..]
        {
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
            return HandOver::Done(unsafe { File::from_raw_fd(descriptor) });
        }
    }
    HandOver::Failed
}

/// Tells a terminal how large its window is, in characters.
#[allow(unsafe_code)]
pub(crate) fn resize(keyboard: &File, columns: u16, rows: u16) -> nix::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the descriptor is open, and `size` is what this request reads, alive until it returns.
    let result = unsafe { libc::ioctl(keyboard.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_terminal_is_handed_over_and_has_the_size_that_it_was_given() {
        let (ours, theirs) = hand_over_sockets().unwrap();
        assert!(matches!(take_over(&ours), HandOver::Awaited));
        let Terminal { keyboard, mut screen } = open_terminal().unwrap();
        hand_over(&keyboard, &theirs).unwrap();
        drop((keyboard, theirs));
        let HandOver::Done(mut keyboard) = take_over(&ours) else { panic!("it did not come") };
        assert!(matches!(take_over(&ours), HandOver::Failed), "no other one comes");
        resize(&keyboard, 132, 43).unwrap();
        screen.write_all(b"seen").unwrap();
        let mut seen = [0; 16];
        assert_eq!(keyboard.read(&mut seen).unwrap(), 4);
        assert_eq!(keyboard.read(&mut seen).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
