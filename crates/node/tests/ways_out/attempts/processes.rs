//! The container's process 1, which is the platform's, processes of other pods and of the host, and what they share in memory.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::syscall::{call, open};
use super::{done, is_so, read_secret};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const fn tracing(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Capability("SYS_PTRACE") }
}

const fn spaced(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Namespaces }
}

pub const ROWS: &[Row] = &[
    tracing("trace process 1", |_| seize(1)),
    tracing("read the memory of process 1", |_| {
        let maps = fs::read_to_string("/proc/1/maps")?;
        read_program(1, first_address(&maps).ok_or(Errno::ENOENT)?)
    }),
    tracing("open /proc/1/mem", |_| File::open("/proc/1/mem").map(drop)),
    tracing("read /proc/1/environ", |_| {
        let mut bytes = Vec::new();
        File::open("/proc/1/environ")?.read_to_end(&mut bytes).map(drop)
    }),
    tracing("read what process 1 has open", |_| fs::read_link("/proc/1/fd/0").map(drop)),
    tracing("go through /proc/1/root", |_| fs::read_dir("/proc/1/root/").map(drop)),
    tracing("go through /proc/1/cwd", |_| fs::read_dir("/proc/1/cwd/").map(drop)),
    tracing("read where /proc/1/exe is", |_| fs::read_link("/proc/1/exe").map(drop)),
    tracing("open namespaces of process 1", |_| File::open("/proc/1/ns/mnt").map(drop)),
    tracing("take a descriptor of process 1", |_| {
        let process = open!(SYS_pidfd_open, 1, 0)?;
        done(open!(SYS_pidfd_getfd, process.as_raw_fd(), 0, 0))
    }),
    spaced("see a process of another pod", |facts| {
        let environment = fs::read(proc_file(facts, "environ"))?;
        is_so(String::from_utf8_lossy(&environment).contains(&facts.secret))
    }),
    spaced("signal a process of another pod", |facts| signal(facts.neighbor)),
    spaced("signal the shim of another pod", |facts| signal(facts.neighbor_shim)),
    spaced("trace a process of another pod", |facts| seize(facts.neighbor)),
    spaced("read the memory of another pod", |facts| read_program(facts.neighbor, facts.neighbor_address)),
    spaced("set the limits of a process of another pod", |facts| {
        let mut limits = [0_u64; 2];
        call!(SYS_prlimit64, facts.neighbor, libc::RLIMIT_CORE, 0, &mut limits)?;
        done(call!(SYS_prlimit64, facts.neighbor, libc::RLIMIT_CORE, &mut limits, 0))
    }),
    spaced("bind a process of another pod to CPUs", |facts| {
        let pid = Pid::from_raw(facts.neighbor);
        let cpus = nix::sched::sched_getaffinity(pid)?;
        Ok(nix::sched::sched_setaffinity(pid, &cpus)?)
    }),
    spaced("read the volume of another pod through its process", |facts| {
        read_secret(&proc_file(facts, "root/volume/secret"), &facts.secret)
    }),
    spaced("read the shared memory of another pod through its process", |facts| {
        read_secret(&proc_file(facts, "root/dev/shm/secret"), &facts.secret)
    }),
    spaced("leave the root by chroot", |facts| {
        nix::unistd::chroot(&facts.scratch())?;
        // The working directory stays outside of the new root, so nothing stops at it on the way up.
        for _ in 0..64 {
            nix::unistd::chdir("..")?;
        }
        nix::unistd::chroot(".")?;
        read_secret(&facts.data_dir.join("secret"), &facts.secret)
    }),
    spaced("open a terminal of the host", |facts| File::open(&facts.terminal).map(drop)),
    spaced("read a System V segment of the host", |facts| read_segment(facts.segment, &facts.secret)),
    spaced("look at a System V segment of the host", |facts| {
        let mut state = [0_u64; 32];
        done(call!(SYS_shmctl, facts.segment, libc::IPC_STAT, &mut state))
    }),
    spaced("open a message queue of the host", |facts| open_queue(&facts.queue).map(drop)),
    spaced("read shared memory of the host", |facts| read_secret(&facts.shared_memory, &facts.secret)),
];

fn proc_file(facts: &Facts, name: &str) -> PathBuf {
    Path::new("/proc").join(facts.neighbor.to_string()).join(name)
}

/// Asks only whether a signal could be sent.
fn signal(pid: i32) -> io::Result<()> {
    Ok(kill(Pid::from_raw(pid), None)?)
}

/// Becomes a process's tracer, which does not stop it, until this attempt ends.
fn seize(pid: i32) -> io::Result<()> {
    done(call!(SYS_ptrace, libc::PTRACE_SEIZE, pid, 0, 0))
}

/// Reads how a program in another process's memory begins.
fn read_program(pid: i32, address: usize) -> io::Result<()> {
    let mut magic = [0; 4];
    let there = RemoteIoVec { base: address, len: magic.len() };
    process_vm_readv(Pid::from_raw(pid), &mut [IoSliceMut::new(&mut magic)], &[there])?;
    is_so(magic == *b"\x7fELF")
}

/// Where the first part of a program is, of a text as in `/proc/PID/maps`.
pub fn first_address(maps: &str) -> Option<usize> {
    usize::from_str_radix(maps.split_once('-')?.0, 16).ok()
}

#[allow(unsafe_code)]
fn read_segment(segment: i32, secret: &str) -> io::Result<()> {
    let at = call!(SYS_shmat, segment, 0, libc::SHM_RDONLY)?;
    // SAFETY: the kernel has just mapped the segment there, which the suite made at least as long as the secret, and it stays
    // until this process ends.
    let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, secret.len()) };
    is_so(bytes == secret.as_bytes())
}

fn open_queue(name: &str) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    Ok(open!(SYS_mq_open, name.as_c_str(), libc::O_RDONLY, 0, 0)?)
}
