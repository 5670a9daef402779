//! `allocate`: gives groups their nodes. A group's minimum is decided as one and taken back whole where it does not
//! fit; groups behind it go on. What a group has beyond its minimum is placed one pod a turn, after all minima.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::enqueue::{is_impossible, is_possible, strict_order};
use super::fair_share_order::{FairShareOrder, Outcome, Turn};
use super::reserve;
use crate::config::Action;
use crate::facts::GroupPhase;
use crate::ids::{ClassId, GroupId, QueueId, TaskId, TimeMs};
use crate::plan::Bind;
use crate::queue_limit;
use crate::reasons::Failure;
use crate::reasons::{Reason, Stage};
use crate::search::finder::Search;
use crate::search::pending::TaskClassKey;
use crate::session::Session;
use crate::world::groups::GroupRow;
use crate::world::maintenance_windows::Barring;
use crate::world::reservations::Lift;
use crate::world::tables::Tables;
use crate::world::tasks::Counting;
use crate::world::tasks::TaskState;

mod domains;
mod gates;
pub(crate) mod packing;
pub(crate) mod parts;
mod refusal;
mod reserved;
pub(crate) mod tentative_placement;

/// Reasons worked out for one group in one turn: more kinds of pods than this fail alike.
const REASONS_MAX: usize = 8;

/// Which of a group's pods an action places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those that ask for something; those that ask for nothing only where the minimum needs them.
    Requesting,
    /// Those that ask for nothing.
    BestEffort,
}

/// What a group still wants in this action.
struct Wanted {
    tasks: Vec<TaskId>,
    next: usize,
    /// Pods that ask for nothing, should the minimum need them.
    reserve: Vec<TaskId>,
    /// The class of all of them, where the group knows only one kind of pod.
    uniform: Option<ClassId>,
}

/// What did not fit: nothing is freed while the action runs, so the same from another group can't fit either.
type FailedMemo = FxHashMap<FailureKey, Vec<Reason>>;

/// Groups equal in this get the same answer from the same nodes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FailureKey {
    queue: QueueId,
    class: ClassId,
    /// Pods that the minimum lacks.
    needed: u32,
    wanted: usize,
    /// The windows that bar its pods.
    barring: Barring,
}

/// What the turns of one action share.
struct Round {
    which: Which,
    /// What groups that had a turn still want.
    wanted: FxHashMap<GroupId, Wanted>,
    failed: FailedMemo,
    /// Gangs that may still be packed in all ways.
    packings_left: u32,
    /// A queue's share kept something waiting.
    held_by_shares: bool,
    /// Only those have a turn that end before a reservation that is lifted needs its room.
    passing: Option<Lift>,
    fronts: reserve::Fronts,
}

pub(crate) fn run(session: &mut Session<'_>) {
    session.pending_index.refresh(session.tables, session.policy, session.config);
    for task_class in session.pending_index.by_task_class.values_mut() {
        task_class.failure = None;
    }
    let one_by_one: Vec<GroupId> = session.pending_index.one_by_one.iter().copied().collect();
    place_groups(session, Which::Requesting, one_by_one);
}

pub(crate) fn place_groups(session: &mut Session<'_>, which: Which, groups: Vec<GroupId>) {
    let groups: Vec<GroupId> = groups.into_iter().filter(|group| eligible(session, *group)).collect();
    let (partial_gangs, mut rest): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|group| is_half_placed(session.tables.groups.row(*group)));
    let mut round = Round::new(which);
    // What completes a gang that has begun is not held up by shares, nor by what is kept for others.
    session.policy.lending = true;
    let keeps = !partial_gangs.is_empty() && session.tables.reservations.keep_any();
    if keeps {
        session.tables.lift_reservations(Lift::ALL, session.now);
    }
    let mut order = FairShareOrder::new(session.tables, session.policy, None, &partial_gangs);
    while let Some(turn) = order.pop() {
        if round.turn(session, turn.group) == Outcome::Again {
            rest.push(turn.group);
        }
        order.put_back(session.tables, session.policy, session.pending_index, turn, Outcome::Done);
    }
    session.policy.lending = false;
    if keeps {
        session.tables.keep_again(session.now);
    }
    if which == Which::Requesting {
        round.start_reserved(session, &mut rest);
    }
    round.give_turns(session, &rest);
    if session.policy.fairness.lending && round.held_by_shares {
        // What is left is of no use to those who deserve it; they take it back when it is.
        session.policy.lending = true;
        Round::new(which).give_turns(session, &rest);
        session.policy.lending = false;
    }
    if which == Which::Requesting && session.tables.reservations.keep_any() {
        reserved::pass(session, &rest);
    }
}

/// Whether all behind a group that found no room have to wait: in strict order, unless it can never start as things
/// are, or has started and only wants more.
fn holds_up(session: &mut Session<'_>, turn: Turn) -> bool {
    if !session.policy.is_strict(session.tables, turn.queue) {
        return false;
    }
    let row = session.tables.groups.row(turn.group);
    let started = row.counts.ready() >= row.min_member.max(1);
    let impossible = session.failures.get(&turn.group).is_some_and(|failure| is_impossible(&failure.reasons));
    !started && !impossible && is_possible(session, turn.group)
}

/// The failure of those that lose their turn, and have none of their own.
fn fail_all(session: &mut Session<'_>, groups: Vec<GroupId>, kinds: Vec<TaskClassKey>, failure: &Failure) {
    for group in groups {
        session.failures.entry(group).or_insert_with(|| failure.clone());
    }
    let failure = Arc::new(failure.clone());
    kinds.into_iter().for_each(|kind| fail_task_class(session, kind, failure.clone()));
}

/// The failure of one is that of all of the task class.
fn fail_task_class(session: &mut Session<'_>, kind: TaskClassKey, failure: Arc<Failure>) {
    if let Some(task_class) = session.pending_index.by_task_class.get_mut(&kind) {
        task_class.failure = Some(failure);
    }
}

/// A gang that holds nodes and has less than its minimum, as a crash between two binds leaves it, or a lost pod: what
/// it holds is of no use until it is whole, so it goes before all others.
fn is_half_placed(row: &GroupRow) -> bool {
    use TaskState::{Binding, Bound, Running};
    let placed = [Binding, Bound, Running].into_iter().any(|state| row.counts.get(state) > 0);
    placed && row.counts.ready() < row.min_member
}

/// May the group be tried? Says why not.
fn eligible(session: &mut Session<'_>, group: GroupId) -> bool {
    let row = session.tables.groups.row(group);
    if !row.exists() {
        return false;
    }
    if row.phase == GroupPhase::Pending {
        if session.config.has(Action::Enqueue) {
            return false;
        }
        session.tables.set_phase(group, GroupPhase::Inqueue);
    }
    let row = session.tables.groups.row(group);
    if let Some(reason) = barred(session.tables, row).or_else(|| session.policy.job_valid(session.tables, group)) {
        let stage = match reason {
            Reason::NotEnoughTasks { .. } | Reason::NotEnoughTasksOfRole { .. } => Stage::NoPods,
            _ => Stage::Allocate,
        };
        session.failures.insert(group, Failure::at(stage, vec![reason]));
        return false;
    }
    row.pending() > 0
}

/// Why its queue lets nothing of the group be placed. A pod without a PodGroup is admitted when it is first placed.
pub(crate) fn barred(tables: &Tables, row: &GroupRow) -> Option<Reason> {
    let queue = tables.queues.row(row.queue);
    let name = || queue.name.to_string();
    let is_new = row.of_one && row.counts.ready() == 0;
    match (queue.known, queue.is_open() || queue.may_place() && !is_new) {
        (false, _) => Some(Reason::QueueNotFound { queue: name() }),
        (true, false) => Some(Reason::QueueClosed { queue: name(), state: format!("{:?}", queue.state) }),
        (true, true) => None,
    }
}

/// The pods to place, in order: what the roles' minima need comes first.
fn worksheet(session: &mut Session<'_>, group: GroupId, which: Which) -> Wanted {
    let now = session.now;
    let mut retry_at: Option<TimeMs> = None;
    let row = session.tables.groups.row(group);
    let mut tasks: Vec<TaskId> = Vec::with_capacity(row.pending() as usize);
    let (mut reserve, mut closed) = (Vec::new(), Vec::new());
    let (mut gated, mut refused, mut last_error) = (0, 0, None);
    for task in row.tasks.iter().copied() {
        let facts = session.tables.task(task);
        if facts.state != TaskState::Pending {
            continue;
        }
        if facts.gated {
            gated += 1;
            closed.extend(facts.queue_gated.then_some(task));
        } else if facts.not_before > now {
            refused += 1;
            last_error.clone_from(&facts.bind_error);
            retry_at = Some(retry_at.map_or(facts.not_before, |at| at.min(facts.not_before)));
        } else if facts.best_effort == (which == Which::BestEffort) {
            tasks.push(task);
        } else if facts.best_effort {
            reserve.push(task);
        }
    }
    closed.sort_by(|left, right| session.policy.task_order(session.tables, *left, *right));
    gates::open(session, group, closed);
    if gated > 0 {
        let failure = Failure::at(Stage::Allocate, vec![Reason::Gated { pods: gated }]);
        session.failures.entry(group).or_insert(failure);
    }
    if let Some(retry_at) = retry_at {
        let error = last_error.map_or_else(String::new, |error| error.to_string());
        let reason = Reason::BindFailed { pods: refused, error, retry_at };
        session.failures.entry(group).or_insert_with(|| Failure::at(Stage::Binding, vec![reason]));
        session.wake_at(retry_at);
    }
    arrange(session, group, tasks, reserve)
}

/// A worksheet of these pods.
fn arrange(session: &Session<'_>, group: GroupId, mut tasks: Vec<TaskId>, mut reserve: Vec<TaskId>) -> Wanted {
    let row = session.tables.groups.row(group);
    let order = |left: &TaskId, right: &TaskId| session.policy.task_order(session.tables, *left, *right);
    tasks.sort_by(order);
    reserve.sort_by(order);
    if row.role_minima_apply() {
        let mut left: Vec<u32> = row.roles.iter().map(|role| role.min.saturating_sub(role.counts.ready())).collect();
        tasks.sort_by_cached_key(|task| {
            let cell = &mut left[session.tables.task(*task).role as usize];
            let needed = *cell > 0;
            *cell = cell.saturating_sub(1);
            !needed
        });
    }
    if !session.config.has(Action::Backfill) {
        reserve.clear();
    }
    let class = tasks.first().map(|task| session.tables.task(*task).class);
    let single = reserve.is_empty() && session.tables.groups.row(group).roles.len() == 1;
    let specific = tasks.first().is_some_and(|task| session.policy.stands_alone(session.tables, *task));
    let alike = |class, task| session.tables.task(task).class == class && !session.tables.is_tied(task);
    let uniform = class.filter(|class| single && !specific && tasks.iter().all(|task| alike(*class, *task)));
    Wanted { tasks, next: 0, reserve, uniform }
}

impl Round {
    fn new(which: Which) -> Self {
        Self {
            which,
            wanted: FxHashMap::default(),
            failed: FailedMemo::default(),
            packings_left: packing::GANGS_MAX,
            held_by_shares: false,
            passing: None,
            fronts: reserve::Fronts::default(),
        }
    }

    /// Gives all their turns, those of the pending index and `groups`.
    fn give_turns(&mut self, session: &mut Session<'_>, groups: &[GroupId]) {
        let pending_index = (self.which == Which::Requesting).then_some(&*session.pending_index);
        let mut order = FairShareOrder::new(session.tables, session.policy, pending_index, groups);
        while let Some(turn) = order.pop() {
            // What asks for nothing takes nothing of a share.
            let overused = session.policy.overused(session.tables, turn.queue);
            if let Some(reason) = overused
                && self.which == Which::Requesting
            {
                self.held_by_shares |= reason.is_of_share();
                let (groups, kinds) = order.drop_queue(turn);
                fail_all(session, groups, kinds, &Failure::at(Stage::Allocate, vec![reason]));
                continue;
            }
            if self.passing.is_some() && !self.may_pass(session, turn) {
                order.put_back(session.tables, session.policy, session.pending_index, turn, Outcome::Stuck);
                continue;
            }
            // It has had its turn, with what is kept for it.
            let reserved = self.passing.is_none() && session.tables.reservations.of(turn.group).is_some();
            let eligible = turn.kind.is_none() || eligible(session, turn.group);
            // One that has a reservation may pass those before it.
            let passing = self.passing.is_some() && session.tables.reservations.of(turn.group).is_some();
            if eligible && !reserved && !passing && self.refuse(session, turn) {
                self.consider(session, turn);
                order.put_back(session.tables, session.policy, session.pending_index, turn, Outcome::Stuck);
                continue;
            }
            let outcome = match (eligible, reserved) {
                (true, true) => Outcome::Stuck,
                (true, false) if passing => {
                    reserve::with_its_own(session, turn.group, |session| self.turn(session, turn.group))
                }
                (true, false) => self.turn(session, turn.group),
                (false, _) => Outcome::Done,
            };
            if let Some(lift) = self.passing
                && outcome != Outcome::Stuck
            {
                reserved::note_backfilled(session, turn.group, lift);
            }
            if outcome != Outcome::Again {
                self.wanted.remove(&turn.group);
            }
            if outcome == Outcome::Stuck {
                self.consider(session, turn);
            }
            if let (Outcome::Stuck, Some(kind)) = (outcome, turn.kind)
                && let Some(failure) = session.failures.get(&turn.group).cloned()
            {
                fail_task_class(session, kind, Arc::new(failure));
            }
            if outcome == Outcome::Stuck && holds_up(session, turn) {
                let failure = Failure::at(Stage::Allocate, vec![strict_order(session, turn.queue, turn.group)]);
                let (groups, mut kinds) = order.drop_queue(turn);
                kinds.retain(|kind| Some(*kind) != turn.kind);
                fail_all(session, groups, kinds, &failure);
                continue;
            }
            order.put_back(session.tables, session.policy, session.pending_index, turn, outcome);
        }
    }

    /// Ends the first turn of a group that gets nothing, if that shows without a trial. What else is known of why it
    /// waits, or may yet come in a later round, goes the long way, so that it is told with this.
    fn refuse(&mut self, session: &mut Session<'_>, turn: Turn) -> bool {
        let again = self.wanted.contains_key(&turn.group) || session.policy.lending;
        let long =
            again || session.failures.contains_key(&turn.group) || session.policy.is_strict(session.tables, turn.queue);
        if long || self.which == Which::BestEffort {
            return false;
        }
        let Some(reason) = refusal::at_once(session, turn.group) else { return false };
        if reason.is_of_share() && session.policy.fairness.lending {
            return false;
        }
        self.held_by_shares |= reason.is_of_share();
        let failure = Failure::at(Stage::Allocate, vec![reason]);
        match turn.kind {
            Some(kind) => fail_task_class(session, kind, Arc::new(failure)),
            None => drop(session.failures.insert(turn.group, failure)),
        }
        true
    }

    /// One turn of a group: up to its minimum, or one pod beyond it.
    fn turn(&mut self, session: &mut Session<'_>, group: GroupId) -> Outcome {
        let which = self.which;
        let wanted = self.wanted.entry(group).or_insert_with(|| worksheet(session, group, which));
        if wanted.next >= wanted.tasks.len() {
            return Outcome::Done;
        }
        let counting = counting(session);
        if session.tables.groups.row(group).wants_domains(&session.tables.hyper_nodes) {
            let outcome = turn_in_domains(session, group, wanted, counting);
            if let Some(failure) = session.failures.get(&group)
                && outcome == Outcome::Stuck
            {
                self.held_by_shares |= tell_of_shares(&failure.reasons);
            }
            return outcome;
        }
        let needed = needed(session, group);
        let key = failure_key(session, group, wanted);
        if let Some(reasons) = key.as_ref().and_then(|key| self.failed.get(key)) {
            let reasons = reasons.clone();
            session.failures.entry(group).or_insert_with(|| Failure::at(Stage::Allocate, reasons));
            return Outcome::Stuck;
        }
        let savepoint = session.tables.savepoint();
        let first_turn = wanted.next == 0;
        let mut trial = Trial::new(needed);
        let mut ready = trial.place_all(session, group, wanted, counting);
        if !ready && first_turn && needed > 1 && wanted.uniform.is_none() {
            session.rollback(savepoint);
            match packing::another_way(session, group, wanted, counting, &mut self.packings_left) {
                Ok(other) => (trial, ready) = (other, true),
                Err(by_shares) => self.held_by_shares |= by_shares,
            }
        }
        // Without an objection of a plugin a group is ready before anything is placed.
        if ready && !trial.placed.is_empty() {
            for task in &trial.placed {
                bind(session, group, *task);
            }
            let reasons = trial.note_failure(session, group);
            self.held_by_shares |= reasons.as_deref().is_some_and(tell_of_shares);
            return if wanted.next < wanted.tasks.len() { Outcome::Again } else { Outcome::Done };
        }
        let reasons = trial.note_failure(session, group);
        self.held_by_shares |= reasons.as_deref().is_some_and(tell_of_shares);
        session.rollback(savepoint);
        if let (Some(key), Some(reasons)) = (key, reasons) {
            self.failed.insert(key, reasons);
        }
        Outcome::Stuck
    }
}

/// The same for a group that has to look at the network, or falls into parts.
fn turn_in_domains(session: &mut Session<'_>, group: GroupId, wanted: &Wanted, counting: Counting) -> Outcome {
    match domains::place_in_domains(session, group, wanted, counting) {
        Ok(placed) => {
            placed.into_iter().for_each(|task| bind(session, group, task));
            let more = wanted.tasks.iter().any(|task| session.tables.task(*task).state == TaskState::Pending);
            if more { Outcome::Again } else { Outcome::Done }
        }
        Err(reasons) => {
            let failure = session.failures.entry(group).or_insert_with(|| Failure::at(Stage::Allocate, Vec::new()));
            failure.reasons.extend(reasons);
            Outcome::Stuck
        }
    }
}

/// Where pods that ask for nothing are placed at all a minimum does not count on those that wait.
pub(crate) fn counting(session: &Session<'_>) -> Counting {
    if session.config.has(Action::Backfill) { Counting::Placed } else { Counting::WithBestEffort }
}

/// Whether a queue's share was in the way.
fn tell_of_shares(reasons: &[Reason]) -> bool {
    reasons.iter().any(Reason::is_of_share)
}

/// Why the queue may not have the pod as well.
fn objection(session: &Session<'_>, queue: QueueId, task: TaskId) -> Option<Reason> {
    let demand = &session.tables.classes.row(session.tables.task(task).class).demand;
    let limit = queue_limit::exceeded_by_pod(session.tables, session.policy, queue, demand);
    limit.or_else(|| match session.tables.task(task).gate_passed {
        // Its queue took it before, and counts it as promised since.
        true => None,
        false => session.policy.allocatable(session.tables, queue, task),
    })
}

/// Pods that must be placed together for the group to start, or 1 where it has started.
fn needed(session: &Session<'_>, group: GroupId) -> u32 {
    let row = session.tables.groups.row(group);
    row.min_member.saturating_sub(row.counts.ready()).clamp(1, row.pending().max(1))
}

/// Under what the group's failure tells of others; nothing where it wants pods of several kinds.
fn failure_key(session: &Session<'_>, group: GroupId, wanted: &Wanted) -> Option<FailureKey> {
    let barring = wanted.tasks.first().map(|first| session.tables.barring(*first)).unwrap_or_default();
    let queue = session.tables.groups.row(group).queue;
    let wanted_pods = wanted.tasks.len() - wanted.next;
    wanted.uniform.map(|class| FailureKey {
        queue,
        class,
        needed: needed(session, group),
        wanted: wanted_pods,
        barring,
    })
}

/// Placements that are not decided yet.
struct Trial {
    placed: Vec<TaskId>,
    /// Classes that found no room.
    failed: FxHashSet<ClassId>,
    /// Why, of the first of them.
    reasons: Vec<Reason>,
    needed: u32,
}

impl Trial {
    fn new(needed: u32) -> Self {
        Self { placed: Vec::new(), failed: FxHashSet::default(), reasons: Vec::new(), needed }
    }

    /// Pods that ask for something first; those that ask for nothing where the minimum needs them.
    fn place_all(
        &mut self,
        session: &mut Session<'_>,
        group: GroupId,
        wanted: &mut Wanted,
        counting: Counting,
    ) -> bool {
        let Wanted { tasks, next, reserve, .. } = wanted;
        self.place_until_ready(session, group, tasks, next, counting)
            || (!reserve.is_empty() && self.place_until_ready(session, group, reserve, &mut 0, counting))
    }

    /// Places pods from `next` on until the group is ready. A class that fits nowhere is not tried twice.
    fn place_until_ready(
        &mut self,
        session: &mut Session<'_>,
        group: GroupId,
        tasks: &[TaskId],
        next: &mut usize,
        counting: Counting,
    ) -> bool {
        while let Some(task) = tasks.get(*next).copied() {
            *next += 1;
            let class = session.tables.task(task).class;
            if self.failed.contains(&class) && !session.tables.is_tied(task) {
                continue;
            }
            if let Some(reason) = objection(session, session.tables.groups.row(group).queue, task) {
                self.fail(class, |_| reason);
                continue;
            }
            let search = Search::of_task(session.tables, task);
            match session.finder.best(session.tables, session.policy, search) {
                Some(node) => {
                    session.assign(task, node);
                    self.placed.push(task);
                    if session.policy.job_ready(session.tables, group, counting) {
                        return true;
                    }
                }
                None => {
                    self.fail(class, |trial| trial.unfit(session, group, task, tasks));
                }
            }
        }
        !self.placed.is_empty() && session.policy.job_ready(session.tables, group, counting)
    }

    fn fail(&mut self, class: ClassId, reason: impl FnOnce(&Self) -> Reason) {
        if self.failed.insert(class) && self.reasons.len() < REASONS_MAX {
            let reason = reason(self);
            self.reasons.push(reason);
        }
    }

    fn unfit(&self, session: &mut Session<'_>, group: GroupId, task: TaskId, tasks: &[TaskId]) -> Reason {
        let class = session.tables.task(task).class;
        let of_class = |task: &&TaskId| session.tables.task(**task).class == class;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let found_room = count(self.placed.iter().filter(of_class).count());
        let waiting = |task: &&TaskId| of_class(task) && session.tables.task(**task).state == TaskState::Pending;
        let wanted = found_room + count(tasks.iter().filter(waiting).count());
        refusal::unfit(session, group, task, self.needed, found_room, wanted)
    }

    /// Records why pods found no room. What the API server refused comes first: it says why room was given back.
    fn note_failure(&mut self, session: &mut Session<'_>, group: GroupId) -> Option<Vec<Reason>> {
        let reasons = std::mem::take(&mut self.reasons);
        if reasons.is_empty() {
            return None;
        }
        let failure = session.failures.entry(group).or_insert_with(|| Failure::at(Stage::Allocate, Vec::new()));
        failure
            .reasons
            .extend(reasons.iter().filter(|reason| !failure.reasons.contains(reason)).cloned().collect::<Vec<_>>());
        Some(reasons)
    }
}

/// Decides one placement: it counts from now on, whatever the API server takes to answer.
pub(crate) fn bind(session: &mut Session<'_>, group: GroupId, task: TaskId) {
    let node = session.tables.task(task).node.expect("a placed pod has a node");
    session.tables.move_task(task, TaskState::Binding, Some(node));
    let row = session.tables.task(task);
    session.plan.binds.push(Bind {
        uid: (&*row.uid).into(),
        namespace: row.namespace.to_string(),
        name: row.name.to_string(),
        node: session.tables.node_name(node).into(),
        group: session.tables.groups.row(group).key(),
        annotations: session.policy.bind_annotations(session.tables, task, node),
        prebind: session.policy.prebind(session.tables, task, node),
    });
}
