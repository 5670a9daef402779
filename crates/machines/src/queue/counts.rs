//! How many groups a queue has, by phase.

use pumice_api::scheduling::{PodGroupPhase, QueueStatus};

/// PodGroups of one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Not admitted.
    pub pending: i32,
    /// Admitted, not running.
    pub inqueue: i32,
    pub running: i32,
    /// A part runs, and the rest can't be placed.
    pub unknown: i32,
    pub completed: i32,
}

impl GroupCounts {
    /// One group more.
    pub fn enter(&mut self, phase: Option<&PodGroupPhase>) {
        let count = self.of(phase);
        *count = count.saturating_add(1);
    }

    /// One group less.
    pub fn leave(&mut self, phase: Option<&PodGroupPhase>) {
        let count = self.of(phase);
        *count = count.saturating_sub(1);
    }

    /// A group without a phase, or with a word nobody knows, counts as one that waits.
    fn of(&mut self, phase: Option<&PodGroupPhase>) -> &mut i32 {
        match phase {
            Some(PodGroupPhase::Inqueue) => &mut self.inqueue,
            Some(PodGroupPhase::Running) => &mut self.running,
            Some(PodGroupPhase::Unknown) => &mut self.unknown,
            Some(PodGroupPhase::Completed) => &mut self.completed,
            _ => &mut self.pending,
        }
    }

    /// Those that have not ended.
    pub fn unfinished(&self) -> i32 {
        [self.pending, self.inqueue, self.running, self.unknown].into_iter().fold(0, i32::saturating_add)
    }

    /// No groups at all.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What a status says.
    pub fn of_status(status: &QueueStatus) -> Self {
        let QueueStatus { pending, inqueue, running, unknown, completed, .. } = *status;
        Self { pending, inqueue, running, unknown, completed }
    }
}
