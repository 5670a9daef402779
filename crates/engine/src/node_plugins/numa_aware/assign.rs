//! Which cpus the kubelet's static policy gives a container: on the NUMA nodes of its hint first; whole sockets, then
//! whole cores, then threads, always beside what is taken already.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{CpuPlace, NumaFacts};

use super::Cpus;

/// Where a group of cpus lies: its socket, and its core where the group is one.
type CpuLocation = (u32, u32);

/// `wanted` of the `free` cpus, as many as can be on the `near` NUMA nodes; `None` where there are too few.
pub(super) fn take(facts: &NumaFacts, free: &Cpus, near: &BTreeSet<u32>, wanted: usize) -> Option<Cpus> {
    let is_near = |cpu: &u32| facts.cpus.get(cpu).is_some_and(|at| near.contains(&at.numa));
    let beside: Cpus = free.iter().copied().filter(is_near).collect();
    let mut taken = packed(facts, &beside, beside.len().min(wanted))?;
    let rest: Cpus = free.difference(&taken).copied().collect();
    taken.extend(packed(facts, &rest, wanted - taken.len())?);
    Some(taken)
}

/// Exactly `wanted` of the `free` cpus, packed.
fn packed(facts: &NumaFacts, free: &Cpus, wanted: usize) -> Option<Cpus> {
    if free.len() < wanted {
        return None;
    }
    let mut left = free.clone();
    let mut taken = Cpus::new();
    for place in [of_socket, of_core] {
        for cpus in whole(facts, &left, &taken, place) {
            if cpus.len() <= wanted - taken.len() {
                left.retain(|cpu| !cpus.contains(cpu));
                taken.extend(cpus);
            }
        }
    }
    let threads = threads(facts, &left, &taken);
    taken.extend(threads.into_iter().take(wanted - taken.len()));
    Some(taken)
}

fn of_socket(at: &CpuPlace) -> CpuLocation {
    (at.socket, 0)
}

fn of_core(at: &CpuPlace) -> CpuLocation {
    (at.socket, at.core)
}

fn grouped<'a>(
    facts: &NumaFacts,
    cpus: impl Iterator<Item = &'a u32>,
    place: fn(&CpuPlace) -> CpuLocation,
) -> BTreeMap<CpuLocation, Vec<u32>> {
    let mut groups: BTreeMap<CpuLocation, Vec<u32>> = BTreeMap::new();
    for (cpu, at) in cpus.filter_map(|cpu| Some((*cpu, facts.cpus.get(cpu)?))) {
        groups.entry(place(at)).or_default().push(cpu);
    }
    groups
}

/// Sockets or cores that are free as a whole, those on sockets that serve the container already first.
fn whole(facts: &NumaFacts, left: &Cpus, taken: &Cpus, place: fn(&CpuPlace) -> CpuLocation) -> Vec<Vec<u32>> {
    let sizes = grouped(facts, facts.cpus.keys(), place);
    let is_whole = |at: &CpuLocation, cpus: &Vec<u32>| sizes.get(at).is_some_and(|all| all.len() == cpus.len());
    let groups = grouped(facts, left.iter(), place).into_iter();
    let mut full: Vec<_> = groups.filter(|(at, cpus)| is_whole(at, cpus)).collect();
    let (ours, idle) = (by_socket(facts, taken), by_socket(facts, left));
    full.sort_by_key(|(at, _)| (Reverse(count(&ours, at.0)), count(&idle, at.0), *at));
    full.into_iter().map(|(_, cpus)| cpus).collect()
}

fn by_socket(facts: &NumaFacts, cpus: &Cpus) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for place in cpus.iter().filter_map(|cpu| facts.cpus.get(cpu)) {
        *counts.entry(place.socket).or_default() += 1;
    }
    counts
}

fn count(counts: &BTreeMap<u32, usize>, socket: u32) -> usize {
    counts.get(&socket).copied().unwrap_or(0)
}

/// Single cpus: on sockets that serve the container already, then where least is free, so that whole cores stay whole.
fn threads(facts: &NumaFacts, left: &Cpus, taken: &Cpus) -> Vec<u32> {
    let (ours, idle) = (by_socket(facts, taken), by_socket(facts, left));
    let cores = grouped(facts, left.iter(), of_core);
    let mut order: Vec<(u32, CpuPlace)> = left.iter().filter_map(|cpu| Some((*cpu, *facts.cpus.get(cpu)?))).collect();
    order.sort_by_key(|(cpu, at)| {
        let of_core = cores.get(&(at.socket, at.core)).map_or(0, Vec::len);
        (Reverse(count(&ours, at.socket)), count(&idle, at.socket), of_core, at.socket, at.core, *cpu)
    });
    order.into_iter().map(|(cpu, _)| cpu).collect()
}
