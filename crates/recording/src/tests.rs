//! What stands in a folder in the place of a recording.

use std::path::Path;

use pumice_engine::plugin::Registry;

use super::*;

mod foreign;

fn run(folder: &Path) -> Result<Replay, ReplayError> {
    replay(&Recording::open(folder)?, &Registry::default(), Range::default())
}

fn segment(folder: &Path, number: u64) -> std::path::PathBuf {
    folder.join(format!("{number:08}.record"))
}
