//! The one server that decides: it folds the log, schedules, and tells executors.
//!
//! Invariant: nothing is told to anybody before it is written. Everything known follows from the database, so when a write
//! fails, or another server leads, all of it is dropped and loaded anew. Servers that don't lead follow, to be ready. State changes are written within milliseconds;
//! rounds run beside that on threads of their own, one for each pool, and what they find counts once it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use pumice_clock as clock;
use pumice_engine::Delta;
use pumice_fleet_scheduling::{Bids, Constraints, Penalties, Rates, ViewLimits};
use pumice_ledger::{Changes, Inbox, Ledger, PriorityClasses, Proposal, RestoreError, Retries, TimeMs};
use pumice_wire::executor as wire;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::database::{Database, Epoch, Error, Seq};
use crate::metrics::{Lifecycles, Metrics, Snapshot};
use crate::sessions::{Broken, Sessions, Unreached};

mod commit;
mod executor_commands;
mod explain;
mod outgoing_leases;
mod pools;
mod retention;
mod standby;

use commit::PendingChanges;
use explain::OpenQuestion;
pub use explain::{Explanation, Question};
use pools::{Found, Waiting};
use retention::Keeper;
pub use retention::{Hours, Retention};
use standby::{FollowedLedger, Standby};

/// Inputs that wait; executors wait beyond that.
const INPUTS_MAX: usize = 10_000;
/// Inputs taken in before something is written.
const INPUTS_PER_COMMIT: usize = 2_000;
/// How often the lead is taken anew.
const RENEW_EVERY: Duration = Duration::from_millis(500);
/// Messages to an executor that wait; a session that takes none for so long ends.
pub const OUT_MAX: usize = 256;
/// Between two tries to lead.
const TRY_EVERY: Duration = Duration::from_millis(500);
/// Between two rounds of a pool.
const ROUND_EVERY: Duration = Duration::from_millis(200);
/// For how long an answer to whoever watches is good: many may, and it costs the same.
const MEASURED_MS: i64 = 500;
/// After a failure of the database.
const PAUSE: Duration = Duration::from_millis(300);

/// What executors' streams hand in.
pub enum Input {
    Open {
        /// Its first message.
        first: wire::FromExecutor,
        /// Who it is, where that was found out.
        who: Option<String>,
        /// Where its messages go.
        out: mpsc::Sender<wire::ToExecutor>,
        /// The executor's name and the session's number, or why not.
        answer: oneshot::Sender<Result<(String, u64), Broken>>,
    },
    /// A message of a stream.
    Message { name: String, number: u64, message: wire::FromExecutor },
    /// The executor of a cluster is to do something at once.
    Errand {
        cluster: String,
        errand: wire::Errand,
        /// Whether it was sent.
        sent: oneshot::Sender<Result<(), Unreached>>,
    },
    /// Somebody wants to know which clusters have a node of this name.
    Homes { node: String, answer: oneshot::Sender<Vec<String>> },
    /// Somebody wants to know which executors there are.
    Executors {
        /// Each, and whether it is gone.
        answer: oneshot::Sender<BTreeMap<String, bool>>,
    },
    /// Somebody wants to know something.
    Ask {
        question: Question,
        /// Dropped where this server does not lead.
        answer: oneshot::Sender<Explanation>,
    },
    /// Somebody watches how the fleet does.
    Measure {
        /// Dropped where this server does not lead.
        answer: oneshot::Sender<Arc<Snapshot>>,
    },
    /// A stream has ended.
    Closed { name: String, number: u64 },
}

/// What the leader is made of.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who leads, for people.
    pub holder: String,
    /// The fleet's priority classes.
    pub classes: PriorityClasses,
    /// How often jobs are tried.
    pub retries: Retries,
    /// How much of a queue a round looks at.
    pub limits: ViewLimits,
    /// What holds jobs back beside room.
    pub constraints: Arc<Constraints>,
}

/// Leads when it may. Owned by one task.
pub struct Leader {
    log: Arc<Database>,
    options: Options,
    inputs: mpsc::Receiver<Input>,
    next_session: u64,
    metrics: Arc<Metrics>,
    retention: Retention,
    bids: Option<watch::Receiver<Arc<Bids>>>,
    standby: Standby,
}

/// Why a term as the leader ended; the server may lead again afterwards.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Log(#[from] Error),
    #[error("the fleet's tables do not belong together")]
    Restore(#[from] RestoreError),
    #[error("a round, or the reading of the tables, ended in a panic")]
    Round(#[from] tokio::task::JoinError),
}

impl Leader {
    /// A leader over a log, and where inputs go.
    pub fn new(log: Arc<Database>, options: Options) -> (Self, mpsc::Sender<Input>) {
        let (sender, inputs) = mpsc::channel(INPUTS_MAX);
        let (metrics, retention, standby) = (Arc::default(), Retention::FOR_EVER, Standby::default());
        (Self { log, options, inputs, next_session: 1, metrics, retention, bids: None, standby }, sender)
    }

    /// Takes what queues bid in market pools from there.
    pub fn bidding(self, bids: watch::Receiver<Arc<Bids>>) -> Self {
        Self { bids: Some(bids), ..self }
    }

    /// Removes what is over for so long.
    pub fn keeping(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    /// Counts what happens where others see it.
    pub fn counting(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    /// Leads whenever nobody else does, until `shutdown` or nobody can hand in anything any more.
    pub fn run(mut self, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while !shutdown.is_cancelled() && !self.inputs.is_closed() {
                let epoch = match self.log.lead(&self.options.holder).await {
                    Ok(Some(epoch)) => epoch,
                    Ok(None) => {
                        self.stand_by(&shutdown).await;
                        continue;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the fleet's database does not answer");
                        self.refuse(tokio::time::sleep(TRY_EVERY), &shutdown).await;
                        continue;
                    }
                };
                tracing::info!(epoch = epoch.0, "this server leads the fleet");
                self.metrics.leads(Some(TimeMs(clock::now_ms())));
                self.metrics.follows(None);
                let ended = Box::pin(self.lead(epoch, &shutdown)).await;
                self.metrics.leads(None);
                match ended {
                    Ok(()) => {
                        if let Err(error) = self.log.resign(epoch).await {
                            tracing::warn!(%error, "another server has to wait for the lead");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "this server leads no more");
                        self.refuse(tokio::time::sleep(PAUSE), &shutdown).await;
                    }
                }
            }
        })
    }

    /// Follows whoever leads, for a while.
    async fn stand_by(&mut self, shutdown: &CancellationToken) {
        let standby = std::mem::take(&mut self.standby);
        let follow = standby.follow(Arc::clone(&self.log), self.options.classes.clone());
        let both = Box::pin(async { tokio::join!(follow, tokio::time::sleep(TRY_EVERY)).0 });
        if let Some(standby) = self.refuse(both, shutdown).await {
            self.metrics.follows(standby.position());
            self.standby = standby;
        }
    }

    /// Turns executors away until something is done: the leader is elsewhere, or nobody is. None if this server ends before.
    async fn refuse<T>(&mut self, until: impl Future<Output = T>, shutdown: &CancellationToken) -> Option<T> {
        tokio::pin!(until);
        loop {
            tokio::select! {
                done = &mut until => return Some(done),
                () = shutdown.cancelled() => return None,
                // Dropping the answer says it.
                input = self.inputs.recv() => drop(input?),
            }
        }
    }

    async fn lead(&mut self, epoch: Epoch, shutdown: &CancellationToken) -> Result<(), Ended> {
        let mut renew = tokio::time::interval(RENEW_EVERY);
        let mut term = self.load(epoch, &mut renew).await?;
        term.keeper = Keeper::new(self.retention);
        if let Some(bids) = &mut self.bids {
            term.bids = Arc::clone(&bids.borrow_and_update());
        }
        let mut head = self.log.head();
        let mut round = tokio::time::interval(ROUND_EVERY);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut keep = tokio::time::interval(retention::LOOK_EVERY);
        keep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                _ = renew.tick() => self.log.renew(epoch).await?,
                input = self.inputs.recv() => {
                    let Some(input) = input else { return Ok(()) };
                    self.take(&mut term, input);
                    for _ in 1..INPUTS_PER_COMMIT {
                        let Ok(input) = self.inputs.try_recv() else { break };
                        self.take(&mut term, input);
                    }
                }
                changed = head.changed() => if changed.is_err() { return Ok(()) },
                Some(found) = term.rounds.join_next() => term.found(found?),
                bids = next_bids(&mut self.bids) => term.bid(bids),
                _ = round.tick() => term.silent(),
                _ = keep.tick() => term.keep(&self.log).await?,
            }
            term.commit(&self.log).await?;
            term.send(&self.log).await?;
            term.answer();
            term.start_rounds();
        }
    }

    /// Goes on from what it followed, or reads everything, which may take longer than the lead lasts.
    async fn load(&mut self, epoch: Epoch, renew: &mut tokio::time::Interval) -> Result<Term, Ended> {
        let standby = std::mem::take(&mut self.standby);
        let load = async {
            let followed = standby.lead(&self.log, self.options.classes.clone()).await?;
            Ok(Term::new(followed, epoch, &self.options, Arc::clone(&self.metrics)))
        };
        tokio::pin!(load);
        loop {
            tokio::select! {
                term = &mut load => return term,
                _ = renew.tick() => self.log.renew(epoch).await?,
            }
        }
    }

    fn take(&mut self, term: &mut Term, input: Input) {
        match input {
            Input::Open { first, who, out, answer } => {
                let number = self.next_session;
                self.next_session += 1;
                let opened = term.open(&first, who.as_deref(), number, out);
                // Whoever asked may be gone: its stream's end says so.
                let _ = answer.send(opened.map(|name| (name, number)));
            }
            Input::Message { name, number, message } => term.receive(&name, number, message),
            Input::Ask { question, answer } => term.ask(question, answer),
            // Whoever asked may be gone, here as below.
            Input::Errand { cluster, errand, sent } => drop(sent.send(term.errand(&cluster, errand))),
            Input::Homes { node, answer } => drop(answer.send(term.sessions.homes(&node))),
            Input::Executors { answer } => drop(answer.send(term.sessions.executors(TimeMs(clock::now_ms())))),
            Input::Measure { answer } => drop(answer.send(term.measure())),
            Input::Closed { name, number } => term.close(&name, number),
        }
    }
}

/// What queues bid now, once that is something else.
async fn next_bids(bids: &mut Option<watch::Receiver<Arc<Bids>>>) -> Arc<Bids> {
    if let Some(known) = bids {
        if known.changed().await.is_ok() {
            return Arc::clone(&known.borrow_and_update());
        }
        // Nobody tells any more.
        *bids = None;
    }
    std::future::pending().await
}

/// Everything known while this server leads.
struct Term {
    epoch: Epoch,
    /// Since when it leads.
    began: TimeMs,
    position: Seq,
    ledger: Ledger,
    retries: Retries,
    classes: PriorityClasses,
    limits: ViewLimits,
    constraints: Arc<Constraints>,
    rates: Rates,
    penalties: Penalties,
    bids: Arc<Bids>,
    sessions: Sessions,
    outs: BTreeMap<String, (u64, mpsc::Sender<wire::ToExecutor>)>,
    inbox: Inbox,
    pools: BTreeMap<String, Waiting>,
    /// Those of which a round is under way.
    busy: BTreeSet<String>,
    rounds: JoinSet<Found>,
    /// What pools are to be told before their next round: of nodes and queues.
    pool_updates: BTreeMap<String, Vec<Delta>>,
    /// What changed since a pool's last round.
    changed: BTreeMap<String, Changes>,
    /// Pools whose last round was cut short by a limit, and when another may start more.
    again: BTreeMap<String, TimeMs>,
    /// Pools whose proposals are to be settled with the next commit, and when they were made.
    unsettled: Vec<(String, Vec<Proposal>)>,
    pending_changes: PendingChanges,
    dirty: bool,
    questions: Vec<OpenQuestion>,
    metrics: Arc<Metrics>,
    lifecycles: Lifecycles,
    measured: Option<Arc<Snapshot>>,
    keeper: Keeper,
}

impl Term {
    fn new(followed: FollowedLedger, epoch: Epoch, options: &Options, metrics: Arc<Metrics>) -> Self {
        let FollowedLedger { ledger, position } = followed;
        let mut sessions = Sessions::default();
        sessions.expect(&ledger, TimeMs(clock::now_ms()));
        let policies = &options.retries.policies;
        let default = policies.default_policy_name.as_str();
        if !default.is_empty() && !policies.names().contains(default) && !ledger.policies().contains_key(default) {
            tracing::warn!(
                policy = default,
                "there is no such retry policy: failed jobs of queues that name none fail"
            );
        }
        let lifecycles = Lifecycles::of(&ledger);
        let mut term = Self {
            epoch,
            began: TimeMs(clock::now_ms()),
            position,
            ledger,
            retries: options.retries.clone(),
            classes: options.classes.clone(),
            limits: options.limits,
            constraints: options.constraints.clone(),
            rates: Rates::new(options.constraints.rates),
            penalties: Penalties::default(),
            bids: Arc::default(),
            sessions,
            outs: BTreeMap::new(),
            inbox: Inbox::default(),
            pools: BTreeMap::new(),
            busy: BTreeSet::new(),
            rounds: JoinSet::new(),
            pool_updates: BTreeMap::new(),
            changed: BTreeMap::new(),
            again: BTreeMap::new(),
            unsettled: Vec::new(),
            pending_changes: PendingChanges::default(),
            dirty: true,
            questions: Vec::new(),
            metrics,
            lifecycles,
            measured: None,
            keeper: Keeper::new(Retention::FOR_EVER),
        };
        let pools: BTreeSet<String> = term.ledger.runs().map(|(_, run)| run.pool.clone()).collect();
        pools.iter().for_each(|pool| term.ensure_pool(pool));
        term
    }

    fn open(
        &mut self,
        first: &wire::FromExecutor,
        who: Option<&str>,
        number: u64,
        out: mpsc::Sender<wire::ToExecutor>,
    ) -> Result<String, Broken> {
        let (name, welcome) = self.sessions.open(first, who, number, TimeMs(clock::now_ms()))?;
        // A new channel has room for one.
        let _ = out.try_send(welcome);
        self.outs.insert(name.clone(), (number, out));
        Ok(name)
    }

    fn receive(&mut self, name: &str, number: u64, message: wire::FromExecutor) {
        match self.sessions.receive(name, number, message, &self.ledger, TimeMs(clock::now_ms())) {
            Ok(received) => {
                self.dirty |= !received.reports.is_empty();
                self.inbox.reports.extend(received.reports);
                for (pool, delta) in received.nodes {
                    self.ensure_pool(&pool);
                    self.pool_updates.entry(pool).or_default().push(delta);
                }
            }
            Err(error) => {
                tracing::warn!(executor = name, %error, "a session ends");
                self.close(name, number);
            }
        }
    }

    fn close(&mut self, name: &str, number: u64) {
        for (pool, delta) in self.sessions.close(name, number) {
            self.pool_updates.entry(pool).or_default().push(delta);
        }
        if self.outs.get(name).is_some_and(|(current, _)| *current == number) {
            self.outs.remove(name);
        }
    }

    /// How everything stands, or stood a moment ago.
    fn measure(&mut self) -> Arc<Snapshot> {
        let now = TimeMs(clock::now_ms());
        let fresh = self.measured.as_ref().filter(|measured| (0..MEASURED_MS).contains(&now.since(measured.at())));
        if let Some(fresh) = fresh {
            return Arc::clone(fresh);
        }
        let clusters = self.sessions.counts(&self.ledger);
        let measured = Arc::new(Snapshot::of(now, &self.ledger, clusters, self.retries.heartbeat_timeout_ms));
        self.measured = Some(Arc::clone(&measured));
        measured
    }

    fn silent(&mut self) {
        for (name, number) in self.sessions.stale(TimeMs(clock::now_ms())) {
            tracing::warn!(executor = name, "nothing is heard of it; its session ends");
            self.close(&name, number);
        }
        // A cluster that is silent for less is of no use to a decision, which would look at each of its runs.
        let least =
            self.ledger.queues().filter_map(|queue| self.retries.heartbeat_timeout(queue.definition).after_ms()).min();
        let silent = self.sessions.silent(TimeMs(clock::now_ms()));
        let is_long = |ms: i64| least.is_some_and(|least| ms >= least);
        self.inbox.silent = silent.into_iter().filter(|(_, ms)| is_long(*ms)).collect();
        self.dirty |= !self.inbox.silent.is_empty();
    }
}

#[cfg(test)]
mod tests;
