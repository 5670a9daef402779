//! A user namespace for users without root, in which this user is root.
//!
//! Invariant: nothing is gained on the host: inside, user 0 is this user, and no other user exists.

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Gid, Uid};

/// Becomes root of a new user namespace. Needs a process with one thread.
pub(crate) fn enter() -> io::Result<()> {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    unshare(CloneFlags::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
