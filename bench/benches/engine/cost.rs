//! What something costs: CPU time of this thread, allocations, memory held.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// The system's allocator, counted.
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

fn note(bytes: i64) {
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(held, Relaxed);
}

fn size(layout: Layout) -> i64 {
    i64::try_from(layout.size()).unwrap_or(i64::MAX)
}

// SAFETY: every call is handed to the system's allocator as it is; counting touches atomics only.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        note(size(layout));
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-size(layout));
        // SAFETY: the caller keeps `dealloc`'s contract; the block came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Bytes that are held now.
pub fn held_bytes() -> i64 {
    HELD.load(Relaxed)
}

/// What a piece of work took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// CPU seconds of this thread.
    pub cpu: f64,
    /// Calls of the allocator.
    pub allocations: u64,
    /// The most memory held while it ran, in MiB, with what was held before.
    pub peak_mib: f64,
}

/// As the C library has it on 64-bit Linux.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// Linux's `CLOCK_THREAD_CPUTIME_ID`. What `/proc` tells of a thread lags behind by up to a tick of the kernel: 4 ms.
const THREAD_CPU: i32 = 3;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// CPU seconds of this thread so far, to the nanosecond.
#[allow(unsafe_code)]
fn cpu_seconds() -> f64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the C library writes one timespec, to where there is one.
    let failed = unsafe { clock_gettime(THREAD_CPU, &raw mut time) };
    assert_eq!(failed, 0, "Linux tells what a thread has used");
    time.seconds as f64 + time.nanoseconds as f64 / 1e9
}

/// Runs `work` and says what it took.
pub fn of<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    PEAK.store(HELD.load(Relaxed), Relaxed);
    let (allocations, before) = (ALLOCATIONS.load(Relaxed), cpu_seconds());
    let result = work();
    let cpu = cpu_seconds() - before;
    let allocations = ALLOCATIONS.load(Relaxed) - allocations;
    let peak_mib = PEAK.load(Relaxed) as f64 / f64::from(1 << 20);
    (result, Cost { cpu, allocations, peak_mib })
}
