//! More of the machine than is the pod's: memory, processes, and a rank before others.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Write};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use super::done;
use super::syscall::call;
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const fn ranked(name: &'static str, right: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control: Control::Capability(right) }
}

const fn row(name: &'static str, control: Control, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Limited, control }
}

/// What these pods may have of memory, in bytes, and of processes.
pub const MEMORY_BYTES_MAX: usize = 100 << 20;
pub const PROCESSES_MAX: u32 = 40;
const NO_LIMIT: u64 = u64::MAX;

pub const ROWS: &[Row] = &[
    row("take more memory than the limit", Control::MemoryLimit, |_| {
        // Not zeros, which the kernel need not have memory for.
        black_box(vec![1_u8; MEMORY_BYTES_MAX * 3 / 2]);
        Ok(())
    }),
    row("fill shared memory beyond the limit", Control::MemoryLimit, |_| {
        let path = format!("/dev/shm/filled-{}", std::process::id());
        let mut file = File::create(&path)?;
        // Its memory is free again when this process ends, in whatever way.
        fs::remove_file(&path)?;
        file.write_all(&vec![1; MEMORY_BYTES_MAX / 2])?;
        file.write_all(&vec![1; MEMORY_BYTES_MAX / 2])?;
        file.write_all(&vec![1; MEMORY_BYTES_MAX / 2])
    }),
    row("make more processes than the limit", Control::ProcessLimit, |_| make_processes(2 * PROCESSES_MAX)),
    ranked("go before others by nice", "SYS_NICE", |_| done(call!(SYS_setpriority, libc::PRIO_PROCESS, 0, -5))),
    ranked("go before all others by a real-time priority", "SYS_NICE", |_| {
        let mut priority = 1_u32.to_ne_bytes();
        done(call!(SYS_sched_setscheduler, 0, libc::SCHED_FIFO, priority.as_mut_slice()))
    }),
    ranked("go before others at the disk", "SYS_NICE", |_| {
        const PROCESS: u32 = 1;
        const REAL_TIME: u32 = 1 << 13;
        done(call!(SYS_ioprio_set, PROCESS, 0, REAL_TIME))
    }),
    ranked("lock memory beyond the limit", "IPC_LOCK", |_| {
        set_limit(libc::RLIMIT_MEMLOCK, [0, 0])?;
        let mut page = vec![0; 4096];
        done(call!(SYS_mlock, page.as_mut_slice(), 4096))
    }),
    ranked("raise a hard limit", "SYS_RESOURCE", |_| {
        set_limit(libc::RLIMIT_CORE, [0, 0])?;
        set_limit(libc::RLIMIT_CORE, [0, NO_LIMIT])
    }),
    ranked("be spared when memory runs out", "SYS_RESOURCE", |_| fs::write("/proc/self/oom_score_adj", "-500")),
];

fn set_limit(of: libc::__rlimit_resource_t, mut limit: [u64; 2]) -> io::Result<()> {
    done(call!(SYS_prlimit64, 0, of, &mut limit, 0))
}

fn make_processes(count: u32) -> io::Result<()> {
    let mut made = Vec::new();
    let result = (0..count).try_for_each(|_| {
        made.push(make_process()?);
        Ok(())
    });
    made.into_iter().for_each(end);
    result
}

#[allow(unsafe_code)]
fn make_process() -> nix::Result<Pid> {
    // SAFETY: the child only waits until it is killed.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => loop {
            nix::unistd::pause();
        },
    }
}

fn end(child: Pid) {
    let _ = kill(child, Signal::SIGKILL);
    let _ = waitpid(child, None);
}
