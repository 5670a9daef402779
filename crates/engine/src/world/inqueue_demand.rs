//! What is promised to groups that were admitted and have not started, or have not held the sum that they declare, and what
//! groups hold beyond their minimum.
//!
//! Invariant: after `settle` the sums are those of all groups as they are now; inside an action only admissions add
//! to them. Groups that changed are remembered, so that settling costs no more than what changed. Read by `enqueue` and
//! by the plugins that vote there.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::facts::GroupPhase;
use crate::ids::{DimId, GroupId, NamespaceId, QueueId, QueueNamespace, TimeMs};
use crate::reasons::Reason;
use crate::resource_dims::{Demand, PODS};
use crate::share::{self, at};
use crate::world::groups::GroupRow;
use crate::world::minimum::{Missing, Past, missing};
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// What one queue's groups were promised.
#[derive(Debug, Clone, Default)]
pub(crate) struct Promised {
    /// To all that were admitted and have not started, or not held their sum.
    pub(crate) all: Vec<i64>,
    /// To those of them that are on their way: their pods are being made, or were not tried yet.
    pub(crate) starting: Vec<i64>,
    /// Held by groups beyond their `minResources`.
    pub(crate) elastic: Vec<i64>,
    /// The groups that were promised something. Empty in sums over a tree.
    pub(crate) groups: BTreeSet<GroupId>,
}

/// What one group adds.
#[derive(Debug, Clone)]
struct Promise {
    /// Its queue, and all above it.
    path: Vec<QueueId>,
    namespace: Arc<str>,
    namespace_id: NamespaceId,
    amounts: Demand,
    starting: bool,
    elastic: Demand,
    /// The part of it for which no pod exists yet.
    unmade: Demand,
    /// What the group will hold when it holds its sum; nothing where its pods ask for all of it, or it has held it.
    sum: Demand,
}

#[derive(Debug, Default)]
pub(crate) struct InqueueDemand {
    of: FxHashMap<GroupId, Promise>,
    own: FxHashMap<QueueId, Promised>,
    tree: FxHashMap<QueueId, Promised>,
    total: Promised,
    /// By namespace, to groups that were admitted in earlier cycles.
    unmade: FxHashMap<Arc<str>, Vec<i64>>,
    /// To those of one namespace in one queue.
    of_namespaces: FxHashMap<QueueNamespace, OfNamespace>,
    /// What groups will hold that were promised a sum, and have not held it.
    sums: Vec<i64>,
    /// What of it they do not hold yet.
    outstanding: Vec<i64>,
    /// The part of `outstanding` that is among what groups on their way were promised.
    outstanding_starting: Vec<i64>,
    /// Groups for which room is reserved, and from when on they need it.
    reserved: BTreeMap<GroupId, TimeMs>,
    /// What nodes have free of what is kept; worked out once, as nothing is placed while groups are admitted.
    free: Vec<Option<i64>>,
    queues_version: u64,
}

/// What the groups of a namespace were promised in a queue.
#[derive(Debug, Clone, Default)]
struct OfNamespace {
    groups: u32,
    amounts: Vec<i64>,
}

impl InqueueDemand {
    /// Of a queue's own groups, or (`tree`) of those below it, too.
    pub(crate) fn of(&self, queue: QueueId, tree: bool) -> Option<&Promised> {
        if tree { self.tree.get(&queue) } else { self.own.get(&queue) }
    }

    /// Whether the promise to this group counts against one that asks to be admitted.
    pub(crate) fn counts(&self, group: GroupId, past: Past) -> bool {
        self.of.get(&group).is_some_and(|promise| match past {
            Past::Nobody => true,
            Past::Waiting => promise.starting,
            Past::Ending(at) => promise.starting && self.reserved.get(&group).is_none_or(|from| *from < at),
        })
    }

    /// What was promised in a queue (`tree`: and below it) that counts against a group that asks to be admitted.
    pub(crate) fn ahead(&self, queue: QueueId, tree: bool, past: Past) -> Cow<'_, [i64]> {
        let is_of = |promise: &Promise| {
            let above = promise.path.iter().position(|other| *other == queue);
            above.is_some_and(|above| tree || above == 0)
        };
        self.of(queue, tree).map_or_else(Cow::default, |promised| self.counted(promised, past, is_of))
    }

    /// The same of all queues together.
    pub(crate) fn ahead_in_all(&self, past: Past) -> Cow<'_, [i64]> {
        self.counted(&self.total, past, |_| true)
    }

    fn counted<'a>(&self, promised: &'a Promised, past: Past, is_of: impl Fn(&Promise) -> bool) -> Cow<'a, [i64]> {
        match past {
            Past::Nobody => Cow::Borrowed(&promised.all),
            Past::Waiting => Cow::Borrowed(&promised.starting),
            Past::Ending(at) => {
                let mut starting = promised.starting.clone();
                let later = self.needed_from(at).filter(|promise| promise.starting && is_of(promise));
                later.for_each(|promise| promise.amounts.add_to(&mut starting, -1));
                Cow::Owned(starting)
            }
        }
    }

    /// What is promised to groups that need it no earlier.
    fn needed_from(&self, at: TimeMs) -> impl Iterator<Item = &Promise> {
        let later = self.reserved.iter().filter(move |(_, from)| **from >= at);
        later.filter_map(|(group, _)| self.of.get(group))
    }

    /// What has to be left free on the nodes for those who declare sums, and for others that were admitted and do not hold
    /// their room yet, where anything is kept for the former at all.
    fn outstanding(&self, dim: DimId, past: Past) -> i64 {
        let outstanding = at(&self.outstanding, dim);
        if outstanding <= 0 {
            return 0;
        }
        let others = match past {
            Past::Nobody => at(&self.total.all, dim).saturating_sub(outstanding),
            Past::Waiting | Past::Ending(_) => {
                at(&self.total.starting, dim).saturating_sub(at(&self.outstanding_starting, dim))
            }
        };
        let later = match past {
            Past::Ending(at) => {
                let declare = self.needed_from(at).filter(|promise| !promise.sum.0.is_empty());
                declare.fold(0_i64, |sum, promise| sum.saturating_add(promise.amounts.get(dim)))
            }
            Past::Nobody | Past::Waiting => 0,
        };
        outstanding.saturating_sub(later).saturating_add(others)
    }

    /// What pods will ask for in a namespace that are still to be made.
    pub(crate) fn unmade(&self, namespace: &str) -> &[i64] {
        self.unmade.get(namespace).map_or(&[], Vec::as_slice)
    }

    /// Whether a group of this namespace was admitted to the queue and waits.
    pub(crate) fn waits(&self, queue: QueueId, namespace: NamespaceId) -> bool {
        self.of_namespaces.contains_key(&(queue, namespace))
    }

    /// To groups of this namespace in the queue.
    pub(crate) fn of_namespace(&self, queue: QueueId, namespace: NamespaceId) -> &[i64] {
        self.of_namespaces.get(&(queue, namespace)).map_or(&[], |promised| promised.amounts.as_slice())
    }

    fn charge(&mut self, group: GroupId, promise: &Promise, sign: i64) {
        let add = |sums: &mut Promised| {
            promise.amounts.add_to(&mut sums.all, sign);
            if promise.starting {
                promise.amounts.add_to(&mut sums.starting, sign);
            }
            promise.elastic.add_to(&mut sums.elastic, sign);
        };
        for (above, queue) in promise.path.iter().enumerate() {
            add(self.tree.entry(*queue).or_default());
            if above == 0 {
                let own = self.own.entry(*queue).or_default();
                add(own);
                let promised = !promise.amounts.0.is_empty();
                if sign > 0 && promised {
                    own.groups.insert(group);
                } else {
                    own.groups.remove(&group);
                }
                if promised {
                    let key = (*queue, promise.namespace_id);
                    charge_namespace(&mut self.of_namespaces, key, &promise.amounts, sign);
                }
            }
        }
        add(&mut self.total);
        if !promise.sum.0.is_empty() {
            promise.sum.add_to(&mut self.sums, sign);
            promise.amounts.add_to(&mut self.outstanding, sign);
            if promise.starting {
                promise.amounts.add_to(&mut self.outstanding_starting, sign);
            }
        }
        if !promise.unmade.0.is_empty() {
            promise.unmade.add_to(self.unmade.entry(promise.namespace.clone()).or_default(), sign);
        }
    }

    fn replace(&mut self, group: GroupId, promise: Option<Promise>) {
        if let Some(old) = self.of.remove(&group) {
            self.charge(group, &old, -1);
        }
        if let Some(promise) = promise {
            self.charge(group, &promise, 1);
            self.of.insert(group, promise);
        }
    }
}

fn charge_namespace(
    of_namespaces: &mut FxHashMap<QueueNamespace, OfNamespace>,
    key: QueueNamespace,
    amounts: &Demand,
    sign: i64,
) {
    let promised = of_namespaces.entry(key).or_default();
    amounts.add_to(&mut promised.amounts, sign);
    promised.groups = promised.groups.saturating_add_signed(if sign > 0 { 1 } else { -1 });
    if promised.groups == 0 {
        of_namespaces.remove(&key);
    }
}

impl Tables {
    /// Brings all promises up to date. O(groups that changed), and O(groups with promises) after a change of queues.
    pub(crate) fn settle_inqueue_demand(&mut self) {
        let mut stale = self.groups.take_unsettled();
        if self.inqueue_demand.queues_version != self.queues.version {
            self.inqueue_demand.queues_version = self.queues.version;
            stale.extend(self.inqueue_demand.of.keys());
        }
        stale.sort_unstable();
        stale.dedup();
        for group in stale {
            let promise = self.groups.table.get(group.index()).and_then(|row| self.promise_of(group, row));
            self.inqueue_demand.replace(group, promise);
        }
        let reserved = self.reservations.all.iter().filter_map(|one| Some((one.group, one.forecast.as_ref()?.at)));
        self.inqueue_demand.reserved = reserved.collect();
        self.inqueue_demand.free.clear();
        self.work_out_free();
    }

    /// O(nodes) for each dimension of which something is kept now.
    fn work_out_free(&mut self) {
        let InqueueDemand { outstanding, free, .. } = &mut self.inqueue_demand;
        free.resize(outstanding.len().max(free.len()), None);
        for (dim, free) in free.iter_mut().enumerate() {
            if free.is_none() && at(outstanding, DimId::from(dim)) > 0 {
                *free = Some(self.nodes.idle_in_all(DimId::from(dim)));
            }
        }
    }

    fn promise_of(&self, group: GroupId, row: &GroupRow) -> Option<Promise> {
        let goes_on = row.exists() && !row.ended;
        let waits = goes_on && row.phase == GroupPhase::Inqueue && !row.awaits_nodes;
        let has_begun = goes_on && matches!(row.phase, GroupPhase::Running | GroupPhase::Unknown);
        let mut more_later = has_begun;
        let wanted = match (waits, has_begun) {
            (true, _) => {
                let missing = missing(self, group);
                more_later = declares(row, &missing);
                missing.total
            }
            (_, true) => self.still_promised(group),
            _ => Vec::new(),
        };
        let minimum = row.min_resources.as_deref();
        let elastic = minimum.map_or_else(Vec::new, |minimum| share::beyond(&row.allocated, &share::vector(minimum)));
        let keeps = more_later && row.sum_until.is_some();
        // Its first pods have room, and the phase follows.
        let begins = keeps && row.counts.ready() >= row.declared_min;
        let starting = waits && (row.counts.valid() < row.declared_min || begins) || has_begun && !wanted.is_empty();
        let promise = Promise {
            path: self.path(row.queue),
            namespace: row.namespace.clone(),
            namespace_id: row.namespace_id,
            unmade: if starting { self.unmade(row, &wanted) } else { Demand::default() },
            sum: if keeps { whole(row, &wanted) } else { Demand::default() },
            amounts: demand(&wanted),
            starting,
            elastic: demand(&elastic),
        };
        (!promise.amounts.0.is_empty() || !promise.elastic.0.is_empty()).then_some(promise)
    }

    /// A group is admitted: its pods are yet to be tried.
    pub(crate) fn promise(&mut self, group: GroupId, missing: &Missing) {
        let row = self.groups.row(group);
        let promise = Promise {
            path: self.path(row.queue),
            namespace: row.namespace.clone(),
            namespace_id: row.namespace_id,
            sum: if declares(row, missing) { whole(row, &missing.total) } else { Demand::default() },
            amounts: demand(&missing.total),
            starting: true,
            elastic: Demand::default(),
            unmade: Demand::default(),
        };
        self.inqueue_demand.replace(group, Some(promise));
        self.work_out_free();
    }

    /// What stands against a group's admission beside sums that were promised to others, in whatever queue. Those who declare
    /// sums are admitted while all sums together fit the cluster, so that none of them waits for ever for what another one
    /// holds a part of; all others while they leave free what is kept. O(dimensions and reservations).
    pub(crate) fn beside_sums(&self, group: GroupId, missing: &Missing, past: Past) -> Option<Reason> {
        let row = self.groups.row(group);
        let InqueueDemand { sums, free, .. } = &self.inqueue_demand;
        let declares = declares(row, missing);
        let over = |dim: DimId| {
            let asks = at(&missing.total, dim);
            let (budget, promised, requested) = if declares {
                (at(&self.nodes.total, dim), at(sums, dim), asks.saturating_add(at(&row.allocated, dim)))
            } else {
                let outstanding = self.inqueue_demand.outstanding(dim, past);
                (free.get(dim.index()).copied().flatten().unwrap_or(0), outstanding, asks)
            };
            let fits = asks <= 0 || promised <= 0 || promised.saturating_add(requested) <= budget;
            let resource = || self.dims.name(dim).to_string();
            (!fits).then(|| Reason::Overcommitted { resource: resource(), budget, promised, requested })
        };
        (0..missing.total.len()).map(DimId::from).filter(|dim| *dim != PODS).find_map(over)
    }

    fn path(&self, queue: QueueId) -> Vec<QueueId> {
        std::iter::once(queue).chain(self.queues.row(queue).ancestors.iter().copied()).collect()
    }

    /// What is wanted beyond what the group's waiting pods ask for.
    fn unmade(&self, row: &GroupRow, wanted: &[i64]) -> Demand {
        let mut made = Vec::new();
        for task in row.tasks.iter().map(|task| self.task(*task)).filter(|task| task.state == TaskState::Pending) {
            self.classes.row(task.class).demand.add_to(&mut made, 1);
        }
        demand(&share::beyond(wanted, &made))
    }
}

/// Whether a part of what it asks for is for pods that come later.
fn declares(row: &GroupRow, missing: &Missing) -> bool {
    missing.block.is_some() || row.planned > 0
}

/// What a group will hold, if so much is missing.
fn whole(row: &GroupRow, missing: &[i64]) -> Demand {
    let mut whole = row.allocated.clone();
    share::add(&mut whole, missing, 1);
    demand(&whole)
}

fn demand(amounts: &[i64]) -> Demand {
    let dims = (0..amounts.len()).map(DimId::from);
    Demand(dims.map(|dim| (dim, at(amounts, dim))).filter(|(_, amount)| *amount > 0).collect())
}

crate::save::saved! {
    Promised { all, starting, elastic, groups };
    Promise { path, namespace, namespace_id, amounts, starting, elastic, unmade, sum };
    OfNamespace as "OfTenant" { groups, amounts };
    InqueueDemand as "Promises" { of, own, tree, total, unmade, of_namespaces as "of_tenants", sums, outstanding as "kept", outstanding_starting as "kept_starting", reserved, free, queues_version };
}
