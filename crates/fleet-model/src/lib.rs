//! What a fleet's users may submit, and what is made of it: rules that the server and executors share.
//!
//! [`submission`] checks a request and completes it; [`grants`] says what a queue's pods may be; [`names`] are those that
//! the server and executors agree on. Pure: no I/O, no clock, no ids.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod grants;
pub mod names;
pub mod submission;
