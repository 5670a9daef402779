//! Which tasks a queue may take back from others. Answers for one preemptor; what it has granted so far counts.

use rustc_hash::FxHashMap;

use super::Capacity;
use crate::ids::{QueueId, TaskId};
use crate::resource_dims::{Demand, PODS};
use crate::share::at;
use crate::world::tables::Tables;

pub(super) struct Reclaim<'a> {
    capacity: &'a Capacity,
    tables: &'a Tables,
    queue: QueueId,
    demand: &'a Demand,
    /// What queues hold without the victims granted so far; only queues that were asked about.
    left: FxHashMap<QueueId, Vec<i64>>,
}

impl<'a> Reclaim<'a> {
    pub(super) fn new(capacity: &'a Capacity, tables: &'a Tables, queue: QueueId, demand: &'a Demand) -> Self {
        Self { capacity, tables, queue, demand, left: FxHashMap::default() }
    }

    /// May the task be evicted for the preemptor's, which asks for `demand`?
    pub(super) fn takes(&mut self, task: TaskId) -> bool {
        let Some((queue, victim)) = self.victim(task) else { return false };
        let helps = victim.iter().any(|(dim, _)| dim != PODS && self.demand.get(dim) > 0);
        let takes = helps && self.may_take(task) && self.lines_allow(queue, victim);
        if takes {
            self.count(queue, victim);
        }
        takes
    }

    /// May the task be evicted for a gang?
    pub(super) fn takes_for_gang(&mut self, task: TaskId) -> bool {
        let Some((queue, victim)) = self.victim(task) else { return false };
        let takes = self.may_take(task);
        if takes {
            self.count(queue, victim);
        }
        takes
    }

    /// Whether the task may be taken from its queue at all, whoever asks.
    pub(super) fn may_take(&mut self, task: TaskId) -> bool {
        let Some((queue, victim)) = self.victim(task) else { return false };
        self.keeps_guarantee(queue, victim) && self.borrows(queue, victim)
    }

    fn victim(&self, task: TaskId) -> Option<(QueueId, &'a Demand)> {
        let row = self.tables.task(task);
        let queue = self.tables.groups.row(row.group?).queue;
        Some((queue, &self.tables.classes.row(row.class).demand))
    }

    fn usage_left(&mut self, queue: QueueId) -> &mut Vec<i64> {
        let (capacity, tables) = (self.capacity, self.tables);
        self.left.entry(queue).or_insert_with(|| capacity.sums(tables.queues.row(queue)).allocated.clone())
    }

    fn keeps_guarantee(&mut self, queue: QueueId, victim: &Demand) -> bool {
        let Some(limits) = self.capacity.limits.get(&queue) else { return true };
        let usage_left = self.usage_left(queue);
        limits.guarantee.iter().all(|(dim, floor)| at(usage_left, dim).saturating_sub(victim.get(dim)) >= floor)
    }

    /// The victim asks for nothing that its queue deserves, so that it may go at any time.
    fn lives_on_loan(&self, queue: QueueId, victim: &Demand) -> bool {
        let Some(limits) = self.capacity.limits.get(&queue) else { return true };
        victim.iter().all(|(dim, _)| limits.deserved_of(dim).unwrap_or(0) <= 0)
    }

    /// The queue holds more than it deserves of something that the victim has.
    fn borrows(&mut self, queue: QueueId, victim: &Demand) -> bool {
        if self.lives_on_loan(queue, victim) {
            return true;
        }
        let Some(limits) = self.capacity.limits.get(&queue) else { return true };
        let usage_left = self.usage_left(queue);
        let above = |(dim, _)| limits.deserved_of(dim).is_some_and(|deserved| at(usage_left, dim) > deserved);
        victim.iter().any(above)
    }

    /// The queues above the victim's, as far as they take part, borrow, too, unless the preemptor stands below them as well.
    fn lines_allow(&mut self, queue: QueueId, victim: &Demand) -> bool {
        let (capacity, tables) = (self.capacity, self.tables);
        let (near, mine) = (capacity.near(tables, queue), capacity.near(tables, self.queue));
        let related = near.iter().any(|above| mine.contains(above));
        if related && self.lives_on_loan(queue, victim) && self.lives_on_loan(self.queue, self.demand) {
            return false;
        }
        let line = &tables.queues.row(self.queue).ancestors;
        near.iter().filter(|above| !line.contains(above)).all(|above| self.borrows(*above, victim))
    }

    fn count(&mut self, queue: QueueId, victim: &Demand) {
        let near = self.capacity.near(self.tables, queue);
        for queue in std::iter::once(&queue).chain(near) {
            victim.add_to(self.usage_left(*queue), -1);
        }
    }
}
