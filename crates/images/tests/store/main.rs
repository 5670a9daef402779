//! The store as those that pull images use it: good layers, crashes, full disks, several processes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../shared/archives.rs"]
mod archives;
mod archives_of_images;
mod crashes;
mod good_layers;
mod pruning;
mod transfers;
