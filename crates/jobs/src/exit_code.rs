//! The exit codes of `jobctl`, which Python's exceptions carry, too.
//!
//! Invariant: the codes are a contract that scripts rely on. `run` ends with the job's own code in place of 1. Pure.
//! Called by everything that can fail, and by `job`, which says how a job's end is one of them.

/// All of them, as `jobctl --help` shows them.
pub const SUMMARY: &str = "Exit codes: 0 success, 1 job failed, 2 wrong use, 3 not found, 4 denied, 5 server unreachable \
(try again), 6 conflict, 7 job cancelled, 8 timed out waiting, 9 partly succeeded, 130 interrupted; \
`run`: the job's own code, 128+signal when killed, 127 without its program";

/// What a command ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All went well: 0.
    Success,
    /// The job failed: 1.
    JobFailed,
    /// Wrong flags or a wrong manifest: 2.
    Usage,
    /// No such job: 3.
    NotFound,
    /// Not allowed: 4.
    Denied,
    /// No answer; trying again makes sense: 5.
    Unreachable,
    /// It exists already: 6.
    Conflict,
    /// The job was cancelled or suspended: 7.
    Cancelled,
    /// The wait took longer than allowed: 8.
    TimedOut,
    /// Some pods succeeded, fewer than `minSuccess`: 9.
    Partly,
    /// The user pressed Ctrl-C: 130.
    Interrupted,
    /// The code of the job's own process, never 0.
    Own(u8),
}

impl Exit {
    /// The process exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::JobFailed => 1,
            Exit::Usage => 2,
            Exit::NotFound => 3,
            Exit::Denied => 4,
            Exit::Unreachable => 5,
            Exit::Conflict => 6,
            Exit::Cancelled => 7,
            Exit::TimedOut => 8,
            Exit::Partly => 9,
            Exit::Interrupted => 130,
            Exit::Own(code) => code,
        }
    }
}
