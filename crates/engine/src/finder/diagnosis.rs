//! What every node says to a class that fits nowhere: the counts of failed checks and what is short.
//! Runs the same checks as the search, on the same state, so that reasons can't differ from decisions. O(nodes).

use std::collections::BTreeMap;

use super::Finder;
use crate::dims::PODS;
use crate::ids::{ClassId, DimId, NodeId};
use crate::plugins::predicates;
use crate::policy::Policy;
use crate::reasons::{Check, CheckCount, NodesUnfit, Shortage};
use crate::world::tables::Tables;

/// Different details (taints, ports) told apart; the rest is one count.
const DETAILS_MAX: usize = 16;

/// Which room is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// What is idle now.
    Idle,
    /// What nodes offer when nothing runs.
    Empty,
}

/// The last answer, good as long as no node changed.
#[derive(Debug, Default)]
pub(super) struct Memo(Option<(u64, Against, Findings)>);

#[derive(Debug, Clone, Default)]
struct Findings {
    nodes: u32,
    counts: BTreeMap<(Check, String), u32>,
    short: BTreeMap<DimId, Short>,
    /// Free on all nodes whose facts allow the class.
    free: BTreeMap<DimId, i64>,
}

#[derive(Debug, Clone)]
struct Short {
    requested: i64,
    best: NodeId,
    short_on_best: i64,
}

impl Finder {
    /// What the nodes say. `needed` pods are wanted together, `found_room` of them were placed before this.
    pub(crate) fn diagnose(
        &mut self,
        tables: &Tables,
        policy: &Policy,
        class: ClassId,
        against: Against,
        (needed, found_room): (u32, u32),
    ) -> NodesUnfit {
        let cache = self.fresh(tables, policy, class);
        let end = tables.nodes.use_log.end();
        let known = cache.diagnosis.0.take().filter(|(at, kind, _)| (*at, *kind) == (end, against));
        let findings =
            known.map_or_else(|| scan(&cache.verdicts, tables, policy, class, against), |(_, _, findings)| findings);
        let left = i64::from(needed.saturating_sub(found_room));
        let short = findings.short.iter().map(|(dim, short)| Shortage {
            resource: tables.dims.name(*dim).to_string(),
            requested: short.requested,
            best_node: tables.node_name(short.best).to_string(),
            short_on_best: short.short_on_best,
            short_total: (short.requested.saturating_mul(left) - findings.free.get(dim).copied().unwrap_or(0)).max(0),
        });
        let checks = findings.counts.iter().map(|((check, detail), nodes)| CheckCount {
            check: *check,
            detail: detail.clone(),
            nodes: *nodes,
        });
        let unfit = NodesUnfit {
            role: String::new(),
            needed,
            found_room,
            nodes: findings.nodes,
            checks: checks.collect(),
            short: short.collect(),
        };
        cache.diagnosis.0 = Some((end, against, findings));
        unfit
    }
}

fn scan(verdicts: &[Option<Check>], tables: &Tables, policy: &Policy, class: ClassId, against: Against) -> Findings {
    let nodes = &tables.nodes;
    let row = tables.classes.row(class);
    let mut findings = Findings { nodes: nodes.known, ..Findings::default() };
    let room = |node, dim| match against {
        Against::Idle => nodes.idle(node, dim),
        Against::Empty => nodes.allocatable(node, dim),
    };
    for node in nodes.ids() {
        let facts = nodes.row(node);
        if let Some(check) = verdicts[node.index()] {
            findings.count(check, predicates::detail(check, &row.template, facts));
            continue;
        }
        let mut lacks = false;
        for (dim, requested) in row.demand.iter() {
            let free = room(node, dim);
            if dim == PODS && requested > free {
                lacks = true;
                findings.count(Check::PodCount, String::new());
                continue;
            }
            findings.offer(dim, free);
            if requested > free {
                findings.shortage(dim, requested, node, free);
                lacks = true;
                findings.count(Check::Resource, tables.dims.name(dim).to_string());
            }
        }
        if lacks || against == Against::Empty {
            continue;
        }
        if let Some(check) = policy.check_use(&row.template, facts) {
            findings.count(check, predicates::detail(check, &row.template, facts));
        }
    }
    findings
}

impl Findings {
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
        let missing = requested - free;
        let short = self.short.entry(dim).or_insert(Short { requested, best: node, short_on_best: missing });
        if missing < short.short_on_best {
            short.best = node;
            short.short_on_best = missing;
        }
    }
}
