//! Manifests by others, which stand beside the project and are never copied into it.

use std::path::PathBuf;

/// A file or folder of `../shared/fixtures`; `None` where the folder is absent, as on a user's machine.
///
/// # Panics
/// When it is absent although `CI` is set: there it has to be present.
pub fn shared_fixture(relative: &str) -> Option<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures"));
    let path = root.join(relative);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing although CI is set", path.display());
    eprintln!("left out: {} is not here", path.display());
    None
}
