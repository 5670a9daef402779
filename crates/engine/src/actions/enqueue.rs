//! `enqueue`: admits groups (Pending to Inqueue), so that pods are made for them.
//!
//! A group is admitted if its minimum fits the empty cluster and what its queue's limit leaves beside what is
//! promised to admitted groups; and always if it could start right now. An impossible group is not admitted and is
//! not counted, so it holds nobody up.

use rustc_hash::FxHashMap;

use super::worklist::Worklist;
use crate::cycle::{Cycle, Failure};
use crate::facts::GroupPhase;
use crate::finder::Search;
use crate::ids::{ClassId, DimId, GroupId, QueueId};
use crate::minimum::{Missing, missing};
use crate::queue_limit;
use crate::reasons::{Check, CheckCount, NodesUnfit, Reason, Shortage, Stage};

/// Names of groups ahead that a reason gives.
const AHEAD_NAMED_MAX: usize = 5;

/// Which missing parts could be placed this moment. Nothing is placed while this action runs, so an answer stays true.
type Placeable = FxHashMap<Vec<(ClassId, u32)>, bool>;

/// What is promised to the admitted groups of a queue that have not started.
#[derive(Default)]
struct Promised {
    /// To all of them.
    amounts: Vec<i64>,
    /// To those that are on their way: their pods are being made, or were not tried yet.
    starting: Vec<i64>,
    groups: Vec<GroupId>,
}

pub(crate) fn run(cycle: &mut Cycle<'_>) {
    let (pending, inqueue): (Vec<GroupId>, Vec<GroupId>) = cycle
        .tables
        .groups
        .waiting
        .iter()
        .filter(|group| matches!(cycle.tables.groups.row(**group).phase, GroupPhase::Pending | GroupPhase::Inqueue))
        .partition(|group| cycle.tables.groups.row(**group).phase == GroupPhase::Pending);
    if pending.is_empty() {
        return;
    }
    let mut promised: FxHashMap<QueueId, Promised> = FxHashMap::default();
    for group in inqueue {
        let missing = missing(cycle.tables, group);
        let starting = cycle.policy.job_valid(cycle.tables, group).is_some();
        promise(cycle, &mut promised, group, &missing, starting);
    }
    let mut placeable = Placeable::default();
    let mut work = Worklist::new(cycle.tables, cycle.policy, pending);
    while let Some(group) = work.pop() {
        let missing = missing(cycle.tables, group);
        let queue = cycle.tables.groups.row(group).queue;
        let ahead = promised.entry(queue).or_default();
        match decide(cycle, group, &missing, ahead, &mut placeable) {
            Ok(()) => {
                cycle.tables.set_phase(group, GroupPhase::Inqueue);
                cycle.plan.admitted.push(cycle.tables.groups.row(group).key());
                promise(cycle, &mut promised, group, &missing, true);
            }
            Err(reasons) => {
                let estimated = matches!(reasons.first(), Some(Reason::QueueLimit { .. } | Reason::ExceedsCluster(_)));
                let approximate = missing.block.is_some() && estimated;
                cycle.failures.insert(group, Failure { stage: Stage::Enqueue, approximate, reasons });
            }
        }
    }
}

fn promise(
    cycle: &Cycle<'_>,
    promised: &mut FxHashMap<QueueId, Promised>,
    group: GroupId,
    missing: &Missing,
    starting: bool,
) {
    let entry = promised.entry(cycle.tables.groups.row(group).queue).or_default();
    entry.groups.push(group);
    add(&mut entry.amounts, &missing.total);
    if starting {
        add(&mut entry.starting, &missing.total);
    }
}

fn add(sums: &mut Vec<i64>, amounts: &[i64]) {
    sums.resize(sums.len().max(amounts.len()), 0);
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum = sum.saturating_add(*amount);
    }
}

fn decide(
    cycle: &mut Cycle<'_>,
    group: GroupId,
    missing: &Missing,
    ahead: &Promised,
    placeable: &mut Placeable,
) -> Result<(), Vec<Reason>> {
    let queue = cycle.tables.groups.row(group).queue;
    let row = cycle.tables.queues.row(queue);
    let name = row.name.to_string();
    if !row.known {
        return Err(vec![Reason::QueueNotFound { queue: name }]);
    }
    if !row.is_open() {
        return Err(vec![Reason::QueueClosed { queue: name, state: format!("{:?}", row.state) }]);
    }
    // What the group holds already belongs to the minimum, so it is compared with an otherwise empty queue.
    let held = cycle.tables.groups.row(group).allocated.clone();
    if let Some(mut reason) = queue_limit::exceeded(cycle.tables, queue, &missing.total, &held) {
        if let Reason::QueueLimit { never, .. } = &mut reason {
            *never = true;
        }
        return Err(vec![reason]);
    }
    if !fits_empty(cycle, missing) && !could_start_now(cycle, queue, missing, ahead, placeable) {
        return Err(vec![Reason::ExceedsCluster(exceeds(cycle, group, missing))]);
    }
    let mut used = cycle.tables.queues.row(queue).own.held();
    add(&mut used, &ahead.amounts);
    let Some(reason) = queue_limit::exceeded(cycle.tables, queue, &missing.total, &used) else { return Ok(()) };
    if could_start_now(cycle, queue, missing, ahead, placeable) {
        return Ok(());
    }
    let mut reasons = vec![reason];
    if !ahead.groups.is_empty() {
        let groups =
            ahead.groups.iter().take(AHEAD_NAMED_MAX).map(|group| cycle.tables.groups.row(*group).key()).collect();
        reasons.push(Reason::WaitsBehind { groups, count: u32::try_from(ahead.groups.len()).unwrap_or(u32::MAX) });
    }
    Err(reasons)
}

/// Could the whole minimum be placed this moment, past those that wait for nodes? Tried on the tables and taken back.
fn could_start_now(
    cycle: &mut Cycle<'_>,
    queue: QueueId,
    missing: &Missing,
    ahead: &Promised,
    placeable: &mut Placeable,
) -> bool {
    let mut used = cycle.tables.queues.row(queue).own.held();
    add(&mut used, &ahead.starting);
    if queue_limit::exceeded(cycle.tables, queue, &missing.total, &used).is_some() {
        return false;
    }
    let total = &cycle.tables.nodes.total;
    if missing.total.iter().zip(total).any(|(wanted, offered)| wanted > offered) {
        return false;
    }
    if let Some(block) = &missing.block {
        let nodes = &cycle.tables.nodes;
        let idle = |dim: DimId| nodes.ids().map(|node| nodes.idle(node, dim).max(0)).sum::<i64>();
        return block.iter().all(|(dim, amount)| amount <= idle(dim));
    }
    let key = missing.parts.iter().map(|part| (part.class, part.count)).collect();
    *placeable.entry(key).or_insert_with(|| place_and_take_back(cycle, missing))
}

fn place_and_take_back(cycle: &mut Cycle<'_>, missing: &Missing) -> bool {
    let savepoint = cycle.tables.savepoint();
    let fits = missing.parts.iter().all(|part| {
        (0..part.count).all(|_| match cycle.finder.best(cycle.tables, cycle.policy, Search::of_class(part.class)) {
            Some(node) => {
                cycle.tables.hold(part.class, node);
                true
            }
            None => false,
        })
    });
    cycle.rollback(savepoint);
    fits
}

/// Would the minimum fit if nothing ran?
fn fits_empty(cycle: &mut Cycle<'_>, missing: &Missing) -> bool {
    match &missing.block {
        Some(block) => block.iter().all(|(dim, amount)| amount <= cycle.tables.nodes.total[dim.index()]),
        None => cycle.finder.unplaced_on_empty(cycle.tables, cycle.policy, &missing.parts).is_none(),
    }
}

fn exceeds(cycle: &mut Cycle<'_>, group: GroupId, missing: &Missing) -> NodesUnfit {
    if let Some(block) = &missing.block {
        let tables = &*cycle.tables;
        let over = block.iter().filter(|(dim, amount)| *amount > tables.nodes.total[dim.index()]);
        let short = over.map(|(dim, amount)| Shortage {
            resource: tables.dims.name(dim).to_string(),
            requested: amount,
            best_node: String::new(),
            short_on_best: amount - tables.nodes.total[dim.index()],
            short_total: amount - tables.nodes.total[dim.index()],
        });
        let short: Vec<Shortage> = short.collect();
        let nodes = tables.nodes.known;
        let checks =
            short.iter().map(|short| CheckCount { check: Check::Resource, detail: short.resource.clone(), nodes });
        let needed = tables.groups.row(group).min_member;
        return NodesUnfit { needed, nodes, checks: checks.collect(), short, ..NodesUnfit::default() };
    }
    let unplaced = cycle.finder.unplaced_on_empty(cycle.tables, cycle.policy, &missing.parts);
    let Some(unplaced) = unplaced else { return NodesUnfit::default() };
    let class = unplaced.class;
    let part = missing.parts.iter().find(|part| part.class == class);
    let (needed, role) = part.map_or((0, String::new()), |part| (part.count, part.role.to_string()));
    let numbers = (needed, unplaced.found_room);
    let mut unfit = unplaced.findings.unfit(cycle.tables, numbers);
    unfit.role = role;
    unfit
}
