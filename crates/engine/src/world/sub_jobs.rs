//! Sub-jobs: the parts of a group that its `subGroupPolicy` makes by the labels of its pods. Each starts as one and may
//! have to lie together in the network.
//!
//! Invariant: a group without policies has no rows here and is its own only part; otherwise row 0 is the part of the
//! pods that no policy takes, and the counts of all rows sum up to the group's. Only `Tables` changes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cluster::hypernodes::{HyperNodes, labels_match};
use crate::facts::{PodFacts, SubGroupPolicy, TopologySpec};
use crate::ids::{GroupId, NodeId, TaskId};
use crate::world::groups::{Counts, GroupRow};
use crate::world::tables::Tables;
use crate::world::tasks::Counting;
use crate::world::tasks::TaskState;

/// Sub-jobs told apart in one group; pods of further ones count for the part without a policy.
const SUB_JOBS_MAX: usize = 4096;
/// Tells on a PodGroup where its pods lie; spelled as Volcano does.
pub(crate) const JOB_HYPER_NODE: &str = "volcano.sh/job-allocated-hypernode";
/// The part of the pods that no policy takes.
pub(crate) const REST: u32 = 0;

/// One part of a group.
#[derive(Debug)]
pub(crate) struct SubJobRow {
    /// `policy/value/value`; empty for the part without a policy.
    pub(crate) name: Arc<str>,
    /// Its place in the group's policies.
    pub(crate) policy: Option<usize>,
    /// The number that its first label is, to order by.
    pub(crate) index: Option<i64>,
    pub(crate) counts: Counts,
    /// Pending ones that ask for nothing.
    pub(crate) pending_best_effort: u32,
}

impl SubJobRow {
    fn new(name: Arc<str>, policy: Option<usize>, index: Option<i64>) -> Self {
        Self { name, policy, index, counts: Counts::default(), pending_best_effort: 0 }
    }
}

/// The parts of one group. Most have none.
#[derive(Debug, Default)]
pub(crate) struct SubJobs {
    made: Option<Box<Made>>,
}

#[derive(Debug, Default)]
struct Made {
    rows: Vec<SubJobRow>,
    by_name: FxHashMap<Arc<str>, u32>,
}

impl SubJobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows().is_empty()
    }

    pub(crate) fn rows(&self) -> &[SubJobRow] {
        self.made.as_ref().map_or(&[], |made| &made.rows)
    }

    pub(crate) fn row(&self, sub_job: u32) -> &SubJobRow {
        &self.rows()[sub_job as usize]
    }

    /// Starts over; the caller assigns all tasks anew.
    pub(crate) fn reset(&mut self, policies: &[SubGroupPolicy]) {
        self.made = if policies.is_empty() {
            None
        } else {
            Some(Box::new(Made { rows: vec![SubJobRow::new("".into(), None, None)], by_name: FxHashMap::default() }))
        };
    }

    /// The part that a pod with these labels belongs to: the first policy that selects it and all of whose keys it has.
    pub(crate) fn assign(&mut self, policies: &[SubGroupPolicy], labels: &BTreeMap<String, String>) -> u32 {
        let Some(Made { rows, by_name }) = self.made.as_deref_mut() else { return REST };
        let taken = policies.iter().enumerate().find_map(|(at, policy)| Some((at, values(policy, labels)?)));
        let Some((policy, values)) = taken else { return REST };
        // Label values hold no slash, so that no two lists of values make one name.
        let name = format!("{}/{}", policies[policy].name, values.join("/"));
        if let Some(known) = by_name.get(name.as_str()) {
            return *known;
        }
        if rows.len() >= SUB_JOBS_MAX {
            return REST;
        }
        let name: Arc<str> = name.into();
        let id = u32::try_from(rows.len()).expect("fewer than the limit");
        rows.push(SubJobRow::new(name.clone(), Some(policy), values.first().and_then(|value| value.parse().ok())));
        by_name.insert(name, id);
        id
    }

    pub(crate) fn count(&mut self, sub_job: u32, state: TaskState, best_effort: bool, sign: i32) {
        let Some(row) = self.made.as_deref_mut().and_then(|made| made.rows.get_mut(sub_job as usize)) else { return };
        row.counts.add(state, sign);
        if best_effort && state == TaskState::Pending {
            row.pending_best_effort =
                row.pending_best_effort.checked_add_signed(sign).expect("counts follow the tasks' states");
        }
    }
}

/// The values of the policy's keys, where the policy takes the pod.
fn values<'a>(policy: &SubGroupPolicy, labels: &'a BTreeMap<String, String>) -> Option<Vec<&'a str>> {
    if policy.match_label_keys.is_empty() || !labels_match(&policy.selector, labels) {
        return None;
    }
    let value = |key: &String| labels.get(key).map(String::as_str).filter(|value| !value.is_empty());
    policy.match_label_keys.iter().map(value).collect()
}

/// How far apart pods may lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    Free,
    /// Inside one HyperNode of at most this tier.
    Tier(u32),
    /// The tier is given by a name that no HyperNode has: nowhere, until one has.
    UnknownTier(String),
}

/// What a spec comes to. Soft is hard up to `soft_tier`: as close as can be, and anywhere at worst.
fn reach(spec: Option<&TopologySpec>, hyper: &HyperNodes, soft_tier: u32) -> Reach {
    let Some(spec) = spec else { return Reach::Free };
    if !spec.hard {
        return Reach::Tier(soft_tier);
    }
    match (spec.highest_tier, spec.highest_tier_name.as_deref().filter(|name| !name.is_empty())) {
        (Some(tier), _) => Reach::Tier(tier),
        (None, Some(name)) => hyper.tier_named(name).map_or_else(|| Reach::UnknownTier(name.to_owned()), Reach::Tier),
        (None, None) => Reach::Free,
    }
}

impl GroupRow {
    /// How far apart all of the group's pods may lie.
    pub(crate) fn reach(&self, hyper: &HyperNodes) -> Reach {
        reach(self.topology.as_deref(), hyper, hyper.root_tier())
    }

    /// How far apart the pods of one part may lie. The part without a policy has what the group has.
    pub(crate) fn reach_of(&self, sub_job: u32, hyper: &HyperNodes) -> Reach {
        let policy = self.sub_jobs.rows().get(sub_job as usize).and_then(|row| row.policy);
        let Some(policy) = policy else { return self.reach(hyper) };
        let soft_tier = match self.reach(hyper) {
            Reach::Tier(tier) => tier,
            _ => hyper.root_tier(),
        };
        reach(self.sub_groups[policy].topology.as_ref(), hyper, soft_tier)
    }

    /// Placing its pods has to look at the network, or at its parts.
    pub(crate) fn wants_domains(&self, hyper: &HyperNodes) -> bool {
        !self.sub_jobs.is_empty() || self.reach(hyper) != Reach::Free
    }

    /// Pods of a part that start together.
    pub(crate) fn min_of(&self, sub_job: u32) -> u32 {
        match self.sub_jobs.rows().get(sub_job as usize) {
            None => self.min_member,
            Some(row) => row.policy.and_then(|policy| self.sub_groups[policy].size).unwrap_or(1),
        }
    }

    /// Has this part what it needs to start? `pipelined` counts pods that wait for room being freed.
    pub(crate) fn part_ready(&self, sub_job: u32, counting: Counting, pipelined: bool) -> bool {
        let row = self.sub_jobs.row(sub_job);
        let extra = if counting == Counting::WithBestEffort { row.pending_best_effort } else { 0 };
        let waiting = if pipelined { row.counts.pipelined() } else { 0 };
        row.counts.ready() + extra + waiting >= self.min_of(sub_job)
    }

    /// The first policy with fewer ready parts than `minSubGroups`, with how many it has.
    pub(crate) fn short_policy(&self, counting: Counting, pipelined: bool) -> Option<(&SubGroupPolicy, u32)> {
        let ready = |sub_job: u32| self.part_ready(sub_job, counting, pipelined);
        self.short_by(|sub_job, _| ready(sub_job))
    }

    /// Parts that policies need and that are not ready.
    pub(crate) fn short_parts(&self) -> usize {
        let of_policy = |(at, policy): (usize, &SubGroupPolicy)| {
            let rows = (0_u32..).zip(self.sub_jobs.rows()).filter(|(_, row)| row.policy == Some(at));
            let ready = rows.filter(|(id, _)| self.part_ready(*id, Counting::WithBestEffort, true)).count();
            (policy.min_sub_groups.unwrap_or(0) as usize).saturating_sub(ready)
        };
        self.sub_groups.iter().enumerate().map(of_policy).sum()
    }

    /// The first policy with fewer parts than `minSubGroups`, whatever their state, with how many it has.
    pub(crate) fn missing_parts(&self) -> Option<(&SubGroupPolicy, u32)> {
        self.short_by(|_, row| row.counts.all() > 0)
    }

    fn short_by(&self, counts: impl Fn(u32, &SubJobRow) -> bool) -> Option<(&SubGroupPolicy, u32)> {
        let needed = self.sub_groups.iter().enumerate().filter(|(_, policy)| policy.min_sub_groups.unwrap_or(0) > 0);
        let of_policy = |at: usize| {
            let rows = (0_u32..).zip(self.sub_jobs.rows()).filter(|(_, row)| row.policy == Some(at));
            u32::try_from(rows.filter(|(id, row)| counts(*id, row)).count()).unwrap_or(u32::MAX)
        };
        needed
            .map(|(at, policy)| (policy, of_policy(at)))
            .find(|(policy, count)| *count < policy.min_sub_groups.unwrap_or(0))
    }
}

impl Tables {
    /// The nodes that the group's pods, or those of one part of it, have.
    pub(crate) fn nodes_of(&self, group: GroupId, sub_job: Option<u32>) -> impl Iterator<Item = NodeId> + '_ {
        let tasks = self.groups.row(group).tasks.iter().map(|task| self.task(*task));
        let counts = move |part: u32| sub_job.is_none_or(|sub_job| sub_job == part);
        tasks.filter(move |task| task.state.is_allocated() && counts(task.sub_job)).filter_map(|task| task.node)
    }

    /// What the group's PodGroup is to say of where its pods lie: a HyperNode's name, empty where it has none placed.
    /// None where nobody asks: it has no topology, or there are no HyperNodes. O(its tasks).
    pub(crate) fn lies_in(&self, group: GroupId) -> Option<Arc<str>> {
        if !self.hyper_nodes.any() || !self.groups.row(group).wants_domains(&self.hyper_nodes) {
            return None;
        }
        let hyper = self.hyper_nodes.lowest_with(self.nodes_of(group, None));
        Some(hyper.map_or_else(Arc::default, |hyper| self.hyper_nodes.row(hyper).name.clone()))
    }

    /// The part of the group that a pod belongs to, and its labels where that may have to be worked out again.
    pub(crate) fn part_of(&mut self, group: GroupId, facts: &PodFacts) -> (u32, Option<Arc<BTreeMap<String, String>>>) {
        let row = self.groups.row_mut(group);
        let part = row.sub_jobs.assign(&row.sub_groups, &facts.labels);
        let undecided = (!row.known && !row.of_one) || !row.sub_groups.is_empty();
        (part, undecided.then(|| Arc::new(facts.labels.clone())))
    }

    /// Works out the group's parts anew: its policies changed.
    pub(crate) fn make_parts(&mut self, group: GroupId) {
        let row = self.groups.table.row_mut(group.index());
        row.sub_jobs.reset(&row.sub_groups);
        let tasks: Vec<TaskId> = row.tasks.iter().copied().collect();
        for task in tasks {
            let row = self.groups.table.row_mut(group.index());
            let task = self.tasks.row_mut(task.index());
            let labels = task.part_labels.clone().unwrap_or_default();
            task.sub_job = row.sub_jobs.assign(&row.sub_groups, &labels);
            row.sub_jobs.count(task.sub_job, task.state, task.best_effort, 1);
            if row.sub_groups.is_empty() {
                task.part_labels = None;
            }
        }
    }
}

crate::save::saved! {
    SubJobRow { name, policy, index, counts, pending_best_effort };
    SubJobs { made };
    Made { rows, by_name };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Operator, Requirement};

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn policy(name: &str, keys: &[&str], selector: &[(&str, &str)]) -> SubGroupPolicy {
        let requirement = |(key, value): &(&str, &str)| Requirement {
            key: (*key).to_owned(),
            operator: Operator::In,
            values: vec![(*value).to_owned()],
        };
        SubGroupPolicy {
            name: name.to_owned(),
            match_label_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            selector: selector.iter().map(requirement).collect(),
            ..SubGroupPolicy::default()
        }
    }

    #[test]
    fn pods_fall_into_parts_by_the_first_policy_that_takes_them() {
        let policies = [
            policy("none", &[], &[]),
            policy("workers", &["part"], &[("task", "worker")]),
            policy("all", &["task", "zone"], &[]),
        ];
        let mut sub_jobs = SubJobs::default();
        assert_eq!(sub_jobs.assign(&policies, &labels(&[("task", "worker")])), REST, "no policies counted yet");
        sub_jobs.reset(&policies);
        type Case<'a> = (&'a [(&'a str, &'a str)], u32, &'a str);
        let cases: [Case<'_>; 6] = [
            (&[("task", "worker"), ("part", "7")], 1, "workers/7"),
            (&[("task", "worker"), ("part", "8")], 2, "workers/8"),
            (&[("task", "worker"), ("part", ""), ("zone", "a")], 3, "all/worker/a"),
            (&[("task", "ps"), ("zone", "a"), ("part", "7")], 4, "all/ps/a"),
            (&[("task", "worker"), ("part", "7"), ("zone", "a")], 1, "workers/7"),
            (&[("task", "ps")], REST, ""),
        ];
        for (pod, id, name) in cases {
            assert_eq!(sub_jobs.assign(&policies, &labels(pod)), id, "{pod:?}");
            assert_eq!(&*sub_jobs.row(id).name, name);
        }
        let indices: Vec<Option<i64>> = sub_jobs.rows().iter().map(|row| row.index).collect();
        assert_eq!(indices, [None, Some(7), Some(8), None, None]);
    }

    #[test]
    fn parts_beyond_the_limit_join_the_rest() {
        let policies = [policy("p", &["part"], &[])];
        let mut sub_jobs = SubJobs::default();
        sub_jobs.reset(&policies);
        let ids: Vec<u32> = (0..=SUB_JOBS_MAX)
            .map(|part| sub_jobs.assign(&policies, &labels(&[("part", &part.to_string())])))
            .collect();
        assert_eq!((ids[0], ids[SUB_JOBS_MAX - 2], ids[SUB_JOBS_MAX - 1], ids[SUB_JOBS_MAX]), (1, 4095, REST, REST));
    }

    #[test]
    fn what_a_topology_spec_comes_to() {
        let hyper = HyperNodes::new();
        let spec = |hard, highest_tier, name: Option<&str>| TopologySpec {
            hard,
            highest_tier,
            highest_tier_name: name.map(str::to_owned),
        };
        for (given, wanted) in [
            (None, Reach::Free),
            (Some(spec(true, None, None)), Reach::Free),
            (Some(spec(true, None, Some(""))), Reach::Free),
            (Some(spec(true, Some(2), None)), Reach::Tier(2)),
            (Some(spec(true, None, Some("rack"))), Reach::UnknownTier("rack".to_owned())),
            (Some(spec(false, Some(0), None)), Reach::Tier(7)),
        ] {
            assert_eq!(reach(given.as_ref(), &hyper, 7), wanted, "{given:?}");
        }
    }
}
