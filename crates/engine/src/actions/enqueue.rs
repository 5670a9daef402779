//! `enqueue`: admits groups (Pending to Inqueue), so that pods are made for them.
//!
//! A group is admitted if its minimum fits the empty cluster and what its queue's limit leaves beside what is
//! promised to admitted groups, and no plugin rejects it; and always if it could start right now within the limits. An
//! impossible group is not admitted and is not counted, so it holds nobody up. Only the first of those that are alike is
//! looked at until it is admitted: while this action runs promises only become more, and what is refused stays so. Where namespaces share a queue, one that
//! has nobody waiting is not held up by what others were promised.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::allocate::packing;
use super::fair_share_order::{FairShareOrder, Outcome, Turn};
use super::outranked::Outranked;
use super::reserve;
use crate::config::Action;
use crate::facts::{GroupPhase, NodeName};
use crate::ids::{ClassId, DimId, GroupId, QueueId, TaskId};
use crate::policy::Policy;
use crate::queue_limit;
use crate::reasons::Failure;
use crate::reasons::{Check, CheckCount, NodesUnfit, Reason, Shortage, Stage};
use crate::resource_dims::Demand;
use crate::search::finder::{PodsWanted, Search};
use crate::search::pending::enqueue_candidates::{BatchId, RefusalBasis};
use crate::session::Session;
use crate::share;
use crate::world::end_times::Confidence;
use crate::world::groups::GroupRow;
use crate::world::minimum::{Missing, Part, Past, easiest, missing, of_pods};
use crate::world::namespace_shares::Counted;
use crate::world::reservations::Lift;
use crate::world::tables::Tables;
use crate::world::tasks::Counting;
use crate::world::tasks::TaskState;

mod autoscaling;
mod refusals;

pub(crate) use refusals::renew;

/// Names of groups ahead that a reason gives.
const AHEAD_NAMED_MAX: usize = 5;

/// Which missing parts could be placed this moment, past reservations that are lifted or none. Nothing is placed while this
/// action runs, so an answer stays true.
type Placeable = FxHashMap<(Vec<(ClassId, u32)>, Option<Lift>), bool>;

/// What was worked out for one group and serves others.
#[derive(Default)]
struct Known {
    placeable: Placeable,
    /// Groups of several kinds of pods that may still be tried.
    tries_left: u32,
    outranked: Outranked,
    fronts: reserve::Fronts,
    /// Lines that had their turn in the queue whose turn it is, and may be owed something once more was promised.
    revocable: Vec<BatchId>,
}

/// On what terms a group is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Terms {
    /// It is promised what it needs.
    Promised,
    /// No present node fits it: its pods are for an autoscaler to see.
    AwaitsNodes,
}

/// Why a group can't be admitted.
struct Refusal {
    reasons: Vec<Reason>,
    /// The queue may be owed it once more was promised.
    revocable: bool,
    refusal_basis: Option<Box<RefusalBasis>>,
}

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Self {
        Self { reasons: vec![reason], revocable: false, refusal_basis: None }
    }
}

/// What came of a look at a group.
struct Verdict {
    /// Why it was not admitted.
    failure: Option<Failure>,
    revocable: bool,
    refusal_basis: Option<Box<RefusalBasis>>,
    /// Nothing behind it is admitted in its queue.
    holds_up: bool,
}

pub(crate) fn run(session: &mut Session<'_>) {
    autoscaling::look_again(session);
    if session.tables.groups.unadmitted.is_empty() {
        return;
    }
    session.pending_index.refresh(session.tables, session.policy, session.config);
    session.tables.settle_inqueue_demand();
    let mut known = Known {
        placeable: Placeable::default(),
        tries_left: packing::GANGS_MAX,
        outranked: Outranked::default(),
        fronts: reserve::Fronts::default(),
        revocable: Vec::new(),
    };
    let alone: Vec<GroupId> = session.pending_index.enqueue_candidates.alone.iter().copied().collect();
    let heads = refusals::with_a_turn(session, &mut known);
    let mut order = FairShareOrder::over(session.tables, session.policy, Counted::UsageAndPromised, heads, &alone);
    let mut queue = None;
    while let Some(turn) = order.pop() {
        if queue.replace(turn.queue) != Some(turn.queue) {
            known.revocable.clear();
        }
        let verdict = review(session, turn.group, &mut known);
        let outcome = match verdict.failure {
            Some(failure) => {
                if verdict.revocable {
                    known.revocable.extend(turn.kind);
                }
                fail(session, turn.group, turn.kind, Arc::new(failure), verdict.refusal_basis);
                Outcome::Stuck
            }
            None => {
                for batch in std::mem::take(&mut known.revocable) {
                    let namespace = session.pending_index.enqueue_candidates.key_of(batch).namespace;
                    order.revive(
                        session.tables,
                        session.policy,
                        &session.pending_index.enqueue_candidates,
                        &turn,
                        batch,
                        namespace,
                    );
                }
                Outcome::Done
            }
        };
        if verdict.holds_up {
            hold_up(session, &mut order, turn, outcome);
        } else {
            order.put_back(session.tables, session.policy, &session.pending_index.enqueue_candidates, turn, outcome);
        }
    }
}

/// The failure of one is that of all in its batch.
fn fail(
    session: &mut Session<'_>,
    group: GroupId,
    batch: Option<BatchId>,
    failure: Arc<Failure>,
    refusal_basis: Option<Box<RefusalBasis>>,
) {
    match batch {
        Some(batch) => session.pending_index.enqueue_candidates.fail(batch, failure, refusal_basis),
        None => drop(session.failures.insert(group, Arc::unwrap_or_clone(failure))),
    }
}

/// Nothing behind the group is admitted in its queue. Those alike wait for what it waits for, if it waits.
fn hold_up(session: &mut Session<'_>, order: &mut FairShareOrder<BatchId>, turn: Turn<BatchId>, outcome: Outcome) {
    let failure = Arc::new(Failure::at(Stage::Enqueue, vec![strict_order(session, turn.queue, turn.group)]));
    let (groups, batches) = order.drop_queue(turn);
    for group in groups.into_iter().filter(|group| *group != turn.group) {
        fail(session, group, None, failure.clone(), None);
    }
    for batch in batches.into_iter().filter(|batch| outcome == Outcome::Done || Some(*batch) != turn.kind) {
        fail(session, turn.group, Some(batch), failure.clone(), None);
    }
}

/// Admits the group, or says why not.
fn review(session: &mut Session<'_>, group: GroupId, known: &mut Known) -> Verdict {
    let mut missing = missing(session.tables, group);
    let Refusal { reasons, revocable, refusal_basis } = match decide(session, group, &mut missing, known) {
        Ok(terms) => {
            admit(session, group, &missing, terms);
            return Verdict { failure: None, revocable: false, refusal_basis: None, holds_up: false };
        }
        Err(refusal) => refusal,
    };
    let impossible = is_impossible(&reasons);
    let holds_up = !impossible && session.policy.is_strict(session.tables, session.tables.groups.row(group).queue);
    let by_number = matches!(reasons.first(), Some(Reason::QueueJobs { .. }));
    if !impossible && !by_number && reserve::admits(session, group, &missing, &mut known.fronts) {
        admit(session, group, &missing, Terms::Promised);
        return Verdict { failure: None, revocable, refusal_basis, holds_up };
    }
    let estimated = matches!(reasons.first(), Some(Reason::QueueLimit { .. } | Reason::ExceedsCluster(_)));
    let approximate = missing.block.is_some() && estimated;
    Verdict {
        failure: Some(Failure { stage: Stage::Enqueue, approximate, reasons }),
        revocable,
        refusal_basis,
        holds_up,
    }
}

fn admit(session: &mut Session<'_>, group: GroupId, missing: &Missing, terms: Terms) {
    session.tables.set_phase(group, GroupPhase::Inqueue);
    session.plan.admitted.push(session.tables.groups.row(group).key());
    if terms == Terms::AwaitsNodes {
        return session.tables.groups.set_awaits_nodes(group, true);
    }
    let more = session.tables.needs_more_later(session.tables.groups.row(group));
    let until = more.then(|| session.now.plus_ms(session.config.promise_ms()));
    session.tables.groups.set_sum(group, until);
    session.tables.promise(group, missing);
    session.policy.job_enqueued(session.tables, group, missing);
}

pub(super) fn strict_order(session: &Session<'_>, queue: QueueId, next: GroupId) -> Reason {
    let queue = session.tables.queues.row(queue).name.to_string();
    Reason::StrictOrder { queue, next: session.tables.groups.row(next).key() }
}

/// What can never be admitted as things are keeps nobody waiting, not even in strict order.
pub(super) fn is_impossible(reasons: &[Reason]) -> bool {
    let impossible = |reason: &Reason| match reason {
        Reason::QueueLimit { never, .. } => *never,
        Reason::ExceedsCluster(_) | Reason::QueueNotFound { .. } | Reason::QueueClosed { .. } => true,
        Reason::QueueUnusable { .. } => true,
        _ => false,
    };
    reasons.iter().any(impossible)
}

fn decide(
    session: &mut Session<'_>,
    group: GroupId,
    missing: &mut Missing,
    known: &mut Known,
) -> Result<Terms, Refusal> {
    let queue = session.tables.groups.row(group).queue;
    let row = session.tables.queues.row(queue);
    let name = row.name.to_string();
    if !row.known {
        return Err(Reason::QueueNotFound { queue: name }.into());
    }
    if !row.is_open() {
        return Err(Reason::QueueClosed { queue: name, state: format!("{:?}", row.state) }.into());
    }
    if let Some(reason) = queue_limit::jobs_reached(session.tables, queue) {
        return Err(reason.into());
    }
    if session.tables.nodes.known == 0 {
        // What never fits can't be told yet, and pods that wait are what brings nodes.
        return never_allowed(session, group, missing).map_or(Ok(Terms::Promised), |reason| Err(reason.into()));
    }
    let mut fits = fits_alone(session, group, missing);
    // It may start with others of its pods.
    if !fits && let Some(easier) = easier(session, group) {
        *missing = easier;
        fits = true;
    }
    if !fits && !could_start_now(session, group, missing, known) {
        let reason = never_allowed(session, group, missing);
        if reason.is_none() && autoscaling::adds_nodes(session) {
            return Ok(Terms::AwaitsNodes);
        }
        let reason = reason.unwrap_or_else(|| Reason::ExceedsCluster(exceeds(session, group, missing)));
        let refusal_basis = Some(refusals::noted(session, missing, false, true));
        return Err(Refusal { refusal_basis, ..reason.into() });
    }
    let Some(reason) = objection(session.tables, session.policy, group, missing, Past::Nobody) else {
        return Ok(Terms::Promised);
    };
    if goes_past(session, group, missing, fits, &reason, known) {
        return Ok(Terms::Promised);
    }
    let revocable = fits && may_come_to_be_owed(session, queue, missing);
    let refusal_basis = Some(refusals::noted(session, missing, fits, false));
    let mut reasons = vec![reason];
    reasons.extend(waits_behind(session.tables, queue));
    Err(Refusal { reasons, revocable, refusal_basis })
}

/// Whether the group is admitted although there is an objection to it.
fn goes_past(
    session: &mut Session<'_>,
    group: GroupId,
    missing: &mut Missing,
    fits: bool,
    reason: &Reason,
    known: &mut Known,
) -> bool {
    let row = session.tables.groups.row(group);
    let queue = row.queue;
    let first_of_namespace =
        session.policy.fairness.namespaces && !session.tables.inqueue_demand.waits(queue, row.namespace_id);
    let past_waiting = |session: &Session<'_>, missing: &mut Missing| {
        objection(session.tables, session.policy, group, missing, Past::Waiting).is_none()
    };
    if fits && first_of_namespace && past_waiting(session, missing) || could_start_now(session, group, missing, known) {
        return true;
    }
    fits && (is_owed(session, queue, missing, reason) || known.outranked.make_room(session, group, missing))
}

/// Who was admitted to the queue before, and still waits.
fn waits_behind(tables: &Tables, queue: QueueId) -> Option<Reason> {
    let ahead =
        tables.inqueue_demand.of(queue, false).map(|promised| &promised.groups).filter(|ahead| !ahead.is_empty())?;
    // Asked between cycles some may have gone.
    let there = ahead.iter().filter_map(|group| tables.groups.table.get(group.index()));
    let groups = there.take(AHEAD_NAMED_MAX).map(GroupRow::key).collect();
    Some(Reason::WaitsBehind { groups, count: u32::try_from(ahead.len()).unwrap_or(u32::MAX) })
}

/// Whether the queue would still be within its share, so that it reclaims what others hold or were promised in its place.
fn is_owed(session: &Session<'_>, queue: QueueId, missing: &Missing, reason: &Reason) -> bool {
    let of_others = matches!(reason, Reason::QueueLimit { .. } | Reason::Overcommitted { .. });
    of_others && reclaims(session, queue) && is_within_share(session, queue, missing)
}

/// Whether more promises may lead to it. Otherwise they only take away from what the queue is owed.
fn may_come_to_be_owed(session: &Session<'_>, queue: QueueId, missing: &Missing) -> bool {
    reclaims(session, queue) && (session.policy.preemptive_in_part() || is_within_share(session, queue, missing))
}

fn reclaims(session: &Session<'_>, queue: QueueId) -> bool {
    session.config.has(Action::Reclaim) && session.policy.shares(session.tables, queue).is_some()
}

fn is_within_share(session: &Session<'_>, queue: QueueId, missing: &Missing) -> bool {
    let mut wanted = missing.total.clone();
    if let Some(promised) = session.tables.inqueue_demand.of(queue, false) {
        share::add(&mut wanted, &promised.all, 1);
    }
    let amounts = wanted.iter().enumerate().filter(|(_, amount)| **amount > 0);
    let demand = Demand(amounts.map(|(dim, amount)| (dim.into(), *amount)).collect());
    session.policy.preemptive(session.tables, queue, &demand)
}

/// What the group holds already belongs to the minimum, so it is compared with an otherwise empty queue.
fn never_allowed(session: &Session<'_>, group: GroupId, missing: &Missing) -> Option<Reason> {
    let row = session.tables.groups.row(group);
    let mut reason = queue_limit::exceeded(session.tables, row.queue, &missing.total, &row.allocated)?;
    if let Reason::QueueLimit { never, .. } = &mut reason {
        *never = true;
    }
    Some(reason)
}

/// Whether the group would be admitted at once, because it could start this moment.
pub(crate) fn admits_now(session: &mut Session<'_>, group: GroupId) -> bool {
    let row = session.tables.groups.row(group);
    let mut missing = missing(session.tables, group);
    let asks = !missing.parts.is_empty() || missing.block.is_some();
    let mut known = Known { tries_left: 1, ..Known::default() };
    let queue = row.queue;
    let may = session.tables.queues.row(queue).is_open() && queue_limit::jobs_reached(session.tables, queue).is_none();
    asks && may && could_start_now(session, group, &mut missing, &mut known)
}

/// All that stands against the group's admission now, each resource by itself, the deciding first.
pub(crate) fn objections(session: &mut Session<'_>, group: GroupId) -> Vec<Reason> {
    let queue = session.tables.groups.row(group).queue;
    let missing = missing(session.tables, group);
    let mut used = session.tables.queues.row(queue).own.in_use();
    if let Some(promised) = session.tables.inqueue_demand.of(queue, false) {
        share::add(&mut used, &promised.all, 1);
    }
    let mut found: Vec<Reason> = queue_limit::all_exceeded(session.tables, queue, &missing.total, &used).collect();
    for (dim, amount) in missing.total.iter().enumerate().filter(|(_, amount)| **amount > 0) {
        let mut total = vec![0; dim + 1];
        total[dim] = *amount;
        let of_one = Missing { total, ..missing.clone() };
        let of_plugins = session.policy.enqueue_objections(session.tables, group, &of_one);
        for reason in of_plugins.into_iter().chain(session.tables.beside_sums(group, &of_one, Past::Nobody)) {
            if !found.iter().any(|other| other.is_about_as(&reason)) {
                found.push(reason);
            }
        }
    }
    found
}

/// Would it fit if nothing else ran?
fn fits_alone(session: &mut Session<'_>, group: GroupId, missing: &Missing) -> bool {
    never_allowed(session, group, missing).is_none() && fits_empty(session, missing)
}

/// The smallest of its pods that it could start with if nothing else ran. A group that declares a sum needs all of it.
fn easier(session: &mut Session<'_>, group: GroupId) -> Option<Missing> {
    if missing(session.tables, group).declares_more() {
        return None;
    }
    easiest_on_empty(session, group).filter(|easier| fits_alone(session, group, easier))
}

/// Whether nodes could take one of the group's pods that wait, and those that its minimum lacks, if nothing ran.
pub(crate) fn some_pod_fits_a_node(session: &mut Session<'_>, group: GroupId) -> bool {
    easiest_on_empty(session, group).is_some()
}

fn easiest_on_empty(session: &mut Session<'_>, group: GroupId) -> Option<Missing> {
    let Session { tables, policy, finder, .. } = session;
    let possible = |part: &Part| finder.unplaced_on_empty(tables, policy, std::slice::from_ref(part)).is_none();
    easiest(tables, group, possible)
}

/// Whether the group could start if nothing else ran, with at least one pod.
pub(crate) fn is_possible(session: &mut Session<'_>, group: GroupId) -> bool {
    let missing = missing(session.tables, group);
    let asks = !missing.parts.is_empty() || missing.block.is_some();
    asks && fits_alone(session, group, &missing) || easier(session, group).is_some()
}

/// What the queue's limit and the plugins say, beside what is promised to others.
fn objection(tables: &Tables, policy: &Policy, group: GroupId, missing: &mut Missing, past: Past) -> Option<Reason> {
    missing.past = past;
    let queue = tables.groups.row(group).queue;
    let mut used = tables.queues.row(queue).own.in_use();
    share::add(&mut used, &tables.inqueue_demand.ahead(queue, false, past), 1);
    let limit = queue_limit::exceeded(tables, queue, &missing.total, &used);
    let voted = || policy.job_enqueueable(tables, group, missing).err();
    limit.or_else(voted).or_else(|| tables.beside_sums(group, missing, past))
}

/// Could the whole minimum be placed this moment, past those that wait for nodes? Tried on the tables and taken back.
fn could_start_now(session: &mut Session<'_>, group: GroupId, missing: &mut Missing, known: &mut Known) -> bool {
    if !missing.declares_more() && place_tentatively(session, group, missing, known) {
        return true;
    }
    let past_waiting = objection(session.tables, session.policy, group, missing, Past::Waiting).is_none();
    if !past_waiting && !session.tables.reservations.keep_any() {
        return false;
    }
    let total = &session.tables.nodes.total;
    if missing.total.iter().zip(total).any(|(wanted, offered)| wanted > offered) {
        return false;
    }
    if missing.block.is_some() {
        let wanted = missing.total.iter().enumerate().filter(|(_, amount)| **amount > 0);
        let fits = |(dim, amount): (usize, &i64)| *amount <= session.tables.nodes.room_in_all(DimId::from(dim));
        let has_room = wanted.into_iter().all(fits);
        if missing.parts.is_empty() || !has_room || !past_waiting {
            return has_room && past_waiting;
        }
    }
    let parts: Vec<(ClassId, u32)> = missing.parts.iter().map(|part| (part.class, part.count)).collect();
    let mut now_free =
        || *known.placeable.entry((parts.clone(), None)).or_insert_with(|| place_and_take_back(session, missing));
    past_waiting && now_free() || could_pass(session, group, missing, past_waiting, parts, known)
}

/// Could it be placed on room that is kept for others, to be gone before they need it? Where what they were promised is in
/// the way, too, it has to have a limit.
fn could_pass(
    session: &mut Session<'_>,
    group: GroupId,
    missing: &mut Missing,
    past_waiting: bool,
    parts: Vec<(ClassId, u32)>,
    known: &mut Known,
) -> bool {
    if parts.is_empty() || !session.tables.reservations.keep_any() {
        return false;
    }
    session.tables.reservations.lifts().into_iter().any(|lift| {
        let passes = |lift: Lift| parts.iter().all(|(class, _)| reserve::class_passes(session, group, *class, lift));
        let is_over_before = |missing: &mut Missing| {
            passes(Lift { confidence: Confidence::Certain, ..lift })
                && objection(session.tables, session.policy, group, missing, Past::Ending(lift.from)).is_none()
        };
        let may = if past_waiting { passes(lift) } else { is_over_before(missing) };
        may && *known.placeable.entry((parts.clone(), Some(lift))).or_insert_with(|| {
            session.tables.lift_reservations(lift, session.now);
            let placed = place_and_take_back(session, missing);
            session.tables.keep_again(session.now);
            placed
        })
    })
}

/// The same for a group with pods of several kinds, which may start with one or the other of them: what it would start
/// with is `missing` then.
fn place_tentatively(session: &mut Session<'_>, group: GroupId, missing: &mut Missing, known: &mut Known) -> bool {
    let (tables, row) = (&*session.tables, session.tables.groups.row(group));
    let waits = |task: &TaskId| {
        let row = tables.task(*task);
        row.state == TaskState::Pending && !row.gated && row.not_before <= session.now
    };
    let mut tasks: Vec<TaskId> = row.tasks.iter().copied().filter(waits).collect();
    let class = |task: &TaskId| tables.task(*task).class;
    if tasks.iter().all(|task| class(task) == class(&tasks[0])) || known.tries_left == 0 {
        return false;
    }
    tasks.sort_by(|left, right| session.policy.task_order(tables, *left, *right));
    known.tries_left -= 1;
    let savepoint = session.tables.savepoint();
    session.policy.lending = session.policy.fairness.lending;
    let placed = packing::place_largest_first(session, group, &tasks, Counting::Placed);
    session.policy.lending = false;
    session.rollback(savepoint);
    let Ok(placed) = placed else { return false };
    let mut start = of_pods(session.tables, &placed);
    if objection(session.tables, session.policy, group, &mut start, Past::Waiting).is_some() {
        return false;
    }
    *missing = start;
    true
}

fn place_and_take_back(session: &mut Session<'_>, missing: &Missing) -> bool {
    let savepoint = session.tables.savepoint();
    let fits = missing.parts.iter().all(|part| {
        (0..part.count).all(|_| {
            match session.finder.best(session.tables, session.policy, Search::of_class(part.class)) {
                Some(node) => {
                    session.tables.hold(part.class, node);
                    true
                }
                None => false,
            }
        })
    });
    session.rollback(savepoint);
    fits
}

/// Would the minimum fit if nothing ran?
fn fits_empty(session: &mut Session<'_>, missing: &Missing) -> bool {
    let offered = |(dim, wanted): (usize, &i64)| *wanted <= share::at(&session.tables.nodes.total, DimId::from(dim));
    (missing.block.is_none() || missing.total.iter().enumerate().all(offered))
        && session.finder.unplaced_on_empty(session.tables, session.policy, &missing.parts).is_none()
}

fn exceeds(session: &mut Session<'_>, group: GroupId, missing: &Missing) -> NodesUnfit {
    let tables = &*session.tables;
    let beyond = |(dim, amount): (usize, &i64)| {
        let short = amount.saturating_sub(share::at(&tables.nodes.total, DimId::from(dim)));
        if short <= 0 {
            return None;
        }
        Some(Shortage {
            resource: tables.dims.name(DimId::from(dim)).to_string(),
            requested: *amount,
            best_node: NodeName::default(),
            short_on_best: short,
            short_total: short,
        })
    };
    let short: Vec<Shortage> = missing.total.iter().enumerate().filter_map(beyond).collect();
    if missing.block.is_some() && (missing.parts.is_empty() || !short.is_empty()) {
        let nodes = tables.nodes.known;
        let checks =
            short.iter().map(|short| CheckCount { check: Check::Resource, detail: short.resource.clone(), nodes });
        let needed = tables.groups.row(group).declared_min;
        return NodesUnfit { needed, nodes, checks: checks.collect(), short, ..NodesUnfit::default() };
    }
    let unplaced = session.finder.unplaced_on_empty(session.tables, session.policy, &missing.parts);
    let Some(unplaced) = unplaced else { return NodesUnfit::default() };
    let class = unplaced.class;
    let part = missing.parts.iter().find(|part| part.class == class);
    let (needed, role) = part.map_or((0, String::new()), |part| (part.count, part.role.to_string()));
    let pods = PodsWanted { needed, found_room: unplaced.found_room };
    let mut unfit = unplaced.findings.unfit(session.tables, pods);
    unfit.role = role;
    unfit
}
