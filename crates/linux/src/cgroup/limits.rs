//! What a container may use, in the numbers of the kernel's files.

use serde::{Deserialize, Serialize};

pub(super) const CPU_PERIOD_US: i64 = 100_000;

/// What a container may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Memory limit in bytes.
    pub memory_bytes: Option<i64>,
    /// CPU request in thousandths of a core: its share when cores are scarce.
    pub cpu_request_milli: Option<i64>,
    /// CPU limit in thousandths of a core.
    pub cpu_limit_milli: Option<i64>,
}

impl Limits {
    /// No container has more memory than its node has for pods, whether it has a limit or not.
    pub fn bound_memory(&mut self, node_bytes: i64) {
        self.memory_bytes = Some(self.memory_bytes.map_or(node_bytes, |bytes| bytes.min(node_bytes)));
    }
}

pub(super) fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

pub(super) fn weight(milli: i64) -> i64 {
    1 + (shares(milli) - 2) * 9999 / 262_142
}

/// The kernel refuses a quota under 1 ms.
pub(super) fn quota_us(milli: i64) -> i64 {
    milli.saturating_mul(CPU_PERIOD_US / 1000).max(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_container_has_more_memory_than_the_node() {
        for (limit, expected) in [(None, 10), (Some(3), 3), (Some(11), 10)] {
            let mut limits = Limits { memory_bytes: limit, ..Limits::default() };
            limits.bound_memory(10);
            assert_eq!(limits.memory_bytes, Some(expected), "{limit:?}");
        }
    }

    #[test]
    fn extreme_requests_stay_within_the_kernels_bounds() {
        assert_eq!((shares(0), shares(i64::MAX)), (2, 262_144));
        assert_eq!((weight(0), weight(i64::MAX)), (1, 10_000));
        assert_eq!((quota_us(1), quota_us(2000)), (1000, 200_000));
    }
}
