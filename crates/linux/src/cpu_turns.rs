//! By which policy the kernel has threads take turns on a CPU.
//!
//! A thread of the ordinary policy that weighs much takes the CPU from another one the moment it wakes; a platform whose threads
//! do so for each single event computes a fifth more for each pod. Of the policy for batches (`SCHED_BATCH`, see sched(7)) it
//! has as much CPU time, and waits for the end of the other's turn, some milliseconds. Invariant: programs of pods have the
//! ordinary policy, and a thread that somebody has given a policy keeps it.

use std::fs;
use std::io;

use nix::errno::Errno;

/// Has all threads of this process, and those that they start, wait for the end of others' turns.
pub fn wait_for_turns() -> io::Result<()> {
    // A thread that another one has started meanwhile is found at the next look.
    while change_all(libc::SCHED_OTHER, libc::SCHED_BATCH)? {}
    Ok(())
}

/// Gives this thread, the only one of its process, the ordinary policy again.
pub fn take_turns_as_usual() -> io::Result<()> {
    if policy(0)? == libc::SCHED_BATCH { set_policy(0, libc::SCHED_OTHER) } else { Ok(()) }
}

/// Whether there was any thread to change.
fn change_all(from: i32, to: i32) -> io::Result<bool> {
    let mut changed = false;
    for thread in fs::read_dir("/proc/self/task")? {
        let Some(id) = thread?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let change = policy(id).and_then(|policy| match policy == from {
            true => set_policy(id, to).map(|()| true),
            false => Ok(false),
        });
        match change {
            Ok(is_new) => changed |= is_new,
            // It has ended.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(changed)
}

/// The policy of a thread; 0 is the calling one. By system call, as some C libraries refuse.
#[allow(unsafe_code)]
fn policy(thread: i32) -> io::Result<i32> {
    // SAFETY: takes and gives an integer.
    let found = unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread) };
    Ok(Errno::result(found)? as i32)
}

#[allow(unsafe_code)]
fn set_policy(thread: i32, policy: i32) -> io::Result<()> {
    let priority = 0_i32;
    // SAFETY: the kernel reads a structure of one integer, the priority, which lives until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, &raw const priority) };
    Ok(Errno::result(result).map(drop)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_wait_for_turns_with_those_that_they_start_until_they_no_longer_do() {
        wait_for_turns().unwrap();
        assert_eq!(policy(0).unwrap(), libc::SCHED_BATCH);
        let of_a_new_thread = std::thread::spawn(|| policy(0).unwrap()).join().unwrap();
        assert_eq!(of_a_new_thread, libc::SCHED_BATCH);
        take_turns_as_usual().unwrap();
        assert_eq!(policy(0).unwrap(), libc::SCHED_OTHER);
        assert!(change_all(libc::SCHED_BATCH, libc::SCHED_OTHER).unwrap(), "the other threads of these tests");
    }
}
