//! What a PodGroup's annotations say about which of its tasks belong together.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::groups::GroupRow;

const AFFINITY: &str = "volcano.sh/task-topology-affinity";
const ANTI_AFFINITY: &str = "volcano.sh/task-topology-anti-affinity";
const TASK_ORDER: &str = "volcano.sh/task-topology-task-order";
/// Task names read of one annotation; one with more is ignored.
const NAMES_MAX: usize = 1024;

/// Which tasks attract or repel each other. Tasks are roles of the group, by index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Spec {
    /// Pairs, the smaller first; a task with itself, where its pods like to be together.
    attract: BTreeSet<(u32, u32)>,
    repel: BTreeSet<(u32, u32)>,
    /// In the order that the user gave.
    order: BTreeMap<u32, usize>,
    /// The more a task constrains, the earlier it is put in a bucket.
    rank: BTreeMap<u32, u8>,
}

/// Whether the group says anything at all.
pub(super) fn is_there(row: &GroupRow) -> bool {
    row.annotations.contains_key(AFFINITY) || row.annotations.contains_key(ANTI_AFFINITY)
}

impl Spec {
    /// Nothing where a name is no task of the group or stands twice in one part: all of it is ignored then.
    pub(super) fn of(row: &GroupRow) -> Option<Self> {
        let mut spec = Self::default();
        for (annotation, of_self, of_pair) in [(AFFINITY, 2, 3), (ANTI_AFFINITY, 4, 1)] {
            for names in groups(row, annotation)? {
                let of = if names.len() == 1 { of_self } else { of_pair };
                for name in &names {
                    let rank = spec.rank.entry(*name).or_default();
                    *rank = of.max(*rank);
                }
                let pairs = if annotation == AFFINITY { &mut spec.attract } else { &mut spec.repel };
                match names.as_slice() {
                    [one] => {
                        pairs.insert((*one, *one));
                    }
                    several => pairs.extend(pairs_of(several)),
                }
            }
        }
        let order = groups(row, TASK_ORDER)?.into_iter().flatten();
        spec.order = order.enumerate().map(|(at, name)| (name, at)).collect();
        (!spec.rank.is_empty()).then_some(spec)
    }

    /// Whether anything is said about the task.
    pub(super) fn names(&self, task: u32) -> bool {
        self.rank.contains_key(&task)
    }

    /// How well a pod of `task` goes with so many of others.
    pub(super) fn fit(&self, task: u32, others: &BTreeMap<u32, i64>) -> i64 {
        let pair = |other: u32| (task.min(other), task.max(other));
        let sign = |other: u32| i64::from(self.attract.contains(&pair(other))) - i64::from(self.repels(task, other));
        others.iter().map(|(other, count)| sign(*other).saturating_mul(*count)).fold(0, i64::saturating_add)
    }

    pub(super) fn repels(&self, task: u32, other: u32) -> bool {
        self.repel.contains(&(task.min(other), task.max(other)))
    }

    /// The order in which tasks are put in buckets.
    pub(super) fn key(&self, task: u32) -> impl Ord + use<> {
        let at = self.order.get(&task).copied();
        (at.is_none(), at, std::cmp::Reverse(self.rank.get(&task).copied().unwrap_or(0)))
    }
}

fn pairs_of(names: &[u32]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let below = |at: usize| names[..at].iter().copied();
    names.iter().enumerate().flat_map(move |(at, one)| below(at).map(move |other| (other.min(*one), other.max(*one))))
}

/// The lists of an annotation, as roles; nothing where it can't be followed.
fn groups(row: &GroupRow, annotation: &str) -> Option<Vec<Vec<u32>>> {
    let text = row.annotations.get(annotation).map_or("", String::as_str);
    if text.split([',', ';']).count() > NAMES_MAX {
        return None;
    }
    let mut groups = Vec::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let mut names = Vec::new();
        for name in part.split(',').map(str::trim) {
            let role = row.roles.iter().position(|role| !name.is_empty() && *role.name == *name)?;
            let role = u32::try_from(role).ok()?;
            if names.contains(&role) {
                return None;
            }
            names.push(role);
        }
        groups.push(names);
    }
    Some(groups)
}
