//! What groups hold, by queue and priority: what preemption could make room of. Invariant: the sums are those of the groups
//! that hold something, as they were at the last refresh. Kept by the pending index, so that a cycle need not look at all groups;
//! read by `enqueue` and `preempt`.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{GroupId, QueueId};
use crate::share;
use crate::world::groups::GroupRow;
use crate::world::tables::Tables;

#[derive(Debug, Default)]
struct Sum {
    groups: BTreeSet<GroupId>,
    amounts: Vec<i64>,
}

/// What a group was counted for.
#[derive(Debug)]
struct Counted {
    queue: QueueId,
    priority: i32,
    amounts: Box<[i64]>,
}

#[derive(Debug, Default)]
pub(crate) struct UsageByPriority {
    /// By group.
    of: Vec<Option<Counted>>,
    sums: BTreeMap<(QueueId, i32), Sum>,
}

impl UsageByPriority {
    /// Of all groups. O(groups).
    pub(super) fn of(tables: &Tables) -> Self {
        let mut usage_by_priority = Self::default();
        tables.groups.table.iter().for_each(|(group, row)| usage_by_priority.set(group, Some(row)));
        usage_by_priority
    }

    /// The group is like this now, or gone.
    pub(super) fn set(&mut self, group: GroupId, row: Option<&GroupRow>) {
        let before = self.of.get_mut(group.index()).and_then(Option::take);
        if let Some(Counted { queue, priority, amounts }) = before
            && let Some(sum) = self.sums.get_mut(&(queue, priority))
        {
            sum.groups.remove(&group);
            share::add(&mut sum.amounts, &amounts, -1);
            if sum.groups.is_empty() {
                self.sums.remove(&(queue, priority));
            }
        }
        if let Some(row) = row.filter(|row| row.counts.ready() > 0) {
            let sum = self.sums.entry((row.queue, row.priority)).or_default();
            sum.groups.insert(group);
            share::add(&mut sum.amounts, &row.allocated, 1);
            if self.of.len() <= group.index() {
                self.of.resize_with(group.index() + 1, || None);
            }
            let amounts = row.allocated.as_slice().into();
            self.of[group.index()] = Some(Counted { queue: row.queue, priority: row.priority, amounts });
        }
    }

    /// What groups of lower priority hold in the queue. O(priorities).
    pub(crate) fn below(&self, queue: QueueId, priority: i32) -> Vec<i64> {
        let mut lower = Vec::new();
        for sum in self.sums_below(queue, priority) {
            share::add(&mut lower, &sum.amounts, 1);
        }
        lower
    }

    /// Whether groups of lower priority hold anything in the queue.
    pub(crate) fn any_below(&self, queue: QueueId, priority: i32) -> bool {
        self.sums_below(queue, priority).next().is_some()
    }

    /// The groups of lower priority that hold something in the queue.
    pub(crate) fn groups_below(&self, queue: QueueId, priority: i32) -> impl Iterator<Item = GroupId> + '_ {
        self.sums_below(queue, priority).flat_map(|sum| sum.groups.iter().copied())
    }

    fn sums_below(&self, queue: QueueId, priority: i32) -> impl Iterator<Item = &Sum> {
        self.sums.range((queue, i32::MIN)..(queue, priority)).map(|(_, sum)| sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::{Lab, group, pod};
    use crate::facts::Delta;
    use crate::{GroupFacts, PodFacts, PodPhase};

    /// Groups of priority 0, 1 and 2 with a pod on a node each, and one of priority 0 that waits.
    fn lab() -> Lab {
        let mut lab = Lab::new(&[8_000]);
        for value in 0..3 {
            lab.apply(Delta::PriorityClassUpsert { name: format!("p{value}"), value, global_default: false });
        }
        for (name, class, node) in
            [("low", "p0", true), ("middle", "p1", true), ("high", "p2", true), ("waits", "p0", false)]
        {
            let facts = GroupFacts { priority_class: class.to_owned(), ..group(name, 1) };
            lab.apply(Delta::GroupUpsert(Box::new(facts)));
            let facts = pod(name, 0, 1_000);
            let phase = if node { PodPhase::Running } else { PodPhase::Pending };
            lab.pod(PodFacts { node: node.then(|| "n0".into()), phase, ..facts });
        }
        lab
    }

    #[test]
    fn those_below_are_told() {
        let lab = lab();
        let usage_by_priority = UsageByPriority::of(lab.tables());
        let queue = lab.queue_id("default");
        let groups = |names: &[&str]| names.iter().map(|name| lab.group_id(name)).collect::<Vec<_>>();
        for (priority, expected) in
            [(0, vec![]), (1, vec!["low"]), (2, vec!["low", "middle"]), (9, vec!["low", "middle", "high"])]
        {
            assert_eq!(
                usage_by_priority.groups_below(queue, priority).collect::<Vec<_>>(),
                groups(&expected),
                "{priority}"
            );
            assert_eq!(usage_by_priority.any_below(queue, priority), !expected.is_empty(), "{priority}");
        }
    }

    #[test]
    fn a_group_that_holds_nothing_any_more_is_none_of_them() {
        let lab = lab();
        let mut usage_by_priority = UsageByPriority::of(lab.tables());
        let (queue, low) = (lab.queue_id("default"), lab.group_id("low"));
        usage_by_priority.set(low, None);
        assert!(!usage_by_priority.any_below(queue, 1));
        assert_eq!(usage_by_priority.below(queue, 1), Vec::<i64>::new());
        usage_by_priority.set(low, Some(lab.tables().groups.row(low)));
        assert_eq!(usage_by_priority.groups_below(queue, 1).collect::<Vec<_>>(), [low]);
    }
}
