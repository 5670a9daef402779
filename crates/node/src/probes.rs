//! What a running container is given beside its process: its hooks, and the probes that say whether it is well.
//!
//! One prober follows one run of one container and says what it finds; what comes of it is decided by the loop over the
//! pods. Invariant: an prober changes nothing itself, and ends with the run that it was made for.

pub(crate) mod action;
mod grpc;
mod http;
mod probe;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::launcher::Launcher;
use action::{Action, ActionError, ContainerTarget};
use probe::{Probe, Tally};

/// Longest time for a hook after the start.
const POST_START_MAX: Duration = Duration::from_secs(3600);

/// All that a container wants beside its process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProbesAndHooks {
    post_start: Option<Action>,
    pre_stop: Option<Action>,
    startup: Option<Probe>,
    liveness: Option<Probe>,
    readiness: Option<Probe>,
}

impl ProbesAndHooks {
    /// Whether `container` may ask for any; most ask for none.
    pub(crate) fn is_asked(container: &Container) -> bool {
        let probes = [&container.startup_probe, &container.liveness_probe, &container.readiness_probe];
        container.lifecycle.is_some() || probes.into_iter().any(Option::is_some)
    }

    /// What `container` asks for.
    pub(crate) fn of(container: &Container) -> Result<ProbesAndHooks, ActionError> {
        let hook = |pick: fn(&k8s_openapi::api::core::v1::Lifecycle) -> Option<&_>| {
            container.lifecycle.as_ref().and_then(pick).map(|hook| Action::of_hook(hook, container)).transpose()
        };
        Ok(ProbesAndHooks {
            post_start: hook(|lifecycle| lifecycle.post_start.as_ref())?,
            pre_stop: hook(|lifecycle| lifecycle.pre_stop.as_ref())?,
            startup: Probe::of(container.startup_probe.as_ref(), container)?,
            liveness: Probe::of(container.liveness_probe.as_ref(), container)?,
            readiness: Probe::of(container.readiness_probe.as_ref(), container)?,
        })
    }

    /// Whether somebody must stand by while it runs.
    pub(crate) fn needs_prober(&self) -> bool {
        self.post_start.is_some() || self.startup.is_some() || self.liveness.is_some() || self.readiness.is_some()
    }

    /// Whether it is not up as soon as it runs.
    pub(crate) fn is_awaited(&self) -> bool {
        self.post_start.is_some() || self.startup.is_some()
    }

    /// Whether it is ready as soon as it has started.
    pub(crate) fn is_ready_at_once(&self) -> bool {
        self.readiness.is_none()
    }
}

/// One run of a container.
#[derive(Clone)]
pub(crate) struct Run {
    pub shim: Launcher,
    pub dir: PathBuf,
    pub address: Ipv4Addr,
    pub uid: String,
    pub container: String,
    /// How often it had been started before.
    pub number: u32,
    /// Seconds that its pod has to end.
    pub grace_seconds: u64,
}

impl Run {
    fn target(&self) -> ContainerTarget<'_> {
        ContainerTarget { shim: &self.shim, dir: &self.dir, container: &self.container, address: self.address }
    }
}

/// What is found about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub uid: String,
    pub container: String,
    pub number: u32,
    pub word: Word,
}

/// What is said of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// It is up: its hook and its startup probe are done.
    Started,
    /// Whether it can serve.
    Ready(bool),
    /// An answer was bad. Something to tell, nothing to do.
    Unwell { reason: &'static str, message: String },
    /// It has to end; its last hook has been called already.
    End {
        message: String,
        /// Seconds that it has.
        grace_seconds: u64,
    },
}

/// Follows a run that has begun `since` ago, until it is dropped. `started` is whether its first steps were done before.
pub(crate) async fn run_prober(
    run: Run,
    care: ProbesAndHooks,
    since: Duration,
    started: bool,
    says: mpsc::Sender<Finding>,
) {
    let prober = Prober { began: Instant::now().checked_sub(since).unwrap_or_else(Instant::now), run, care, says };
    if !started && !prober.begin().await {
        return;
    }
    tokio::join!(prober.watch_life(), prober.watch_readiness());
}

struct Prober {
    run: Run,
    care: ProbesAndHooks,
    began: Instant,
    says: mpsc::Sender<Finding>,
}

impl Prober {
    /// Its hook and its startup probe; false when it has to end.
    async fn begin(&self) -> bool {
        if let Some(hook) = &self.care.post_start
            && let Err(text) = hook.perform(&self.run.target(), POST_START_MAX).await
        {
            self.say(Word::Unwell { reason: "FailedPostStartHook", message: format!("PostStartHook failed: {text}") })
                .await;
            self.end("FailedPostStartHook", None).await;
            return false;
        }
        if let Some(probe) = &self.care.startup
            && !Questions::new(self, "Startup", probe).verdict().await
        {
            self.end("failed startup probe", probe.grace_seconds).await;
            return false;
        }
        self.say(Word::Started).await;
        true
    }

    async fn watch_life(&self) {
        let Some(probe) = &self.care.liveness else { return };
        let mut questions = Questions::new(self, "Liveness", probe);
        while questions.verdict().await {}
        self.end("failed liveness probe", probe.grace_seconds).await;
    }

    async fn watch_readiness(&self) {
        let Some(probe) = &self.care.readiness else { return };
        let mut questions = Questions::new(self, "Readiness", probe);
        let mut known = None;
        loop {
            let ready = questions.verdict().await;
            if known != Some(ready) {
                known = Some(ready);
                self.say(Word::Ready(ready)).await;
            }
        }
    }

    /// Says that the container has to end, after its last hook.
    async fn end(&self, why: &str, grace_seconds: Option<u64>) {
        let grace_seconds = grace_seconds.unwrap_or(self.run.grace_seconds);
        if let Some(hook) = &self.care.pre_stop {
            let limit = Duration::from_secs(grace_seconds);
            if let Err(text) = hook.perform(&self.run.target(), limit).await {
                self.say(Word::Unwell { reason: "FailedPreStopHook", message: format!("PreStopHook failed: {text}") })
                    .await;
            }
        }
        let message = format!("Container {} {why}, will be restarted", self.run.container);
        self.say(Word::End { message, grace_seconds }).await;
    }

    async fn say(&self, word: Word) {
        let Run { uid, container, number, .. } = &self.run;
        // Nobody listens to an agent that ends.
        let _ = self.says.send(Finding { uid: uid.clone(), container: container.clone(), number: *number, word }).await;
    }
}

/// One probe's questions, one after the other.
struct Questions<'a> {
    prober: &'a Prober,
    kind: &'static str,
    probe: &'a Probe,
    tally: Tally,
    next: Instant,
}

impl<'a> Questions<'a> {
    fn new(prober: &'a Prober, kind: &'static str, probe: &'a Probe) -> Self {
        let next = (prober.began + probe.delay).max(Instant::now());
        Questions { prober, kind, probe, tally: Tally::default(), next }
    }

    /// Asks until the answers are believed. Each bad one is told; who records events counts them.
    async fn verdict(&mut self) -> bool {
        loop {
            tokio::time::sleep_until(self.next).await;
            let answer = self.probe.action.perform(&self.prober.run.target(), self.probe.timeout).await;
            self.next = (self.next + self.probe.period).max(Instant::now());
            if let Err(text) = &answer {
                let message = format!("{} probe failed: {text}", self.kind);
                self.prober.say(Word::Unwell { reason: "Unhealthy", message }).await;
            }
            if let Some(verdict) = self.tally.count(answer.is_ok(), self.probe) {
                return verdict;
            }
        }
    }
}

/// Calls the last hooks of the containers in `runs`, all at once, each within `limit`; gives what went wrong.
pub(crate) async fn pre_stop(pod: &Pod, runs: Vec<Run>, limit: Duration) -> Vec<String> {
    let hooks = runs.iter().filter_map(|run| {
        let container = containers(pod).find(|container| container.name == run.container)?;
        Some((run, ProbesAndHooks::of(container).ok()?.pre_stop?))
    });
    let calls = hooks.map(|(run, hook)| async move {
        let failed = hook.perform(&run.target(), limit).await.err()?;
        Some(format!("PreStopHook of container {} failed: {failed}", run.container))
    });
    futures::future::join_all(calls).await.into_iter().flatten().collect()
}

/// Whether a container of `pod` has a last hook.
pub(crate) fn has_pre_stop(pod: &Pod) -> bool {
    let mut hooks = containers(pod).filter_map(|container| container.lifecycle.as_ref());
    hooks.any(|lifecycle| lifecycle.pre_stop.is_some())
}

/// All containers of a pod.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
}
