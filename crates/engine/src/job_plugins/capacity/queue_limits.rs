//! What each queue deserves, is guaranteed and may ever hold, from the specs of all queues.
//! Worked out when queues or the cluster's size change. O(queues × dimensions).

use rustc_hash::FxHashMap;

use crate::ids::{DimId, QueueId};
use crate::resource_dims::Demand;
use crate::share::{self, Limits};
use crate::world::queues::{QueueRow, ROOT};
use crate::world::tables::Tables;

/// Where one queue stands.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueLimits {
    pub(super) guarantee: Demand,
    /// What it deserves, by dimension; one that is not named is nobody's.
    pub(super) deserved: Vec<(DimId, i64)>,
    /// What it may ever hold.
    pub(super) real: Limits,
}

impl QueueLimits {
    /// What it deserves as a column, indexed by dimension; 0 where none is named.
    pub(super) fn deserved(&self) -> Vec<i64> {
        let mut all = Vec::new();
        for (dim, amount) in &self.deserved {
            all.resize(all.len().max(dim.index() + 1), 0);
            all[dim.index()] = *amount;
        }
        all
    }

    pub(super) fn deserved_of(&self, dim: DimId) -> Option<i64> {
        self.deserved.iter().find(|(named, _)| *named == dim).map(|(_, amount)| *amount)
    }

    /// It deserves something; otherwise it lives on what others leave.
    pub(super) fn is_owner(&self) -> bool {
        self.deserved.iter().any(|(_, amount)| *amount > 0)
    }
}

/// The standings of all known queues.
pub(super) fn all(tables: &Tables, hierarchical: bool) -> FxHashMap<QueueId, QueueLimits> {
    if hierarchical { tree(tables) } else { flat(tables) }
}

fn flat(tables: &Tables) -> FxHashMap<QueueId, QueueLimits> {
    let known = || tables.queues.table.iter().filter(|(_, row)| row.known);
    let mut guaranteed = Vec::new();
    known().for_each(|(_, row)| row.guarantee.add_to(&mut guaranteed, 1));
    let unguaranteed = share::beyond(&tables.nodes.total, &guaranteed);
    let limits_of = |row: &QueueRow| {
        let mut room = unguaranteed.clone();
        share::add(&mut room, &share::vector(&row.guarantee), 1);
        let real = Limits::all(room).tighter(&Limits::of(row.capability.iter().copied()));
        let within = row.deserved.iter().map(|(dim, amount)| (*dim, (*amount).min(real.get(*dim)))).collect();
        QueueLimits { deserved: at_least(within, &row.guarantee), guarantee: row.guarantee.clone(), real }
    };
    known().map(|(id, row)| (id, limits_of(row))).collect()
}

fn tree(tables: &Tables) -> FxHashMap<QueueId, QueueLimits> {
    let mut top_down: Vec<(QueueId, &QueueRow)> = tables.queues.table.iter().filter(|(_, row)| row.known).collect();
    top_down.sort_by_key(|(id, row)| (row.ancestors.len(), *id));
    let mut limits: FxHashMap<QueueId, QueueLimits> = FxHashMap::default();
    for (id, row) in top_down {
        let own = Limits::of(row.capability.iter().copied());
        let parent = row.ancestors.first().and_then(|parent| Some((*parent, limits.get(parent)?)));
        let real = match parent {
            Some((parent, limits_of)) => own.tighter(&left_by_siblings(tables, parent, &limits_of.real, row)),
            None => own,
        };
        let deserved = at_least(row.deserved.clone(), &row.guarantee);
        limits.insert(id, QueueLimits { guarantee: row.guarantee.clone(), deserved, real });
    }
    limits
}

/// What the parent's limit leaves beside the guarantees of its other children.
fn left_by_siblings(tables: &Tables, parent: QueueId, limits: &Limits, row: &QueueRow) -> Limits {
    let mut guaranteed = Vec::new();
    for child in &tables.queues.row(parent).children {
        tables.queues.row(*child).guarantee.add_to(&mut guaranteed, 1);
    }
    let limited = (0..tables.dims.len()).map(DimId::from).filter(|dim| limits.get(*dim) != i64::MAX);
    Limits::of(limited.map(|dim| {
        let free = limits.get(dim).saturating_sub(share::at(&guaranteed, dim)).max(0);
        (dim, free.saturating_add(row.guarantee.get(dim)))
    }))
}

fn at_least(mut deserved: Vec<(DimId, i64)>, guarantee: &Demand) -> Vec<(DimId, i64)> {
    for (dim, floor) in guarantee.iter() {
        match deserved.iter_mut().find(|(named, _)| *named == dim) {
            Some((_, amount)) => *amount = floor.max(*amount),
            None => deserved.push((dim, floor)),
        }
    }
    deserved
}

/// What is wrong with the queue's place in the tree.
pub(super) fn fault(tables: &Tables, row: &QueueRow) -> Option<String> {
    if row.misplaced {
        let known = |name: &str| tables.queues.table.find(name).is_some_and(|id| tables.queues.row(id).known);
        let parent = row.parent.as_deref().unwrap_or(ROOT);
        return Some(if !known(parent) {
            format!("its parent {parent} does not exist")
        } else if row.ancestors.is_empty() {
            "its parents go in a circle".to_owned()
        } else {
            "a queue above it names a parent that does not exist".to_owned()
        });
    }
    let below = row.children.first().map(|child| &tables.queues.row(*child).name);
    below.map(|child| format!("it has queues below it, such as {child}: use one of them"))
}
