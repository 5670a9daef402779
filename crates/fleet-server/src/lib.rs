//! Many clusters as one: queues, jobs and executors behind an API that Armada's clients speak.
//!
//! [`pumice_wire`] is what goes over the network; everything else speaks in types of its own.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod bidding;
pub mod binoculars;
pub mod config;
pub mod database;
pub mod doctor;
pub mod executor_commands;
pub mod executor_streams;
pub mod gateway;
pub mod health;
pub mod leader;
pub mod metrics;
pub mod reports;
pub mod sessions;
mod trust;
