//! When processes of the platform take huge pages.
//!
//! With them (transparent ones, see `madvise(2)`) a large process computes faster, and a small one takes 20 MB more memory than
//! it uses: the allocator asks for them wherever it spreads small objects. So a component takes none until it is large, and a shim
//! never. A process hands down what it may to its children. Invariant: programs of pods may take them if whoever started the
//! platform may.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::prctl::{get_thp_disable, set_thp_disable};

use crate::procfs;

/// Variable and value by which the allocator of a shim (mimalloc, where the program has that) takes none: they would be 4 MB for
/// each pod. It forbids them to the whole process, so [`allow_in_shim`] follows, for the programs of its pod.
pub const NONE_IN_SHIM: (&str, &str) = ("MIMALLOC_ALLOW_THP", "0");

/// Whether this process may take them and does not, or did not until it was large.
static REFRAINS: AtomicBool = AtomicBool::new(false);

/// Has this process take none from now on; [`take_if_larger`] ends that. Nothing but memory depends on it.
pub fn refrain() {
    if are_allowed() && set_thp_disable(true).is_ok() {
        REFRAINS.store(true, Ordering::Relaxed);
    }
}

/// Has this process take huge pages as far as whoever started it may, if it has so many bytes of memory; whether that is settled,
/// so that nobody needs to ask again.
pub fn take_if_larger(bytes: u64) -> bool {
    if !REFRAINS.load(Ordering::Relaxed) {
        return true;
    }
    if procfs::resident_bytes(std::process::id().cast_signed()) < bytes {
        return false;
    }
    // Nothing but speed depends on it.
    let _ = set_thp_disable(false);
    true
}

/// Whether whoever started this process may take them.
pub fn are_allowed() -> bool {
    REFRAINS.load(Ordering::Relaxed) || !get_thp_disable().unwrap_or(false)
}

/// Undoes in a shim what [`NONE_IN_SHIM`] has done: programs of pods inherit it.
pub fn allow_in_shim() {
    if std::env::var_os(NONE_IN_SHIM.0).is_some() {
        // Nothing but speed depends on it.
        let _ = set_thp_disable(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_none_until_it_is_large() {
        let allowed = are_allowed();
        refrain();
        assert!(get_thp_disable().unwrap());
        assert_eq!(are_allowed(), allowed, "to pods");
        assert_eq!((take_if_larger(u64::MAX), get_thp_disable().unwrap()), (!allowed, true));
        assert!(take_if_larger(1));
        assert_eq!((get_thp_disable().unwrap(), are_allowed()), (!allowed, allowed));
    }
}
