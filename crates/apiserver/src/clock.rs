//! The wall clock as an injected value, the only place of this crate that reads it.

use jiff::Timestamp;

/// Where timestamps of objects come from.
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A timestamp as Kubernetes writes it: RFC 3339, UTC, whole seconds.
pub(crate) fn wire_time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_in_utc() {
        let at: Timestamp = "2026-01-02T03:04:05.678Z".parse().expect("time");
        assert_eq!(wire_time(at), "2026-01-02T03:04:05Z");
    }
}
