//! A change that would let a group start now, and the arithmetic that says which amounts are worth a trial.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::ids::{ClassId, DimId};
use crate::policy::Policy;
use crate::reasons::time_text;
use crate::resource_dims::amount_text;
use crate::world::tables::Tables;

/// What the group would need to be otherwise. Each was tried; each is enough by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Could {
    /// Less of a resource.
    Request {
        resource: String,
        /// The most that would do, of a pod.
        amount: i64,
        /// What it asks for.
        requested: i64,
        /// The task whose pods are meant, where there are several.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        role: String,
    },
    Fewer {
        /// The largest that would do.
        min_available: u32,
        of: u32,
    },
    Queue {
        queue: String,
    },
    /// A time limit, so that it has ended before those need the room for whom it is kept.
    Limit {
        /// The longest that would do.
        limit_ms: i64,
    },
    Toleration {
        /// Of the taint with this key.
        key: String,
        /// And this value; empty for any.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        value: String,
    },
    /// One label less in its node selector.
    WithoutSelector {
        key: String,
        /// The value that it asks for.
        value: String,
    },
    /// No required node affinity.
    WithoutAffinity,
}

impl Display for Could {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { resource, amount, requested, role } => {
                let text = |amount: &i64| amount_text(resource, *amount);
                let of = if role.is_empty() { String::new() } else { format!(" for task {role}") };
                write!(f, "with {resource} ≤ {} a pod{of}, in place of {}", text(amount), text(requested))
            }
            Self::Fewer { min_available, of } => write!(f, "with minAvailable ≤ {min_available}, in place of {of}"),
            Self::Queue { queue } => write!(f, "in queue {queue}"),
            Self::Limit { limit_ms } => write!(f, "with a time limit of at most {}", time_text(*limit_ms)),
            Self::Toleration { key, value } if value.is_empty() => write!(f, "with a toleration of taint {key}"),
            Self::Toleration { key, value } => write!(f, "with a toleration of taint {key}={value}"),
            Self::WithoutSelector { key, value } => write!(f, "without {key}={value} in its node selector"),
            Self::WithoutAffinity => f.write_str("without its required node affinity"),
        }
    }
}

/// Steps in which amounts are told: what people write, not what is left over to the byte.
pub(super) fn step_of(resource: &str, requested: i64) -> i64 {
    let steps: &[i64] = match resource {
        "cpu" => &[100, 10],
        name if name == "memory" || name == "ephemeral-storage" || name.starts_with("hugepages-") => {
            &[1 << 30, 256 << 20, 16 << 20, 1 << 20]
        }
        _ => &[],
    };
    steps.iter().copied().find(|step| requested >= step * 10).unwrap_or(1)
}

/// The whole steps of an amount; nothing if that is none.
pub(super) fn in_steps(amount: i64, step: i64) -> Option<i64> {
    Some(amount.max(0) / step * step).filter(|whole| *whole > 0)
}

/// The most that each of `needed` pods of the class can have of one resource on the nodes as they are, if nothing but
/// room counts there. O(nodes x bits).
pub(super) fn most_that_fits(tables: &Tables, policy: &Policy, class: ClassId, dim: DimId, needed: u32) -> i64 {
    let row = tables.classes.row(class);
    let requested = row.demand.get(dim);
    let room = |(other, amount): (DimId, i64), node| (tables.nodes.room(node, other) / amount.max(1)).max(0);
    let usable = |node: &_| policy.check_facts(tables, row, *node).is_none() && policy.use_allows(tables, row, *node);
    let nodes = tables.nodes.ids().filter(usable).map(|node| {
        let others = row.demand.iter().filter(|(other, _)| *other != dim).map(|part| room(part, node));
        (tables.nodes.room(node, dim), others.min().unwrap_or(i64::MAX))
    });
    let nodes: Vec<(i64, i64)> = nodes.filter(|(room, others)| *room > 0 && *others > 0).collect();
    let fits = |amount: i64| {
        let pods = nodes.iter().map(|(room, others)| (room / amount).min(*others));
        pods.fold(0, i64::saturating_add) >= i64::from(needed)
    };
    let (mut good, mut bad) = (0, requested.saturating_add(1));
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) { good = middle } else { bad = middle }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_in_steps_that_people_write() {
        let gi = 1 << 30;
        for (resource, requested, amount, told) in [
            ("memory", 64 * gi, 48 * gi + 17, Some(48 * gi)),
            ("memory", 4 * gi, 3 * gi + (300 << 20), Some(3 * gi + (256 << 20))),
            ("memory", 200 << 20, 99 << 20, Some(96 << 20)),
            ("memory", 5 << 20, 3 << 20, Some(3 << 20)),
            ("cpu", 4_000, 1_950, Some(1_900)),
            ("cpu", 500, 333, Some(330)),
            ("nvidia.com/gpu", 8, 5, Some(5)),
            ("nvidia.com/gpu", 8, 0, None),
            ("cpu", 4_000, 60, None),
            ("cpu", 4_000, -5, None),
        ] {
            assert_eq!(in_steps(amount, step_of(resource, requested)), told, "{resource} {amount} of {requested}");
        }
    }
}
