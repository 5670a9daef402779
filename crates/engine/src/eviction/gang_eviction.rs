//! `gangpreempt` and `gangreclaim`: a starving gang takes room from whole parts of other gangs, in one part of the
//! network where it has to lie together.
//!
//! All is worked out on the tables and taken back before anything is decided: the victims in bundles, those first that
//! no gang breaks by; a place for every pod that the gang lacks; then what was in vain is given back. Follows
//! Volcano's actions. The room is nominated, and bound as it is freed.

use super::preemptors;
use super::reclaim_progress::Taking;
use super::statement::Statement;
use crate::actions::allocate::parts::{Part, parts};
use crate::actions::fair_share_order::Outcome;
use crate::ids::{DimId, GroupId, HyperId, TaskId};
use crate::plugin::{GangEviction, HyperSearch};
use crate::resource_dims::Demand;
use crate::session::Session;
use crate::world::sub_jobs::Reach;
use crate::world::tables::Tables;
use crate::world::tasks::Counting;

mod bundles;
mod nomination;

use bundles::Bundle;
use nomination::Nomination;

/// Domains that are looked at, where the configuration does not say.
const DOMAINS: usize = 8;

/// Whose pods may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Those of other groups of the queue, of lower priority.
    Preempt,
    /// Those of other queues.
    Reclaim,
}

impl Kind {
    /// As evictions and the configuration name it.
    fn name(self) -> &'static str {
        match self {
            Self::Preempt => "gangpreempt",
            Self::Reclaim => "gangreclaim",
        }
    }
}

/// What a gang lacks.
struct Want {
    kind: Kind,
    group: GroupId,
    parts: Vec<Part>,
    /// All of it together.
    need: Vec<(DimId, i64)>,
    /// Gangs may be broken.
    break_gangs: bool,
}

pub(crate) fn run(session: &mut Session<'_>, kind: Kind) {
    let domains = session.config.action_int(kind.name(), "maxDomains", 0);
    let domains_max = usize::try_from(domains).ok().filter(|max| *max > 0).unwrap_or(DOMAINS);
    let break_gangs = session.config.action_bool(kind.name(), "allowWholeBundle", true);
    let mut order = preemptors::order(session, preemptors::starves);
    while let Some(turn) = order.pop() {
        if kind == Kind::Reclaim && session.policy.overused(session.tables, turn.queue).is_some() {
            order.drop_queue(turn);
            continue;
        }
        let done = preemptors::starves(session, turn.group)
            && want(session, kind, turn.group, break_gangs).is_some_and(|want| want.is_met(session, domains_max));
        let outcome = if done { Outcome::Done } else { Outcome::Stuck };
        order.put_back(session.tables, session.policy, session.pending_index, turn, outcome);
    }
}

/// What the gang lacks to start; or, where it has started, all that its first part waits for.
fn want(session: &Session<'_>, kind: Kind, group: GroupId, break_gangs: bool) -> Option<Want> {
    let tasks = preemptors::pods(session, group);
    let mut parts = parts(session, group, &tasks);
    if session.policy.job_ready(session.tables, group, Counting::WithBestEffort) {
        parts.truncate(1);
    } else {
        let row = session.tables.groups.row(group);
        let held = row.counts.ready() + row.counts.pipelined();
        let mut lacks = row.min_member.saturating_sub(held) as usize;
        // Parts that `minSubGroups` asks for come first.
        let mut short = row.short_parts();
        parts.retain_mut(|part| {
            let wanted = lacks > 0 || short > 0;
            part.tasks.truncate(part.needed.max(if part.sub_job.is_none() { lacks } else { 1 }));
            lacks = lacks.saturating_sub(part.tasks.len());
            short = short.saturating_sub(1);
            wanted
        });
    }
    let mut need = Vec::new();
    for task in parts.iter().flat_map(|part| &part.tasks) {
        session.tables.classes.row(session.tables.task(*task).class).demand.add_to(&mut need, 1);
    }
    let need: Vec<(DimId, i64)> = need
        .into_iter()
        .enumerate()
        .filter(|(_, amount)| *amount > 0)
        .map(|(dim, amount)| (dim.into(), amount))
        .collect();
    (!need.is_empty()).then_some(Want { kind, group, parts, need, break_gangs })
}

impl Want {
    /// Tries one domain after the other. True if victims were found and it is decided.
    fn is_met(&self, session: &mut Session<'_>, domains_max: usize) -> bool {
        let queue = session.tables.groups.row(self.group).queue;
        let demand = Demand(self.need.iter().copied().collect());
        if self.kind == Kind::Reclaim && !session.policy.preemptive(session.tables, queue, &demand) {
            return false;
        }
        for domain in self.domains(session, domains_max) {
            let Some(nomination) = self.in_domain(session, domain) else { continue };
            let short = || self.need.iter().filter(|(dim, amount)| *amount > room_in(session.tables, domain, *dim));
            let balanced = self.kind == Kind::Preempt || {
                let short: Vec<DimId> = short().map(|(dim, _)| *dim).collect();
                Taking { queue, demand: &demand, victims: &nomination.victims, short: &short }.is_right(session)
            };
            if balanced && self.decide(session, nomination) {
                return true;
            }
        }
        false
    }

    fn domains(&self, session: &Session<'_>, domains_max: usize) -> Vec<HyperId> {
        let hyper = &session.tables.hyper_nodes;
        let within = hyper.root();
        let search = HyperSearch { group: self.group, sub_job: None, within, need: &self.need, evict: true };
        let gradients = session.policy.hyper_gradients(session.tables, &search);
        let mut domains: Vec<HyperId> = gradients.into_iter().flatten().take(domains_max).collect();
        if domains.is_empty() && session.tables.groups.row(self.group).reach(hyper) == Reach::Free {
            domains.push(within);
        }
        domains
    }

    /// The fewest bundles, in order, that make room for the gang in this domain, and its places there.
    fn in_domain(&self, session: &mut Session<'_>, domain: HyperId) -> Option<Nomination> {
        let bundles = self.bundles(session, domain);
        let least = (0..=bundles.len()).find(|count| self.might_fit(session, domain, &bundles[..*count]))?;
        // More victims never make it worse: grow until it fits, then look for the least that does.
        let (mut failed, mut count, mut step) = (None, least, 1);
        let mut found = loop {
            if let Some(nomination) = nomination::find(session, self, domain, &bundles[..count]) {
                break nomination;
            }
            if count == bundles.len() {
                return None;
            }
            failed = Some(count);
            count = (count + step).min(bundles.len());
            step *= 2;
        };
        while let Some(low) = failed.filter(|low| low + 1 < count) {
            let middle = low + (count - low) / 2;
            match nomination::find(session, self, domain, &bundles[..middle]) {
                Some(nomination) => (found, count) = (nomination, middle),
                None => failed = Some(middle),
            }
        }
        Some(found)
    }

    /// Bundles that plugins allow, in the order in which they leave.
    fn bundles(&self, session: &Session<'_>, domain: HyperId) -> Vec<Bundle> {
        let mut need = Vec::new();
        Demand(self.need.iter().copied().collect()).add_to(&mut need, 1);
        let asked = GangEviction { preemptor: self.group, reclaim: self.kind == Kind::Reclaim, need };
        let mut bundles = bundles::of(session, self, domain);
        bundles::sort(session, self, &mut bundles);
        let candidates: Vec<TaskId> = bundles.iter().flat_map(|bundle| bundle.tasks.iter().copied()).collect();
        let allowed = session.policy.unified_evictable(session.tables, &asked, &candidates);
        bundles::keep(session, self, &mut bundles, &allowed.into_iter().collect());
        bundles::sort(session, self, &mut bundles);
        bundles
    }

    /// Is there as much in all, once these and all that leaves anyway are gone?
    fn might_fit(&self, session: &Session<'_>, domain: HyperId, bundles: &[Bundle]) -> bool {
        let tables = &*session.tables;
        let freed = |dim: DimId| {
            let tasks = bundles.iter().flat_map(|bundle| &bundle.tasks);
            tasks.map(|task| tables.classes.row(tables.task(*task).class).demand.get(dim)).fold(0, i64::saturating_add)
        };
        self.need.iter().all(|(dim, amount)| *amount <= room_in(tables, domain, *dim).saturating_add(freed(*dim)))
    }

    fn decide(&self, session: &mut Session<'_>, nomination: Nomination) -> bool {
        let mut statement = Statement::new(session, self.kind.name(), self.group);
        for victim in nomination.victims {
            statement.evict(session, victim);
        }
        for (task, node) in nomination.places {
            statement.promise(session, task, node);
        }
        let pipelined = session.policy.job_pipelined(session.tables, self.group);
        statement.end(session, pipelined)
    }
}

/// What is left on all nodes of the domain together, once all that leaves it is gone and all that is promised is taken.
fn room_in(tables: &Tables, domain: HyperId, dim: DimId) -> i64 {
    let nodes = tables.hyper_nodes.row(domain).nodes.ones();
    nodes.map(|node| tables.nodes.future_room(node.into(), dim).max(0)).fold(0, i64::saturating_add)
}

#[cfg(test)]
mod tests;
