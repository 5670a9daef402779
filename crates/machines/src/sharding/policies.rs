//! Which nodes a scheduler gets: its policies refuse nodes, order the others and bound their number.
//!
//! Invariant: numbers are integers, millionths, so that equal loads always order alike; equal scores keep the order of names.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::NodeLoad;

/// One, in the unit of shares and scores.
pub(super) const ONE: u64 = 1_000_000;
/// Shares are compared with bounds in hundredths.
const HUNDREDTH: u64 = ONE / 100;

/// One policy of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Nodes of which a share of the CPUs within these bounds is asked for; the fuller, the better.
    AllocationRate { min: u64, max: u64, weight: u64 },
    /// Nodes with this label are better.
    Warmup { label: String, value: String, weight: u64 },
    /// At most so many nodes; 0 bounds nothing.
    NodeLimit { max: usize },
}

impl Policy {
    fn accepts(&self, node: &NodeLoad) -> bool {
        match self {
            Self::AllocationRate { min, max, .. } => {
                let rounded = (node.share() + HUNDREDTH / 2) / HUNDREDTH * HUNDREDTH;
                (*min..=*max).contains(&rounded)
            }
            Self::Warmup { .. } | Self::NodeLimit { .. } => true,
        }
    }

    /// Weight × score, each in millionths.
    fn score(&self, node: &NodeLoad) -> u128 {
        let (score, weight) = match self {
            Self::AllocationRate { min, max, weight } => {
                let above = node.share().saturating_sub(*min);
                let score = (above * ONE).checked_div(max.saturating_sub(*min)).unwrap_or(ONE);
                (score.min(ONE), *weight)
            }
            Self::Warmup { label, value, weight } => {
                (if node.labels.get(label) == Some(value) { ONE } else { 0 }, *weight)
            }
            Self::NodeLimit { .. } => (0, 0),
        };
        u128::from(score) * u128::from(weight)
    }

    fn bound(&self) -> Option<usize> {
        match self {
            Self::NodeLimit { max } if *max > 0 => Some(*max),
            _ => None,
        }
    }
}

impl NodeLoad {
    /// Share of the CPUs that is asked for. A node without CPUs is full.
    fn share(&self) -> u64 {
        let (Ok(asked), Ok(capacity)) =
            (u64::try_from(self.requested_milli.max(0)), u64::try_from(self.capacity_milli))
        else {
            return ONE;
        };
        let share = (u128::from(asked) * u128::from(ONE)).checked_div(u128::from(capacity)).unwrap_or(u128::from(ONE));
        u64::try_from(share).unwrap_or(ONE).min(ONE)
    }
}

/// The nodes among `free` that a scheduler of these policies gets, best first.
pub(super) fn choose<'a>(policies: &[Policy], free: &BTreeMap<&'a str, &NodeLoad>) -> Vec<&'a str> {
    let mut taken: Vec<(Reverse<u128>, &str)> = free
        .iter()
        .filter(|(_, node)| policies.iter().all(|policy| policy.accepts(node)))
        .map(|(name, node)| (Reverse(policies.iter().map(|policy| policy.score(node)).sum()), *name))
        .collect();
    taken.sort();
    let bound = policies.iter().filter_map(Policy::bound).min().unwrap_or(usize::MAX);
    taken.into_iter().take(bound).map(|(_, name)| name).collect()
}
