//! What every node says to a class that fits nowhere: the counts of failed checks and what is short.
//! Runs the same checks as the search, on the same state, so that reasons can't differ from decisions. O(nodes) where
//! something changed on any.

use std::collections::{BTreeMap, BTreeSet};

use class_room::{CachedClassRoom, ClassRoom};
use node_checks::NodeChecks;

use super::{Finder, Search, Telling};
use crate::cluster::classes::ClassRow;
use crate::ids::{ClassId, DimId, NodeId};
use crate::policy::Policy;
use crate::reasons::{Check, CheckCount, NodesUnfit, Shortage};
use crate::resource_dims::PODS;
use crate::world::tables::Tables;

mod class_room;
mod node_checks;
mod room_index;
mod thorough;

pub(super) use room_index::RoomIndex;

/// Different details (taints, ports) told apart; the rest is one count.
const DETAILS_MAX: usize = 16;

/// Failed checks with what they are about, and how many nodes failed each.
type Counts = BTreeMap<(Check, String), u32>;

/// What is known of a class: what the facts of the nodes say, what room there is of each dimension that it asks for, and
/// the last answer, good as long as no node changed.
#[derive(Debug, Default)]
pub(super) struct Memo {
    of_facts: NodeChecks,
    rooms: Vec<CachedClassRoom>,
    last: Option<(u64, Findings)>,
}

impl Memo {
    /// Memory of what grows with the cluster, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.of_facts.bytes()
    }
}

/// What the nodes said.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Findings {
    nodes: u32,
    counts: Counts,
    short: BTreeMap<DimId, Short>,
    /// Free on all nodes whose facts allow the class.
    free: BTreeMap<DimId, i64>,
}

#[derive(Debug, Clone, PartialEq)]
struct Short {
    requested: i64,
    best: NodeId,
    short_on_best: i64,
}

/// How many pods of a kind are needed together, and how many of these found room before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodsWanted {
    pub(crate) needed: u32,
    pub(crate) found_room: u32,
}

impl Finder {
    /// What the nodes say now.
    pub(crate) fn diagnose(
        &mut self,
        tables: &Tables,
        policy: &Policy,
        search: Search<'_>,
        pods: PodsWanted,
    ) -> NodesUnfit {
        let class = search.class;
        match self.telling {
            Telling::First => {}
            Telling::All => return thorough::scan(tables, policy, search).unfit(tables, pods),
            Telling::Nothing => {
                let PodsWanted { needed, found_room } = pods;
                return NodesUnfit { needed, found_room, ..NodesUnfit::default() };
            }
        }
        let specific = search.task.filter(|task| policy.is_specific(tables, *task));
        let end = tables.nodes.use_log.end();
        let row = tables.classes.row(class);
        let room = |node, dim| tables.nodes.room(node, dim);
        if specific.is_some() || search.within.is_some() {
            let outside = |node: NodeId| {
                let outside = search.within.is_some_and(|nodes| !nodes.contains(node.index()));
                outside.then_some(Check::OutsideDomain)
            };
            let of_facts = |node| policy.check_facts(tables, row, node).or_else(|| outside(node));
            let mut findings = scan(of_facts, tables, policy, search, room, |node| {
                let of_use = policy.check_use(tables, row, node);
                of_use.or_else(|| specific.and_then(|task| policy.check_task(tables, task, node)))
            });
            findings.tell_reserved(tables, row, |node| of_facts(node).is_none());
            return findings.unfit(tables, pods);
        }
        self.room_index.refresh(tables);
        self.note(tables, class);
        let class_memos = self.class_memos[class.index()].as_mut().expect("`note` makes them");
        let memo = &mut class_memos.diagnosis;
        let known = memo.last.take().filter(|(at, _)| *at == end);
        let findings = known.map_or_else(|| of_class(tables, policy, row, &self.room_index, memo), |(_, known)| known);
        debug_assert_eq!(findings, scan_for(tables, policy, class), "what is remembered is what the nodes say");
        let unfit = findings.unfit(tables, pods);
        memo.last = Some((end, findings));
        unfit
    }
}

/// What `scan` says where nothing counts but the class. Checks of facts and looks at room are not made again: what is
/// left are the checks of use where a node has room. O(changed nodes) without any.
fn of_class(tables: &Tables, policy: &Policy, class: &ClassRow, room_index: &RoomIndex, memo: &mut Memo) -> Findings {
    if memo.of_facts.repair(tables, policy, class) {
        memo.rooms.clear();
    }
    memo.rooms.resize_with(class.demand.iter().count(), CachedClassRoom::default);
    let mut findings = Findings { nodes: tables.nodes.known, counts: memo.of_facts.counts(), ..Findings::default() };
    if policy.checks_use_of(class) {
        for node in memo.of_facts.allowed().filter(|node| tables.nodes.fits(*node, &class.demand)) {
            if let Some(check) = policy.check_use(tables, class, node) {
                findings.count(check, policy.detail(tables, check, class, node));
            }
        }
    }
    findings.tell_few_apart();
    for (index, (dim, requested)) in class.demand.iter().enumerate() {
        let rooms = memo.rooms[index].bring_up(room_index, &memo.of_facts, dim, requested);
        findings.add(tables, dim, requested, rooms);
    }
    findings.tell_reserved(tables, class, |node| memo.of_facts.allow(node));
    findings
}

/// What a look at every node finds for a class. Where nothing counts but the class, `of_class` has to say the same.
fn scan_for(tables: &Tables, policy: &Policy, class: ClassId) -> Findings {
    let row = tables.classes.row(class);
    let of_facts = |node| policy.check_facts(tables, row, node);
    let room = |node, dim| tables.nodes.room(node, dim);
    let check_use = |node| policy.check_use(tables, row, node);
    let mut findings = scan(of_facts, tables, policy, Search::of_class(class), room, check_use);
    findings.tell_reserved(tables, row, |node| of_facts(node).is_none());
    findings
}

/// Runs the checks on every node, with `room` for what is free there and `check_use` for what else use forbids.
pub(super) fn scan(
    check_facts: impl Fn(NodeId) -> Option<Check>,
    tables: &Tables,
    policy: &Policy,
    search: Search<'_>,
    room: impl Fn(NodeId, DimId) -> i64,
    check_use: impl Fn(NodeId) -> Option<Check>,
) -> Findings {
    let row = tables.classes.row(search.class);
    let mut findings = Findings { nodes: tables.nodes.known, ..Findings::default() };
    let mut rooms: Vec<ClassRoom> = row.demand.iter().map(|_| ClassRoom::default()).collect();
    for node in tables.nodes.ids() {
        if let Some(check) = check_facts(node) {
            findings.count(check, policy.detail(tables, check, row, node));
            continue;
        }
        let mut lacks = false;
        for ((dim, requested), rooms) in row.demand.iter().zip(&mut rooms) {
            lacks |= !rooms.look(node, requested, room(node, dim));
        }
        if let (false, Some(check)) = (lacks, check_use(node)) {
            let of_task = search.task.map(|task| policy.detail_of_task(tables, check, task, node));
            let detail = of_task.filter(|detail| !detail.is_empty());
            findings.count(check, detail.unwrap_or_else(|| policy.detail(tables, check, row, node)));
        }
    }
    findings.tell_few_apart();
    for ((dim, requested), rooms) in row.demand.iter().zip(rooms) {
        findings.add(tables, dim, requested, &rooms);
    }
    findings
}

impl Findings {
    /// The findings as a reason, for so many pods of the class.
    pub(crate) fn unfit(&self, tables: &Tables, PodsWanted { needed, found_room }: PodsWanted) -> NodesUnfit {
        let left = i64::from(needed.saturating_sub(found_room));
        let free = |dim: &DimId| self.free.get(dim).copied().unwrap_or(0);
        let short = self.short.iter().map(|(dim, short)| Shortage {
            resource: tables.dims.name(*dim).to_string(),
            requested: short.requested,
            best_node: tables.node_name(short.best).into(),
            short_on_best: short.short_on_best,
            short_total: (short.requested.saturating_mul(left) - free(dim)).max(0),
        });
        let checks = self.counts.iter().map(|((check, detail), nodes)| CheckCount {
            check: *check,
            detail: detail.clone(),
            nodes: *nodes,
        });
        let (checks, short) = (checks.collect(), short.collect());
        NodesUnfit { role: String::new(), needed, found_room, nodes: self.nodes, checks, short }
    }

    fn count(&mut self, check: Check, detail: String) {
        *self.counts.entry((check, detail)).or_default() += 1;
    }

    /// Puts all but the first details together, for each check.
    fn tell_few_apart(&mut self) {
        let Some(first) = self.counts.keys().nth(DETAILS_MAX).cloned() else { return };
        for ((check, _), nodes) in self.counts.split_off(&first) {
            *self.counts.entry((check, "...".to_owned())).or_default() += nodes;
        }
    }

    /// Nodes that have room, which is kept for others, lack nothing else: they are told of as such.
    fn tell_reserved(&mut self, tables: &Tables, class: &ClassRow, allows: impl Fn(NodeId) -> bool) {
        let mut reserved: BTreeSet<NodeId> = BTreeSet::new();
        for (node, _) in tables.reservations.places() {
            if tables.nodes.fits_but_for_reserved(node, &class.demand) && allows(node) {
                reserved.insert(node);
            }
        }
        if reserved.is_empty() {
            return;
        }
        for (dim, requested) in class.demand.iter() {
            let lacks = |node: NodeId| tables.nodes.room(node, dim) < requested;
            let lacking = reserved.iter().filter(|node| lacks(**node)).count();
            self.take_back(tables, dim, u32::try_from(lacking).unwrap_or(u32::MAX));
            if let Some(short) = self.short.get_mut(&dim).filter(|short| reserved.contains(&short.best)) {
                let others =
                    tables.nodes.ids().filter(|node| lacks(*node) && !reserved.contains(node) && allows(*node));
                let nearest = others.map(|node| (requested - tables.nodes.room(node, dim), node)).min();
                (short.short_on_best, short.best) = nearest.unwrap_or((short.short_on_best, short.best));
            }
        }
        let count = u32::try_from(reserved.len()).unwrap_or(u32::MAX);
        *self.counts.entry((Check::Reserved, String::new())).or_default() += count;
    }

    /// So many nodes that were told to lack something don't.
    fn take_back(&mut self, tables: &Tables, dim: DimId, nodes: u32) {
        if nodes == 0 {
            return;
        }
        let key = told_as(tables, dim);
        let Some(count) = self.counts.get_mut(&key) else { return };
        *count = count.saturating_sub(nodes);
        if *count == 0 {
            self.counts.remove(&key);
            self.short.remove(&dim);
        }
    }

    fn add(&mut self, tables: &Tables, dim: DimId, requested: i64, rooms: &ClassRoom) {
        self.free.insert(dim, rooms.free());
        let Some((short_on_best, best)) = rooms.best else { return };
        if dim != PODS {
            self.short.insert(dim, Short { requested, best, short_on_best });
        }
        *self.counts.entry(told_as(tables, dim)).or_default() += rooms.lacking;
    }
}

/// As which check a lack of this is told.
fn told_as(tables: &Tables, dim: DimId) -> (Check, String) {
    if dim == PODS { (Check::PodCount, String::new()) } else { (Check::Resource, tables.dims.name(dim).to_string()) }
}
