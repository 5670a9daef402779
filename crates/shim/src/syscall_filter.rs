//! Puts a container's filters of system calls into effect.
//!
//! Invariant: read while the process still sees the host's files, installed when it has nothing more to do than to become the
//! program: what a filter forbids, it forbids to every program after it.

use std::io;

use nix::errno::Errno;
use seccompiler::{BpfProgram, sock_filter};

use super::spec::ContainerSpec;
use crate::filter_file;

/// The filters of a container, as its spec names them.
pub(crate) fn of(container: &ContainerSpec) -> io::Result<Vec<BpfProgram>> {
    container.seccomp.as_deref().map_or_else(|| Ok(Vec::new()), filter_file::read)
}

/// The kernel's `struct sock_fprog`.
#[repr(C)]
struct Program {
    len: libc::c_ushort,
    filter: *const sock_filter,
}

/// Has the kernel ask this filter for each call from now on. It needs the right to administer, or that no program can gain
/// rights; the library's own way always takes the latter.
#[allow(unsafe_code)]
pub(crate) fn install(filter: &BpfProgram) -> nix::Result<()> {
    let len = libc::c_ushort::try_from(filter.len()).map_err(|_| Errno::E2BIG)?;
    let program = Program { len, filter: filter.as_ptr() };
    // SAFETY: the kernel copies `len` instructions from `filter`, which lives until the call returns, and writes nothing.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    Errno::result(result).map(drop)
}
