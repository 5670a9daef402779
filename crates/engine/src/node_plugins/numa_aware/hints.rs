//! The kubelet's topology manager, for cpus alone: which sets of NUMA nodes could hold a container, which of them is
//! best, and whether a policy admits the container at all.

use std::collections::BTreeSet;

use crate::facts::NumaFacts;

use super::Cpus;

/// NUMA nodes of one machine; the kubelet takes no more either, for it tries all sets of them.
const NUMA_NODES_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    BestEffort,
    Restricted,
    SingleNumaNode,
}

/// A set of NUMA nodes, by their place in the sorted list of all, and whether no smaller set could do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hint {
    set: u32,
    preferred: bool,
}

impl Policy {
    /// `None` for `none` and what nobody knows.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "best-effort" => Some(Self::BestEffort),
            "restricted" => Some(Self::Restricted),
            "single-numa-node" => Some(Self::SingleNumaNode),
            _ => None,
        }
    }

    /// The NUMA nodes on which the container's cpus should lie (all of them where it matters not), or `None` where the
    /// policy refuses the container.
    pub(super) fn admit(self, facts: &NumaFacts, free: &Cpus, wanted: usize) -> Option<BTreeSet<u32>> {
        let all: BTreeSet<u32> = facts.cpus.values().map(|place| place.numa).collect();
        if wanted == 0 {
            return Some(all);
        }
        if all.len() > NUMA_NODES_MAX {
            return None;
        }
        let numas: Vec<u32> = all.into_iter().collect();
        let everything = Hint { set: (1_u32 << numas.len()) - 1, preferred: false };
        let best = hints(facts, free, &numas, wanted)
            .into_iter()
            .filter(|hint| self != Self::SingleNumaNode || (hint.set.count_ones() == 1 && hint.preferred))
            .fold(everything, better);
        if self != Self::BestEffort && !best.preferred {
            return None;
        }
        Some(numas.iter().enumerate().filter(|(at, _)| best.set & (1 << at) != 0).map(|(_, numa)| *numa).collect())
    }
}

/// Preferred ones first, then the narrower, then the one with the lower NUMA nodes.
fn better(best: Hint, next: Hint) -> Hint {
    let narrower = (next.set.count_ones(), next.set) < (best.set.count_ones(), best.set);
    match (best.preferred, next.preferred) {
        (false, true) => next,
        (true, false) => best,
        _ if narrower => next,
        _ => best,
    }
}

/// Sets with enough free cpus. Preferred are those no larger than the smallest set that would do were all cpus free.
fn hints(facts: &NumaFacts, free: &Cpus, numas: &[u32], wanted: usize) -> Vec<Hint> {
    let count = |only_free: bool| -> Vec<usize> {
        let on = |numa: &u32| {
            let cpus = facts.cpus.iter().filter(|(_, place)| place.numa == *numa);
            cpus.filter(|(cpu, _)| !only_free || free.contains(cpu)).count()
        };
        numas.iter().map(on).collect()
    };
    let (total, idle) = (count(false), count(true));
    let sum = |set: u32, counts: &[usize]| -> usize {
        counts.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0).map(|(_, count)| count).sum()
    };
    let sets = || 1..(1_u32 << numas.len());
    let smallest = sets().filter(|set| sum(*set, &total) >= wanted).map(u32::count_ones).min();
    let enough = sets().filter(|set| sum(*set, &idle) >= wanted);
    enough.map(|set| Hint { set, preferred: Some(set.count_ones()) == smallest }).collect()
}
