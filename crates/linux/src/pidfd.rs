//! Descriptors that stand for processes, whatever becomes of their pids. They are readable when the process has ended.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The process that has this pid now.
#[allow(unsafe_code)]
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes integers; a non-negative result is a new descriptor that nobody else owns.
    unsafe {
        let fd = nix::errno::Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Kills the process; one that has ended is fine.
#[allow(unsafe_code)]
pub fn kill(process: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call; no signal information is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            libc::SIGKILL,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    match nix::errno::Errno::result(result) {
        Ok(_) | Err(nix::Error::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
