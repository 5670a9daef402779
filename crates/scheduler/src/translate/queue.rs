//! Queues.

use pumice_api::scheduling::{Queue, QueueState as WireState};
use pumice_engine::{QueueFacts, QueueState};

use super::{created, resources, text};

pub(crate) fn queue_facts(queue: &Queue) -> QueueFacts {
    QueueFacts {
        name: text(queue.metadata.name.as_ref()),
        uid: text(queue.metadata.uid.as_ref()),
        created: created(&queue.metadata),
        state: match queue.status.state {
            None | Some(WireState::Open) => QueueState::Open,
            Some(WireState::Closed) => QueueState::Closed,
            Some(WireState::Closing) => QueueState::Closing,
            Some(WireState::Unknown | WireState::Other(_)) => QueueState::Unknown,
        },
        capability: resources(&queue.spec.capability),
        weight: queue.spec.weight,
        priority: queue.spec.priority,
        allocated: resources(&queue.status.allocated),
    }
}
