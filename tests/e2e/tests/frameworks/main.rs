//! Programs that find each other as frameworks do, by what the job plugins tell them, and really compute together.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // a test may panic, and has a clock of its own

mod elastic;
mod meeting;
mod mpi;
mod ray;

use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_testkit::Platform;
use tempfile::TempDir;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/frameworks");

/// Keeps those apart that want every core: one of them measures what more cores give.
fn all_cores() -> MutexGuard<'static, ()> {
    static CORES: Mutex<()> = Mutex::new(());
    CORES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a job to its end and gives what its pods printed.
fn run(platform: &Platform, name: &str, manifest: &str) -> String {
    let file = platform.file(&format!("{name}.json"), manifest);
    platform.kubectl(["apply", "-f", file.to_str().unwrap()]).ok();
    platform.wait_for_phase(name, "Completed");
    platform.jobctl(["logs", name]).ok()
}

/// A folder that is laid over the machine's root, as an image would bring it.
fn layer() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    // It becomes the root of pods whose users need not be its owner.
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    root
}
