//! The loop of a controller that looks after few objects.
//!
//! Invariant: nothing is decided before every kind has been listed once; one plan at a time for an object; what a call
//! answered is taken in as if the watch had told it, so that nothing is decided twice. A plan that failed is made anew, ever
//! later, and so is one that never ends. Jobs, of which there are many, have a loop of their own (`run`).

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, SelectAll};
use kube::Client;
use pumice_cluster::{Burst, Failure, Timers, until};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

pub(crate) use crate::answer::Answer;
use crate::metrics::{Metrics, Rounds};
use crate::{Error, backoff};

/// Most changes taken in before looking at what to do.
const BURST_MAX: usize = 4096;
/// Most plans carried out at once.
const PLANS_MAX: usize = 16;
/// What a small controller knows, and how it decides.
pub(crate) trait Controller: Send {
    /// Its name, for people.
    const NAME: &'static str;
    /// Plans in a row after which something is wrong: what is written does not stay as it was written.
    const ROUNDS_MAX: u32 = 16;
    /// Names an object it looks after.
    type Key: Clone + Ord + Hash + Debug + Send;
    /// A change of one of its kinds.
    type Input: Send + 'static;

    /// The watches that run from the start; each first brings a complete list.
    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Self::Input>>;
    /// More watches, now that there is something to look after; asked after each burst of changes.
    fn more(&mut self, _client: &Client) -> Vec<BoxStream<'static, Self::Input>> {
        Vec::new()
    }
    /// Whether each kind that must be there before anything is decided has been listed.
    fn is_complete(&self) -> bool;
    /// Takes a change in, and names what has to be looked at.
    fn take(&mut self, input: Self::Input, touched: &mut BTreeSet<Self::Key>);
    /// Decides what to do about an object; nothing if all is well.
    fn plan(&mut self, key: &Self::Key) -> Plan<Self::Input>;
}

/// What a controller wants done about an object.
pub(crate) struct Plan<I> {
    /// The calls, in one.
    pub call: Option<BoxFuture<'static, Answer<I>>>,
    /// When to look again even if nothing happens.
    pub look_again: Option<Instant>,
}

struct Loop<C: Controller> {
    controller: C,
    dirty: BTreeSet<C::Key>,
    calls: JoinSet<Answer<C::Input>>,
    plans: HashMap<Id, C::Key>,
    failures: HashMap<C::Key, u32>,
    /// Plans in a row that went well and left something to do.
    rounds: HashMap<C::Key, u32>,
    timers: Timers<C::Key>,
    counted: Arc<Rounds>,
}

/// Runs a controller. Ends only when a watch does.
pub(crate) async fn run<C: Controller>(client: Client, controller: C, metrics: Metrics) -> Result<(), Error> {
    let mut feed = controller.feed(&client);
    let mut state = Loop {
        controller,
        dirty: BTreeSet::new(),
        calls: JoinSet::new(),
        plans: HashMap::new(),
        failures: HashMap::new(),
        rounds: HashMap::new(),
        timers: Timers::default(),
        counted: metrics.of(C::NAME),
    };
    loop {
        let wake = until(state.timers.next());
        tokio::select! {
            input = feed.next() => {
                let mut burst = Burst::new(input.ok_or(Error::WatchEnded)?, BURST_MAX);
                while let Some(input) = burst.next(&mut feed) {
                    state.controller.take(input, &mut state.dirty);
                }
            }
            Some(answer) = state.calls.join_next_with_id() => state.answered(answer),
            () = wake => {}
        }
        feed.extend(state.controller.more(&client));
        state.work();
        state.counted.stand(state.dirty.len(), state.plans.len());
    }
}

impl<C: Controller> Loop<C> {
    fn answered(&mut self, answer: Result<(Id, Answer<C::Input>), JoinError>) {
        let (id, answer) = match answer {
            Ok((id, answer)) => (id, answer),
            Err(error) => {
                let object = self.plans.remove(&error.id());
                self.counted.crashed();
                tracing::error!(controller = C::NAME, ?object, %error, "a plan crashed; the object waits for a change");
                return;
            }
        };
        let Some(key) = self.plans.remove(&id) else { return };
        for input in answer.observed {
            self.controller.take(input, &mut self.dirty);
        }
        match answer.failure {
            None => {
                self.failures.remove(&key);
                let rounds = self.rounds.entry(key.clone()).or_default();
                *rounds = rounds.saturating_add(1);
                if *rounds < C::ROUNDS_MAX {
                    self.dirty.insert(key);
                } else {
                    tracing::warn!(controller = C::NAME, object = ?key, "one plan follows another without an end");
                    let wait = backoff::wait(Failure::Invalid, rounds.saturating_sub(C::ROUNDS_MAX));
                    self.timers.at(&key, Instant::now() + wait);
                }
            }
            Some(failure) => {
                let failures = self.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                self.timers.at(&key, Instant::now() + backoff::wait(failure, *failures));
            }
        }
    }

    /// Looks at everything that something happened to.
    fn work(&mut self) {
        while let Some(key) = self.timers.pop(Instant::now()) {
            self.dirty.insert(key);
        }
        if !self.controller.is_complete() {
            return;
        }
        let busy: BTreeSet<C::Key> = self.plans.values().cloned().collect();
        let mut later = Vec::new();
        while self.plans.len() < PLANS_MAX
            && let Some(key) = self.dirty.pop_first()
        {
            if busy.contains(&key) {
                later.push(key);
                continue;
            }
            let plan = self.controller.plan(&key);
            if let Some(at) = plan.look_again {
                self.timers.at(&key, at);
            }
            match plan.call {
                Some(call) => {
                    let handle = self.calls.spawn(self.counted.watched(call));
                    self.plans.insert(handle.id(), key);
                }
                None => {
                    self.failures.remove(&key);
                    self.rounds.remove(&key);
                }
            }
        }
        self.dirty.extend(later);
    }
}
