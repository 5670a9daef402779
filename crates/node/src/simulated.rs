//! Simulated nodes: Node objects without machines, whose pods last as long as an annotation says.
//!
//! A pure core (the [`fleet`] over a timer [`wheel`]) and a thin shell, which is this file: one watch of pods feeds the
//! core, the calls that it wants are made side by side within a bound, their answers go back.
//! `Options::build() -> SimulatedNodes::run(shutdown)`, with a [`SimulatedHandle`] for who waits. Run by `pumice up`
//! to try out and to measure scheduling on a machine of any size.
//!
//! Invariant: one task owns the fleet; the number of tasks does not grow with the number of nodes or pods.

mod capacity;
mod entry;
mod faults;
mod fleet;
mod order;
mod pod;
mod register;
mod status;
mod wheel;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use http::{Method, Request, header};
use kube::client::Body;
use kube::{Api, Client};
use pumice_cluster::{Burst, Change, WatchScope, until};
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use capacity::{NodeShape, NodeShapeError};
pub use faults::{Faults, FaultsError};
pub use fleet::Counts;

use fleet::{Call, Fleet, Now, Outcome, What};
use pod::WirePod;
use pumice_clock as clock;

/// Start of a simulated node's name; its number follows.
const NODE_PREFIX: &str = "sim-";
/// Simulated nodes of one process at most.
pub const NODES_MAX: u32 = 100_000;
/// Label of simulated nodes.
const SIMULATED: &str = "pumice.sh/simulated";
/// Annotation: how long a pod runs, such as `30s`; without it, until it is deleted.
const SIMULATED_DURATION: &str = "pumice.sh/simulated-duration";
/// Annotation: the exit code at that end.
const EXIT_CODE: &str = "pumice.sh/simulated-exit-code";
/// Annotation: `true` if that end is one for want of memory.
const OOM: &str = "pumice.sh/simulated-oom";
/// Annotation: how long a pod takes to stop once it is deleted, at most its grace.
const STOP_DURATION: &str = "pumice.sh/simulated-stop-duration";

/// Calls under way at a time.
const CALLS_MAX: usize = 128;
/// Changes taken in before calls are made.
const BURST_MAX: usize = 1024;
/// A call without an answer by then has failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// What simulated nodes are told.
pub struct SimulatedOptions {
    /// The API server, with the rights of a node.
    pub client: Client,
    /// How many nodes, at most [`NODES_MAX`].
    pub nodes: u32,
    pub shape: NodeShape,
    /// What goes wrong on them.
    pub faults: Faults,
}

/// Why simulated nodes can't work, or stopped by themselves.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    /// There are too many.
    #[error("{nodes} simulated nodes are too many, the most is {NODES_MAX}")]
    TooMany {
        /// As many as were asked for.
        nodes: u32,
    },
    /// The watch of pods ended, which it never does by itself.
    #[error("the watch of pods ended")]
    WatchEnded,
}

/// Simulated nodes that are ready to run.
pub struct SimulatedNodes {
    options: SimulatedOptions,
    renew_every: Option<Duration>,
    registered: watch::Sender<bool>,
    counts: watch::Sender<Counts>,
}

/// What others may ask of running simulated nodes; cheap to clone.
#[derive(Debug, Clone)]
pub struct SimulatedHandle {
    registered: watch::Receiver<bool>,
    counts: watch::Receiver<Counts>,
}

impl SimulatedHandle {
    /// Waits until all nodes are registered; for ever when they never are. Cancel safe.
    pub async fn registered(&mut self) {
        if self.registered.wait_for(|done| *done).await.is_err() {
            std::future::pending().await
        }
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }
}

/// The name of a node by its number.
fn node_name(index: u32) -> String {
    format!("{NODE_PREFIX}{index:05}")
}

impl SimulatedOptions {
    /// Makes the nodes; nothing runs yet.
    ///
    /// # Errors
    /// When there are too many.
    pub fn build(self) -> Result<SimulatedNodes, SimulatedError> {
        if self.nodes > NODES_MAX {
            return Err(SimulatedError::TooMany { nodes: self.nodes });
        }
        let (registered, counts) = (watch::Sender::new(false), watch::Sender::new(Counts::default()));
        Ok(SimulatedNodes { options: self, renew_every: None, registered, counts })
    }
}

impl SimulatedNodes {
    /// The same nodes, which renew their Leases: for a cluster that calls nodes lost that don't.
    pub fn renewing(self, every: Duration) -> Self {
        Self { renew_every: Some(every), ..self }
    }

    /// For those who ask things of the nodes while they run.
    pub fn handle(&self) -> SimulatedHandle {
        SimulatedHandle { registered: self.registered.subscribe(), counts: self.counts.subscribe() }
    }

    /// Runs until `shutdown`. Calls under way are dropped then: the next start reads from the pods what came of them.
    ///
    /// # Errors
    /// When the watch ends.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, Result<(), SimulatedError>> {
        Box::pin(async move {
            let Self { options, renew_every, registered, counts } = self;
            let SimulatedOptions { client, nodes, shape, faults } = options;
            let start = clock::monotonic();
            let fleet = Fleet::new(nodes, shape.clone(), faults, moment(start));
            let (registering, pods) = (client.clone(), Api::<WirePod>::all(client.clone()));
            let back = Notify::new();
            let register = async {
                register::register_all(&registering, 0..nodes, &shape).await;
                registered.send_replace(true);
                match renew_every {
                    Some(every) => register::keep_alive(&registering, nodes, &shape, every, &back).await,
                    None => std::future::pending().await,
                }
            };
            let changes = Box::pin(pumice_cluster::watch(pods, WatchScope::default()));
            let shell = Shell { client, nodes, fleet, start, calls: JoinSet::new(), counts };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => Ok(()),
                () = register => Ok(()),
                error = shell.run(changes, &back) => Err(error),
            }
        })
    }
}

struct Shell {
    client: Client,
    nodes: u32,
    fleet: Fleet,
    start: Instant,
    calls: JoinSet<(Uuid, Outcome)>,
    counts: watch::Sender<Counts>,
}

impl Shell {
    async fn run(mut self, mut changes: impl Stream<Item = Change<WirePod>> + Unpin, back: &Notify) -> SimulatedError {
        loop {
            self.make_calls();
            let wake = self.fleet.next_wake().map(|ms| self.start + Duration::from_millis(ms));
            let sleep = until(wake.map(Into::into));
            tokio::select! {
                change = changes.next() => {
                    let Some(change) = change else { return SimulatedError::WatchEnded };
                    let mut burst = Burst::new(change, BURST_MAX);
                    while let Some(change) = burst.next(&mut changes) {
                        self.take(change);
                    }
                }
                Some(done) = self.calls.join_next() => self.answered(done),
                () = back.notified() => self.fleet.tell_again(),
                () = sleep => {}
            }
            while let Some(done) = self.calls.try_join_next() {
                self.answered(done);
            }
            self.fleet.pass(moment(self.start));
            let counts = self.fleet.counts();
            self.counts.send_if_modified(|told| std::mem::replace(told, counts) != counts);
        }
    }

    fn take(&mut self, change: Change<WirePod>) {
        let now = moment(self.start);
        match change {
            Change::Replace(all) => {
                let there: HashSet<Uuid> = all.iter().filter_map(WirePod::uid).collect();
                self.fleet.keep_only(&there);
                // What runs already comes first: its share is not free for others.
                let (bound, rest): (Vec<_>, Vec<_>) = all.iter().partition(|pod| pod.is_running());
                bound.into_iter().chain(rest).for_each(|pod| self.see(pod, now));
            }
            Change::Applied(pod) => self.see(&pod, now),
            Change::Deleted(pod) => {
                if let Some(uid) = pod.uid() {
                    self.fleet.gone(uid);
                }
            }
        }
    }

    fn see(&mut self, pod: &WirePod, now: Now) {
        if let Some(glance) = pod.glance(self.nodes) {
            let refused = self.fleet.counts().refused;
            self.fleet.see(&glance, |shape| pod.order(shape), now);
            if self.fleet.counts().refused > refused {
                tracing::warn!(node = node_name(glance.node), uid = %glance.uid, "pod refused: it is over what its node has");
            }
        }
    }

    fn make_calls(&mut self) {
        while self.calls.len() < CALLS_MAX {
            let Some(call) = self.fleet.next_call() else { break };
            let client = self.client.clone();
            self.calls.spawn(async move {
                let outcome = tokio::time::timeout(CALL_TIMEOUT, make(&client, &call)).await;
                (call.uid, outcome.unwrap_or(Outcome::Failed))
            });
        }
    }

    fn answered(&mut self, done: Result<(Uuid, Outcome), tokio::task::JoinError>) {
        match done {
            Ok((uid, outcome)) => self.fleet.answered(uid, outcome, moment(self.start)),
            Err(error) => tracing::error!(error = %error, "a call about a pod failed"),
        }
    }
}

/// Makes a call; of the answer only the code is read.
async fn make(client: &Client, call: &Call) -> Outcome {
    let path = format!("/api/v1/namespaces/{}/pods/{}", call.namespace, call.name);
    let (method, path, kind, body) = match &call.what {
        What::Status(patch) => (Method::PATCH, path + "/status", "application/merge-patch+json", patch.clone()),
        What::Remove => {
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": call.uid.to_string()}});
            (Method::DELETE, path, "application/json", options.to_string().into_bytes())
        }
    };
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind).body(Body::from(body));
    let Ok(request) = request else { return Outcome::Failed };
    match client.send(request).await {
        Ok(response) if response.status().is_success() || response.status() == http::StatusCode::NOT_FOUND => {
            Outcome::Done
        }
        Ok(response) => {
            tracing::debug!(pod = %call.name, code = response.status().as_u16(), "call refused, will try again");
            Outcome::Failed
        }
        Err(error) => {
            tracing::warn!(pod = %call.name, error = %error, "call failed, will try again");
            Outcome::Failed
        }
    }
}

fn moment(start: Instant) -> Now {
    let ms = u64::try_from(clock::monotonic().duration_since(start).as_millis()).unwrap_or(u64::MAX);
    Now { ms, unix_seconds: clock::now().as_second() }
}
