//! The end of a cycle: phases, conditions and reasons of the groups that changed or wait, and what is to be written.
//!
//! Invariant: a status is written only when its class changes (phase, counters, kind of reason), a pod's condition
//! only when the kind of reason does. Follows Volcano's session close.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::actions::enqueue;
use crate::config::{Action, Config};
use crate::deadlines;
use crate::facts::{GroupCondition, GroupPhase, GroupStatus};
use crate::ids::{GroupId, TimeMs};
use crate::plan::{GroupUpdate, PodNotice, QueueUpdate};
use crate::reasons::Failure;
use crate::reasons::{Minimum, Reason, Reasons, RoleMinimum, Stage};
use crate::search::View;
use crate::search::pending::{PendingIndex, TaskClassGroups, TaskClassKey};
use crate::session::Session;
use crate::world::groups::{AWAITS_NODES, GroupRow, MADE_PREFIX, Noticed, StoredReasons};
use crate::world::min_resources::{PROMISED, SOME_TIME};
use crate::world::sub_jobs::JOB_HYPER_NODE;
use crate::world::tables::Tables;
use crate::world::tasks::Counting;
use crate::world::tasks::TaskState;

/// Missing pods, and missing groups, are reported on objects only after this: a controller takes a moment to make them. Of
/// pods, after the last one that came: a large gang is told nothing while it is being made.
const MAKING_GRACE_MS: i64 = 5_000;
/// A group's pods are told of another kind of reason at most this often.
const NOTICE_GAP_MS: i64 = 10_000;

pub(crate) fn run(session: &mut Session<'_>) {
    if session.start_estimates.refresh(session.tables, session.pending_index, session.now) {
        deadlines::look(session);
    }
    let changed: Vec<TaskClassKey> = with_unreported_reasons(session.pending_index);
    let mut groups = session.tables.groups.take_dirty();
    groups.sort_unstable();
    let failed: Vec<GroupId> = session.failures.keys().copied().collect();
    let unchanged = |group: &GroupId| groups.binary_search(group).is_err() && is_no_news(session, *group);
    let (known, news): (Vec<_>, Vec<_>) = failed.into_iter().partition(unchanged);
    known.into_iter().for_each(|group| refresh_numbers(session, group));
    groups.extend(news);
    groups.extend(long_absent(session));
    groups.extend(session.tables.groups.due_sums(session.now));
    groups.extend(changed.iter().flat_map(|kind| session.pending_index.by_task_class[kind].groups.iter()));
    let (enqueue_candidates, batches) = session.pending_index.enqueue_candidates.take_unreported();
    groups.extend(enqueue_candidates);
    groups.sort_unstable();
    groups.dedup();
    groups.retain(|group| session.tables.groups.table.get(group.index()).is_some());
    let mut put_off: BTreeSet<GroupId> = BTreeSet::new();
    for group in groups {
        if !review(session, group) {
            put_off.insert(group);
        }
    }
    for kind in changed {
        let task_class =
            session.pending_index.by_task_class.get_mut(&kind).expect("no bucket leaves while a cycle ends");
        if put_off.is_empty() || !task_class.groups.iter().any(|group| put_off.contains(&group)) {
            task_class.reported = task_class.failure.as_deref().map(Failure::class);
        }
    }
    for batch in batches {
        if put_off.is_empty()
            || !session
                .pending_index
                .enqueue_candidates
                .batch(batch)
                .groups
                .iter()
                .any(|group| put_off.contains(&group))
        {
            session.pending_index.enqueue_candidates.reported(batch);
        }
    }
    // Reviewing changes phases, which marks groups again; they have just been looked at.
    drop(session.tables.groups.take_dirty());
    queues(session);
}

/// Whether a group that failed alone, and has not changed, waits for what its objects and pods say already.
fn is_no_news(session: &Session<'_>, group: GroupId) -> bool {
    let failure = &session.failures[&group];
    let Some(row) = session.tables.groups.table.get(group.index()) else { return false };
    if session.pending_index.task_class_of(group).is_some() {
        return false;
    }
    let Some(stored) = &row.reasons else { return false };
    let knows = |noticed: &Noticed| noticed.version == row.shape_version && failure.is_class(&noticed.class);
    let written = !row.known || row.emitted.is_some();
    let same_stage = stored.failure.stage == failure.stage && failure.stage != Stage::NoPods;
    let in_network = row.wants_domains(&session.tables.hyper_nodes);
    // What has no pods has nobody to tell.
    let reported = row.tasks.is_empty() || row.noticed.as_deref().is_some_and(knows);
    written && same_stage && !in_network && reported
}

/// Keeps the numbers of a failure that is no news.
fn refresh_numbers(session: &mut Session<'_>, group: GroupId) {
    let failure = session.failures.remove(&group);
    if let (Some(stored), Some(failure)) = (&mut session.tables.groups.row_mut(group).reasons, failure) {
        stored.failure = Arc::new(failure);
    }
}

/// Buckets whose groups wait for another kind of reason than they were told.
fn with_unreported_reasons(pending_index: &PendingIndex) -> Vec<TaskClassKey> {
    let is_told = |task_class: &TaskClassGroups, failure: &Failure| {
        task_class.reported.as_ref().is_some_and(|reported| failure.is_class(reported))
    };
    let news = |task_class: &TaskClassGroups| {
        task_class.failure.as_deref().is_some_and(|failure| !is_told(task_class, failure))
    };
    pending_index.by_task_class.iter().filter(|(_, task_class)| news(task_class)).map(|(kind, _)| *kind).collect()
}

/// Why a group waits, with the numbers of the cycle that last tried one like it.
pub(crate) fn reasons_of(View { tables, policy, pending_index, .. }: View<'_>, group: GroupId) -> Option<Reasons> {
    let row = tables.groups.row(group);
    let stored = row.reasons.as_ref()?;
    let now = if row.counts.pipelined() == 0 { alike(tables, pending_index, group) } else { None };
    let now = now.filter(|failure| failure.stage == stored.failure.stage);
    let mut reasons = in_full(tables, row, stored.since, now.as_ref().unwrap_or(&stored.failure));
    if now.is_some()
        && row.phase == GroupPhase::Pending
        && let Some(batch) = pending_index.enqueue_candidates.batch_of(group)
        && let Some(refusal_basis) = batch.refusal_basis.as_deref()
    {
        enqueue::renew(tables, policy, group, refusal_basis, &mut reasons.reasons);
    }
    Some(reasons)
}

/// Why those wait that are like the group.
fn alike(tables: &Tables, pending_index: &PendingIndex, group: GroupId) -> Option<Arc<Failure>> {
    let row = tables.groups.row(group);
    if row.phase == GroupPhase::Pending
        && let Some(batch) = pending_index.enqueue_candidates.batch_of(group)
        && let Some(failure) = &batch.failure
    {
        return Some(failure.clone());
    }
    Some(in_words_of(row, pending_index.task_class_of(group)?.failure.as_ref()?))
}

/// The failure of a group that is alike, with this group's own names.
fn in_words_of(row: &GroupRow, failure: &Arc<Failure>) -> Arc<Failure> {
    let [role] = row.roles.as_slice() else { return failure.clone() };
    let is_other = |reason: &Reason| matches!(reason, Reason::NodesUnfit(unfit) if *unfit.role != *role.name);
    if !failure.reasons.iter().any(is_other) {
        return failure.clone();
    }
    let mut failure = Failure::clone(failure);
    for reason in &mut failure.reasons {
        if let Reason::NodesUnfit(unfit) = reason {
            unfit.role = role.name.to_string();
        }
    }
    Arc::new(failure)
}

/// All that is to be said of it, with what follows from the group's row.
fn in_full(tables: &Tables, row: &GroupRow, since: TimeMs, failure: &Failure) -> Reasons {
    let unmet = row.roles.iter().filter(|role| row.role_minima_apply() && role.counts.ready() < role.min);
    let roles =
        unmet.map(|role| RoleMinimum { role: role.name.to_string(), min: role.min, ready: role.counts.ready() });
    Reasons {
        stage: failure.stage,
        since,
        queue: tables.queues.row(row.queue).name.to_string(),
        minimum: Minimum {
            min_member: row.min_member,
            ready: row.counts.ready(),
            pending: row.pending(),
            roles: roles.collect(),
        },
        approximate: failure.approximate,
        expected: None,
        reasons: failure.reasons.clone(),
    }
}

/// What a group is told: long texts, which few read.
fn reasons_in_full(tables: &Tables, group: GroupId) -> Option<Reasons> {
    let row = tables.groups.row(group);
    row.reasons.as_ref().map(|stored| in_full(tables, row, stored.since, &stored.failure))
}

/// False if its pods are to be told later.
fn review(session: &mut Session<'_>, group: GroupId) -> bool {
    let own = session.failures.remove(&group).map(Arc::new);
    let failure = own.or_else(|| alike(session.tables, session.pending_index, group));
    let stored = stored(session, group, failure);
    let worth_telling_at = stored.as_ref().map(|stored| worth_telling_at(session, group, stored));
    let too_early = worth_telling_at.filter(|at| *at > session.now);
    let reported = match (&stored, too_early) {
        (Some(stored), None) => Some(stored.failure.clone()),
        _ => None,
    };
    if let Some(at) = too_early {
        session.wake_at(at);
    }
    await_group(session, group, stored.as_ref());
    session.tables.groups.row_mut(group).reasons = stored;
    let ready = is_ready(session, group);
    watch_start(session, group, ready);
    let blocked = reported.as_ref().is_some_and(|failure| !ready && failure.stage != Stage::NoGroup);
    let phase = phase(session.tables.groups.row(group), blocked, ready);
    if phase == GroupPhase::Pending && session.tables.groups.row(group).phase != phase {
        // It has to be admitted again, without waiting for an event.
        session.wake_at(session.now);
    }
    session.tables.set_phase(group, phase);
    if phase != GroupPhase::Inqueue {
        session.tables.groups.set_awaits_nodes(group, false);
    }
    settle_sum(session, group);
    let row = session.tables.groups.row(group);
    // Binds are answered in a moment, and then there is more to say: one write instead of two. What has no object has
    // nothing written.
    let in_flight = row.counts.get(TaskState::Binding) > 0;
    if row.known && (!in_flight || row.emitted.as_ref().is_none_or(|old| old.phase != phase)) {
        let blocked = if blocked { reasons_in_full(session.tables, group) } else { None };
        let status = status(session.tables, group, phase, ready, blocked.as_ref());
        write_status(session, group, status);
    }
    reported.is_none_or(|failure| notify_pods(session, group, &failure))
}

/// Guesses when a group that has come to wait will start, or tells that it has.
fn watch_start(session: &mut Session<'_>, group: GroupId, ready: bool) {
    let Session { tables, policy, pending_index, start_estimates, now, .. } = session;
    let row = tables.groups.row(group);
    if ready {
        start_estimates.ended(group, Some(row.created), *now);
    } else if row.reasons.is_some() {
        start_estimates.watch(View { tables, policy, pending_index, now: *now }, group);
    } else {
        start_estimates.ended(group, None, *now);
    }
}

/// Pods and groups that are only being made are no news.
fn worth_telling_at(session: &mut Session<'_>, group: GroupId, stored: &StoredReasons) -> TimeMs {
    match stored.failure.stage {
        Stage::NoGroup => stored.since.plus_ms(MAKING_GRACE_MS),
        Stage::NoPods => {
            let row = session.tables.groups.row_mut(group);
            if row.tasks.len() > row.arrived.0 {
                row.arrived.1 = session.now;
            }
            row.arrived.0 = row.tasks.len();
            row.arrived.1.max(stored.since).plus_ms(MAKING_GRACE_MS)
        }
        _ => stored.since,
    }
}

/// Groups that were not there a while ago; most are by now. The next cycle that is wanted for the others is asked for.
fn long_absent(session: &mut Session<'_>) -> Vec<GroupId> {
    let absent = &mut session.tables.groups.absent;
    let due = absent.iter().take_while(|(at, _)| *at <= session.now).count();
    let due: Vec<GroupId> = absent.drain(..due).map(|(_, group)| group).collect();
    if let Some((at, _)) = session.tables.groups.absent.front().copied() {
        session.wake_at(at);
    }
    due
}

/// Notes when a group that is found not to be there is to be looked at again.
fn await_group(session: &mut Session<'_>, group: GroupId, stored: Option<&StoredReasons>) {
    let Some(stored) = stored.filter(|stored| stored.failure.stage == Stage::NoGroup) else { return };
    let row = session.tables.groups.row(group);
    if row.reasons.as_ref().is_none_or(|old| old.failure.stage != Stage::NoGroup) {
        session.tables.groups.absent.push_back((stored.since.plus_ms(MAKING_GRACE_MS), group));
    }
}

fn is_ready(session: &Session<'_>, group: GroupId) -> bool {
    let row = session.tables.groups.row(group);
    row.counts.ready() > 0 && session.policy.job_ready(session.tables, group, Counting::WithBestEffort)
}

fn stored(session: &Session<'_>, group: GroupId, failure: Option<Arc<Failure>>) -> Option<StoredReasons> {
    let row = session.tables.groups.row(group);
    let is_absent = !row.exists() && row.pending() > 0;
    let waits = session.tables.groups.is_waiting(group) && (row.pending() > 0 || !is_ready(session, group));
    let failure = match failure {
        _ if is_absent => Arc::new(not_found(row)),
        _ if !waits => return None,
        Some(failure) => failure,
        None => match unexplained(session.config, row) {
            Some(failure) => Arc::new(failure),
            // It is yet to be looked at: what was said of it stands until then.
            None => row.reasons.as_ref()?.failure.clone(),
        },
    };
    let since = row.reasons.as_ref().filter(|old| old.failure.stage == failure.stage).map(|old| old.since);
    Some(StoredReasons { since: since.unwrap_or(session.now), failure })
}

/// Its PodGroup is not there.
fn not_found(row: &GroupRow) -> Failure {
    let made = row.name().starts_with(MADE_PREFIX);
    Failure::at(Stage::NoGroup, vec![Reason::GroupNotFound { group: row.key(), made }])
}

/// No action looked at it: there is none that would, or nothing to look at.
fn unexplained(config: &Config, row: &GroupRow) -> Option<Failure> {
    let (stage, action, name) = match (row.phase, row.pending()) {
        (GroupPhase::Pending, _) => (Stage::Enqueue, Action::Enqueue, "enqueue"),
        (_, 0) => return Some(Failure::at(Stage::NoPods, Vec::new())),
        (_, pending) if pending == row.pending_best_effort => (Stage::Allocate, Action::Backfill, "backfill"),
        _ => (Stage::Allocate, Action::Allocate, "allocate"),
    };
    if config.has(action) {
        return None;
    }
    Some(Failure::at(stage, vec![Reason::NotConfigured { action: name.to_owned() }]))
}

/// Volcano's rules, in order; but binds in flight that complete a group, and a part of it that runs on while pods are
/// being made again, are no reason to admit it anew. A group has ended when all its pods have: it stays so when they are
/// removed, and one more pod makes it wait for nodes, as it was admitted before.
fn phase(row: &GroupRow, blocked: bool, ready: bool) -> GroupPhase {
    use TaskState::{Bound, Failed, Running, Succeeded};
    let count = |state| row.counts.get(state);
    let ended = count(Succeeded) + count(Failed);
    let scheduled = count(Bound) + count(Running) + ended + row.releasing_placed;
    let at_rest = if row.counts.all() > ended { GroupPhase::Inqueue } else { GroupPhase::Completed };
    if blocked && count(Running) > 0 {
        GroupPhase::Unknown
    } else if scheduled >= row.min_to_begin().max(1) {
        if scheduled == ended { at_rest } else { GroupPhase::Running }
    } else if row.phase == GroupPhase::Inqueue || row.of_one && !row.known {
        GroupPhase::Inqueue
    } else if row.phase == GroupPhase::Completed {
        at_rest
    } else if ready || row.ended && row.counts.all() == 0 || row.phase == GroupPhase::Unknown && count(Running) > 0 {
        row.phase
    } else {
        GroupPhase::Pending
    }
}

/// The sum that a group declares is spent once its pods have held it, and where none was made for long and none waits.
fn settle_sum(session: &mut Session<'_>, group: GroupId) {
    let row = session.tables.groups.row(group);
    let Some(until) = row.sum_until else { return };
    let is_over = matches!(row.phase, GroupPhase::Pending | GroupPhase::Completed)
        || session.tables.still_promised(group).iter().all(|amount| *amount <= 0);
    if is_over {
        return session.tables.groups.set_sum(group, None);
    }
    let timeout = session.config.promise_ms();
    let begun = if until == SOME_TIME { session.now.plus_ms(timeout) } else { until };
    // A pod that no node could ever take keeps nothing from others.
    let waits = row.pending() > 0 && enqueue::some_pod_fits_a_node(session, group);
    let newest = if waits { Some(session.now) } else { session.tables.newest_pod(session.tables.groups.row(group)) };
    let until = newest.map_or(begun, |made| begun.max(made.plus_ms(timeout)));
    let until = Some(until).filter(|until| *until > session.now);
    session.tables.groups.set_sum(group, until);
    if let Some(at) = until {
        session.wake_at(at);
    }
}

fn status(tables: &Tables, group: GroupId, phase: GroupPhase, ready: bool, blocked: Option<&Reasons>) -> GroupStatus {
    let row = tables.groups.row(group);
    let old = row.emitted.as_ref().map_or(&[][..], |status| &status.conditions);
    let mut conditions = old.to_vec();
    if let Some(reasons) = blocked {
        let lacks_pods = reasons.stage == Stage::NoPods;
        let reason = if lacks_pods { "NotEnoughTasks" } else { "NotEnoughResources" };
        set_condition(&mut conditions, "Unschedulable", reason, reasons.summary());
        clear_condition(&mut conditions, "Scheduled", reason);
    } else if ready {
        let reason = "tasks in gang are ready to be scheduled";
        set_condition(&mut conditions, "Scheduled", reason, String::new());
        clear_condition(&mut conditions, "Unschedulable", "Scheduled");
    }
    if row.sum_until.is_some() && matches!(phase, GroupPhase::Running | GroupPhase::Unknown) {
        set_condition(&mut conditions, PROMISED, "MinResourcesNotReached", tables.say_promise(group));
    } else {
        clear_condition(&mut conditions, PROMISED, "MinResourcesReached");
    }
    if row.awaits_nodes && phase == GroupPhase::Inqueue {
        set_condition(&mut conditions, AWAITS_NODES, "NoNodeFits", Reason::AwaitsNodes.to_string());
    } else {
        clear_condition(&mut conditions, AWAITS_NODES, "NodesFit");
    }
    let count = |state| row.counts.get(state);
    GroupStatus {
        phase,
        conditions,
        running: count(TaskState::Running),
        succeeded: count(TaskState::Succeeded),
        failed: count(TaskState::Failed),
    }
}

fn set_condition(conditions: &mut Vec<GroupCondition>, kind: &str, reason: &str, message: String) {
    let new = GroupCondition { kind: kind.to_owned(), status: true, reason: reason.to_owned(), message };
    match conditions.iter_mut().find(|condition| condition.kind == kind) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

fn clear_condition(conditions: &mut [GroupCondition], kind: &str, reason: &str) {
    if let Some(old) = conditions.iter_mut().find(|condition| condition.kind == kind && condition.status) {
        old.status = false;
        reason.clone_into(&mut old.reason);
        old.message.clear();
    }
}

fn write_status(session: &mut Session<'_>, group: GroupId, status: GroupStatus) {
    let lies_in = session.tables.lies_in(group);
    let row = session.tables.groups.row(group);
    let unchanged = row.emitted.as_ref().is_some_and(|old| old.same_class(&status));
    let moved = lies_in.filter(|name| *name != row.reported_hyper_node.clone().unwrap_or_default());
    if unchanged && moved.is_none() {
        return;
    }
    let shared = session.tables.groups.share(&status);
    let row = session.tables.groups.row_mut(group);
    if moved.is_some() {
        row.reported_hyper_node.clone_from(&moved);
    }
    row.emitted = Some(shared);
    row.writing = true;
    session.plan.groups.push(GroupUpdate {
        namespace: row.namespace.to_string(),
        name: row.name().to_owned(),
        uid: (&*row.uid).into(),
        annotations: moved.into_iter().map(|name| (JOB_HYPER_NODE.to_owned(), name.to_string())).collect(),
        status,
    });
}

/// False if some are to be told later.
fn notify_pods(session: &mut Session<'_>, group: GroupId, failure: &Failure) -> bool {
    // Those of a task class are told by it, where nobody else is.
    let by_task_class_groups = !session.config.tells_pods && session.pending_index.task_class_of(group).is_some();
    if by_task_class_groups || session.tables.groups.row(group).tasks.is_empty() {
        return true;
    }
    let class = session.tables.groups.share_name(&failure.class());
    let row = session.tables.groups.row_mut(group);
    let version = row.shape_version;
    let old = row.noticed.as_deref();
    if old.is_some_and(|old| (old.version, &old.class) == (version, &class)) {
        return true;
    }
    if !session.config.tells_pods {
        row.noticed = Some(Box::new(Noticed { version, class, at: session.now }));
        return true;
    }
    // Reasons that go back and forth are not worth a write to every pod each time; pods that were told nothing yet are.
    let again_at = old.filter(|old| old.class != class).map(|old| old.at.plus_ms(NOTICE_GAP_MS));
    let too_soon = again_at.filter(|at| *at > session.now);
    match (too_soon, &mut row.noticed) {
        (Some(_), Some(old)) => old.version = version,
        (_, noticed) => *noticed = Some(Box::new(Noticed { version, class: class.clone(), at: session.now })),
    }
    if let Some(at) = too_soon {
        session.wake_at(at);
    }
    let condition = if failure.stage == Stage::Binding { "SchedulerError" } else { "Unschedulable" };
    let message = reasons_in_full(session.tables, group).map(|reasons| reasons.summary()).unwrap_or_default();
    for task in session.tables.groups.row(group).tasks.clone().iter().copied() {
        let row = session.tables.tasks.row_mut(task.index());
        let reported = row.noticed.as_ref().is_some_and(|reported| too_soon.is_some() || *reported == class);
        if row.state != TaskState::Pending || row.gated || reported {
            continue;
        }
        row.noticed = Some(class.clone());
        session.plan.pods.push(PodNotice {
            uid: (&*row.uid).into(),
            namespace: row.namespace.to_string(),
            name: row.name.to_string(),
            reason: condition.to_owned(),
            message: message.clone(),
        });
    }
    too_soon.is_none()
}

fn queues(session: &mut Session<'_>) {
    let mut updates = Vec::new();
    for (id, row) in session.tables.queues.table.iter().filter(|(_, row)| row.known) {
        let dims = &session.tables.dims;
        if row.emitted.as_ref().is_none_or(|reported| !dims.are(reported, &row.tree.allocated)) {
            let allocated = dims.resources(&row.tree.allocated);
            updates.push((id, QueueUpdate { name: row.name.to_string(), allocated }));
        }
    }
    for (id, update) in updates {
        session.tables.queues.row_mut(id).emitted = Some(update.allocated.clone());
        session.plan.queues.push(update);
    }
}
