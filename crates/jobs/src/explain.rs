//! Why a job waits, why it ended, and what it takes to see the same on the user's machine.
//!
//! Called by `jobctl why`, `get` and `debug`, and by `run`.

pub mod debug;
pub mod images;
pub mod job_end;
pub mod why;
