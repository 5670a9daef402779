//! Batches whose first group was refused, and is again: what the refusal rests on is looked at where it lies, so that they need
//! no turn. What is refused at the start of the action stays so, as promises only become more while it runs.
//!
//! Batches have a turn where this can't be told: in strict order, where the queue may come to be owed more, and where room
//! may be reserved for the first of a queue.

use std::collections::BTreeMap;

use super::{Known, could_start_now, goes_past, is_impossible, may_come_to_be_owed, objection, waits_behind};
use crate::actions::fair_share_order::Head;
use crate::actions::reserve;
use crate::ids::{GroupId, NamespaceId, QueueId};
use crate::policy::{NamespaceHead, Policy};
use crate::reasons::Failure;
use crate::reasons::Reason;
use crate::search::pending::enqueue_candidates::{BatchHead, BatchId, RefusalBasis};
use crate::session::Session;
use crate::world::minimum::{Missing, Past};
use crate::world::namespace_shares::Counted;
use crate::world::tables::Tables;

/// What a refusal rests on.
pub(super) fn noted(session: &Session<'_>, missing: &Missing, fits: bool, impossible: bool) -> Box<RefusalBasis> {
    Box::new(RefusalBasis { missing: missing.clone(), fits, impossible, seen: seen(session.tables) })
}

fn seen(tables: &Tables) -> (u64, u64) {
    (tables.nodes.offers_version, tables.queues.version)
}

/// The batches that are to have a turn.
pub(super) fn with_a_turn(session: &mut Session<'_>, known: &mut Known) -> Vec<Head<BatchId>> {
    let heads: Vec<Head<BatchId>> = session
        .pending_index
        .enqueue_candidates
        .heads()
        .map(|BatchHead { batch, key, group }| Head { kind: batch, queue: key.queue, namespace: key.namespace, group })
        .collect();
    let mut with_turn = Vec::new();
    // Of each queue that looks for one, the first that needs no turn otherwise.
    let mut first: BTreeMap<QueueId, Option<Head<BatchId>>> = BTreeMap::new();
    for head in heads {
        let Head { kind: batch, queue, .. } = head;
        let Some(mut refusal_basis) = session.pending_index.enqueue_candidates.batch_mut(batch).refusal_basis.take()
        else {
            with_turn.push(head);
            continue;
        };
        let refused = is_refused_again(session, head, &mut refusal_basis, known);
        let failed = session.pending_index.enqueue_candidates.batch_mut(batch);
        failed.refusal_basis = Some(refusal_basis);
        let possible = failed.failure.as_deref().is_some_and(|failure| !is_impossible(&failure.reasons));
        if !refused {
            with_turn.push(head);
        } else if possible {
            let seeks = || reserve::seeks(session, queue).then_some(head);
            let first = first.entry(queue).or_insert_with(seeks);
            if first.as_ref().is_some_and(|first| comes_before(session, &head, first)) {
                *first = Some(head);
            }
        }
    }
    with_turn.extend(first.into_values().flatten());
    with_turn
}

fn comes_before(session: &Session<'_>, one: &Head<BatchId>, other: &Head<BatchId>) -> bool {
    let (tables, policy) = (&*session.tables, &*session.policy);
    let shares = policy.shares_among_namespaces(tables, one.queue);
    let namespace = |head: &Head<BatchId>| NamespaceHead {
        namespace: if shares { head.namespace } else { NamespaceId::from(0) },
        group: head.group,
    };
    policy.namespace_order(tables, one.queue, namespace(one), namespace(other), Counted::UsageAndPromised).is_lt()
}

/// Whether the first of the batch is refused for the same kind of reason.
fn is_refused_again(
    session: &mut Session<'_>,
    Head { kind: batch, queue, group, .. }: Head<BatchId>,
    refusal_basis: &mut RefusalBasis,
    known: &mut Known,
) -> bool {
    if refusal_basis.seen != seen(session.tables) || session.policy.is_strict(session.tables, queue) {
        return false;
    }
    let missing = &mut refusal_basis.missing;
    if refusal_basis.impossible {
        return !could_start_now(session, group, missing, known);
    }
    let Some(reason) = objection(session.tables, session.policy, group, missing, Past::Nobody) else { return false };
    let same = |failure: &Failure| failure.reasons.first().is_some_and(|told| is_alike(told, &reason));
    if !session.pending_index.enqueue_candidates.batch(batch).failure.as_deref().is_some_and(same) {
        return false;
    }
    let owed = refusal_basis.fits && may_come_to_be_owed(session, queue, missing);
    !owed && !goes_past(session, group, missing, refusal_basis.fits, &reason, known)
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

/// The same reasons with the amounts as they are now, of a group that was refused as the first of its batch was.
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
