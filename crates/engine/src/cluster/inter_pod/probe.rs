//! May this pod join that node, as far as other pods are concerned? Resolved once for a pod, asked for every node.
//!
//! Exactly Kubernetes' InterPodAffinity and PodTopologySpread filters, in their order. O(terms) a node.

use smallvec::SmallVec;

use super::classes::{ClassSpread, OwnPod};
use super::domains::NONE;
use super::{InterPod, Profile};
use crate::ids::{ClassId, NodeId};
use crate::reasons::Check;

/// Room that is free now, or room that will be when those on their way out are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Those that leave are still there, and those that wait for room count already.
    Now,
    /// Only what stays and comes counts.
    Later,
}

/// Which rules are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) affinity: bool,
    pub(crate) spread: bool,
}

/// Domains and counts of one term; `key` is the topology key.
#[derive(Debug, Clone, Copy)]
struct Counted<'a> {
    key: u32,
    domain_of: &'a [u32],
    counts: &'a [u32],
}

impl Counted<'_> {
    fn domain(&self, node: NodeId) -> u32 {
        self.domain_of.get(node.index()).copied().unwrap_or(NONE)
    }

    fn count(&self, node: NodeId) -> u32 {
        self.counts.get(self.domain(node) as usize).copied().unwrap_or(0)
    }
}

/// What one pod asks of other pods, resolved once and asked for every node.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    affinity: SmallVec<[Counted<'a>; 2]>,
    /// Nobody is there yet that the affinity asks for, and the pod itself would be such a one: the first of a series.
    first: bool,
    anti: SmallVec<[Counted<'a>; 2]>,
    others: SmallVec<[Counted<'a>; 2]>,
    spread: SmallVec<[CountedSpread<'a>; 2]>,
}

#[derive(Debug, Clone, Copy)]
struct CountedSpread<'a> {
    counted: Counted<'a>,
    /// The greatest count that may be there already.
    most: i64,
}

impl CountedSpread<'_> {
    /// The node's domain has as many of the pods as it may have. One without the label is in none.
    fn is_over(&self, node: NodeId) -> bool {
        self.counted.domain(node) != NONE && i64::from(self.counted.count(node)) > self.most
    }
}

impl InterPod {
    /// Whether other pods matter to where this one may go.
    pub(crate) fn restricts(&self, profile: Profile, class: ClassId, rules: Rules) -> bool {
        let own = self.class(class).is_some_and(|coupled| {
            rules.affinity && (coupled.affinity.is_some() || !coupled.anti.is_empty())
                || rules.spread && !coupled.hard.is_empty()
        });
        own || rules.affinity
            && self.matched_terms(profile).any(|term| {
                let owners = &self.terms.row(term).owners;
                owners.present_total > 0 || owners.future_total > 0
            })
    }

    /// Whether other pods matter to which node is best for this one.
    pub(crate) fn prefers(&self, profile: Profile, class: ClassId) -> bool {
        let own = self.class(class).is_some_and(|coupled| !coupled.preferred.is_empty() || !coupled.soft.is_empty());
        own || self.matched_terms(profile).any(|term| self.terms.row(term).pulling > 0)
    }

    /// Terms whose selection the pod belongs to.
    pub(super) fn matched_terms(&self, profile: Profile) -> impl Iterator<Item = u32> + '_ {
        let matched = profile.map(|profile| self.profiles.row(profile).matched.as_slice()).unwrap_or_default();
        matched.iter().flat_map(|selection| self.selections.row(*selection).terms.iter().copied())
    }

    pub(super) fn belongs(&self, profile: Profile, selection: u32) -> bool {
        profile.is_some_and(|profile| self.profiles.row(profile).matched.contains(&selection))
    }

    /// Whether the pod counts for a spread of its own class.
    fn counts_itself(&self, profile: Profile, spread: &ClassSpread) -> bool {
        spread.own == OwnPod::Always || self.belongs(profile, spread.selection)
    }

    /// The checks of a pod, resolved. O(terms that it names or matches).
    pub(crate) fn probe(&self, profile: Profile, class: ClassId, when: When, rules: Rules) -> Probe<'_> {
        let mut probe = Probe {
            affinity: SmallVec::new(),
            first: false,
            anti: SmallVec::new(),
            others: SmallVec::new(),
            spread: SmallVec::new(),
        };
        let coupled = self.class(class);
        if let Some(coupled) = coupled
            && rules.affinity
        {
            if let Some((selection, terms)) = &coupled.affinity {
                probe.affinity = terms.iter().map(|term| self.matching(*term, when)).collect();
                let nobody = |term: &u32| {
                    let tally = &self.terms.row(*term).matching;
                    (if when == When::Now { tally.present_total } else { tally.future_total }) == 0
                };
                probe.first = terms.iter().all(nobody) && self.belongs(profile, *selection);
            }
            for term in &coupled.anti {
                self.against(*term, when, false, &mut probe.anti);
            }
        }
        if let Some(coupled) = coupled
            && rules.spread
        {
            probe.spread = coupled.hard.iter().map(|spread| self.spread(profile, spread)).collect();
        }
        if rules.affinity {
            for term in self.matched_terms(profile) {
                self.against(term, when, true, &mut probe.others);
            }
        }
        probe
    }

    fn matching(&self, term: u32, when: When) -> Counted<'_> {
        let tally = &self.terms.row(term).matching;
        let key = self.terms.key(term).1;
        let counts = if when == When::Now { &tally.present } else { &tally.future };
        Counted { key, domain_of: &self.keys.row(key).domain_of, counts }
    }

    /// Adds the counts that must be zero: now also those of pods that wait for their room.
    fn against<'a>(&'a self, term: u32, when: When, owners: bool, all: &mut SmallVec<[Counted<'a>; 2]>) {
        let row = self.terms.row(term);
        let tally = if owners { &row.owners } else { &row.matching };
        let key = self.terms.key(term).1;
        let domain_of = &self.keys.row(key).domain_of;
        if when == When::Now && tally.present_total > 0 {
            all.push(Counted { key, domain_of, counts: &tally.present });
        }
        if (when == When::Later || self.coming > 0) && tally.future_total > 0 {
            all.push(Counted { key, domain_of, counts: &tally.future });
        }
    }

    fn spread(&self, profile: Profile, spread: &ClassSpread) -> CountedSpread<'_> {
        let row = self.spreads.row(spread.spread);
        let least = if row.levels.domains < spread.min_domains { 0 } else { i64::from(row.levels.least()) };
        let own = self.counts_itself(profile, spread);
        let counted = Counted { key: spread.key, domain_of: &self.keys.row(spread.key).domain_of, counts: &row.counts };
        CountedSpread { counted, most: spread.max_skew + least - i64::from(own) }
    }

    /// All rules that keep the pod off `node`, each with the topology key that it is about.
    pub(crate) fn failed(&self, probe: &Probe<'_>, node: NodeId) -> Vec<(Check, String)> {
        const CHECKS: [Check; 5] =
            [Check::PodAffinity, Check::PodAntiAffinity, Check::OtherAntiAffinity, Check::SpreadLabel, Check::Spread];
        let fails = |check: &Check| probe.fails(*check, node);
        CHECKS
            .into_iter()
            .filter(fails)
            .map(|check| (check, self.topology_key(probe, check, node).to_owned()))
            .collect()
    }

    /// The topology key that a failed check is about.
    pub(crate) fn topology_key(&self, probe: &Probe<'_>, check: Check, node: NodeId) -> &str {
        let failed = match check {
            Check::PodAffinity => probe.affinity.iter().find(|term| term.count(node) == 0),
            Check::PodAntiAffinity => probe.anti.iter().find(|term| term.count(node) > 0),
            Check::OtherAntiAffinity => probe.others.iter().find(|term| term.count(node) > 0),
            Check::SpreadLabel => {
                probe.spread.iter().map(|spread| &spread.counted).find(|term| term.domain(node) == NONE)
            }
            Check::Spread => probe.spread.iter().find(|spread| spread.is_over(node)).map(|spread| &spread.counted),
            _ => None,
        };
        failed.map_or("", |term| self.keys.key(term.key))
    }
}

impl Probe<'_> {
    /// The first rule that keeps the pod off `node`.
    pub(crate) fn check(&self, node: NodeId) -> Option<Check> {
        let first = [Check::PodAffinity, Check::PodAntiAffinity, Check::OtherAntiAffinity];
        first.into_iter().find(|check| self.fails(*check, node)).or_else(|| {
            self.spread.iter().find_map(|spread| {
                if spread.counted.domain(node) == NONE {
                    return Some(Check::SpreadLabel);
                }
                spread.is_over(node).then_some(Check::Spread)
            })
        })
    }

    fn fails(&self, check: Check, node: NodeId) -> bool {
        match check {
            Check::PodAffinity => {
                let satisfied = self.affinity.iter().all(|term| term.count(node) > 0);
                let excused = self.first && self.affinity.iter().all(|term| term.domain(node) != NONE);
                !satisfied && !excused
            }
            Check::PodAntiAffinity => self.anti.iter().any(|term| term.count(node) > 0),
            Check::OtherAntiAffinity => self.others.iter().any(|term| term.count(node) > 0),
            Check::SpreadLabel => self.spread.iter().any(|spread| spread.counted.domain(node) == NONE),
            Check::Spread => self.spread.iter().any(|spread| spread.is_over(node)),
            _ => false,
        }
    }
}
