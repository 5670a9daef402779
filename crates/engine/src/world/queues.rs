//! Queues: limits, state, and what their groups hold. A queue that only groups name is a placeholder and takes no work.

use std::sync::Arc;

use crate::dims::{CPU, Demand, MEMORY};
use crate::facts::{QueueFacts, QueueState};
use crate::ids::{DimId, QueueId, TimeMs};
use crate::world::table::Table;

#[derive(Debug)]
pub(crate) struct QueueRow {
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) known: bool,
    pub(crate) state: QueueState,
    pub(crate) created: TimeMs,
    /// Hard limits; a dimension that is not named has none.
    pub(crate) capability: Vec<(DimId, i64)>,
    /// Requests of its tasks that hold nodes, by dimension.
    pub(crate) allocated: Vec<i64>,
    /// Groups whose row names this queue.
    pub(crate) groups: u32,
    /// What was written last to `status.allocated`, or seen there.
    pub(crate) emitted: Option<crate::dims::Resources>,
}

impl QueueRow {
    pub(crate) fn is_open(&self) -> bool {
        self.known && self.state == QueueState::Open
    }
}

#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) table: Table<QueueId, QueueRow>,
}

impl Queues {
    pub(crate) fn new() -> Self {
        Self { table: Table::new() }
    }

    pub(crate) fn row(&self, queue: QueueId) -> &QueueRow {
        self.table.row(queue.index())
    }

    pub(crate) fn row_mut(&mut self, queue: QueueId) -> &mut QueueRow {
        self.table.row_mut(queue.index())
    }

    /// The id of `name`, as a placeholder if it is new.
    pub(crate) fn intern(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.table.find(name) {
            return id;
        }
        let name: Arc<str> = name.into();
        let row = QueueRow {
            name: name.clone(),
            uid: "".into(),
            known: false,
            state: QueueState::Open,
            created: TimeMs::default(),
            capability: Vec::new(),
            allocated: Vec::new(),
            groups: 0,
            emitted: None,
        };
        self.table.insert(name, row)
    }

    pub(crate) fn upsert(&mut self, facts: &QueueFacts, capability: Vec<(DimId, i64)>) {
        let id = self.intern(&facts.name);
        let row = self.row_mut(id);
        if !row.known || *row.uid != *facts.uid {
            let held = facts.allocated.iter().filter(|(_, amount)| **amount != 0);
            row.emitted = Some(held.map(|(name, amount)| (name.clone(), *amount)).collect());
        }
        row.known = true;
        row.uid = facts.uid.as_str().into();
        row.state = facts.state;
        row.created = facts.created;
        // Volcano reads cpu or memory at or below zero as "no limit"; a zero of any other resource is a limit.
        row.capability = capability;
        row.capability.retain(|(dim, amount)| *amount > 0 || (*dim != CPU && *dim != MEMORY));
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let Some(id) = self.table.find(name) else { return };
        let row = self.row_mut(id);
        row.known = false;
        row.capability.clear();
        row.emitted = None;
        self.release(id);
    }

    /// Frees a placeholder that nothing names any more.
    pub(crate) fn release(&mut self, queue: QueueId) {
        let row = self.row(queue);
        if !row.known && row.groups == 0 {
            let name = row.name.clone();
            self.table.remove(&name);
        }
    }

    pub(crate) fn charge(&mut self, queue: QueueId, demand: &Demand, sign: i64) {
        demand.add_to(&mut self.row_mut(queue).allocated, sign);
    }
}
