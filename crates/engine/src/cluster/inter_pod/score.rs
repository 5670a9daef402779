//! How much other pods draw this one to a node, or away: Kubernetes' scores of pod affinity and topology spread,
//! 0 to 100 over the candidates.

use smallvec::SmallVec;

use super::classes::ClassSpread;
use super::domains::NONE;
use super::{InterPod, Profile};
use crate::ids::{ClassId, NodeId};

const SCORE_MAX: i64 = 100;

impl InterPod {
    /// Adds `weight` times the pod affinity score of each candidate.
    pub(crate) fn score_affinity(
        &self,
        profile: Profile,
        class: ClassId,
        weight: i64,
        nodes: &[NodeId],
        scores: &mut [i64],
    ) {
        let mut raw = vec![0_i64; nodes.len()];
        let mut any = false;
        for (term, preference) in self.class(class).into_iter().flat_map(|coupled| &coupled.preferred) {
            let tally = &self.terms.row(*term).matching;
            if tally.present_total > 0 && *preference != 0 {
                any = true;
                let count = |domain: u32| i64::from(tally.present.get(domain as usize).copied().unwrap_or(0));
                self.add_by_domain(*term, nodes, &mut raw, |domain| preference * count(domain));
            }
        }
        for term in self.matched_terms(profile) {
            let row = self.terms.row(term);
            if row.pulling > 0 {
                any = true;
                self.add_by_domain(term, nodes, &mut raw, |domain| {
                    row.pulls.get(domain as usize).copied().unwrap_or(0)
                });
            }
        }
        let (Some(least), Some(most)) = (raw.iter().min().copied(), raw.iter().max().copied()) else { return };
        let range = most - least;
        if !any || range == 0 {
            return;
        }
        for (score, raw) in scores.iter_mut().zip(raw) {
            // Kubernetes computes it so: the quotient first.
            let part = (SCORE_MAX as f64 * ((raw - least) as f64 / range as f64)) as i64;
            *score = score.saturating_add(weight.saturating_mul(part));
        }
    }

    fn add_by_domain(&self, term: u32, nodes: &[NodeId], raw: &mut [i64], amount: impl Fn(u32) -> i64) {
        let column = self.keys.row(self.terms.key(term).1);
        for (raw, node) in raw.iter_mut().zip(nodes) {
            let domain = column.domain(*node);
            if domain != NONE {
                *raw = raw.saturating_add(amount(domain));
            }
        }
    }

    /// Adds `weight` times the topology spread score of each candidate.
    pub(crate) fn score_spread(&self, class: ClassId, weight: i64, nodes: &[NodeId], scores: &mut [i64]) {
        let Some(coupled) = self.class(class).filter(|coupled| !coupled.soft.is_empty()) else { return };
        let domain = |spread: &ClassSpread, node: NodeId| self.keys.row(spread.key).domain(node);
        // Nodes that lack one of the topology keys score nothing.
        let ignored = |node: NodeId| coupled.soft.iter().any(|spread| domain(spread, node) == NONE);
        let counted: Vec<NodeId> = nodes.iter().copied().filter(|node| !ignored(*node)).collect();
        let weights: SmallVec<[f64; 2]> =
            coupled.soft.iter().map(|spread| ((self.sizes_of(spread, &counted) + 2) as f64).ln()).collect();
        let raw = |node: NodeId| -> i64 {
            let parts = coupled.soft.iter().zip(&weights).map(|(spread, size_weight)| {
                let row = self.spreads.row(spread.spread);
                let pods = row.counts.get(domain(spread, node) as usize).copied().unwrap_or(0);
                f64::from(pods) * size_weight + (spread.max_skew - 1) as f64
            });
            parts.sum::<f64>().round() as i64
        };
        let raws: Vec<i64> = counted.iter().map(|node| raw(*node)).collect();
        let (Some(least), Some(most)) = (raws.iter().min().copied(), raws.iter().max().copied()) else { return };
        let mut next = raws.into_iter();
        for (score, node) in scores.iter_mut().zip(nodes) {
            if ignored(*node) {
                continue;
            }
            let raw = next.next().unwrap_or(0);
            let part = if most == 0 { SCORE_MAX } else { SCORE_MAX * (most + least - raw) / most };
            *score = score.saturating_add(weight.saturating_mul(part));
        }
    }

    /// Domains among the candidates.
    fn sizes_of(&self, spread: &ClassSpread, candidates: &[NodeId]) -> usize {
        let column = self.keys.row(spread.key);
        if self.keys.key(spread.key) == "kubernetes.io/hostname" {
            return candidates.len();
        }
        let mut seen = fixedbitset::FixedBitSet::with_capacity(column.span());
        for node in candidates {
            seen.insert(column.domain(*node) as usize);
        }
        seen.count_ones(..)
    }
}
