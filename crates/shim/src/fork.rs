//! Copies of this process, and their end.

use nix::unistd::ForkResult;

/// A copy of this process, which must have one thread.
#[allow(unsafe_code)]
pub(crate) fn fork() -> nix::Result<ForkResult> {
    // SAFETY: contract: process 1 of a container and who makes another program in it have one thread, so the copy can
    // go on as usual.
    unsafe { nix::unistd::fork() }
}

/// Ends this copy of the process at once.
#[allow(unsafe_code)]
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: ends the process without running the shim's own exit handlers in this copy of it.
    unsafe { libc::_exit(code) }
}
