//! Copies of this process, and their end.

use nix::sched::CloneFlags;
use nix::unistd::{ForkResult, Pid};

/// A copy of this process, which must have one thread.
#[allow(unsafe_code)]
pub(crate) fn fork() -> nix::Result<ForkResult> {
    // SAFETY: contract: process 1 of a container and who makes another program in it have one thread, so the copy can
    // go on as usual.
    unsafe { nix::unistd::fork() }
}

/// `fork` into new namespaces.
#[allow(unsafe_code)]
pub(crate) fn clone_self(namespaces: CloneFlags) -> nix::Result<ForkResult> {
    let flags = i64::from(namespaces.bits() | libc::SIGCHLD);
    // SAFETY: without a stack argument this is `fork` with namespaces: the child goes on here on a
    // copy of this stack. The shim has one thread, so no lock is held by a thread that is not copied.
    let result = unsafe { libc::syscall(libc::SYS_clone, flags, 0_i64, 0_i64, 0_i64, 0_i64) };
    match nix::errno::Errno::result(result)? {
        0 => Ok(ForkResult::Child),
        pid => Ok(ForkResult::Parent { child: Pid::from_raw(pid as libc::pid_t) }),
    }
}

/// Ends this copy of the process at once.
#[allow(unsafe_code)]
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: ends the process without running the shim's own exit handlers in this copy of it.
    unsafe { libc::_exit(code) }
}
