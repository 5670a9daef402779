//! The platform from end to end: the real programs, as people and their programs use them, each test with a platform of its own.
//!
//! One program, so that it is linked once and tests that wait do so beside each other. `cargo test --workspace --test e2e
//! crash::` runs one file of it.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a test may panic, has a clock of its own and reads its environment

mod apart;
mod articles;
mod attach;
mod audit;
mod autostart;
mod backup;
mod bad_input;
mod confinement;
mod crash;
mod debug;
mod directory;
mod disk;
mod disk_pressure;
mod documented;
mod elsewhere;
mod eviction;
mod example_images;
mod fleet;
mod fleet_operations;
mod fleet_simulate;
mod fleet_whole;
mod frameworks;
mod full_disk;
mod grace;
mod history;
mod hostile_peers;
mod hostile_pods;
mod image_files;
mod image_push;
mod image_refusals;
mod images;
mod interactive;
mod job_logs;
mod jobs;
mod limits;
mod login;
mod logs;
mod memory;
mod numbers;
mod probes;
mod procfs;
mod recording;
mod removal;
mod reservations;
mod results;
mod retention;
mod rootless;
mod rootless_images;
mod shards;
mod side_doors;
mod simulate;
mod status;
mod up;
mod vcctl;
mod verbs;
mod volcano_examples;
mod volumes;
mod waits;
mod watch;
mod watched;
mod why;
mod workloads;
