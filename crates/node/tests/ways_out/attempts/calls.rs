//! System calls that containers do without: so many faults of the kernel were reached through them, or they know users but no
//! containers, as keyrings do.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

use super::syscall::{call, call_with, open};
use super::{but_for, done, is_so};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const fn row(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Seccomp }
}

/// Operations of `keyctl`, and keyrings that each process has.
const KEYCTL_LINK: u32 = 8;
const KEYCTL_READ: u32 = 11;
pub const PROCESS_KEYRING: i32 = -2;
const SESSION_KEYRING: i32 = -3;
pub const USER_KEYRING: i32 = -4;

const USER_MODE_ONLY: u32 = 1;
const ADDR_NO_RANDOMIZE: u32 = 0x004_0000;
const FAN_REPORT_FID: u32 = 0x200;
/// What marks a call of the x32 kind.
const X32: libc::c_long = 0x4000_0000;

pub const ROWS: &[Row] = &[
    row("read a key of the host's root", |facts| {
        // A key may be read by whose session leads to it.
        call!(SYS_keyctl, KEYCTL_LINK, USER_KEYRING, SESSION_KEYRING)?;
        let mut found = [0; 256];
        let length = call!(SYS_keyctl, KEYCTL_READ, facts.key, found.as_mut_slice(), 256)?;
        is_so(length as usize >= facts.secret.len() && found.starts_with(facts.secret.as_bytes()))
    }),
    row("add a key", |_| done(call!(SYS_add_key, c"user", c"ways-out", c"out", 3, PROCESS_KEYRING))),
    row("ask for a key", |_| {
        but_for(Errno::ENOKEY, call!(SYS_request_key, c"user", c"pumice:no such key", 0, PROCESS_KEYRING))
    }),
    row("userfaultfd", |_| done(open!(SYS_userfaultfd, USER_MODE_ONLY))),
    row("io_uring_setup", |_| {
        let mut parameters = [0_u64; 15];
        done(open!(SYS_io_uring_setup, 1, &mut parameters))
    }),
    row("perf_event_open for oneself", |_| {
        const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 1 << 5 | 1 << 6;
        open_counter(EXCLUDE_KERNEL_AND_HYPERVISOR)
    }),
    row("run without random addresses", |_| done(call!(SYS_personality, ADDR_NO_RANDOMIZE))),
    row("a call as 32-bit programs make it", |_| call_32_bit()),
    row("a call of the x32 kind", |_| done(call_with(X32 | libc::SYS_getpid, []))),
    row("open_tree", |_| done(open!(SYS_open_tree, libc::AT_FDCWD, c"/", 0))),
    row("list mounts by listmount", |_| {
        const SYS_LISTMOUNT: libc::c_long = 458;
        const BYTES: u64 = 24;
        let (mut request, mut found) = ([BYTES, u64::MAX, 0], [0_u64; 64]);
        done(call_with(SYS_LISTMOUNT, [(&mut request).into(), (&mut found).into(), 64.into(), 0.into()]))
    }),
    row("kcmp", |_| {
        let pid = std::process::id();
        done(call!(SYS_kcmp, pid, pid, 0, 0, 0))
    }),
    row("pidfd_getfd", |_| {
        let (own, any) = (open!(SYS_pidfd_open, std::process::id(), 0)?, File::open("/")?);
        done(open!(SYS_pidfd_getfd, own.as_raw_fd(), any.as_raw_fd(), 0))
    }),
    row("move_pages", |_| done(call!(SYS_move_pages, 0, 0, 0, 0, 0, 0))),
    row("fanotify_init", |_| done(open!(SYS_fanotify_init, FAN_REPORT_FID, 0))),
];

/// Opens a counter of the time of this process, with what is left out of `struct perf_event_attr`.
pub fn open_counter(left_out: u64) -> io::Result<()> {
    const SOFTWARE: u64 = 1;
    const WORDS: usize = 16;
    let mut attributes = [0_u64; WORDS];
    attributes[0] = SOFTWARE | (size_of::<[u64; WORDS]>() as u64) << 32;
    attributes[5] = left_out;
    done(open!(SYS_perf_event_open, &mut attributes, 0, -1, -1, 0))
}

/// Asks for this process's number by the way of 32-bit programs, whose calls have other numbers than a filter knows.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn call_32_bit() -> io::Result<()> {
    const GETPID: i64 = 20;
    let mut result = GETPID;
    // SAFETY: `getpid` takes and changes no memory; a kernel without 32-bit programs ends this process by a signal.
    unsafe { std::arch::asm!("int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _) };
    is_so(u32::try_from(result).ok() == Some(std::process::id()))
}

#[cfg(not(target_arch = "x86_64"))]
fn call_32_bit() -> io::Result<()> {
    Err(nix::errno::Errno::ENOSYS.into())
}
