//! Victims in bundles. A *safe* bundle is what a gang has beyond its minimum, and leaves it running; a *whole* one is
//! the rest of a gang in the domain, and breaks it.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Kind, Want};
use crate::ids::{DimId, GroupId, HyperId, TaskId};
use crate::session::Session;
use crate::world::groups::GroupRow;
use crate::world::tables::Tables;
use crate::world::tasks::Counting;
use crate::world::tasks::TaskState;

/// Worth is counted in parts of this.
const ONE: i128 = 1_000_000;

/// Pods of one group that leave together.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) group: GroupId,
    pub(super) tasks: Vec<TaskId>,
    /// The gang breaks by it.
    pub(super) whole: bool,
    /// What it gives of what is needed, for what its gang loses.
    worth: i128,
}

/// All there are in a domain.
pub(super) fn of(session: &Session<'_>, want: &Want, domain: HyperId) -> Vec<Bundle> {
    let tables = &*session.tables;
    let mut groups: BTreeMap<GroupId, Vec<TaskId>> = BTreeMap::new();
    for node in tables.hyper_nodes.row(domain).nodes.ones() {
        for task in &tables.nodes.row(node.into()).tasks {
            if may_take(session, want, *task)
                && let Some(group) = tables.task(*task).group
            {
                groups.entry(group).or_default().push(*task);
            }
        }
    }
    let mut bundles = Vec::new();
    for (group, mut tasks) in groups {
        tasks.sort_by_key(|task| (tables.task(*task).priority, tables.task(*task).uid.clone()));
        let row = tables.groups.row(group);
        // Pods of it are on their way: it would be broken before it begins.
        let begins = row.counts.get(TaskState::Binding) > 0;
        if begins && row.counts.ready() < row.min_member {
            continue;
        }
        let (safe, rest) = split(tables, group, tasks);
        for (tasks, whole) in [(safe, false), (rest, true)] {
            if !tasks.is_empty() && (!whole || (want.break_gangs && !begins)) {
                bundles.push(Bundle { group, worth: worth(tables, want, group, &tasks, whole), tasks, whole });
            }
        }
    }
    bundles
}

fn may_take(session: &Session<'_>, want: &Want, victim: TaskId) -> bool {
    let tables = &*session.tables;
    let row = tables.task(victim);
    let Some(group) = row.group.filter(|group| *group != want.group) else { return false };
    let (owner, asking) = (tables.groups.row(group), tables.groups.row(want.group));
    let theirs = match want.kind {
        Kind::Preempt => {
            matches!(row.state, TaskState::Bound | TaskState::Running)
                && owner.queue == asking.queue
                && owner.priority < asking.priority
        }
        Kind::Reclaim => {
            row.state == TaskState::Running && owner.queue != asking.queue && tables.queues.row(owner.queue).reclaimable
        }
    };
    theirs
        && row.preemptable
        && !row.of_daemon_set
        && row.spared_until <= session.now
        && owner.exists()
        && owner.preemptable != Some(false)
}

/// What the gang can lose, and the rest. One that is below its minimum has nothing to lose.
fn split(tables: &Tables, group: GroupId, tasks: Vec<TaskId>) -> (Vec<TaskId>, Vec<TaskId>) {
    let row = tables.groups.row(group);
    if row.counts.ready() < row.min_member {
        return (tasks, Vec::new());
    }
    let mut left = Left::of(row);
    tasks.into_iter().partition(|task| left.give(row, tables.task(*task).role, tables.task(*task).sub_job))
}

/// What a gang has beyond its minima.
struct Left {
    pods: u32,
    /// By role, where the role has a minimum.
    roles: FxHashMap<u32, u32>,
    /// By policy, where it has a minimum of parts.
    parts: FxHashMap<usize, u32>,
    broken: BTreeSet<u32>,
}

impl Left {
    fn of(row: &GroupRow) -> Self {
        let minima = (0_u32..).zip(&row.roles).filter(|(_, role)| role.min > 0 && row.role_minima_apply());
        let roles = minima.map(|(id, role)| (id, role.counts.ready().saturating_sub(role.min))).collect();
        let policies = row.sub_groups.iter().enumerate();
        let parts = policies.filter_map(|(at, policy)| {
            let min = policy.min_sub_groups.filter(|min| *min > 0)?;
            let of_policy = (0_u32..).zip(row.sub_jobs.rows()).filter(|(_, part)| part.policy == Some(at));
            let ready = of_policy.filter(|(id, _)| row.part_ready(*id, Counting::Placed, false)).count();
            Some((at, u32::try_from(ready).unwrap_or(u32::MAX).saturating_sub(min)))
        });
        let pods = row.counts.ready().saturating_sub(row.min_member);
        Self { pods, roles, parts: parts.collect(), broken: BTreeSet::new() }
    }

    /// Takes a pod, if the minima stand without it. The first of a part costs the part, the others of it nothing more.
    fn give(&mut self, row: &GroupRow, role: u32, sub_job: u32) -> bool {
        let role = self.roles.get_mut(&role);
        let part = match row.sub_jobs.rows().get(sub_job as usize).and_then(|part| part.policy) {
            Some(policy) if !self.broken.contains(&sub_job) => self.parts.get_mut(&policy),
            _ => None,
        };
        let enough =
            self.pods > 0 && role.as_ref().is_none_or(|left| **left > 0) && part.as_ref().is_none_or(|left| **left > 0);
        if enough {
            self.pods -= 1;
            role.into_iter().for_each(|left| *left -= 1);
            part.into_iter().for_each(|left| *left -= 1);
            self.broken.insert(sub_job);
        }
        enough
    }
}

/// The part of the need that the bundle covers, over the part that its gang holds in all.
fn worth(tables: &Tables, want: &Want, group: GroupId, tasks: &[TaskId], whole: bool) -> i128 {
    if !whole {
        return i128::MAX;
    }
    let mut local = Vec::new();
    for task in tasks {
        tables.classes.row(tables.task(*task).class).demand.add_to(&mut local, 1);
    }
    let covers = |amounts: &[i64]| -> i128 {
        let part = |(dim, need): &(DimId, i64)| {
            let amount = amounts.get(dim.index()).copied().unwrap_or(0);
            i128::from(amount.clamp(0, *need)) * ONE / i128::from((*need).max(1))
        };
        want.need.iter().map(part).sum()
    };
    covers(&local) * ONE / covers(&tables.groups.row(group).allocated).max(1)
}

/// Safe ones first; then those of whoever comes last; then by worth.
pub(super) fn sort(session: &Session<'_>, want: &Want, bundles: &mut [Bundle]) {
    let tables = &*session.tables;
    let queue = |group: GroupId| tables.groups.row(group).queue;
    let first = |bundle: &Bundle| bundle.tasks.first().map(|task| tables.task(*task).uid.clone());
    bundles.sort_by(|left, right| {
        let owners = match want.kind {
            _ if left.group == right.group => Ordering::Equal,
            Kind::Preempt => session.policy.job_order_alone(tables, right.group, left.group),
            Kind::Reclaim => {
                session.policy.victim_queue_order(tables, queue(left.group), queue(right.group), queue(want.group))
            }
        };
        let uid = |bundle: &Bundle| tables.groups.row(bundle.group).uid.clone();
        (left.whole.cmp(&right.whole))
            .then(owners)
            .then_with(|| Reverse(left.worth).cmp(&Reverse(right.worth)))
            .then_with(|| {
                (uid(left), first(left), left.tasks.len()).cmp(&(uid(right), first(right), right.tasks.len()))
            })
    });
}

/// Leaves out what plugins don't allow: a whole bundle goes with any of its pods, a safe one shrinks.
pub(super) fn keep(session: &Session<'_>, want: &Want, bundles: &mut Vec<Bundle>, allowed: &FxHashSet<TaskId>) {
    bundles.retain_mut(|bundle| {
        if bundle.whole {
            return bundle.tasks.iter().all(|task| allowed.contains(task));
        }
        bundle.tasks.retain(|task| allowed.contains(task));
        bundle.worth = worth(session.tables, want, bundle.group, &bundle.tasks, bundle.whole);
        !bundle.tasks.is_empty()
    });
}
