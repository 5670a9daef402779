//! Nodes: one column per resource dimension for what they offer and what is taken, and the logs of changes
//! from which caches repair themselves. A node that only pods name is a placeholder: it counts use and is never chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::oversubscription;
use crate::cluster::table::{Keyed, Table};
use crate::facts::{HostPort, NodeFacts, NodeUsage, Taint};
use crate::ids::{DimId, NodeId, TaskId, TimeMs};
use crate::resource_dims::{Demand, Dims, Resources};

/// A node's facts that don't change with use.
#[derive(Debug)]
pub struct NodeRow {
    pub(crate) name: Arc<str>,
    /// False while only pods name it.
    pub(crate) known: bool,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) ports: Vec<(HostPort, u32)>,
    /// Annotations that plugins read.
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) images: BTreeMap<String, i64>,
    pub(crate) usage: Option<NodeUsage>,
    pub(crate) capacity: Resources,
    /// Binds that are on their way to it.
    pub(crate) in_flight: u32,
    /// Tasks whose row names this node, in no order that means anything.
    pub(crate) tasks: Vec<TaskId>,
}

/// Nodes that changed, in order; readers remember how far they have read.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    base: u64,
    entries: Vec<NodeId>,
}

impl ChangeLog {
    /// Entries kept before a reader has to start over.
    const KEPT_MIN: usize = 4096;

    /// One that goes on where another ends.
    pub(crate) fn beginning_at(base: u64) -> Self {
        Self { base, entries: Vec::new() }
    }

    fn push(&mut self, node: NodeId, nodes: usize) {
        if self.entries.len() >= Self::KEPT_MIN.max(4 * nodes) {
            self.base += self.entries.len() as u64;
            self.entries.clear();
        }
        self.entries.push(node);
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// What changed since `position`, or `None` when that has been dropped.
    pub(crate) fn since(&self, position: u64) -> Option<&[NodeId]> {
        let skip = usize::try_from(position.checked_sub(self.base)?).ok()?;
        self.entries.get(skip..)
    }
}

#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) table: Table<NodeId, NodeRow>,
    /// `[dimension][node]`.
    allocatable: Vec<Vec<i64>>,
    used: Vec<Vec<i64>>,
    /// The part of `used` that is on its way out.
    releasing: Vec<Vec<i64>>,
    /// Promised to tasks that wait for room to be freed.
    pipelined: Vec<Vec<i64>>,
    /// Kept for groups that have a reservation; not part of `used`.
    reserved: Vec<Vec<i64>>,
    /// What a pod can take now, worked out of the columns above.
    room: Vec<Vec<i64>>,
    /// cpu and memory taken when pods without requests count as Kubernetes' scoring counts them.
    scored: [Vec<i64>; 2],
    pub(crate) known: u32,
    /// Sum of what known nodes offer.
    pub(crate) total: Vec<i64>,
    /// Labels, taints, cordons, presence.
    pub(crate) facts_log: ChangeLog,
    pub(crate) use_log: ChangeLog,
    /// Nodes with a measured use, the oldest measurement first.
    measured: BTreeSet<(TimeMs, NodeId)>,
    /// Whether something adds nodes for pods that wait, by what the API server serves.
    pub(crate) autoscaler: bool,
    /// Counts changes of offers and facts: what an empty cluster could hold is cached against it.
    pub(crate) offers_version: u64,
}

impl Keyed for NodeRow {
    fn found_by(&self) -> &str {
        &self.name
    }
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(),
            allocatable: Vec::new(),
            used: Vec::new(),
            releasing: Vec::new(),
            pipelined: Vec::new(),
            reserved: Vec::new(),
            room: Vec::new(),
            scored: [Vec::new(), Vec::new()],
            known: 0,
            total: Vec::new(),
            facts_log: ChangeLog::default(),
            use_log: ChangeLog::default(),
            measured: BTreeSet::new(),
            autoscaler: false,
            offers_version: 0,
        }
    }

    /// False if it is no news.
    pub(crate) fn see_autoscaler(&mut self, seen: bool) -> bool {
        let is_news = std::mem::replace(&mut self.autoscaler, seen) != seen;
        if is_news {
            // What fits no node is looked at again.
            self.offers_version += 1;
        }
        is_news
    }

    pub(crate) fn row(&self, node: NodeId) -> &NodeRow {
        self.table.row(node.index())
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.table.iter().filter(|(_, row)| row.known).map(|(id, _)| id)
    }

    pub(crate) fn allocatable(&self, node: NodeId, dim: DimId) -> i64 {
        self.allocatable.get(dim.index()).map_or(0, |column| column[node.index()])
    }

    pub(crate) fn used(&self, node: NodeId, dim: DimId) -> i64 {
        self.used.get(dim.index()).map_or(0, |column| column[node.index()])
    }

    pub(crate) fn idle(&self, node: NodeId, dim: DimId) -> i64 {
        self.allocatable(node, dim).saturating_sub(self.used(node, dim))
    }

    /// What of the use is on its way out.
    pub(crate) fn releasing(&self, node: NodeId, dim: DimId) -> i64 {
        self.releasing.get(dim.index()).map_or(0, |column| column[node.index()])
    }

    /// What will be free when all that leaves is gone, less what is promised of it. May be negative.
    pub(crate) fn future_idle(&self, node: NodeId, dim: DimId) -> i64 {
        let pipelined = self.pipelined.get(dim.index()).map_or(0, |column| column[node.index()]);
        self.idle(node, dim).saturating_add(self.releasing(node, dim)).saturating_sub(pipelined)
    }

    /// What is kept for groups that have a reservation.
    pub(crate) fn reserved(&self, node: NodeId, dim: DimId) -> i64 {
        self.reserved.get(dim.index()).map_or(0, |column| column[node.index()])
    }

    /// What those who make others leave can have there: `future_idle`, less what is kept for others.
    pub(crate) fn future_room(&self, node: NodeId, dim: DimId) -> i64 {
        self.future_idle(node, dim).saturating_sub(self.reserved(node, dim))
    }

    /// The nodes, also those that only pods name, where so much can be had: those with enough `future_room`. O(nodes).
    pub(crate) fn with_future_room(&self, demand: &Demand) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = (0..self.table.span()).map(NodeId::from).collect();
        for (dim, amount) in demand.iter() {
            nodes.retain(|node| amount <= self.future_room(*node, dim));
        }
        nodes
    }

    /// Keeps so much for groups that have a reservation, in place of what was kept before.
    pub(crate) fn set_reserved(&mut self, node: NodeId, dim: DimId, amount: i64) {
        let Some(column) = self.reserved.get_mut(dim.index()) else { return };
        if std::mem::replace(&mut column[node.index()], amount) != amount {
            self.settle_room(node, dim);
            self.note_use(node);
        }
    }

    /// What a pod can take now: free, and neither promised to nor kept for another.
    pub(crate) fn room(&self, node: NodeId, dim: DimId) -> i64 {
        self.room.get(dim.index()).map_or(0, |column| column[node.index()])
    }

    /// What a pod can take now of a dimension on all nodes, by their ids; empty where none was ever told of it.
    pub(crate) fn rooms(&self, dim: DimId) -> &[i64] {
        self.room.get(dim.index()).map_or(&[], Vec::as_slice)
    }

    /// What pods can take now on all nodes together. O(nodes).
    pub(crate) fn room_in_all(&self, dim: DimId) -> i64 {
        self.ids().map(|node| self.room(node, dim).max(0)).fold(0, i64::saturating_add)
    }

    /// What is free of a dimension on all nodes together. O(nodes).
    pub(crate) fn idle_in_all(&self, dim: DimId) -> i64 {
        self.ids().map(|node| self.idle(node, dim).max(0)).fold(0, i64::saturating_add)
    }

    /// What all nodes offer of a dimension, by their ids; empty where none was ever told of it.
    pub(crate) fn offered(&self, dim: DimId) -> &[i64] {
        self.allocatable.get(dim.index()).map_or(&[], Vec::as_slice)
    }

    /// What is taken of it, likewise.
    pub(crate) fn taken(&self, dim: DimId) -> &[i64] {
        self.used.get(dim.index()).map_or(&[], Vec::as_slice)
    }

    /// cpu (0) or memory (1) in use for scoring, likewise.
    pub(crate) fn taken_for_scoring(&self, which: usize) -> &[i64] {
        &self.scored[which]
    }

    fn settle_room(&mut self, node: NodeId, dim: DimId) {
        let room = self.idle(node, dim).min(self.future_idle(node, dim)).saturating_sub(self.reserved(node, dim));
        if let Some(column) = self.room.get_mut(dim.index()) {
            column[node.index()] = room;
        }
    }

    /// cpu (0) or memory (1) in use for scoring.
    pub(crate) fn scored(&self, node: NodeId, which: usize) -> i64 {
        self.scored[which][node.index()]
    }

    /// The id of `name`, as a placeholder if it is new.
    pub(crate) fn intern(&mut self, name: &str, dims: usize) -> NodeId {
        self.widen(dims);
        if let Some(id) = self.table.find(name) {
            return id;
        }
        let row = NodeRow {
            name: name.into(),
            known: false,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            unschedulable: false,
            ports: Vec::new(),
            annotations: BTreeMap::new(),
            images: BTreeMap::new(),
            usage: None,
            capacity: Resources::new(),
            in_flight: 0,
            tasks: Vec::new(),
        };
        let id = self.table.insert(row);
        let columns = self.allocatable.iter_mut().chain(&mut self.used).chain(&mut self.scored);
        for column in columns
            .chain(&mut self.releasing)
            .chain(&mut self.pipelined)
            .chain(&mut self.reserved)
            .chain(&mut self.room)
        {
            column.resize(column.len().max(id.index() + 1), 0);
            column[id.index()] = 0;
        }
        self.note_facts(id);
        id
    }

    /// Gives every dimension its columns.
    pub(crate) fn widen(&mut self, dims: usize) {
        if self.room.len() >= dims {
            return;
        }
        let span = self.table.span();
        self.room.resize_with(dims, || vec![0; span]);
        self.allocatable.resize_with(dims.max(self.allocatable.len()), || vec![0; span]);
        self.used.resize_with(dims.max(self.used.len()), || vec![0; span]);
        self.releasing.resize_with(dims.max(self.releasing.len()), || vec![0; span]);
        self.pipelined.resize_with(dims.max(self.pipelined.len()), || vec![0; span]);
        self.reserved.resize_with(dims.max(self.reserved.len()), || vec![0; span]);
        self.total.resize(dims.max(self.total.len()), 0);
    }

    /// False if the node was so already.
    pub(crate) fn upsert(&mut self, facts: &NodeFacts, dims: &mut Dims) -> bool {
        let offer = dims.demand(&oversubscription::added(&facts.allocatable, &facts.annotations));
        let capacity = match facts.capacity.is_empty() {
            true => Resources::new(),
            false => oversubscription::added(&facts.capacity, &facts.annotations),
        };
        let id = self.intern(&facts.name, dims.len());
        let row = self.table.row_mut(id.index());
        let changed = !row.known
            || row.labels != facts.labels
            || row.taints != facts.taints
            || row.unschedulable != facts.unschedulable
            || row.annotations != facts.annotations
            || row.images != facts.images
            || (facts.usage.is_some() && row.usage != facts.usage)
            || row.capacity != capacity;
        if changed {
            self.known += u32::from(!row.known);
            row.known = true;
            row.labels.clone_from(&facts.labels);
            row.taints.clone_from(&facts.taints);
            row.unschedulable = facts.unschedulable;
            row.annotations.clone_from(&facts.annotations);
            row.images.clone_from(&facts.images);
            row.capacity = capacity;
            self.note_facts(id);
        }
        if let Some(usage) = facts.usage {
            self.measure(&facts.name, usage);
        }
        let offers = self.set_offer(id, &offer);
        if offers {
            self.note_facts(id);
        }
        changed || offers
    }

    fn set_offer(&mut self, node: NodeId, offer: &Demand) -> bool {
        let mut changed = false;
        for (index, column) in self.allocatable.iter_mut().enumerate() {
            let amount = offer.get(DimId::from(index));
            let cell = &mut column[node.index()];
            if *cell != amount {
                self.total[index] = self.total[index].saturating_add(amount - *cell);
                *cell = amount;
                changed = true;
            }
        }
        (0..self.room.len()).for_each(|dim| self.settle_room(node, dim.into()));
        changed
    }

    /// The Node object is gone: it stays as a placeholder while pods name it.
    pub(crate) fn remove(&mut self, name: &str) {
        let Some(id) = self.table.find(name) else { return };
        if !self.row(id).known {
            return;
        }
        self.set_offer(id, &Demand::default());
        self.known -= 1;
        let row = self.table.row_mut(id.index());
        row.known = false;
        let old = row.usage.take();
        self.note_measured(id, old, None);
        self.note_facts(id);
        self.release(id);
    }

    /// What is in use on a node, by measurement. False if nothing is new, or there is no such node.
    pub(crate) fn measure(&mut self, name: &str, usage: NodeUsage) -> bool {
        let Some(id) = self.table.find(name).filter(|id| self.row(*id).known) else { return false };
        let old = self.table.row_mut(id.index()).usage.replace(usage);
        self.note_measured(id, old, Some(usage));
        let is_new = old != Some(usage);
        if is_new {
            self.note_facts(id);
        }
        is_new
    }

    fn note_measured(&mut self, node: NodeId, old: Option<NodeUsage>, new: Option<NodeUsage>) {
        if let Some(old) = old {
            self.measured.remove(&(old.at, node));
        }
        if let Some(new) = new {
            self.measured.insert((new.at, node));
        }
    }

    /// Drops measurements made before `oldest`: they say nothing any more. O(those).
    pub(crate) fn expire_usage(&mut self, oldest: TimeMs) {
        while let Some((at, node)) = self.measured.first().copied().filter(|(at, _)| *at < oldest) {
            self.measured.remove(&(at, node));
            self.table.row_mut(node.index()).usage = None;
            self.note_facts(node);
        }
    }

    /// Something that is kept elsewhere changed about the node of that name.
    pub(crate) fn touch(&mut self, name: &str) {
        if let Some(node) = self.table.find(name) {
            self.note_facts(node);
        }
    }

    /// Frees a placeholder that nothing names any more.
    pub(crate) fn release(&mut self, node: NodeId) {
        let row = self.row(node);
        if !row.known && row.tasks.is_empty() {
            let name = row.name.clone();
            self.table.remove(&name);
        }
    }

    /// What is read of the nodes' facts has changed otherwise.
    pub(crate) fn doubt_facts(&mut self) {
        for node in self.ids().collect::<Vec<_>>() {
            self.note_facts(node);
        }
    }

    /// Something that scores by use read has changed.
    pub(crate) fn note_use(&mut self, node: NodeId) {
        let nodes = self.table.span();
        self.use_log.push(node, nodes);
    }

    /// Has what depends on the node's facts looked at again.
    pub(crate) fn note_facts(&mut self, node: NodeId) {
        let nodes = self.table.span();
        self.facts_log.push(node, nodes);
        self.use_log.push(node, nodes);
        self.offers_version += 1;
    }

    /// Adds (`sign` 1) or takes back (-1) one pod's use.
    pub(crate) fn charge(&mut self, node: NodeId, demand: &Demand, scored: [i64; 2], ports: &[HostPort], sign: i64) {
        charge(&mut self.used, node, demand, sign);
        demand.iter().for_each(|(dim, _)| self.settle_room(node, dim));
        for (column, amount) in self.scored.iter_mut().zip(scored) {
            column[node.index()] = column[node.index()].wrapping_add(sign.wrapping_mul(amount));
        }
        let taken = &mut self.table.row_mut(node.index()).ports;
        for port in ports {
            match taken.iter().position(|(other, _)| other == port) {
                Some(at) if sign < 0 => {
                    taken[at].1 -= 1;
                    if taken[at].1 == 0 {
                        taken.remove(at);
                    }
                }
                Some(at) => taken[at].1 += 1,
                None => {
                    let at = taken.partition_point(|(other, _)| other < port);
                    taken.insert(at, (port.clone(), 1));
                }
            }
        }
        let nodes = self.table.span();
        self.use_log.push(node, nodes);
    }

    /// Puts a task that names the node on its list, or takes it off.
    pub(crate) fn list_task(&mut self, node: NodeId, task: TaskId, sign: i32) {
        let tasks = &mut self.table.row_mut(node.index()).tasks;
        if sign > 0 {
            tasks.push(task);
        } else if let Some(at) = tasks.iter().rposition(|listed| *listed == task) {
            tasks.swap_remove(at);
        }
    }

    /// Adds or takes back one bind that is on its way.
    pub(crate) fn count_in_flight(&mut self, node: NodeId, sign: i32) {
        let row = self.table.row_mut(node.index());
        row.in_flight = row.in_flight.checked_add_signed(sign).expect("a bind is counted before it is taken back");
        let nodes = self.table.span();
        self.use_log.push(node, nodes);
    }

    /// Adds (`sign` 1) or takes back (-1) what is on its way out.
    pub(crate) fn charge_releasing(&mut self, node: NodeId, demand: &Demand, sign: i64) {
        charge(&mut self.releasing, node, demand, sign);
        demand.iter().for_each(|(dim, _)| self.settle_room(node, dim));
        let nodes = self.table.span();
        self.use_log.push(node, nodes);
    }

    /// Adds (`sign` 1) or takes back (-1) what is promised.
    pub(crate) fn charge_pipelined(&mut self, node: NodeId, demand: &Demand, sign: i64) {
        charge(&mut self.pipelined, node, demand, sign);
        demand.iter().for_each(|(dim, _)| self.settle_room(node, dim));
        let nodes = self.table.span();
        self.use_log.push(node, nodes);
    }

    /// Whether `demand` would fit now, if nothing were kept there for others, and does not.
    pub(crate) fn fits_but_for_reserved(&self, node: NodeId, demand: &Demand) -> bool {
        let with_reserved = |dim| self.room(node, dim).saturating_add(self.reserved(node, dim));
        !self.fits(node, demand) && demand.iter().all(|(dim, amount)| amount <= with_reserved(dim))
    }

    /// Whether `demand` fits now.
    pub(crate) fn fits(&self, node: NodeId, demand: &Demand) -> bool {
        demand.iter().all(|(dim, amount)| amount <= self.room(node, dim))
    }
}

fn charge(columns: &mut [Vec<i64>], node: NodeId, demand: &Demand, sign: i64) {
    for (dim, amount) in demand.iter() {
        let cell = &mut columns[dim.index()][node.index()];
        // Wrapping, so that taking back restores exactly even what no machine has.
        *cell = cell.wrapping_add(sign.wrapping_mul(amount));
    }
}

crate::save::saved! {
    NodeRow { name, known, labels, taints, unschedulable, ports, annotations, images, usage, capacity, in_flight, tasks };
    ChangeLog { base, entries };
    Nodes { table, allocatable, used, releasing, pipelined, reserved as "held", room, scored, known, total, facts_log, use_log, measured, autoscaler, offers_version };
}
