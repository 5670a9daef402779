//! What would let a group start now: each change is tried in the engine, in a dry run of the World, by the code
//! that decides. Nothing here is guessed from texts.
//!
//! Invariant: a change that is told makes the group start in the next cycle if nothing else changes, and asking changes no
//! decision. Bounds: so many looks at nodes for one answer; what they were not enough for is not told, and the answer says
//! so. Called by `World::why`.

use std::collections::BTreeSet;

use super::could::{Could, in_steps, most_that_fits, step_of};
use super::dry_run::DryRun;
use crate::actions::allocate::tentative_placement::{TentativePlacement, place_tentatively};
use crate::actions::enqueue;
use crate::cluster::node_matching::untolerated;
use crate::config::Action;
use crate::facts::{GroupPhase, PodTemplate, TaintEffect, Toleration};
use crate::ids::{ClassId, DimId, GroupId, QueueId, TimeMs};
use crate::reasons::{Check, NodesUnfit, Reason};
use crate::search::finder::Telling;
use crate::session::Session;
use crate::world::minimum::missing;
use crate::world::queues::ROOT;
use crate::world::reservations::Lift;
use crate::world::tasks::TaskState;

/// Looks at nodes for one answer, about: some 20 ms.
const LOOKS_MAX: u64 = 300_000;
/// What placing a pod counts.
const LOOKS_A_POD: u64 = 8;
/// Trials that narrow an amount down.
const NARROWING_MAX: u32 = 6;
/// Queues that are tried, and of those that would do, told.
const QUEUES_TRIED_MAX: usize = 8;
const QUEUES_TOLD_MAX: usize = 3;
/// Taints, and parts of a selector, that are tried.
const WORDS_TRIED_MAX: usize = 4;
/// Resources that are tried.
const RESOURCES_TRIED_MAX: usize = 4;

/// The trials for one group.
pub(crate) struct UnblockProbes<'c, 'w> {
    session: &'c mut Session<'w>,
    dry_run: DryRun,
    group: GroupId,
    looks_left: u64,
    /// Variations of classes are told apart by this.
    variations: u64,
    /// Something was not tried.
    pub(crate) bounded: bool,
}

impl<'c, 'w> UnblockProbes<'c, 'w> {
    pub(crate) fn begin(session: &'c mut Session<'w>, group: GroupId) -> Self {
        let dry_run = session.tables.begin_dry_run(group);
        Self { session, dry_run, group, looks_left: LOOKS_MAX, variations: 0, bounded: false }
    }

    pub(crate) fn end(self) {
        self.session.tables.end_dry_run(self.dry_run);
        self.session.policy.settle(self.session.tables);
    }

    /// Its turn as things are, with all that stands against it. Nothing where it has too many pods, or none.
    pub(crate) fn as_it_is(&mut self) -> Option<TentativePlacement> {
        if self.session.tables.groups.row(self.group).pending() == 0 || !self.pay(2) {
            return None;
        }
        self.session.finder.tell(Telling::All);
        let tentative = self.in_its_place(|probes| place_tentatively(probes.session, probes.group));
        self.session.finder.tell(Telling::Nothing);
        Some(tentative)
    }

    /// Whether it would fit if nothing else ran.
    pub(crate) fn fits_empty(&mut self) -> Option<bool> {
        if !self.pay(1) {
            return None;
        }
        Some(enqueue::is_possible(self.session, self.group))
    }

    /// The changes that would let it start now.
    pub(crate) fn changes(&mut self, as_it_is: Option<&TentativePlacement>, reasons: &[Reason]) -> Vec<Could> {
        let mut could: Vec<Could> = Vec::new();
        if as_it_is.is_some_and(|tentative| tentative.starts) {
            return could;
        }
        let in_strict_order = reasons.iter().any(|reason| matches!(reason, Reason::StrictOrder { .. }));
        if !in_strict_order {
            let unfit = as_it_is.map_or(&[][..], |tentative| &tentative.unfit);
            could.extend(self.less_of_a_resource(unfit, reasons));
            could.extend(self.fewer(as_it_is));
            could.extend(self.a_limit());
            could.extend(self.other_words(unfit));
        }
        if in_strict_order || reasons.iter().any(is_of_queue) {
            could.extend(self.other_queues());
        }
        could
    }

    /// Whether it would start in the next cycle; nothing where no more may be tried.
    fn starts(&mut self) -> Option<bool> {
        if !self.pay(1) {
            return None;
        }
        Some(self.in_its_place(Self::is_admitted_and_placed))
    }

    fn is_admitted_and_placed(&mut self) -> bool {
        let row = self.session.tables.groups.row(self.group);
        let pending = row.pending();
        let unadmitted = row.phase == GroupPhase::Pending && self.session.config.has(Action::Enqueue);
        if (unadmitted || pending == 0) && !enqueue::admits_now(self.session, self.group) {
            return false;
        }
        pending == 0 || place_tentatively(self.session, self.group).starts
    }

    /// With what is kept for it free, and all taken back after.
    fn in_its_place<R>(&mut self, trial: impl FnOnce(&mut Self) -> R) -> R {
        if self.session.tables.reservations.of(self.group).is_some() {
            self.session.tables.free_for(self.group, self.session.now);
        }
        let result = trial(self);
        self.reset_dry_run();
        result
    }

    fn reset_dry_run(&mut self) {
        self.session.tables.reset_dry_run(&self.dry_run);
        self.session.policy.settle(self.session.tables);
    }

    fn pay(&mut self, times: u64) -> bool {
        let row = self.session.tables.groups.row(self.group);
        let pods = u64::from(row.min_member.max(1)) + u64::from(row.pending()) / 4;
        let price = times * (u64::from(self.session.tables.nodes.known) + LOOKS_A_POD * pods);
        self.bounded |= price > self.looks_left;
        let paid = price <= self.looks_left;
        self.looks_left -= if paid { price } else { 0 };
        paid
    }

    /// With other templates for some of its classes.
    fn with_templates<R>(
        &mut self,
        edit: impl Fn(&mut PodTemplate),
        classes: &[ClassId],
        trial: impl FnOnce(&mut Self) -> R,
    ) -> Option<R> {
        let mut varied = Vec::new();
        for class in classes {
            let row = self.session.tables.classes.row(*class);
            let mut template = (*row.template).clone();
            edit(&mut template);
            self.variations += 1;
            varied.push((*class, row.varied(template, &self.session.tables.dims, u64::MAX - self.variations)?));
        }
        let before: Vec<_> =
            varied.into_iter().map(|(class, row)| (class, self.session.tables.classes.swap(class, row))).collect();
        let result = trial(self);
        for (class, row) in before {
            self.session.tables.classes.swap(class, row);
        }
        Some(result)
    }

    /// The classes of what it lacks.
    fn classes(&self) -> Vec<ClassId> {
        let tables = &*self.session.tables;
        let mut classes: BTreeSet<ClassId> = missing(tables, self.group).parts.iter().map(|part| part.class).collect();
        let tasks = tables.groups.row(self.group).tasks.iter().map(|task| tables.task(*task));
        classes.extend(tasks.filter(|task| task.state == TaskState::Pending).map(|task| task.class));
        classes.into_iter().collect()
    }

    fn less_of_a_resource(&mut self, unfit: &[(ClassId, NodesUnfit)], reasons: &[Reason]) -> Vec<Could> {
        let mut wanted: BTreeSet<(ClassId, DimId)> = BTreeSet::new();
        let dim_of = |probes: &Self, name: &str| probes.session.tables.dims.lookup(name);
        for (class, unfit) in unfit {
            wanted.extend(unfit.short.iter().filter_map(|short| Some((*class, dim_of(self, &short.resource)?))));
        }
        let of_limits = reasons.iter().filter_map(limited).filter_map(|name| dim_of(self, name)).collect::<Vec<_>>();
        for class in self.classes() {
            let asks = |dim: &&DimId| self.session.tables.classes.row(class).demand.get(**dim) > 0;
            wanted.extend(of_limits.iter().filter(asks).map(|dim| (class, *dim)));
        }
        let wanted = wanted.into_iter().take(RESOURCES_TRIED_MAX);
        wanted.filter_map(|(class, dim)| self.less_of(class, dim)).collect()
    }

    /// The most of one resource with which it would start, in steps that people write.
    fn less_of(&mut self, class: ClassId, dim: DimId) -> Option<Could> {
        let resource = self.session.tables.dims.name(dim).to_string();
        let requested = self.session.tables.classes.row(class).demand.get(dim);
        let step = step_of(&resource, requested);
        let needed = missing(self.session.tables, self.group).parts.iter().find(|part| part.class == class)?.count;
        let by_nodes = most_that_fits(self.session.tables, self.session.policy, class, dim, needed.max(1));
        let mut most = in_steps(by_nodes.min(requested - 1), step)?;
        let mut least_failed = requested;
        let mut best = None;
        for _ in 0..NARROWING_MAX {
            if self.starts_with(class, &resource, most)? {
                best = Some(most);
                let higher = in_steps(most + (least_failed - most) / 2, step).filter(|higher| *higher > most);
                // What nodes have is the most there is; only where something else stood against it is there more to find.
                match higher {
                    Some(higher) if least_failed < requested => most = higher,
                    _ => break,
                }
            } else {
                least_failed = most;
                let floor = best.unwrap_or(0);
                let lower = in_steps(floor + (least_failed - floor) / 2, step);
                let Some(lower) = lower.filter(|lower| *lower > floor && *lower < least_failed) else { break };
                most = lower;
            }
        }
        let role = self.role_of(class);
        best.map(|amount| Could::Request { resource, amount, requested, role })
    }

    fn starts_with(&mut self, class: ClassId, resource: &str, amount: i64) -> Option<bool> {
        let edit = |template: &mut PodTemplate| {
            template.requests.insert(resource.to_owned(), amount);
        };
        self.with_templates(edit, &[class], Self::starts)?
    }

    /// The name of the task that makes the class's pods, where the group has several.
    fn role_of(&self, class: ClassId) -> String {
        if self.session.tables.groups.row(self.group).roles.len() < 2 {
            return String::new();
        }
        let parts = missing(self.session.tables, self.group).parts;
        parts.iter().find(|part| part.class == class).map_or_else(String::new, |part| part.role.to_string())
    }

    /// With a smaller minimum.
    fn fewer(&mut self, as_it_is: Option<&TentativePlacement>) -> Option<Could> {
        let row = self.session.tables.groups.row(self.group);
        let (min, ready) = (row.min_member, row.counts.ready());
        // One that holds nodes and can't start is told of by itself when its minimum changes.
        if min <= ready + 1 || row.counts.get(TaskState::Bound) > 0 {
            return None;
        }
        if let Some(tentative) = as_it_is {
            let found = ready + u32::try_from(tentative.placed.len()).unwrap_or(0);
            let fits = found > ready && found < min && self.starts_with_minimum(found)?;
            return fits.then_some(Could::Fewer { min_available: found, of: min });
        }
        let (mut fits, mut too_many) = (ready, min);
        for _ in 0..NARROWING_MAX {
            let middle = fits + (too_many - fits) / 2;
            if middle == fits {
                break;
            }
            if self.starts_with_minimum(middle)? { fits = middle } else { too_many = middle }
        }
        (fits > ready).then_some(Could::Fewer { min_available: fits, of: min })
    }

    fn starts_with_minimum(&mut self, min: u32) -> Option<bool> {
        let row = self.session.tables.groups.row_mut(self.group);
        let before = row.declared_min;
        row.set_minimum(min);
        let starts = self.starts();
        self.session.tables.groups.row_mut(self.group).set_minimum(before);
        starts
    }

    /// Ended in time to be out of the way of those for whom room is kept, or before an administrator's window begins.
    fn a_limit(&mut self) -> Option<Could> {
        let (tables, now) = (&*self.session.tables, self.session.now);
        let waits_in_turn = tables.reservations.of(self.group).is_none() && tables.reservations.keep_any();
        let lifts = if waits_in_turn { tables.reservations.lifts() } else { Vec::new() };
        let windows = tables.maintenance_windows.all.iter().map(|window| window.from);
        let mut ends: Vec<(TimeMs, Option<Lift>)> = lifts.iter().map(|lift| (lift.from, Some(*lift))).collect();
        ends.extend(windows.map(|from| (from, lifts.iter().rfind(|lift| lift.from >= from).copied())));
        ends.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let classes = self.classes();
        let mut tried = i64::MAX;
        for (at, lift) in ends {
            let most = at.0.saturating_sub(now.0);
            let limit_ms = most - most % 1_000;
            if limit_ms <= 0 || limit_ms >= tried {
                continue;
            }
            tried = limit_ms;
            let edit = |template: &mut PodTemplate| template.time_limit_ms = Some(limit_ms);
            let starts = self.with_templates(edit, &classes, |probes| {
                if let Some(lift) = lift {
                    probes.session.tables.lift_reservations(lift, now);
                }
                probes.starts()
            })??;
            if starts {
                return Some(Could::Limit { limit_ms });
            }
        }
        None
    }

    /// With a taint tolerated, or without a part of its selector.
    fn other_words(&mut self, unfit: &[(ClassId, NodesUnfit)]) -> Vec<Could> {
        let mut could: Vec<Could> = Vec::new();
        for (class, unfit) in unfit {
            let template = self.session.tables.classes.row(*class).template.clone();
            let fails = |check: Check| unfit.checks.iter().any(|count| count.check == check);
            // Whom a spread counts depends on these words.
            if !template.inter_pod.spread.is_empty() {
                self.bounded |= fails(Check::Taint) || fails(Check::NodeAffinity);
                continue;
            }
            let taints = if fails(Check::Taint) { self.taints(&template) } else { Vec::new() };
            for toleration in taints {
                let edit = |template: &mut PodTemplate| template.tolerations.push(toleration.clone());
                if self.with_templates(edit, &[*class], Self::starts).flatten() == Some(true) {
                    let Toleration { key, value, .. } = toleration;
                    could.push(Could::Toleration { key, value });
                }
            }
            if !fails(Check::NodeAffinity) {
                continue;
            }
            for (key, value) in template.node_selector.iter().take(WORDS_TRIED_MAX) {
                let edit = |template: &mut PodTemplate| drop(template.node_selector.remove(key));
                if self.with_templates(edit, &[*class], Self::starts).flatten() == Some(true) {
                    could.push(Could::WithoutSelector { key: key.clone(), value: value.clone() });
                }
            }
            if template.required_terms.is_some() {
                let edit = |template: &mut PodTemplate| template.required_terms = None;
                if self.with_templates(edit, &[*class], Self::starts).flatten() == Some(true) {
                    could.push(Could::WithoutAffinity);
                }
            }
        }
        could
    }

    /// Tolerations of the taints that keep such pods away.
    fn taints(&self, template: &PodTemplate) -> Vec<Toleration> {
        let mut taints: BTreeSet<(String, String)> = BTreeSet::new();
        for node in self.session.tables.nodes.ids() {
            for taint in untolerated(&template.tolerations, self.session.tables.nodes.row(node)) {
                taints.insert((taint.key.clone(), taint.value.clone()));
            }
            if taints.len() >= WORDS_TRIED_MAX {
                break;
            }
        }
        let toleration = |(key, value): (String, String)| Toleration {
            exists: value.is_empty(),
            key,
            value,
            effect: None::<TaintEffect>,
        };
        taints.into_iter().take(WORDS_TRIED_MAX).map(toleration).collect()
    }

    /// In a queue that is open, has none below it, and keeps no order that it would break.
    fn other_queues(&mut self) -> Vec<Could> {
        let tables = &*self.session.tables;
        let own = tables.groups.row(self.group).queue;
        let usable = |queue: &QueueId| {
            let row = tables.queues.row(*queue);
            let strict = self.session.policy.is_strict(tables, *queue);
            *queue != own && row.is_open() && row.children.is_empty() && &*row.name != ROOT && !strict
        };
        let queues = tables.queues.table.iter().map(|(queue, _)| queue).filter(usable);
        let mut queues: Vec<QueueId> = queues.collect();
        queues.sort_by(|left, right| tables.queues.row(*left).name.cmp(&tables.queues.row(*right).name));
        self.bounded |= queues.len() > QUEUES_TRIED_MAX;
        let mut could: Vec<Could> = Vec::new();
        for queue in queues.into_iter().take(QUEUES_TRIED_MAX) {
            if could.len() < QUEUES_TOLD_MAX && self.starts_in(queue) == Some(true) {
                let queue = self.session.tables.queues.row(queue).name.to_string();
                could.push(Could::Queue { queue });
            }
        }
        could
    }

    fn starts_in(&mut self, queue: QueueId) -> Option<bool> {
        let row = self.session.tables.groups.row(self.group);
        let (own, namespace) = (row.queue, row.namespace_id);
        let names = [own, queue].map(|queue| self.session.tables.queues.row(queue).name.clone());
        let sums = self.session.tables.queues.sums(&[own, queue]);
        let namespaces = self.session.tables.namespace_shares.touched(&[(queue, namespace)]);
        // Nothing may forget it meanwhile.
        self.session.tables.queues.row_mut(own).groups += 1;
        self.session.tables.set_queue(self.group, Some(&names[1]));
        let mut starts = None;
        if self.pay(2) {
            starts = Some(self.in_its_place(|probes| {
                enqueue::admits_now(probes.session, probes.group) && {
                    probes.reset_dry_run();
                    probes.is_admitted_and_placed()
                }
            }));
        }
        self.session.tables.set_queue(self.group, Some(&names[0]));
        self.session.tables.queues.row_mut(own).groups -= 1;
        self.session.tables.queues.set_sums(sums);
        self.session.tables.namespace_shares.untouch(namespaces);
        starts
    }
}

/// The resource of a limit that binds, where asking for less of it may help.
fn limited(reason: &Reason) -> Option<&str> {
    match reason {
        Reason::QueueLimit { resource, .. }
        | Reason::QueueShare { resource, .. }
        | Reason::Overcommitted { resource, .. } => Some(resource),
        _ => None,
    }
}

/// Whether another queue may be the answer.
fn is_of_queue(reason: &Reason) -> bool {
    match reason {
        Reason::QueueNotFound { .. }
        | Reason::QueueClosed { .. }
        | Reason::QueueShare { .. }
        | Reason::QueueUnusable { .. }
        | Reason::QueueLimit { .. } => true,
        Reason::NodesUnfit(unfit) => {
            unfit.checks.iter().any(|count| matches!(count.check, Check::NodeGroup | Check::NodeGroupLimit))
        }
        _ => false,
    }
}
