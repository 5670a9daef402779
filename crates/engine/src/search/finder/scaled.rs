//! Scores that are scaled to 0..100 over the nodes that fit: they move when the greatest raw value among these does.
//! Costs nothing until two nodes differ in one.

use std::collections::BTreeMap;

use crate::cluster::classes::ClassRow;
use crate::ids::NodeId;
use crate::plugin::Preference;
use crate::policy::Policy;
use crate::world::tables::Tables;

const SCORE_MAX: i64 = 100;

#[derive(Debug)]
pub(super) struct Scaled {
    kinds: usize,
    span: usize,
    /// The greatest raw value among the candidates, per preference.
    maxima: Vec<i64>,
    /// Absent while every raw value is 0.
    apart: Option<Box<Apart>>,
}

#[derive(Debug)]
struct Apart {
    /// Raw values, node after node.
    raw: Vec<i64>,
    /// How often each raw value occurs among the candidates, per preference.
    spread: Vec<BTreeMap<i64, u32>>,
    /// Score without the scaled ones, per node.
    by_use: Vec<i64>,
}

impl Scaled {
    pub(super) fn new(kinds: usize) -> Self {
        Self { kinds, span: 0, maxima: vec![0; kinds], apart: None }
    }

    pub(super) fn grow(&mut self, span: usize) {
        self.span = span;
        if let Some(apart) = &mut self.apart {
            apart.raw.resize(span * self.kinds, 0);
            apart.by_use.resize(span, 0);
        }
    }

    /// Reads a node's raw values again. It must not count among the candidates at the moment.
    ///
    /// The first value that is not 0 is met before any node counts, or in a cache that starts over: see `differs`.
    pub(super) fn judge(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow, node: NodeId) {
        let row = tables.nodes.row(node);
        for (which, preference) in policy.preferences().iter().enumerate() {
            let raw = (preference.raw)(&class.template, row);
            if raw != 0 || self.apart.is_some() {
                let (kinds, span) = (self.kinds, self.span);
                let apart = self.apart.get_or_insert_with(|| {
                    Box::new(Apart {
                        raw: vec![0; span * kinds],
                        spread: vec![BTreeMap::new(); kinds],
                        by_use: vec![0; span],
                    })
                });
                apart.raw[node.index() * kinds + which] = raw;
            }
        }
    }

    /// Whether raw values are kept: nodes that counted before the first of them have to be weighed again.
    pub(super) fn differs(&self) -> bool {
        self.apart.is_some()
    }

    /// The node counts among the candidates from now on, with this score; gives its total.
    pub(super) fn enter(&mut self, policy: &Policy, node: NodeId, score: i64, counted: bool) -> i64 {
        if let Some(apart) = &mut self.apart {
            apart.by_use[node.index()] = score;
            if !counted {
                for (which, values) in apart.spread.iter_mut().enumerate() {
                    *values.entry(apart.raw[node.index() * self.kinds + which]).or_default() += 1;
                }
            }
        }
        score.saturating_add(self.of(policy, node, &self.maxima))
    }

    pub(super) fn leave(&mut self, node: NodeId) {
        let Some(apart) = &mut self.apart else { return };
        for (which, values) in apart.spread.iter_mut().enumerate() {
            let raw = apart.raw[node.index() * self.kinds + which];
            if let Some(count) = values.get_mut(&raw) {
                *count -= 1;
                if *count == 0 {
                    values.remove(&raw);
                }
            }
        }
    }

    /// Whether a maximum has moved, so that every total has to be worked out again.
    pub(super) fn settle(&mut self) -> bool {
        let Some(apart) = &self.apart else { return false };
        let mut moved = false;
        for (max, values) in self.maxima.iter_mut().zip(&apart.spread) {
            let now = values.last_key_value().map_or(0, |(max, _)| *max);
            moved |= std::mem::replace(max, now) != now;
        }
        moved
    }

    /// The total of a candidate.
    pub(super) fn total(&self, policy: &Policy, node: NodeId) -> i64 {
        let by_use = self.apart.as_ref().map_or(0, |apart| apart.by_use[node.index()]);
        by_use.saturating_add(self.of(policy, node, &self.maxima))
    }

    /// Totals where only `nodes` are candidates; nothing where they are the same as among all.
    pub(super) fn scores_among(&self, policy: &Policy, nodes: &[NodeId]) -> Option<Vec<i64>> {
        let apart = self.apart.as_ref()?;
        let raw = |node: &NodeId, which| apart.raw[node.index() * self.kinds + which];
        let greatest = |which| nodes.iter().map(|node| raw(node, which)).max().unwrap_or(0);
        let maxima: Vec<i64> = (0..self.kinds).map(greatest).collect();
        if maxima == self.maxima {
            return None;
        }
        let total = |node: &NodeId| apart.by_use[node.index()].saturating_add(self.of(policy, *node, &maxima));
        Some(nodes.iter().map(total).collect())
    }

    fn of(&self, policy: &Policy, node: NodeId, maxima: &[i64]) -> i64 {
        let scaled = |(which, preference): (usize, &Preference)| {
            let raw = self.apart.as_ref().map_or(0, |apart| apart.raw[node.index() * self.kinds + which]);
            let score = if maxima[which] == 0 { 0 } else { raw.saturating_mul(SCORE_MAX) / maxima[which] };
            let points = preference.weight.saturating_mul(if preference.reverse { SCORE_MAX - score } else { score });
            points.saturating_mul(policy.unit())
        };
        policy.preferences().iter().enumerate().map(scaled).fold(0, i64::saturating_add)
    }
}
