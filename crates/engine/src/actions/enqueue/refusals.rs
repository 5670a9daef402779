//! Lines whose first group was refused, and is again: what the refusal rests on is looked at where it lies, so that they need
//! no turn. What is refused at the start of the action stays so, as promises only become more while it runs.
//!
//! Lines have a turn where this can't be told: in strict order, where the queue may come to be owed more, and where room
//! may be reserved for the first of a queue.

use std::collections::BTreeMap;

use super::{Known, could_start_now, goes_past, is_impossible, may_come_to_be_owed, objection, waits_behind};
use crate::actions::reserve;
use crate::ids::{GroupId, NamespaceId, QueueId};
use crate::policy::Policy;
use crate::reasons::Failure;
use crate::reasons::Reason;
use crate::search::pending::enqueue_candidates::{BatchId, RefusalBasis};
use crate::session::Cycle;
use crate::world::minimum::{Missing, Past};
use crate::world::namespace_shares::Counted;
use crate::world::tables::Tables;

/// A line, its queue, its namespace and its first group.
type Head = (BatchId, QueueId, NamespaceId, GroupId);

/// What a refusal rests on.
pub(super) fn noted(cycle: &Cycle<'_>, missing: &Missing, fits: bool, impossible: bool) -> Box<RefusalBasis> {
    Box::new(RefusalBasis { missing: missing.clone(), fits, impossible, seen: seen(cycle.tables) })
}

fn seen(tables: &Tables) -> (u64, u64) {
    (tables.nodes.offers_version, tables.queues.version)
}

/// The lines that are to have a turn.
pub(super) fn with_a_turn(cycle: &mut Cycle<'_>, known: &mut Known) -> Vec<Head> {
    let heads: Vec<Head> = cycle
        .pending_index
        .enqueue_candidates
        .heads()
        .map(|(batch, ask, head)| (batch, ask.queue, ask.namespace, head))
        .collect();
    let mut with_turn = Vec::new();
    // Of each queue that looks for one, the first that needs no turn otherwise.
    let mut first: BTreeMap<QueueId, Option<Head>> = BTreeMap::new();
    for head in heads {
        let (batch, queue, _, group) = head;
        let Some(mut refusal_basis) = cycle.pending_index.enqueue_candidates.batch_mut(batch).refusal_basis.take()
        else {
            with_turn.push(head);
            continue;
        };
        let refused = is_refused_again(cycle, (batch, queue, group), &mut refusal_basis, known);
        let failed = cycle.pending_index.enqueue_candidates.batch_mut(batch);
        failed.refusal_basis = Some(refusal_basis);
        let possible = failed.failure.as_deref().is_some_and(|failure| !is_impossible(&failure.reasons));
        if !refused {
            with_turn.push(head);
        } else if possible {
            let seeks = || reserve::seeks(cycle, queue).then_some(head);
            let first = first.entry(queue).or_insert_with(seeks);
            if first.as_ref().is_some_and(|first| comes_before(cycle, &head, first)) {
                *first = Some(head);
            }
        }
    }
    with_turn.extend(first.into_values().flatten());
    with_turn
}

fn comes_before(cycle: &Cycle<'_>, one: &Head, other: &Head) -> bool {
    let (tables, policy) = (&*cycle.tables, &*cycle.policy);
    let shares = policy.shares_among_namespaces(tables, one.1);
    let tenant = |head: &Head| (if shares { head.2 } else { NamespaceId::from(0) }, head.3);
    policy.namespace_order(tables, one.1, tenant(one), tenant(other), Counted::UsageAndPromised).is_lt()
}

/// Whether the first of the line is refused for the same kind of reason.
fn is_refused_again(
    cycle: &mut Cycle<'_>,
    (batch, queue, group): (BatchId, QueueId, GroupId),
    refusal_basis: &mut RefusalBasis,
    known: &mut Known,
) -> bool {
    if refusal_basis.seen != seen(cycle.tables) || cycle.policy.is_strict(cycle.tables, queue) {
        return false;
    }
    let missing = &mut refusal_basis.missing;
    if refusal_basis.impossible {
        return !could_start_now(cycle, group, missing, known);
    }
    let Some(reason) = objection(cycle.tables, cycle.policy, group, missing, Past::Nobody) else { return false };
    let same = |failure: &Failure| failure.reasons.first().is_some_and(|told| is_alike(told, &reason));
    if !cycle.pending_index.enqueue_candidates.batch(batch).failure.as_deref().is_some_and(same) {
        return false;
    }
    let owed = refusal_basis.fits && may_come_to_be_owed(cycle, queue, missing);
    !owed && !goes_past(cycle, group, missing, refusal_basis.fits, &reason, known)
}

/// Equal but for amounts that change.
fn is_alike(one: &Reason, other: &Reason) -> bool {
    match (one, other) {
        (Reason::QueueLimit { limit, never, .. }, Reason::QueueLimit { limit: its, never: is, .. })
            if (limit, never) != (its, is) =>
        {
            false
        }
        (Reason::Overcommitted { resource, .. }, Reason::Overcommitted { resource: of, .. }) => resource == of,
        _ => one.is_about_as(other),
    }
}

/// The same reasons with the amounts as they are now, of a group that was refused as the first of its line was.
pub(crate) fn renew(
    tables: &Tables,
    policy: &Policy,
    group: GroupId,
    refusal_basis: &RefusalBasis,
    reasons: &mut Vec<Reason>,
) {
    let mut missing = refusal_basis.missing.clone();
    if refusal_basis.impossible {
        return;
    }
    let now = objection(tables, policy, group, &mut missing, Past::Nobody);
    if let Some(now) = now.filter(|now| reasons.first().is_some_and(|told| is_alike(told, now))) {
        *reasons = vec![now];
        reasons.extend(waits_behind(tables, tables.groups.row(group).queue));
    }
}
