//! Programs that find each other as frameworks do, by what the job plugins tell them, and really compute together.
//!
//! What more cores give MPI is printed; `cargo test --workspace --test e2e frameworks:: -- --nocapture --test-threads=1`
//! measures it, as nothing else wants the cores then.

mod elastic;
mod meeting;
mod mpi;
mod ray;

use std::os::unix::fs::PermissionsExt;

use pumice_testkit::Platform;
use tempfile::TempDir;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/frameworks");

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
