//! The same world kept by plain arithmetic: what is free, what is allowed, and by trying everything what could start.
//! Shares nothing with the engine but the facts.

use std::collections::BTreeMap;

use super::scene::{Amounts, PodPlan, Scene};
use crate::facts::PodUid;

#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) group: usize,
    pub(super) plan: PodPlan,
    pub(super) serial: u32,
    /// Its node, from the bind until it has ended.
    pub(super) node: Option<usize>,
    pub(super) ended: bool,
    /// It was told to leave, and goes after so many cycles.
    pub(super) leaves_in: Option<usize>,
}

#[derive(Clone)]
pub(super) struct Naive {
    pub(super) scene: Scene,
    pub(super) pods: BTreeMap<PodUid, Pod>,
    /// Limits are those of the queues above, too.
    hierarchical: bool,
}

/// Short, so that a failing world fits a screen.
impl std::fmt::Debug for Naive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for pod in self.pods.values() {
            let Pod { group, plan, serial, node, ended, leaves_in } = pod;
            writeln!(f, "g{group}-{serial} {:?} on {node:?} ended {ended} leaves {leaves_in:?}", plan.amounts)?;
        }
        Ok(())
    }
}

/// What is free: on nodes, with `pods` last, and of queues' limits.
#[derive(Debug, Clone)]
struct Free {
    nodes: Vec<[i64; 4]>,
    queues: Vec<[i64; 3]>,
}

fn with_pod(amounts: &Amounts) -> [i64; 4] {
    [amounts[0], amounts[1], amounts[2], 1]
}

impl Naive {
    pub(super) fn new(scene: &Scene, hierarchical: bool) -> Self {
        Self { scene: scene.clone(), pods: BTreeMap::new(), hierarchical }
    }

    /// The queue and, in a tree, those above it.
    fn line(&self, queue: usize) -> Vec<usize> {
        let mut line = vec![queue];
        while let Some(above) = self.scene.queues[line[line.len() - 1]].parent
            && self.hierarchical
        {
            line.push(above);
        }
        line
    }

    /// `shares`: what queues may hold at most in this moment.
    fn free(&self, shares: Option<&[Amounts]>) -> Free {
        let mut free = Free {
            nodes: self
                .scene
                .nodes
                .iter()
                .map(|node| [&node.amounts[..], &[node.pods]].concat())
                .map(|all| std::array::from_fn(|index| all[index]))
                .collect(),
            queues: self
                .scene
                .queues
                .iter()
                .map(|queue| queue.capability.map(|limit| limit.unwrap_or(i64::MAX / 4)))
                .collect(),
        };
        for (queue, share) in shares.into_iter().flatten().enumerate() {
            for (cell, share) in free.queues[queue].iter_mut().zip(share) {
                *cell = (*cell).min(*share);
            }
        }
        for pod in self.pods.values() {
            if let Some(node) = pod.node {
                self.take(&mut free, pod.group, &pod.plan, node, 1);
            }
        }
        free
    }

    fn take(&self, free: &mut Free, group: usize, plan: &PodPlan, node: usize, sign: i64) {
        for (cell, amount) in free.nodes[node].iter_mut().zip(with_pod(&plan.amounts)) {
            *cell -= sign * amount;
        }
        for queue in self.line(self.scene.groups[group].queue) {
            for (cell, amount) in free.queues[queue].iter_mut().zip(plan.amounts) {
                *cell -= sign * amount;
            }
        }
    }

    /// Whether labels and taints allow it.
    pub(super) fn suits(&self, plan: &PodPlan, node: usize) -> bool {
        let node = &self.scene.nodes[node];
        (!plan.selects || node.ssd) && (!node.tainted || plan.tolerates)
    }

    fn fits(&self, free: &Free, group: usize, plan: &PodPlan, node: usize) -> bool {
        let wanted = with_pod(&plan.amounts);
        let room = free.nodes[node].iter().zip(wanted).all(|(free, wanted)| wanted == 0 || wanted <= *free);
        let allowed = |queue: usize| {
            free.queues[queue].iter().zip(plan.amounts).all(|(free, wanted)| wanted == 0 || wanted <= *free)
        };
        room && self.suits(plan, node) && self.line(self.scene.groups[group].queue).into_iter().all(allowed)
    }

    pub(super) fn of_group(&self, group: usize) -> impl Iterator<Item = &Pod> {
        self.pods.values().filter(move |pod| pod.group == group)
    }

    /// Pods that are placed for good or have ended; those that leave don't count.
    pub(super) fn occupied(&self, group: usize) -> u32 {
        let counts = |pod: &&Pod| pod.leaves_in.is_none() && (pod.node.is_some() || pod.ended);
        self.of_group(group).filter(counts).count() as u32
    }

    pub(super) fn waiting(&self, group: usize) -> Vec<&Pod> {
        self.of_group(group).filter(|pod| pod.node.is_none() && !pod.ended).collect()
    }

    /// Is there any way to give the group what it lacks now: its minimum, or one pod more?
    pub(super) fn could_go_on(&self, group: usize, shares: Option<&[Amounts]>) -> bool {
        self.has_way(group, &mut self.free(shares))
    }

    /// The same, if nothing at all ran.
    pub(super) fn fits_empty(&self, group: usize) -> bool {
        let mut empty = self.clone();
        empty.pods.retain(|_, pod| pod.group == group);
        empty.pods.values_mut().for_each(|pod| pod.node = None);
        empty.could_go_on(group, None)
    }

    fn has_way(&self, group: usize, free: &mut Free) -> bool {
        let lacks = self.scene.groups[group].min.saturating_sub(self.occupied(group)).max(1);
        let waiting = self.waiting(group);
        self.place(group, free, &waiting, lacks as usize)
    }

    fn place(&self, group: usize, free: &mut Free, waiting: &[&Pod], lacks: usize) -> bool {
        if lacks == 0 {
            return true;
        }
        let Some((pod, others)) = waiting.split_first() else { return false };
        for node in 0..self.scene.nodes.len() {
            if self.fits(free, group, &pod.plan, node) {
                self.take(free, group, &pod.plan, node, 1);
                let found = self.place(group, free, others, lacks - 1);
                self.take(free, group, &pod.plan, node, -1);
                if found {
                    return true;
                }
            }
        }
        others.len() >= lacks && self.place(group, free, others, lacks)
    }

    /// Everything that is over: nodes, and queues.
    pub(super) fn over(&self) -> Vec<String> {
        let free = self.free(None);
        let nodes = free.nodes.iter().enumerate().filter(|(_, free)| free.iter().any(|free| *free < 0));
        let queues = free.queues.iter().enumerate().filter(|(_, free)| free.iter().any(|free| *free < 0));
        nodes
            .map(|(node, free)| format!("n{node} {free:?}"))
            .chain(queues.map(|(queue, free)| format!("q{queue} {free:?}")))
            .collect()
    }

    /// May a pod run there from the start, within all limits?
    pub(super) fn may_run(&self, group: usize, plan: &PodPlan, node: usize) -> bool {
        node < self.scene.nodes.len() && self.fits(&self.free(None), group, plan, node)
    }
}
