//! Waiting for a state, with a deadline.

use std::time::{Duration, Instant};

/// How long a test waits for something that should happen at once. Generous: the machine may be busy.
pub const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until `probe` gives a value.
///
/// # Panics
/// After [`DEADLINE`], with `what` was waited for and what the last probe saw.
pub fn eventually<T>(what: &str, probe: impl FnMut() -> Result<T, String>) -> T {
    eventually_within(DEADLINE, what, probe)
}

/// The same for what takes long by itself.
///
/// # Panics
/// After `deadline`, likewise.
#[allow(clippy::disallowed_methods)] // a test's own clock
pub fn eventually_within<T>(deadline: Duration, what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match probe() {
            Ok(value) => return value,
            Err(seen) if start.elapsed() > deadline => panic!("{what}: not within {deadline:?}; last seen: {seen}"),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
