//! The controllers against the embedded API server, in one process; the tests play scheduler and node.

mod harness;
mod jobs;
mod queues;
mod restarts;
