//! Room on the disk of a platform: enough to start, and a word in the log when there is little.
//!
//! Invariant: a start on a full disk is refused before anything is touched. What runs goes on without room: writes are
//! refused, and made again when there is some.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use pumice_jobs::platform::autostart::MAKE_ROOM;
use pumice_store::{DiskSpace, Store};

/// What a start needs: the store's first commits, keys, certificates, the history's tables.
const START_BYTES: u64 = 16 << 20;
/// How often the disk is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Refuses to start something in `folder` where there is no room for it.
pub fn check_for_start(folder: &Path) -> Result<()> {
    match DiskSpace::of(folder) {
        Some(DiskSpace { free_bytes, .. }) if free_bytes < START_BYTES => bail!(
            "the disk of {} is full: {:.1} MB are free and a start takes {} MB, so {:.1} MB are missing; {MAKE_ROOM}",
            folder.display(),
            megabytes(free_bytes),
            START_BYTES >> 20,
            megabytes(START_BYTES - free_bytes)
        ),
        _ => Ok(()),
    }
}

/// Tells the log when less than `warn_bytes` is free, not more than once a minute; never ends.
pub async fn watch(store: Store, warn_bytes: u64) {
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut warned: Option<tokio::time::Instant> = None;
    loop {
        let now = look.tick().await;
        let Some(space) = store.disk_space() else { continue };
        let free = format!("{:.1} MB", megabytes(space.free_bytes));
        match (space.is_short(warn_bytes), warned) {
            (true, Some(at)) if now.duration_since(at) < WARN_EVERY => {}
            (true, _) => {
                warned = Some(now);
                tracing::warn!(free, "the disk of the store is nearly full: when it is, writes are refused");
            }
            (false, Some(_)) => {
                warned = None;
                tracing::warn!(free, "the disk of the store has room again");
            }
            (false, None) => {}
        }
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
