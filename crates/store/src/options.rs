//! Limits of a store. Read once when it opens.

use std::time::Duration;

/// How a store bounds its memory and groups its writes.
#[derive(Clone, Debug)]
pub struct Options {
    /// Resources answered before they are durable and written within `volatile_delay`.
    pub volatile: Vec<String>,
    /// Longest time that a volatile change stays in memory only.
    pub volatile_delay: Duration,
    /// The watch window: events kept per resource, for watches that begin in the past.
    pub window_events_max: usize,
    /// The watch window of a volatile resource, which is shorter: much is written there, and its watches come back to what is now.
    pub volatile_window_events_max: usize,
    /// Body bytes of the watch events kept per resource.
    pub window_bytes_max: usize,
    /// Largest body in bytes.
    pub body_bytes_max: usize,
    /// Most changes in one all-or-nothing batch.
    pub batch_changes_max: usize,
    /// Most changes made durable by one commit.
    pub group_changes_max: usize,
    /// Requests that may wait for the writer before callers wait for room.
    pub queue_depth_max: usize,
}

impl Options {
    /// Whether changes of `resource` are answered before they are durable.
    pub(crate) fn is_volatile(&self, resource: &str) -> bool {
        self.volatile.iter().any(|volatile| volatile == resource)
    }

    /// How much of the past of `resource` stays in memory.
    pub(crate) fn window(&self, resource: &str) -> Window {
        let events_max =
            if self.is_volatile(resource) { self.volatile_window_events_max } else { self.window_events_max };
        Window { events_max, bytes_max: self.window_bytes_max }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            volatile: ["events", "events.k8s.io/events", "coordination.k8s.io/leases"].map(String::from).to_vec(),
            volatile_delay: Duration::from_millis(500),
            window_events_max: 100_000,
            volatile_window_events_max: 10_000,
            window_bytes_max: 64 << 20,
            body_bytes_max: 8 << 20,
            batch_changes_max: 10_000,
            group_changes_max: 2_000,
            queue_depth_max: 4_096,
        }
    }
}

/// How many events, and body bytes of events, a resource keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub events_max: usize,
    pub bytes_max: usize,
}
