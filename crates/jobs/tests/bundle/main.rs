//! Bundles and results in memory, in a folder, and in a real API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod folder;
mod format;
mod full_disk;
mod kills;
mod marks;
mod objects;
mod results;
mod support;
mod told;
