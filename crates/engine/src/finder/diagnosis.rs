//! What every node says to a class that fits nowhere: the counts of failed checks and what is short.
//! Runs the same checks as the search, on the same state, so that reasons can't differ from decisions. O(nodes).

use std::collections::BTreeMap;

use super::{Finder, Search};
use crate::dims::PODS;
use crate::ids::{DimId, NodeId};
use crate::policy::Policy;
use crate::reasons::{Check, CheckCount, NodesUnfit, Shortage};
use crate::world::tables::Tables;

/// Different details (taints, ports) told apart; the rest is one count.
const DETAILS_MAX: usize = 16;

/// The last answer, good as long as no node changed.
#[derive(Debug, Default)]
pub(super) struct Memo(Option<(u64, Findings)>);

/// What the nodes said.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Findings {
    nodes: u32,
    counts: BTreeMap<(Check, String), u32>,
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

impl Finder {
    /// What the nodes say now. `needed` pods are wanted together, `found_room` of them were placed before this.
    pub(crate) fn diagnose(
        &mut self,
        tables: &Tables,
        policy: &Policy,
        search: Search<'_>,
        (needed, found_room): (u32, u32),
    ) -> NodesUnfit {
        let class = search.class;
        let specific = search.task.filter(|task| policy.is_specific(tables, *task));
        let cache = self.fresh(tables, policy, class);
        let end = tables.nodes.use_log.end();
        let row = tables.classes.row(class);
        let room = |node, dim| tables.nodes.room(node, dim);
        if specific.is_some() || search.within.is_some() {
            let outside = |node: NodeId| {
                let outside = search.within.is_some_and(|nodes| !nodes.contains(node.index()));
                outside.then_some(Check::OutsideDomain)
            };
            let of_facts = |node| policy.check_facts(tables, row, node).or_else(|| outside(node));
            let findings = scan(of_facts, tables, policy, search, room, |node| {
                let of_use = policy.check_use(tables, row, node);
                of_use.or_else(|| specific.and_then(|task| policy.check_task(tables, task, node)))
            });
            return findings.unfit(tables, (needed, found_room));
        }
        let known = cache.diagnosis.0.take().filter(|(at, _)| *at == end);
        let findings = known.map_or_else(
            || {
                let of_facts = |node| policy.check_facts(tables, row, node);
                scan(of_facts, tables, policy, search, room, |node| policy.check_use(tables, row, node))
            },
            |(_, findings)| findings,
        );
        let unfit = findings.unfit(tables, (needed, found_room));
        cache.diagnosis.0 = Some((end, findings));
        unfit
    }
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
    for node in tables.nodes.ids() {
        if let Some(check) = check_facts(node) {
            findings.count(check, policy.detail(tables, check, row, node));
            continue;
        }
        let mut lacks = false;
        for (dim, requested) in row.demand.iter() {
            let free = room(node, dim);
            findings.offer(dim, free);
            if requested <= free {
                continue;
            }
            lacks = true;
            if dim == PODS {
                findings.count(Check::PodCount, String::new());
            } else {
                findings.shortage(dim, requested, node, free);
                findings.count(Check::Resource, tables.dims.name(dim).to_string());
            }
        }
        if let (false, Some(check)) = (lacks, check_use(node)) {
            let of_task = search.task.map(|task| policy.detail_of_task(tables, check, task, node));
            let detail = of_task.filter(|detail| !detail.is_empty());
            findings.count(check, detail.unwrap_or_else(|| policy.detail(tables, check, row, node)));
        }
    }
    findings
}

impl Findings {
    /// As a reason, for `needed` pods of which `found_room` were placed before.
    pub(crate) fn unfit(&self, tables: &Tables, (needed, found_room): (u32, u32)) -> NodesUnfit {
        let left = i64::from(needed.saturating_sub(found_room));
        let free = |dim: &DimId| self.free.get(dim).copied().unwrap_or(0);
        let short = self.short.iter().map(|(dim, short)| Shortage {
            resource: tables.dims.name(*dim).to_string(),
            requested: short.requested,
            best_node: tables.node_name(short.best).to_string(),
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
        let key = (check, detail);
        if self.counts.len() < DETAILS_MAX || self.counts.contains_key(&key) {
            *self.counts.entry(key).or_default() += 1;
        } else {
            *self.counts.entry((check, "...".to_owned())).or_default() += 1;
        }
    }

    fn offer(&mut self, dim: DimId, free: i64) {
        let total = self.free.entry(dim).or_default();
        *total = total.saturating_add(free.max(0));
    }

    fn shortage(&mut self, dim: DimId, requested: i64, node: NodeId, free: i64) {
        let missing = requested.saturating_sub(free);
        let short = self.short.entry(dim).or_insert(Short { requested, best: node, short_on_best: missing });
        if missing < short.short_on_best {
            short.best = node;
            short.short_on_best = missing;
        }
    }
}
