//! The loop that owns the World.
//!
//! Invariant: nothing is decided before every kind has been listed once. A change that comes to an idle scheduler is
//! decided on at once; while changes keep coming, cycles are at least `PAUSE` and one cycle's own length apart.

use std::time::Duration;

use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use pumice_cluster::EventRecorder;
use pumice_engine::Delta;
use tokio::time::{Instant, MissedTickBehavior};

use crate::ask::Shared;
use crate::clock::Clock;
use crate::intake::{Input, Intake};
use crate::reload::{LOOK_EVERY, Reload};
use crate::writer::{Answer, Subject, Writer};
use crate::{Error, Scheduler, feed};

/// Most changes taken in before deciding.
const BURST_MAX: usize = 4096;
/// Least time between two cycles.
const PAUSE: Duration = Duration::from_millis(3);
/// Longest time between two cycles while there is something to decide.
const PAUSE_MAX: Duration = Duration::from_millis(500);

pub(crate) struct Loop {
    feed: SelectAll<BoxStream<'static, Input>>,
    intake: Intake,
    world: Shared,
    writer: Writer,
    reload: Reload,
    clock: Clock,
    deltas: Vec<Delta>,
    /// Something happened since the last cycle.
    dirty: bool,
    /// Not before this.
    earliest: Instant,
    /// The engine wants a cycle then.
    wakeup: Option<Instant>,
}

impl Loop {
    pub(crate) fn new(scheduler: Scheduler, recorder: EventRecorder) -> Self {
        Self {
            feed: feed::start(&scheduler.client),
            intake: Intake::new(scheduler.scheduler_names),
            world: scheduler.world,
            writer: Writer::new(scheduler.client, recorder),
            reload: Reload::new(scheduler.config, scheduler.plugins),
            clock: Clock::new(),
            deltas: Vec::new(),
            dirty: false,
            earliest: Instant::now(),
            wakeup: None,
        }
    }

    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = self.due();
            let wake = async {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                input = self.feed.next() => self.take(input.ok_or(Error::WatchEnded)?),
                Some(answer) = self.writer.answer() => self.answered(&answer),
                _ = looks.tick(), if self.reload.is_on() => self.look().await,
                () = wake => {}
            }
            self.again();
            self.writer.start(&self.intake);
            if self.is_due(Instant::now()) {
                self.cycle();
            }
        }
    }

    /// When the loop has to look up even if nothing happens.
    fn due(&self) -> Option<Instant> {
        let cycle = if self.dirty { Some(self.earliest) } else { self.wakeup.map(|at| at.max(self.earliest)) };
        let cycle = cycle.filter(|_| self.intake.complete());
        [cycle, self.writer.next_again()].into_iter().flatten().min()
    }

    fn is_due(&self, now: Instant) -> bool {
        let wanted = self.dirty || self.wakeup.is_some_and(|at| at <= now);
        wanted && self.earliest <= now && self.intake.complete()
    }

    /// Takes a change, and all that wait behind it.
    fn take(&mut self, first: Input) {
        let mut next = Some(first);
        for _ in 0..BURST_MAX {
            let Some(input) = next else { break };
            self.intake.take(input, &mut self.deltas);
            next = self.feed.next().now_or_never().flatten();
        }
        if let Some(input) = next {
            self.intake.take(input, &mut self.deltas);
        }
        let mut world = self.world.write();
        for delta in self.deltas.drain(..) {
            self.dirty |= world.apply(&delta);
        }
    }

    fn answered(&mut self, answer: &Answer) {
        let settled = self.writer.answered(answer);
        match &answer.subject {
            Subject::Bind { uid } if settled => {
                let result = answer.failed.as_ref().map_or(Ok(()), |(_, error)| Err(error.as_str()));
                self.world.write().bind_result(uid, result, self.clock.now_ms());
                self.dirty = true;
            }
            // A status that failed is told to the World when it is due again.
            Subject::Group { namespace, name } if settled => self.world.write().status_result(namespace, name, true),
            _ => {}
        }
    }

    /// Statuses that failed a while ago.
    fn again(&mut self) {
        while let Some(subject) = self.writer.pop_again(Instant::now()) {
            match subject {
                Subject::Group { namespace, name } => self.world.write().status_result(&namespace, &name, false),
                Subject::Pod { uid } => self.world.write().notice_failed(&uid),
                Subject::Queue { name } => self.world.write().queue_failed(&name),
                Subject::Bind { .. } => {}
            }
            self.dirty = true;
        }
    }

    async fn look(&mut self) {
        if let Some(config) = self.reload.look().await {
            tracing::info!("scheduler configuration read");
            self.world.write().set_config(config);
            self.dirty = true;
        }
    }

    fn cycle(&mut self) {
        let started = Instant::now();
        let now = self.clock.now_ms();
        let plan = self.world.write().cycle(now);
        self.dirty = false;
        let ended = Instant::now();
        self.earliest = ended + (ended - started).clamp(PAUSE, PAUSE_MAX);
        self.wakeup = plan.next_wakeup.map(|at| {
            let wait = u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0);
            ended + Duration::from_millis(wait)
        });
        tracing::debug!(
            binds = plan.binds.len(),
            admitted = plan.admitted.len(),
            statuses = plan.groups.len(),
            micros = (ended - started).as_micros() as u64,
            "cycle"
        );
        self.writer.carry_out(plan, &self.intake);
        self.writer.tidy(&self.intake);
    }
}
