//! The executor as a component: watches and calls around the core, and one stream to the server.
//!
//! Invariant: the core is owned by one task, which takes in one thing after another; calls run beside it and come back as
//! inputs. A session is opened only when all nodes and pods are known, so that what it begins with is whole.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesUnordered, SelectAll, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::DynamicObject;
use kube::{Api, Client};
use pumice_cluster::{Change, Pace, WatchScope, paced, watch_all, watch_optional, watch_where_served};
use pumice_ledger::TimeMs;
use pumice_wire::executor::from_executor::Message;
use pumice_wire::executor::{FromExecutor, Heartbeat, Hello};
use rustls::ClientConfig;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use super::calls;
use super::commands::Commands;
use super::core::{Core, Input, Output, SessionEnd, SettingsError};
use super::facts::{Kind, PodEvent, PodFacts};
use super::metrics::Handle;
use super::nodes::Nodes;
use super::pending_checks::Checks;
use super::pod_index::PodIndex;
use super::server_stream::{self, Credentials, LinkError, LinkEvent};
use super::servers::Servers;
use super::settings::Settings;
use super::usage;
use crate::labels::RUN_LABEL;

/// The protocol that is spoken.
const FORMAT: u32 = 1;
const TICK: Duration = Duration::from_secs(1);
/// Between two questions for what pods use.
const MEASURE_EVERY: Duration = Duration::from_secs(30);
/// Between words to a server that did not say how often it wants one.
const HEARTBEAT_MS: u64 = 5_000;
/// Messages of the server that wait.
const INCOMING_MAX: usize = 64;

/// What an executor is made of.
#[derive(Clone)]
pub struct Options {
    /// Its name, which is that of its cluster.
    pub name: String,
    /// The servers, each as in `https://fleet:50051`. Whichever leads is found among them.
    pub servers: Vec<String>,
    /// Its side of TLS, which says who it is; without it the server is spoken to in the clear.
    pub tls: Option<Arc<ClientConfig>>,
    /// What it shows to the server besides, as in `Bearer TOKEN`.
    pub authorization: Option<String>,
    pub client: Client,
    pub settings: Settings,
}

/// Why an executor can't be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A rule is none.
    #[error("the executor's settings can't be used")]
    Settings(#[from] SettingsError),
    /// The server's address is none, or not of the kind that the identity asks for.
    #[error(
        "{address:?} is no address of a server; with an identity try https://127.0.0.1:50051, without one http://127.0.0.1:50051"
    )]
    Address { address: String },
    /// The token can't be sent.
    #[error("the token has letters that can't be sent")]
    Token,
}

/// An executor that is ready to run.
pub struct Executor {
    name: String,
    servers: Servers,
    credentials: Credentials,
    client: Client,
    pace: Pace,
    handle: Handle,
    measuring: Option<BoxFuture<'static, Result<usage::Measured, usage::UsageError>>>,
    measure_at: Instant,
    checks: Arc<Checks>,
    core: Core,
    nodes: Nodes,
    names: PodIndex,
    /// It is known what Jobs of Volcano jobs there are, or that the cluster has none.
    jobs_seen: bool,
    calls: FuturesUnordered<BoxFuture<'static, Vec<Input>>>,
    links: JoinSet<Result<(), LinkError>>,
    commands: Commands,
    sessions: u64,
    open: Option<Open>,
    retry_at: Instant,
}

/// A session as far as sending goes.
struct Open {
    sender: Sender<FromExecutor>,
    sequence: u64,
    spoke_at: Instant,
}

/// What the cluster shows.
#[allow(clippy::large_enum_variant, reason = "there is one at a time, and it is taken apart at once")]
enum Seen {
    Node(Change<Node>),
    Pod(Change<Pod>),
    Event(Change<Event>),
    /// Nothing where the cluster has no Volcano Jobs.
    Job(Option<Change<DynamicObject>>),
}

/// Makes an executor. Needs a tokio runtime.
///
/// # Errors
/// Options that can't be used.
pub fn build(options: Options) -> Result<Executor, BuildError> {
    let is_encrypted = options.tls.is_some();
    let servers = Servers::new(options.servers, is_encrypted).map_err(|address| BuildError::Address { address })?;
    let token = options.authorization.map(|authorization| authorization.parse()).transpose();
    let credentials = Credentials { tls: options.tls, token: token.map_err(|_| BuildError::Token)? };
    let core = Core::new(options.settings)?;
    let (client, pace) = paced(options.client);
    let handle = Handle::new(pace.clone());
    Ok(Executor {
        name: options.name,
        servers,
        credentials,
        commands: Commands::new(client.clone()),
        client,
        pace,
        handle,
        measuring: None,
        measure_at: Instant::now(),
        checks: Arc::new(core.checks().clone()),
        core,
        nodes: Nodes::default(),
        names: PodIndex::default(),
        jobs_seen: false,
        calls: FuturesUnordered::new(),
        links: JoinSet::new(),
        sessions: 0,
        open: None,
        retry_at: Instant::now(),
    })
}

impl Executor {
    /// What its writes to the cluster come to, for metrics.
    #[must_use]
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// What it says of itself.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until it is told to stop. Pods are left as they are: the next one finds them.
    pub fn run(mut self, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut seen = watches(&self.client);
            let (events, mut heard): (Sender<LinkEvent>, Receiver<LinkEvent>) = channel(INCOMING_MAX);
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let is_known = self.core.is_synced() && self.nodes.is_synced() && self.jobs_seen;
                let may_connect = is_known && self.links.is_empty();
                tokio::select! {
                    () = shutdown.cancelled() => return self.links.shutdown().await,
                    Some(seen) = seen.next() => self.see(seen),
                    Some(answers) = self.calls.next() => answers.into_iter().for_each(|answer| self.put(answer)),
                    Some(event) = heard.recv() => self.hear(event),
                    measured = measured(&mut self.measuring) => self.used(measured),
                    Some(ended) = self.links.join_next() => {
                        // What it said before it ended belongs to it.
                        while let Ok(event) = heard.try_recv() {
                            self.hear(event);
                        }
                        self.lost(ended.unwrap_or(Ok(())));
                    }
                    _ = ticks.tick() => self.tick(),
                    () = sleep_until(self.retry_at), if may_connect => {
                        self.links.spawn(server_stream::hold(self.servers.next(), self.credentials.clone(), events.clone()));
                    }
                }
            }
        })
    }

    fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Node(change) => self.nodes.apply(change),
            Seen::Pod(Change::Replace(pods)) => {
                self.nodes.all_pods(&pods);
                pods.iter().for_each(|pod| self.member(pod));
                let pods = pods.iter().filter_map(PodFacts::of).inspect(|facts| self.names.there(facts));
                let pods = pods.collect();
                self.put(Input::Pods(pods));
            }
            Seen::Pod(Change::Applied(pod)) => {
                self.nodes.pod(&pod);
                self.member(&pod);
                if let Some(facts) = PodFacts::of(&pod) {
                    self.names.there(&facts);
                    self.put(Input::Pod(Box::new(facts)));
                }
            }
            Seen::Pod(Change::Deleted(pod)) => {
                self.nodes.pod_removed(&pod);
                if let Some(facts) = PodFacts::of(&pod) {
                    self.put(Input::PodRemoved { run: facts.run, uid: facts.uid });
                }
            }
            Seen::Job(change) => self.job(change),
            Seen::Event(Change::Replace(events)) => events.iter().for_each(|event| self.warning(event)),
            Seen::Event(Change::Applied(event)) => self.warning(&event),
            Seen::Event(Change::Deleted(_)) => {}
        }
    }

    /// Where the definition of Volcano Jobs is gone, or may not be seen any more, what there was of them may run on.
    fn job(&mut self, change: Option<Change<DynamicObject>>) {
        self.jobs_seen = true;
        self.nodes.runs_jobs(change.is_some());
        match change {
            Some(Change::Replace(jobs)) => {
                let jobs = jobs.iter().filter_map(PodFacts::of_job).inspect(|facts| self.names.there(facts));
                let jobs = jobs.collect();
                self.put(Input::Jobs(jobs));
            }
            Some(Change::Applied(job)) => {
                if let Some(facts) = PodFacts::of_job(&job) {
                    self.names.there(&facts);
                    self.put(Input::Pod(Box::new(facts)));
                }
            }
            Some(Change::Deleted(job)) => {
                if let Some(facts) = PodFacts::of_job(&job) {
                    self.put(Input::PodRemoved { run: facts.run, uid: facts.uid });
                }
            }
            None => {}
        }
    }

    fn member(&mut self, pod: &Pod) {
        if let Some(facts) = PodFacts::of_failed_member(pod) {
            self.put(Input::MemberFailed(Box::new(facts)));
        }
    }

    fn warning(&mut self, event: &Event) {
        let about = &event.involved_object;
        let [namespace, name, uid] =
            [&about.namespace, &about.name, &about.uid].map(|text| text.as_deref().unwrap_or_default());
        let Some(run) = self.names.run_of(namespace, name, uid) else { return };
        let (reason, message) = (event.reason.clone().unwrap_or_default(), event.message.clone().unwrap_or_default());
        self.put(Input::PodEvent { run, event: PodEvent { reason, message } });
    }

    fn hear(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Opened(sender, answers) => {
                self.commands.answer_to(*answers);
                self.sessions += 1;
                self.handle.opened();
                self.open = Some(Open { sender, sequence: 0, spoke_at: Instant::now() });
                let session_id = format!("{}-{}", now().0, self.sessions);
                self.send(Message::Hello(Hello {
                    executor: self.name.clone(),
                    session_id,
                    format_version: FORMAT,
                    release: env!("CARGO_PKG_VERSION").to_owned(),
                    time_ms: now().0,
                    runs_errands: true,
                }));
                let nodes = self.nodes.all();
                self.send(Message::Nodes(nodes));
                self.put(Input::Connected { session: self.sessions });
            }
            LinkEvent::Message(message) => {
                self.servers.answered();
                self.put(Input::Message { session: self.sessions, message });
            }
        }
    }

    fn lost(&mut self, ended: Result<(), LinkError>) {
        let server = self.servers.next().uri().to_string();
        let pause = self.servers.lost(ended.is_err());
        self.handle.closed(ended.is_err());
        if let Err(error) = &ended {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(server, %error, cause, retry_ms = pause.as_millis(), "not connected to the server");
        }
        if self.open.take().is_some() {
            self.put(Input::Disconnected);
        }
        self.retry_at = Instant::now() + pause;
    }

    fn tick(&mut self) {
        self.put(Input::Tick);
        self.names.retain(|run| self.core.owner(run).is_some());
        self.handle.tick(self.core.counts(), self.nodes.count(), self.core.is_synced() && self.nodes.is_synced());
        if self.open.is_some() && self.measuring.is_none() && Instant::now() >= self.measure_at {
            self.measure_at = Instant::now() + MEASURE_EVERY;
            self.measuring = Some(Box::pin(usage::measure(self.client.clone())));
        }
        if self.open.is_some()
            && let Some(changes) = self.nodes.changes()
        {
            self.send(Message::Nodes(changes));
        }
        let wanted = Some(self.core.heartbeat_ms()).filter(|ms| *ms > 0).unwrap_or(HEARTBEAT_MS);
        // Before it is due, as the next look is a while off.
        let silence = Duration::from_millis(wanted).saturating_sub(TICK);
        if self.open.as_ref().is_some_and(|open| open.spoke_at.elapsed() >= silence) {
            self.send(Message::Heartbeat(Heartbeat { seen: self.core.seen(), time_ms: now().0 }));
        }
    }

    /// Tells the server what pods use, where that is known.
    fn used(&mut self, measured: Result<usage::Measured, usage::UsageError>) {
        self.measuring = None;
        match measured {
            Ok(measured) => {
                let owner = |namespace: &str, name: &str| {
                    let (queue, node) = self.core.owner(self.names.run_of(namespace, name, "")?)?;
                    Some((queue, self.nodes.pool(node)))
                };
                let usage = usage::by_queue(measured, owner);
                self.send(Message::Usage(usage));
            }
            // A cluster may well measure nothing.
            Err(error) => tracing::debug!(%error, "nothing is known of what pods use"),
        }
    }

    fn put(&mut self, input: Input) {
        for output in self.core.apply(now(), input) {
            match output {
                Output::Create { run, objects } => {
                    let metadata = |field: &str| objects.pod["metadata"][field].as_str().unwrap_or_default();
                    self.names.making(run, objects.kind, metadata("namespace"), metadata("name"));
                    let (client, checks) = (self.client.clone(), Arc::clone(&self.checks));
                    self.calls.push(Box::pin(async move { calls::create(client, &checks, run, *objects).await }));
                }
                Output::Delete { run, kind, namespace, name, uid, how } => {
                    let client = self.client.clone();
                    self.calls.push(Box::pin(async move {
                        let answer = match kind {
                            Kind::Pod => calls::delete(client, &namespace, &name, uid, &how).await,
                            Kind::Job => calls::volcano_job::delete(client, run, &namespace, &name, uid, &how).await,
                        };
                        vec![Input::Deleted { run, answer }]
                    }));
                }
                Output::RunErrand(errand) => self.commands.run(*errand),
                Output::Report(runs) => self.send(Message::Runs(runs)),
                Output::EndSession(end) => {
                    tracing::info!(?end, "the session with the server ends");
                    if let SessionEnd::Redirect(address) = &end {
                        self.servers.redirected(address, self.credentials.tls.is_some());
                    }
                    self.links.abort_all();
                }
            }
        }
    }

    /// Sends, or gives the session up: a new one begins with everything.
    fn send(&mut self, message: Message) {
        let Some(open) = &mut self.open else { return };
        open.sequence += 1;
        open.spoke_at = Instant::now();
        if open.sender.try_send(FromExecutor { sequence: open.sequence, message: Some(message) }).is_err() {
            self.links.abort_all();
        }
    }
}

/// The answer to the question that is under way; never, where none is.
async fn measured(
    measuring: &mut Option<BoxFuture<'static, Result<usage::Measured, usage::UsageError>>>,
) -> Result<usage::Measured, usage::UsageError> {
    match measuring {
        Some(measuring) => measuring.await,
        None => std::future::pending().await,
    }
}

fn watches(client: &Client) -> SelectAll<BoxStream<'static, Seen>> {
    let warnings = WatchScope::fields("involvedObject.kind=Pod,type=Warning");
    let mut seen = SelectAll::new();
    seen.push(watch_all(client, WatchScope::default()).map(Seen::Node).boxed());
    seen.push(watch_all(client, WatchScope::default()).map(Seen::Pod).boxed());
    seen.push(watch_optional(Api::all(client.clone()), warnings).map(Seen::Event).boxed());
    let jobs = watch_where_served(calls::volcano_job::jobs(client.clone()), WatchScope::labels(RUN_LABEL));
    seen.push(jobs.map(Seen::Job).boxed());
    seen
}

#[allow(clippy::disallowed_methods, reason = "the shell's clock")]
fn now() -> TimeMs {
    TimeMs(Timestamp::now().as_millisecond())
}

#[cfg(test)]
mod tests;
