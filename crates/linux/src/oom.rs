//! Whom the kernel ends first when the machine's memory runs out: programs of pods before the platform and its shims.
//!
//! Invariant: a pod's program never has a value below [`PROGRAM`] from us, and one that was set here with root's rights
//! can't be lowered by it.

use std::fs;
use std::io;

/// Of the platform's processes and of shims, which write down how pods end: the last to go, but not exempt.
const PLATFORM: i32 = -900;
/// Of pods' programs: the kernel's own value, so that what they use alone decides.
const PROGRAM: i32 = 0;

/// Makes this process, and those that it starts, one of the last to go. Only root may.
pub fn spare_this_process() -> io::Result<()> {
    set(PLATFORM)
}

/// Takes back what a program has inherited of that.
pub fn expose_this_process() -> io::Result<()> {
    set(PROGRAM)
}

fn set(value: i32) -> io::Result<()> {
    fs::write("/proc/self/oom_score_adj", value.to_string())
}
