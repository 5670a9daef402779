//! When processes of the platform take huge pages.
//!
//! With them (transparent ones, see `madvise(2)`) a large process computes faster, and a small one takes 20 MB more memory than
//! it uses: the allocator asks for them wherever it spreads small objects. So a component takes none until it is large, and a shim
//! never. A process hands down what it may to its children. Invariant: programs of pods may take them if whoever started the
//! platform may.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::prctl::{get_thp_disable, set_thp_disable};

use crate::procfs;

/// Variable and value by which the allocator of a shim (mimalloc, where the program has that) takes none: they would be 4 MB for
/// each pod. It forbids them to the whole process, so [`allow_in_shim`] follows, for the programs of its pod.
pub(crate) const NONE_IN_SHIM: (&str, &str) = ("MIMALLOC_ALLOW_THP", "0");

/// Of so much memory they are worth it, in bytes.
const LARGE: u64 = 128 << 20;
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Whether this process may take them and does not, or did not until it was large.
static REFRAINS: AtomicBool = AtomicBool::new(false);

/// Has this process take none from now on; [`take_when_large`] ends that. Nothing but memory depends on it.
pub fn refrain() {
    if are_allowed() && set_thp_disable(true).is_ok() {
        REFRAINS.store(true, Ordering::Relaxed);
    }
}

/// Waits until this process is large, and has it take huge pages as far as whoever started it may.
pub async fn take_when_large() {
    take_from(LARGE, LOOK_EVERY).await;
}

async fn take_from(bytes: u64, every: Duration) {
    if !REFRAINS.load(Ordering::Relaxed) {
        return;
    }
    while procfs::resident_bytes(std::process::id().cast_signed()) < bytes {
        tokio::time::sleep(every).await;
    }
    // Nothing but speed depends on it.
    let _ = set_thp_disable(false);
}

/// Whether whoever started this process may take them.
pub(crate) fn are_allowed() -> bool {
    REFRAINS.load(Ordering::Relaxed) || !get_thp_disable().unwrap_or(false)
}

/// Undoes in a shim what [`NONE_IN_SHIM`] has done: programs of pods inherit it.
pub(crate) fn allow_in_shim() {
    if std::env::var_os(NONE_IN_SHIM.0).is_some() {
        // Nothing but speed depends on it.
        let _ = set_thp_disable(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_takes_none_until_it_is_large() {
        let allowed = are_allowed();
        refrain();
        assert!(get_thp_disable().unwrap());
        assert_eq!(are_allowed(), allowed, "to pods");
        let mut larger = Box::pin(take_from(u64::MAX, Duration::from_millis(1)));
        let waits = tokio::time::timeout(Duration::from_millis(20), &mut larger).await;
        assert_eq!((waits.is_err(), get_thp_disable().unwrap()), (allowed, true));
        take_from(1, Duration::from_millis(1)).await;
        assert_eq!((get_thp_disable().unwrap(), are_allowed()), (!allowed, allowed));
    }
}
