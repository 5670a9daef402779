//! Hierarchical dominant resource fairness: a tree of queues by path, with jobs as leaves.
//!
//! A child that could still grow counts in its parent as if all such children held only what the poorest of them
//! does, so that a sibling with another dominant resource is not charged for it. Invariant: between calls every
//! node's share and saturation are those of its children. Used by `drf` with `enableHierarchy`.

use std::cmp::Ordering;

use rustc_hash::FxHashMap;

use crate::ids::{DimId, GroupId, QueueId};
use crate::resource_dims::{CPU, MEMORY};
use crate::share::{self, WHOLE, at};

/// Steps of a queue's path that are read; a queue with a longer one counts as one without a path.
const DEPTH_MAX: usize = 32;
/// Weights are kept in thousandths.
const WEIGHT_UNIT: i64 = 1_000;
const WEIGHT_MAX: f64 = 1e12;

#[derive(Debug, Clone)]
struct Branch {
    name: String,
    weight: i64,
    children: Vec<usize>,
    parent: Option<usize>,
    /// Set for leaves: what the job asks for in all.
    request: Option<Vec<i64>>,
    allocated: Vec<i64>,
    share: i64,
    saturated: bool,
}

/// The tree. Branch 0 is the root.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hierarchy {
    branches: Vec<Branch>,
    /// From the root's child down to the queue's own branch.
    paths: FxHashMap<QueueId, Vec<usize>>,
    leaves: FxHashMap<GroupId, usize>,
    total: Vec<i64>,
    /// What all jobs hold.
    usage: Vec<i64>,
}

/// The path and weights that a queue's annotations give: names below the root, each with its weight. Nothing where they
/// don't agree.
pub(crate) fn path(hierarchy: &str, weights: &str) -> Option<Vec<(String, i64)>> {
    let names: Vec<&str> = hierarchy.split('/').collect();
    let weights: Vec<&str> = weights.split('/').collect();
    if names.len() != weights.len() || names.len() > DEPTH_MAX {
        return None;
    }
    let weight = |text: &str| {
        let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite())?;
        Some((number.clamp(1.0, WEIGHT_MAX) * WEIGHT_UNIT as f64) as i64)
    };
    let parts = names.into_iter().zip(weights).skip(1);
    parts.map(|(name, text)| Some((name.to_owned(), weight(text)?))).collect()
}

impl Hierarchy {
    /// A tree without jobs over a cluster that offers `total`.
    pub(crate) fn new(total: &[i64]) -> Self {
        let mut tree = Self { total: total.to_vec(), ..Self::default() };
        tree.branch(None, "root", WEIGHT_UNIT);
        tree
    }

    fn branch(&mut self, parent: Option<usize>, name: &str, weight: i64) -> usize {
        let branch = Branch {
            name: name.to_owned(),
            weight,
            children: Vec::new(),
            parent,
            request: None,
            allocated: Vec::new(),
            share: 0,
            saturated: false,
        };
        self.branches.push(branch);
        let index = self.branches.len() - 1;
        if let Some(parent) = parent {
            self.branches[parent].children.push(index);
        }
        index
    }

    /// Adds a queue. The first one that names a branch gives its weight.
    pub(crate) fn add_queue(&mut self, queue: QueueId, path: &[(String, i64)]) {
        let mut at = 0;
        let mut indices = Vec::with_capacity(path.len());
        for (name, weight) in path {
            let found = self.branches[at].children.iter().copied().find(|child| {
                let branch = &self.branches[*child];
                branch.request.is_none() && branch.name == *name
            });
            at = found.unwrap_or_else(|| self.branch(Some(at), name, *weight));
            indices.push(at);
        }
        self.paths.insert(queue, indices);
    }

    /// Adds a job under its queue. Call `refresh` when all are added.
    pub(crate) fn add_job(&mut self, queue: QueueId, group: GroupId, request: Vec<i64>, allocated: Vec<i64>) {
        let parent = self.paths.get(&queue).and_then(|path| path.last()).copied().unwrap_or(0);
        let leaf = self.branch(Some(parent), "", WEIGHT_UNIT);
        share::add(&mut self.usage, &allocated, 1);
        let branch = &mut self.branches[leaf];
        branch.request = Some(request);
        branch.allocated = allocated;
        self.leaves.insert(group, leaf);
    }

    /// A job's holding changed. O(depth × children), and the whole tree where a resource runs out or is free again.
    pub(crate) fn set_allocated(&mut self, group: GroupId, allocated: Vec<i64>) {
        let Some(leaf) = self.leaves.get(&group).copied() else { return };
        let before = self.exhausted();
        share::add(&mut self.usage, &self.branches[leaf].allocated.clone(), -1);
        share::add(&mut self.usage, &allocated, 1);
        self.branches[leaf].allocated = allocated;
        if self.exhausted() != before {
            return self.refresh();
        }
        let mut next = Some(leaf);
        while let Some(branch) = next {
            self.settle(branch);
            next = self.branches[branch].parent;
        }
    }

    /// Works out the whole tree.
    pub(crate) fn refresh(&mut self) {
        // A child is always younger than its parent.
        for branch in (0..self.branches.len()).rev() {
            self.settle(branch);
        }
    }

    /// Dimensions of which nothing is left.
    fn exhausted(&self) -> Vec<bool> {
        let dims = (0..self.total.len()).map(DimId::from);
        dims.map(|dim| at(&self.usage, dim) >= at(&self.total, dim)).collect()
    }

    fn settle(&mut self, index: usize) {
        if self.branches[index].request.is_some() {
            let saturated = self.is_saturated(&self.branches[index]);
            let share = share::dominant(&self.branches[index].allocated, &self.total);
            let branch = &mut self.branches[index];
            (branch.share, branch.saturated) = (share, saturated);
            return;
        }
        let children = || self.branches[index].children.iter().map(|child| &self.branches[*child]);
        let growing = children().filter(|child| child.share > 0 && !child.saturated);
        let poorest = growing.map(|child| child.share).min().unwrap_or(WHOLE).min(WHOLE);
        let mut allocated = Vec::new();
        for child in children().filter(|child| child.share > 0) {
            if child.saturated {
                share::add(&mut allocated, &child.allocated, 1);
            } else {
                share::add(&mut allocated, &scaled(&child.allocated, poorest, child.share), 1);
            }
        }
        let saturated = children().all(|child| child.saturated);
        let share = share::dominant(&allocated, &self.total);
        let branch = &mut self.branches[index];
        (branch.allocated, branch.share, branch.saturated) = (allocated, share, saturated);
    }

    /// A job that has all it asked for of something, or that asks for something of which nothing is left.
    fn is_saturated(&self, leaf: &Branch) -> bool {
        let Some(request) = &leaf.request else { return false };
        let looked_at = |dim: &DimId| at(&leaf.allocated, *dim) != 0 || *dim == CPU || *dim == MEMORY;
        (0..request.len()).map(DimId::from).filter(looked_at).any(|dim| {
            let (allocated, request) = (at(&leaf.allocated, dim), at(request, dim));
            let exhausted = at(&self.usage, dim) >= at(&self.total, dim);
            request != 0 && (allocated != 0 && allocated >= request || exhausted)
        })
    }

    /// Which queue's turn it is: level by level, those that can grow first, then the smaller share per weight.
    pub(crate) fn order(&self, left: QueueId, right: QueueId) -> Ordering {
        let path = |queue: QueueId| self.paths.get(&queue).map_or(&[][..], Vec::as_slice);
        let levels = path(left).iter().zip(path(right)).filter(|(left, right)| left != right);
        let decided = levels.map(|(left, right)| {
            let (left, right) = (&self.branches[*left], &self.branches[*right]);
            let per_weight = |one: &Branch, other: &Branch| i128::from(one.share) * i128::from(other.weight);
            let shares = per_weight(left, right).cmp(&per_weight(right, left));
            left.saturated.cmp(&right.saturated).then(shares)
        });
        decided.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// What a job holds, as the tree knows it.
    pub(crate) fn allocated(&self, group: GroupId) -> Option<&[i64]> {
        self.leaves.get(&group).map(|leaf| self.branches[*leaf].allocated.as_slice())
    }
}

fn scaled(amounts: &[i64], part: i64, whole: i64) -> Vec<i64> {
    let scale = |amount: &i64| i128::from(*amount) * i128::from(part) / i128::from(whole.max(1));
    amounts.iter().map(|amount| i64::try_from(scale(amount)).unwrap_or(i64::MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: i64 = 1_000_000_000;

    /// Jobs as (queue, request of one pod, pods); gives how many pods of each run when the cluster is full.
    fn filled(total: &[i64], queues: &[(&str, &str)], jobs: &[(usize, [i64; 2], usize)]) -> Vec<usize> {
        let mut tree = Hierarchy::new(total);
        for (index, (hierarchy, weights)) in queues.iter().enumerate() {
            tree.add_queue(QueueId::from(index), &path(hierarchy, weights).unwrap());
        }
        let times = |pod: &[i64; 2], count: usize| pod.iter().map(|amount| amount * count as i64).collect::<Vec<_>>();
        for (job, (queue, pod, pods)) in jobs.iter().enumerate() {
            tree.add_job(QueueId::from(*queue), GroupId::from(job), times(pod, *pods), Vec::new());
        }
        tree.refresh();
        let mut running = vec![0; jobs.len()];
        loop {
            let fits = |job: &usize| {
                let (_, pod, pods) = &jobs[*job];
                let free = |dim: usize| at(&tree.usage, DimId::from(dim)) + pod[dim] <= total[dim];
                running[*job] < *pods && free(0) && free(1)
            };
            let mut open: Vec<usize> = (0..jobs.len()).filter(fits).collect();
            open.sort_by(|left, right| {
                let queue = |job: usize| QueueId::from(jobs[job].0);
                let share = |job: usize| share::dominant(tree.allocated(GroupId::from(job)).unwrap(), total);
                tree.order(queue(*left), queue(*right)).then(share(*left).cmp(&share(*right)))
            });
            let Some(next) = open.first() else { return running };
            running[*next] += 1;
            let mut copy = times(&jobs[*next].1, running[*next]);
            copy.truncate(2);
            tree.set_allocated(GroupId::from(*next), copy);
        }
    }

    /// The numbers that Volcano's own test intends and never compares.
    #[test]
    fn engineering_and_science() {
        let running = filled(
            &[10_000, 10 * GB],
            &[("root/sci", "100/50"), ("root/eng/dev", "100/50/50"), ("root/eng/prod", "100/50/50")],
            &[(0, [1_000, GB], 10), (1, [1_000, 0], 10), (2, [0, GB], 10)],
        );
        assert_eq!(running, [5, 5, 5]);
    }

    #[test]
    fn blocked_siblings_are_not_charged() {
        let running = filled(
            &[30_000, 30 * GB],
            &[("root/pg1", "100/25"), ("root/pg2", "100/25"), ("root/pg3/pg31", "100/25/50"), ("root/pg4", "100/25")],
            &[(0, [1_000, 0], 30), (1, [1_000, 0], 30), (2, [1_000, 0], 30), (2, [0, GB], 30), (3, [0, GB], 30)],
        );
        assert_eq!(running, [10, 10, 10, 15, 15]);
    }

    #[test]
    fn weights_are_proportions() {
        let running = filled(
            &[12_000, 12 * GB],
            &[("root/a", "1/2"), ("root/b", "1/1")],
            &[(0, [1_000, GB], 20), (1, [1_000, GB], 20)],
        );
        assert_eq!(running, [8, 4]);
    }

    #[test]
    fn paths_and_weights_must_agree() {
        for (hierarchy, weights, names) in [
            ("root/a/b", "100/50/25", Some(vec![("a", 50_000), ("b", 25_000)])),
            ("root/a", "1/0.5", Some(vec![("a", 1_000)])),
            ("root", "1", Some(vec![])),
            ("root/a", "1", None),
            ("root/a", "1/x", None),
            ("root/a", "1/NaN", None),
        ] {
            let names = names.map(|names| names.into_iter().map(|(name, weight)| (name.to_owned(), weight)).collect());
            assert_eq!(path(hierarchy, weights), names, "{hierarchy} {weights}");
        }
    }
}
