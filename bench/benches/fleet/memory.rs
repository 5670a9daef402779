//! How many bytes are held, as the allocator was asked for them: what it keeps for later does not count.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use mimalloc::MiMalloc;

/// The allocator of the program, which counts where that is asked for.
pub struct Counted;

static COUNTS: AtomicBool = AtomicBool::new(false);
static HELD: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

fn note(more: usize, less: usize) {
    if COUNTS.load(Relaxed) {
        let change = more as i64 - less as i64;
        PEAK.fetch_max(HELD.fetch_add(change, Relaxed) + change, Relaxed);
    }
}

// SAFETY: every call is handed to the allocator as it is; counting touches atomics only.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size(), 0);
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { MiMalloc.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size, layout.size());
        // SAFETY: the caller keeps `realloc`'s contract; the block came from `MiMalloc`.
        unsafe { MiMalloc.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, layout.size());
        // SAFETY: the caller keeps `dealloc`'s contract; the block came from `MiMalloc`.
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }
}

/// Counts from here on, from nothing.
pub fn count() {
    HELD.store(0, Relaxed);
    PEAK.store(0, Relaxed);
    COUNTS.store(true, Relaxed);
}

/// Bytes held that were not when counting began, less those that were and are not.
pub fn held() -> f64 {
    HELD.load(Relaxed) as f64
}

/// The most that this ever was.
pub fn peak() -> f64 {
    PEAK.load(Relaxed) as f64
}

/// Counts no more: counting costs a little where many threads allocate.
pub fn rest() {
    COUNTS.store(false, Relaxed);
}
