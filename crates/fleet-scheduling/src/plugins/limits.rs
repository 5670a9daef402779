//! Limits of what may start, as a plugin of the engine: what a queue may hold in a priority class, what a pool has of
//! resources that are on no node, what one round may start, and how fast.
//!
//! Invariant: what the engine decides in a round, with what was held before it, is within each limit; only a round's own
//! limit, and a rate, may be exceeded by the one gang that reaches it. Every job that is held back is told by which limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_engine::plugin::{Alike, ClassRow, GroupId, Move, Plugin, QueueId, Tables, TaskId, TaskState, TimeMs};
use pumice_engine::{PodTemplate, Reason, Resources, amount_text};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::away;
use crate::constraints::{Allowance, Constraints};
use crate::rate_limits::Rate;

/// Its name in the configuration, and in front of what it says.
pub const NAME: &str = "limits";
/// Annotation of a template: its jobs' priority class.
const CLASS: &str = "pumice.sh/fleet-class";
/// Begins annotations of a template that say what it asks for of resources that are on no node.
const FLOATING: &str = "floating.pumice.sh/";

/// Marks a template so that the plugin knows what it is of. Jobs that differ in this are never taken for each other.
pub fn mark(template: &mut PodTemplate, class: &str, floating: &Resources) {
    template.annotations.insert(CLASS.to_owned(), class.to_owned());
    let amounts = floating.iter().map(|(name, amount)| (format!("{FLOATING}{name}"), amount.to_string()));
    template.annotations.extend(amounts);
}

/// What is handed to the plugin before a round, and what it tells after it.
#[derive(Debug, Default)]
pub struct LimitHandoff {
    given: Mutex<Arc<Allowance>>,
    cut_short: AtomicBool,
    goes_on: AtomicBool,
}

impl LimitHandoff {
    /// For the next round.
    pub fn give(&self, allowance: Allowance) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(allowance);
    }

    /// Whether the last round could have started more, had its own limit or a rate let it.
    pub fn cut_short(&self) -> bool {
        self.cut_short.load(Ordering::Relaxed)
    }

    /// Whether the next pass is of the same round as the last one: what that took stays taken.
    pub fn go_on(&self, goes_on: bool) {
        self.goes_on.store(goes_on, Ordering::Relaxed);
    }

    /// What was given for this round.
    pub fn given(&self) -> Arc<Allowance> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take(&self) -> Arc<Allowance> {
        self.cut_short.store(false, Ordering::Relaxed);
        self.given()
    }
}

/// A limit of one resource, and what of it is used.
#[derive(Debug, Clone)]
struct Amount {
    resource: String,
    limit: i64,
    used: i64,
}

impl Amount {
    fn would_exceed(&self, requested: i64) -> bool {
        requested > 0 && self.used.saturating_add(requested) > self.limit
    }

    /// `10 of 10 cpu`.
    fn text(&self) -> String {
        let text = |amount| amount_text(&self.resource, amount);
        format!("{} of {} {}", text(self.used), text(self.limit), self.resource)
    }
}

/// What a queue may hold in a class.
#[derive(Debug)]
struct ClassCeiling {
    class: String,
    amounts: Vec<Amount>,
}

/// Holds rounds to what queues, classes and the pool itself may have or start.
#[derive(Debug)]
pub struct Limits {
    pool: String,
    constraints: Arc<Constraints>,
    handoff: Arc<LimitHandoff>,
    ceilings: FxHashMap<QueueId, Vec<ClassCeiling>>,
    floating: Vec<Amount>,
    round: Vec<Amount>,
    /// Jobs that may still start, of all and of each queue.
    left: Option<i64>,
    left_of: FxHashMap<QueueId, i64>,
    /// Queues whose jobs away from home another has: those are charged to it.
    homes: FxHashMap<QueueId, QueueId>,
    /// Queues by name, where jobs of all of them stand in one.
    names: FxHashMap<String, QueueId>,
    /// What this round has placed.
    started: FxHashSet<TaskId>,
}

impl Limits {
    /// The limits of one pool. What changes from round to round comes through `handoff`.
    pub fn new(pool: &str, constraints: Arc<Constraints>, handoff: Arc<LimitHandoff>) -> Self {
        Self {
            pool: pool.to_owned(),
            constraints,
            handoff,
            ceilings: FxHashMap::default(),
            floating: Vec::new(),
            round: Vec::new(),
            left: None,
            left_of: FxHashMap::default(),
            homes: FxHashMap::default(),
            names: FxHashMap::default(),
            started: FxHashSet::default(),
        }
    }

    fn ceilings_of(&self, tables: &Tables, total: &Resources, queue: QueueId, given: &Allowance) -> Vec<ClassCeiling> {
        let none = std::collections::BTreeMap::new();
        let name = tables.queue(queue).name();
        let own = given.queues.get(name).unwrap_or(&none);
        let classes: std::collections::BTreeSet<&String> =
            self.constraints.per_queue.keys().chain(own.keys()).collect();
        let ceiling = |class: &String| {
            let key = (Arc::from(name), Arc::from(class.as_str()));
            let held = given.usage.classes.get(&key);
            let fractions = self.constraints.fractions(&self.pool, class, own);
            let used = |resource: &String| held.and_then(|held| held.get(resource)).copied().unwrap_or(0);
            let amounts = fractions.into_iter().map(|(resource, fraction)| Amount {
                limit: part(total, &resource, fraction),
                used: used(&resource),
                resource,
            });
            ClassCeiling { class: class.clone(), amounts: amounts.collect() }
        };
        classes.into_iter().map(ceiling).filter(|ceiling| !ceiling.amounts.is_empty()).collect()
    }

    /// Adds (`sign` 1) or takes back (-1) what a task takes of all limits.
    fn charge(&mut self, tables: &Tables, task: TaskId, sign: i64) {
        let Some(queue) = tables.task(task).group().map(|group| self.owner(tables, group)) else { return };
        let template = tables.template(task);
        let charge = |amount: &mut Amount| amount.used += sign * requested(template, &amount.resource);
        self.round.iter_mut().for_each(charge);
        self.floating.iter_mut().for_each(charge);
        let class = class_of(template);
        let ceilings = self.ceilings.get_mut(&queue).into_iter().flatten().filter(|ceiling| ceiling.class == class);
        ceilings.flat_map(|ceiling| &mut ceiling.amounts).for_each(charge);
        self.left.iter_mut().for_each(|left| *left -= sign);
        self.left_of.get_mut(&queue).into_iter().for_each(|left| *left -= sign);
    }

    fn home(&self, queue: QueueId) -> QueueId {
        self.homes.get(&queue).copied().unwrap_or(queue)
    }

    /// The queue to which a group's jobs are charged. Namespaces are called as the queues of their jobs.
    fn owner(&self, tables: &Tables, group: GroupId) -> QueueId {
        let row = tables.group(group);
        self.names.get(row.namespace()).copied().unwrap_or_else(|| self.home(row.queue()))
    }

    /// Why nothing more of the queue starts in this round.
    fn exhausted(&self, tables: &Tables, queue: QueueId) -> Option<Reason> {
        let queue = self.home(queue);
        let name = tables.queue(queue).name();
        let rates = &self.constraints.rates;
        let reached = self.round.iter().find(|amount| amount.used > amount.limit);
        let message = if let Some(amount) = reached {
            let text = amount.text();
            format!("a round may start no more: it has started {text} (maximumResourceFractionToSchedule)")
        } else if let (Some(rate), Some(..1)) = (rates.all, self.left) {
            format!("jobs start no faster in the fleet: {} (maximumSchedulingRate)", rate_text(rate))
        } else if let (Some(rate), Some(..1)) = (rates.per_queue, self.left_of.get(&queue).copied()) {
            format!("jobs of queue {name} start no faster: {} (maximumPerQueueSchedulingRate)", rate_text(rate))
        } else {
            return None;
        };
        self.handoff.cut_short.store(true, Ordering::Relaxed);
        Some(refused(message))
    }

    /// Why the task may not start as well.
    fn exceeded(&self, tables: &Tables, queue: QueueId, task: TaskId) -> Option<Reason> {
        let template = tables.template(task);
        let beyond = |amount: &&Amount| amount.would_exceed(requested(template, &amount.resource));
        if let Some(amount) = self.floating.iter().find(beyond) {
            let (wanted, text) = (amount_text(&amount.resource, requested(template, &amount.resource)), amount.text());
            return Some(refused(format!("pool {} has too little left: {text} in use, {wanted} asked for", self.pool)));
        }
        let class = class_of(template);
        let ceilings = self.ceilings.get(&queue).into_iter().flatten().filter(|ceiling| ceiling.class == class);
        let amount = ceilings.flat_map(|ceiling| &ceiling.amounts).find(beyond)?;
        let (wanted, name) = (requested(template, &amount.resource), tables.queue(queue).name());
        let (text, wanted_text) = (amount.text(), amount_text(&amount.resource, wanted));
        let ever = if wanted > amount.limit { "more than it may ever hold" } else { "asked for" };
        let (pool, key) = (&self.pool, "maximumResourceFractionPerQueue");
        let of = format!("queue {name} holds {text} that its jobs of class {class} may have in pool {pool}");
        Some(refused(format!("{of}, {wanted_text} {ever} ({key})")))
    }
}

fn part(total: &Resources, resource: &str, fraction: f64) -> i64 {
    let total = total.get(resource).copied().unwrap_or(0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "casts of floats saturate")]
    let part = (total as f64 * fraction.max(0.0)).floor() as i64;
    part
}

fn rate_text(rate: Rate) -> String {
    format!("{} a second, {} at once", rate.per_second, rate.burst)
}

fn refused(message: String) -> Reason {
    Reason::Refused { plugin: NAME.to_owned(), message }
}

fn class_of(template: &PodTemplate) -> &str {
    template.annotations.get(CLASS).map_or("", String::as_str)
}

/// What a pod asks for, on its node or not.
fn requested(template: &PodTemplate, resource: &str) -> i64 {
    template.requests.get(resource).copied().unwrap_or_else(|| {
        let mut floating = template.annotations.range(FLOATING.to_owned()..);
        let found = floating.by_ref().take_while(|(key, _)| key.starts_with(FLOATING));
        let mut found = found.filter(|(key, _)| &key[FLOATING.len()..] == resource);
        found.next().and_then(|(_, amount)| amount.parse().ok()).unwrap_or(0)
    })
}

/// The queues at home of those that others have away from it.
fn homes(tables: &Tables) -> FxHashMap<QueueId, QueueId> {
    let names: FxHashMap<&str, QueueId> = tables.queue_ids().map(|queue| (tables.queue(queue).name(), queue)).collect();
    let home = |(name, queue): (&&str, &QueueId)| Some((*queue, *names.get(away::home_of(name)?)?));
    names.iter().filter_map(home).collect()
}

impl Plugin for Limits {
    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        if self.handoff.goes_on.load(Ordering::Relaxed) {
            return;
        }
        self.homes = homes(tables);
        if self.constraints.markets.contains_key(&self.pool) {
            self.names = tables.queue_ids().map(|queue| (tables.queue(queue).name().to_owned(), queue)).collect();
        }
        let given = self.handoff.take();
        let mut total = tables.total();
        let offered =
            self.constraints.floating.iter().filter_map(|(name, pools)| Some((name, *pools.get(&self.pool)?)));
        total.extend(offered.map(|(name, amount)| (name.clone(), amount)));
        let amount = |resource: &String, limit: i64, used: i64| Amount { resource: resource.clone(), limit, used };
        let floating = self.constraints.floating.iter().map(|(name, pools)| {
            let held = given.usage.floating.get(name).copied().unwrap_or(0);
            amount(name, pools.get(&self.pool).copied().unwrap_or(0), held)
        });
        self.floating = floating.collect();
        let round = self.constraints.round_fractions(&self.pool);
        self.round = round.iter().map(|(name, fraction)| amount(name, part(&total, name, *fraction), 0)).collect();
        let limited = !self.constraints.per_queue.is_empty() || !given.queues.is_empty();
        self.ceilings = if limited {
            let ceilings = tables.queue_ids().map(|queue| (queue, self.ceilings_of(tables, &total, queue, &given)));
            ceilings.filter(|(_, ceilings)| !ceilings.is_empty()).collect()
        } else {
            FxHashMap::default()
        };
        self.left = given.grant.all;
        let left_of = given.grant.per_queue.into_iter().flat_map(|most| {
            let left = |queue: QueueId| given.grant.queues.get(tables.queue(queue).name()).copied();
            tables.queue_ids().map(move |queue| (queue, left(queue).unwrap_or(most)))
        });
        self.left_of = left_of.collect();
        self.started.clear();
    }

    fn follows_moves(&self) -> bool {
        true
    }

    fn moved(&mut self, tables: &Tables, change: Move) {
        let state = tables.task(change.task).state();
        if matches!(state, TaskState::Allocated | TaskState::Pipelined | TaskState::Binding) {
            if self.started.insert(change.task) {
                self.charge(tables, change.task, 1);
            }
        } else if self.started.remove(&change.task) {
            self.charge(tables, change.task, -1);
        }
    }

    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn admits_alike(&self, _tables: &Tables, _group: GroupId) -> Alike {
        Alike::Key(0)
    }

    fn job_valid(&self, tables: &Tables, group: GroupId) -> Option<Reason> {
        let row = tables.group(group);
        let (members, rates) = (row.min_member(), &self.constraints.rates);
        let beyond = |rate: &Rate| members > 1 && members > rate.burst;
        let (rate, key) = match (rates.all.filter(beyond), rates.per_queue.filter(beyond)) {
            (Some(rate), _) => (rate, "maximumSchedulingBurst"),
            (None, Some(rate)) => (rate, "maximumPerQueueSchedulingBurst"),
            (None, None) => return None,
        };
        Some(refused(format!("a gang of {members} never starts: at most {} jobs start at once ({key})", rate.burst)))
    }

    fn job_starving(&self, tables: &Tables, group: GroupId) -> Option<bool> {
        let row = tables.group(group);
        let waits = |task: &TaskId| tables.task(*task).state() == TaskState::Pending;
        let first = row.tasks().find(waits)?;
        let queue = self.owner(tables, group);
        let held = self.exhausted(tables, queue).or_else(|| self.exceeded(tables, queue, first));
        // What is held back by a limit makes nobody leave: that would not help it.
        held.map(|_| false)
    }

    fn overused(&self, tables: &Tables, queue: QueueId) -> Option<Reason> {
        self.exhausted(tables, queue)
    }

    fn allocatable_task(&self, tables: &Tables, queue: QueueId, task: TaskId) -> Option<Reason> {
        let group = tables.task(task).group();
        let queue = group.map_or_else(|| self.home(queue), |group| self.owner(tables, group));
        // Where jobs of all queues stand in one, no queue is passed over as a whole. What of a gang is placed stays its turn.
        let begins = |group: GroupId| {
            let placed = [TaskState::Allocated, TaskState::Pipelined].map(|state| tables.group(group).count(state));
            placed == [0, 0]
        };
        if !self.names.is_empty()
            && group.is_some_and(begins)
            && let Some(reason) = self.exhausted(tables, queue)
        {
            return Some(reason);
        }
        self.exceeded(tables, queue, task)
    }
}
