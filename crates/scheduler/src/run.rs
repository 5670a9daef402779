//! The loop that owns the World.
//!
//! Invariant: nothing is decided before every kind has been listed once. A change that comes to an idle scheduler is
//! decided on at once; while changes keep coming, cycles are at least `PAUSE` and one cycle's own length apart. A panic
//! of the engine costs a new World, made from new lists, and the object that it is tied to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use kube::Client;
use pumice_clock::SteadyClock;
use pumice_cluster::{Burst, EventRecorder, until};
use pumice_engine::plugin::Registry;
use pumice_engine::{Config, Delta, Plan, TimeMs, World};
use pumice_recording::{Beginning, Feedback};
use tokio::time::{Instant, MissedTickBehavior};

use crate::ask::Shared;
use crate::metrics::Metrics;
use crate::quarantine::Quarantine;
use crate::recorder::RecordSender;
use crate::reload::{LOOK_EVERY, Reload};
use crate::unread::{MESSAGE, Unread};
use crate::usage::Measured;
use crate::watch_to_deltas::{Ours, WatchedChange, WatchedObjects};
use crate::writer::{Answer, CallOutcome, Subject, Writer};
use crate::{AskRuns, Error, Scheduler, autoscalers, feed, runtime_history, usage};

/// Most changes taken in before deciding.
const BURST_MAX: usize = 4096;
/// Least time between two cycles.
const PAUSE: Duration = Duration::from_millis(3);
/// Most pods of a World that is saved between two cycles: some 20 ms.
const RESUMED_PODS_MAX: usize = 20_000;
/// Longest time between two cycles while there is something to decide.
const PAUSE_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Loop {
    client: Client,
    ours: Ours,
    metrics: Metrics,
    quarantine: Quarantine,
    unread: Unread,
    /// What a new World is made with.
    config: Config,
    plugins: Registry,
    feed: SelectAll<BoxStream<'static, WatchedChange>>,
    usage: BoxStream<'static, Measured>,
    /// How long jobs ran before this World began.
    runtime_history: BoxStream<'static, Vec<Delta>>,
    past_runs: Option<AskRuns>,
    /// Whether something adds nodes.
    autoscalers: BoxStream<'static, Vec<Delta>>,
    watched: WatchedObjects,
    world: Shared,
    /// Gets every call that changes the World.
    record: RecordSender,
    writer: Writer,
    reload: Reload,
    clock: SteadyClock,
    deltas: Vec<Delta>,
    /// Something happened since the last cycle.
    dirty: bool,
    /// Not before this.
    earliest: Instant,
    /// The engine wants a cycle then.
    wakeup: Option<Instant>,
    /// The World can't be trusted any more.
    panicked: bool,
    /// The nodes that our NodeShard was told to have.
    shard: Option<Vec<String>>,
}

impl Loop {
    pub(crate) fn new(scheduler: Scheduler, recorder: EventRecorder, record: RecordSender) -> Self {
        let Scheduler { client, ours, config, plugins, world, metrics, reload, past_runs, .. } = scheduler;
        Self {
            feed: feed::start(&client),
            usage: usage::watch(&client, config.metrics.as_ref()),
            runtime_history: runtime_history::portions(past_runs.as_ref()),
            past_runs,
            autoscalers: autoscalers::watch(&client),
            watched: WatchedObjects::of(ours.clone(), metrics.clone()),
            writer: Writer::new(client.clone(), recorder, metrics.clone()),
            reload,
            clock: SteadyClock::new(),
            deltas: Vec::new(),
            dirty: false,
            earliest: Instant::now(),
            wakeup: None,
            panicked: false,
            shard: None,
            quarantine: Quarantine::default(),
            unread: Unread::default(),
            client,
            ours,
            metrics,
            config,
            plugins,
            world,
            record,
        }
    }

    /// What a World is made with, for the recording.
    fn beginning(&self) -> Beginning {
        Beginning {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: self.reload.text().map(str::to_owned),
            flags: self.reload.flags().clone(),
            plugins: self.plugins.names().map(str::to_owned).collect(),
            schedulers: self.ours.names.clone(),
        }
    }

    /// The World is new.
    fn begin(&mut self) {
        let beginning = self.beginning();
        self.record.begin(beginning);
    }

    /// Goes on with the recording behind a hole, where saving the World takes no time that would be missed.
    fn resume_recording(&mut self) {
        if !self.record.wants_world() || self.world.read().pods_max() > RESUMED_PODS_MAX {
            return;
        }
        self.world.write().forget();
        let (beginning, world) = (self.beginning(), self.world.read().save());
        self.record.resume(beginning, world);
    }

    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.begin();
        loop {
            let wake = until(self.due());
            tokio::select! {
                input = self.feed.next() => self.take(input.ok_or(Error::WatchEnded)?),
                Some(answer) = self.writer.answer() => self.answered(answer),
                Some(measured) = self.usage.next() => self.measured(measured),
                Some(runs) = self.runtime_history.next() => self.apply(runs),
                Some(seen) = self.autoscalers.next() => self.apply(seen),
                _ = looks.tick(), if self.reload.is_on() => self.look().await,
                () = wake => {}
            }
            self.again();
            self.writer.start(&self.watched);
            if !self.panicked && self.is_due(Instant::now()) {
                self.cycle();
            }
            if self.panicked {
                self.rebuild().await;
            }
        }
    }

    /// When the loop has to look up even if nothing happens.
    fn due(&self) -> Option<Instant> {
        let cycle = if !self.watched.complete() {
            None
        } else if self.dirty {
            Some(self.earliest)
        } else {
            self.wakeup.map(|at| at.max(self.earliest))
        };
        [cycle, self.writer.due()].into_iter().flatten().min()
    }

    fn is_due(&self, now: Instant) -> bool {
        let wanted = self.dirty || self.wakeup.is_some_and(|at| at <= now);
        wanted && self.earliest <= now && self.watched.complete()
    }

    /// Takes a change, and all that wait behind it.
    fn take(&mut self, first: WatchedChange) {
        let mut burst = Burst::new(first, BURST_MAX);
        while let Some(input) = burst.next(&mut self.feed) {
            self.watched.take(input, &mut self.deltas);
        }
        self.metrics.changes(self.deltas.len());
        self.unread.follow(&self.deltas);
        let mut deltas = std::mem::take(&mut self.deltas);
        let passed = deltas.drain(..).filter_map(|delta| self.quarantine.pass(delta)).collect::<Vec<_>>();
        self.deltas = deltas;
        self.apply(passed);
    }

    fn measured(&mut self, measured: Measured) {
        let deltas: Vec<Delta> = measured.into_iter().map(|(name, usage)| Delta::NodeUsage { name, usage }).collect();
        self.apply(deltas);
    }

    fn apply(&mut self, mut deltas: Vec<Delta>) {
        let mut world = self.world.write();
        let panics = |delta| match catch_unwind(AssertUnwindSafe(|| world.apply(delta))) {
            Ok(changed) => {
                self.dirty |= changed;
                false
            }
            Err(_) => true,
        };
        let guilty = deltas.iter().position(panics);
        drop(world);
        let guilty = guilty.and_then(|at| deltas.drain(at..).next());
        self.record.deltas(deltas);
        if guilty.is_some() {
            self.suspect(guilty.as_ref());
        }
    }

    /// Tells the World what came of what it decided.
    fn feed_back(&mut self, feedback: Feedback) {
        feedback.apply(&mut self.world.write());
        self.record.feedback(feedback);
    }

    /// An answer, and all that are there besides.
    fn answered(&mut self, first: Answer) {
        let mut next = Some(first);
        while let Some(answer) = next {
            let outcome = self.writer.answered(answer);
            let now = TimeMs(self.clock.now_ms());
            match outcome {
                CallOutcome::No => {}
                CallOutcome::Bind { uid, error } => {
                    self.feed_back(Feedback::Bind { uid, error, at: now });
                    self.dirty = true;
                }
                CallOutcome::Evict { uid, error } => {
                    self.feed_back(Feedback::Evict { uid, error, at: now });
                    self.dirty = true;
                }
                CallOutcome::Gated { uid } => {
                    self.feed_back(Feedback::Gated { uid });
                    self.dirty = true;
                }
                // A status that failed is told to the World when it is due again.
                CallOutcome::Group { namespace, name } => {
                    self.feed_back(Feedback::Status { namespace, name, written: true })
                }
            }
            next = self.writer.answer_now();
        }
    }

    /// Statuses that failed a while ago.
    fn again(&mut self) {
        while let Some(subject) = self.writer.pop_again(Instant::now()) {
            match subject {
                Subject::Group { namespace, name } => {
                    self.feed_back(Feedback::Status { namespace, name, written: false })
                }
                Subject::Pod { uid } => self.feed_back(Feedback::Unnoticed { uid }),
                Subject::Queue { name } => self.feed_back(Feedback::QueueFailed { name }),
                Subject::Bind(_)
                | Subject::Evict(_)
                | Subject::Ungate { .. }
                | Subject::Shard { .. }
                | Subject::Nomination => {}
            }
            self.dirty = true;
        }
    }

    async fn look(&mut self) {
        if let Some(config) = self.reload.look().await {
            tracing::info!("scheduler configuration read");
            if config.metrics != self.config.metrics {
                self.usage = usage::watch(&self.client, config.metrics.as_ref());
            }
            self.world.write().set_config(config.clone());
            self.record.config(self.reload.text().unwrap_or_default());
            self.config = config;
            self.dirty = true;
        }
    }

    fn cycle(&mut self) {
        let started = Instant::now();
        let now = TimeMs(self.clock.now_ms());
        let mut world = self.world.write();
        if self.record.is_full() {
            world.forget();
            self.record.forgot();
        }
        let plan = catch_unwind(AssertUnwindSafe(|| world.cycle(now)));
        drop(world);
        let Ok(plan) = plan else { return self.suspect(None) };
        self.dirty = false;
        let ended = Instant::now();
        let took = ended - started;
        self.earliest = ended + took.clamp(PAUSE, PAUSE_MAX);
        self.wakeup = plan.next_wakeup.map(|at| {
            let wait = u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0);
            ended + Duration::from_millis(wait)
        });
        self.count(&plan, took);
        self.record.cycle(now, &plan);
        self.writer.carry_out(plan, &self.watched);
        let world = self.world.read();
        self.writer.withdraw(&self.watched, |uid| world.waits_unpromised(uid));
        if let Some(sharding) = &self.config.sharding {
            let nodes: Vec<String> = world.shard_nodes().unwrap_or_default().into_iter().map(str::to_owned).collect();
            if self.shard.as_ref() != Some(&nodes) {
                self.writer.shard(&sharding.name, nodes.clone());
                self.shard = Some(nodes);
            }
        }
        drop(world);
        self.writer.tidy(&self.watched);
        let freed = self.quarantine.went_well();
        self.report_quarantined();
        self.tell_unread();
        self.apply(freed);
        self.resume_recording();
        // The next half is tried even if the engine finds nothing new in it.
        self.dirty |= self.quarantine.is_searching();
    }

    fn count(&self, plan: &Plan, took: Duration) {
        tracing::debug!(
            binds = plan.binds.len(),
            evictions = plan.evictions.len(),
            admitted = plan.admitted.len(),
            statuses = plan.groups.len(),
            micros = took.as_micros() as u64,
            "cycle"
        );
        self.metrics.cycle(took, plan.pods.len(), plan.evictions.len());
        self.metrics.unscheduled_groups(self.watched.waiting());
    }

    /// The engine panicked. What it was about is quarantined, or looked for.
    fn suspect(&mut self, delta: Option<&Delta>) {
        self.metrics.panicked();
        self.record.panicked(delta);
        self.panicked = true;
        if !self.quarantine.panicked(delta) {
            // Visible, and started anew by whoever runs us: nothing is gained by going on.
            panic!("the scheduling engine panicked, and no one object is to blame; see the message before this one");
        }
        tracing::error!("the scheduling engine panicked: it is set up anew without the objects that may be to blame");
    }

    /// A new World from new lists, once it is known what came of the calls that the old one wanted.
    async fn rebuild(&mut self) {
        self.writer.drain().await;
        *self.world.write() = World::with_plugins(self.config.clone(), self.plugins.clone());
        self.begin();
        self.feed = feed::start(&self.client);
        self.runtime_history = runtime_history::portions(self.past_runs.as_ref());
        self.autoscalers = autoscalers::watch(&self.client);
        self.watched = WatchedObjects::of(self.ours.clone(), self.metrics.clone());
        self.deltas.clear();
        self.wakeup = None;
        self.dirty = true;
        self.panicked = false;
    }

    /// Tells queues of a `deserved` that nothing reads.
    fn tell_unread(&mut self) {
        let is_read = self.world.read().reads_deserved();
        for (queue, uid) in self.unread.take(is_read) {
            tracing::warn!(queue, "{MESSAGE}");
            self.writer.unread(&queue, &uid, MESSAGE.to_owned());
        }
    }

    /// Reports what was quarantined.
    fn report_quarantined(&mut self) {
        for object in self.quarantine.take_new() {
            tracing::error!(object = object.what, "put aside: the scheduling engine panics over it");
            if let Some((namespace, name)) = object.group {
                let uid = self.watched.group_uid(&namespace, &name).unwrap_or_default();
                let message = "the scheduling engine panics over it: it is not scheduled until it is made anew";
                self.writer.quarantined(&namespace, &name, &uid, message.to_owned());
            }
        }
        self.metrics.quarantined(self.quarantine.quarantined());
    }
}
