//! What work took: time on the wall, and CPU of this thread or of the whole process.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// What a piece of work took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    /// On the wall.
    pub wall: Duration,
    /// Of CPU.
    pub cpu: Duration,
}

impl Took {
    pub fn and(self, other: Took) -> Took {
        Took { wall: self.wall + other.wall, cpu: self.cpu + other.cpu }
    }
}

/// A stretch of work that is under way.
pub struct Watch {
    clock: ClockId,
    began: Instant,
    used: Duration,
}

impl Watch {
    /// Counts the CPU of all threads of this process.
    pub fn of_process() -> Watch {
        Watch::of(ClockId::CLOCK_PROCESS_CPUTIME_ID)
    }

    /// Counts the CPU of this thread.
    pub fn of_thread() -> Watch {
        Watch::of(ClockId::CLOCK_THREAD_CPUTIME_ID)
    }

    fn of(clock: ClockId) -> Watch {
        Watch { clock, began: Instant::now(), used: used(clock) }
    }

    /// Since it began.
    pub fn took(&self) -> Took {
        Took { wall: self.began.elapsed(), cpu: used(self.clock) - self.used }
    }
}

fn used(clock: ClockId) -> Duration {
    clock_gettime(clock).expect("Linux tells what was used").into()
}

/// Does something on this thread; tells what it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Took) {
    let watch = Watch::of_thread();
    let done = work();
    (done, watch.took())
}
