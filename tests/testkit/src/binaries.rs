//! Where the binaries under test are: beside the test's own executable.

use std::path::PathBuf;

/// The path of a binary of this workspace, such as `pumice`.
///
/// # Panics
/// When it is not built; the message says how.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has an executable");
    // target/PROFILE/deps/test-HASH -> target/PROFILE
    let profile = test.ancestors().nth(2).expect("tests live in target/PROFILE/deps");
    let path = profile.join(name);
    assert!(
        path.is_file(),
        "{} is not built: run `cargo build --workspace --bins` first (make test does)",
        path.display()
    );
    path
}
