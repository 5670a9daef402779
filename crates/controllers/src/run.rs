//! The loop that owns all state of the controllers.
//!
//! Invariant: one job, one plan at a time; the index is changed here only. A burst of changes is taken in before anything is
//! decided, so a job is stepped once for many pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::Client;
use pumice_clock as clock;
use pumice_cluster::{Burst, Change, EventRecorder, Failure, Timers, failure, until};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::commands::{self, Commands};
use crate::feed::{self, Feed, Input};
use crate::index::{self, DirtyKey, Doubtful, Index};
use crate::job::{self, JobWork};
use crate::keys::Keys;
use crate::metrics::{Metrics, Rounds};
use crate::profiles::{self, ProfileWork};
use crate::queue::{self, QueueWork};
use crate::slim::SlimPod;
use crate::ticket::{CommandKey, Ticket};
use crate::{Error, backoff};

/// Most changes taken in before looking at what to do.
const BURST_MAX: usize = 4096;
/// Most plans carried out at once.
const PLANS_MAX: usize = 64;
/// Most questions to a server that does not say what it serves.
const DISCOVERY_TRIES_MAX: u32 = 8;

/// What a call brings back.
enum Answer {
    Job(job::Answer),
    Queue(queue::Answer),
    Profile(profiles::Answer),
    LookedUp(Option<commands::LookedUp>),
    CommandGone(CommandKey),
    Pods(Vec<(Doubtful, Option<SlimPod>)>),
    Discovered { network_policies: bool },
    Nothing,
}

pub(crate) struct Loop {
    client: Client,
    recorder: EventRecorder,
    index: Index,
    jobs: JobWork,
    queues: QueueWork,
    profiles: ProfileWork,
    commands: Commands,
    keys: Arc<Keys>,
    calls: JoinSet<Answer>,
    /// What the plans in flight are about.
    plans: HashMap<Id, DirtyKey>,
    dirty: BTreeSet<DirtyKey>,
    timers: Timers<DirtyKey>,
    listed: BTreeSet<usize>,
    network_policies: Option<bool>,
    metrics: Metrics,
    of_jobs: Arc<Rounds>,
    of_queues: Arc<Rounds>,
}

impl Loop {
    pub fn new(client: Client, recorder: EventRecorder, metrics: Metrics) -> Self {
        Self {
            of_jobs: metrics.of("job"),
            of_queues: metrics.of("queue"),
            metrics,
            client,
            recorder,
            index: Index::default(),
            jobs: JobWork::default(),
            queues: QueueWork::default(),
            profiles: ProfileWork::default(),
            commands: Commands::default(),
            keys: Arc::default(),
            calls: JoinSet::new(),
            plans: HashMap::new(),
            dirty: BTreeSet::new(),
            timers: Timers::default(),
            listed: BTreeSet::new(),
            network_policies: None,
        }
    }

    pub async fn run(mut self) -> Result<(), Error> {
        let mut feed = feed::start(&self.client);
        let client = self.client.clone();
        self.calls.spawn(async move { Answer::Discovered { network_policies: serves_network_policies(client).await } });
        let keys = Arc::clone(&self.keys);
        self.calls.spawn(async move {
            keys.refill().await;
            Answer::Nothing
        });
        loop {
            let wake = until(self.timers.next());
            tokio::select! {
                input = feed.next() => self.burst(input.ok_or(Error::WatchEnded)?, &mut feed),
                Some(answer) = self.calls.join_next_with_id() => self.answered(answer),
                () = wake => {}
            }
            while let Some(touched) = self.timers.pop(Instant::now()) {
                self.dirty.insert(touched);
            }
            if self.listed.len() == feed::KINDS && self.network_policies.is_some() {
                self.work();
            }
            self.count();
        }
    }

    /// Takes a change and all that wait behind it.
    fn burst(&mut self, first: Input, feed: &mut Feed) {
        let mut burst = Burst::new(first, BURST_MAX);
        while let Some(input) = burst.next(feed) {
            if self.take(input) {
                feed::add_pods(feed, &self.client);
            }
        }
    }

    /// Says how much there is to do.
    fn count(&self) {
        let queues = self.dirty.range(DirtyKey::Queue(String::new())..).count();
        let queue_plans = self.plans.values().filter(|touched| matches!(touched, DirtyKey::Queue(_))).count();
        self.of_jobs.stand(self.dirty.len() - queues, self.plans.len() - queue_plans);
        self.of_queues.stand(queues, queue_plans);
    }

    /// Takes a change into the index; true when the Jobs have been listed for the first time.
    fn take(&mut self, input: Input) -> bool {
        let mut touched = Vec::new();
        let first = input.listed().filter(|kind| self.listed.insert(*kind));
        let jobs_listed = first.is_some() && matches!(input, Input::Job(_));
        let index = &mut self.index;
        match input {
            Input::Job(change) => index.job_changed(change, &mut touched),
            Input::Pod(change) => {
                let outcome = index.pods.changed(*change, &mut touched);
                self.jobs.gone(outcome.gone, clock::now());
                if !outcome.doubtful.is_empty() {
                    let asked = index::ask(self.client.clone(), outcome.doubtful);
                    self.calls.spawn(async move { Answer::Pods(asked.await) });
                }
            }
            Input::Group(change) => index.group_changed(change, &mut touched),
            Input::Queue(change) => index.queue_changed(change, &mut touched),
            Input::Command(change) => self.command(change),
            Input::Claim(change) => index.claim_changed(change.map(|claim| claim.metadata), &mut touched),
            Input::Priority(change) => {
                index.priority_changed(
                    change.map(|class| (class.metadata.name.unwrap_or_default(), class.value.unwrap_or(0))),
                );
            }
            Input::Profile(change) => index.profile_changed(change),
            Input::Node(change) => index.node_changed(*change, &mut touched),
            Input::Child(kind, change) => {
                let lost = index.child_objects.changed(kind, change);
                self.jobs.lost(lost, &mut touched);
            }
        }
        self.dirty.extend(touched);
        jobs_listed
    }

    fn doubtful_answered(&mut self, answers: Vec<(Doubtful, Option<SlimPod>)>, touched: &mut Vec<DirtyKey>) {
        for (doubtful, found) in answers {
            match found {
                Some(pod) => self.index.pods.answered(pod, touched),
                None => {
                    let gone = self.index.pods.absent(&doubtful.job_uid, &doubtful.pod);
                    touched.extend(gone.iter().map(|gone| DirtyKey::Job(gone.job.clone())));
                    self.jobs.gone(gone.into_iter().collect(), clock::now());
                }
            }
        }
    }

    fn command(&mut self, change: Change<pumice_api::bus::Command>) {
        for command in self.commands.new_ones(change) {
            self.ask(command);
        }
    }

    fn ask(&mut self, command: pumice_api::bus::Command) {
        let call = commands::look_up(self.client.clone(), command);
        self.calls.spawn(async move { Answer::LookedUp(call.await) });
    }

    /// Deletes Commands that were carried out.
    fn settle_commands(&mut self, tickets: impl IntoIterator<Item = Ticket>) {
        for ticket in tickets.into_iter().chain(self.jobs.done()).chain(self.queues.done()) {
            self.commands.done(&ticket);
            let call = commands::delete(self.client.clone(), ticket);
            self.calls.spawn(async move { Answer::CommandGone(call.await) });
        }
    }

    fn answered(&mut self, answer: Result<(Id, Answer), JoinError>) {
        let mut touched = Vec::new();
        match answer {
            Ok((id, answer)) => {
                self.plans.remove(&id);
                match answer {
                    Answer::Job(answer) => {
                        self.jobs.answered(answer, &mut self.index, &self.recorder, &mut touched);
                        self.profiles.learn(self.jobs.lessons(), &mut touched);
                    }
                    Answer::Profile(answer) => self.profiles.answered(answer, Instant::now(), &mut touched),
                    Answer::Queue(answer) => self.queues.answered(answer, &mut self.index, &mut touched),
                    Answer::LookedUp(Some(command)) => {
                        let (index, jobs, queues) = (&mut self.index, &mut self.jobs, &mut self.queues);
                        let needless = self.commands.deliver(command, index, jobs, queues, &mut touched);
                        self.settle_commands(needless);
                    }
                    Answer::CommandGone(key) => {
                        let (next, free) = self.commands.next(&key);
                        touched.push(free);
                        next.into_iter().for_each(|command| self.ask(command));
                    }
                    Answer::Pods(answers) => self.doubtful_answered(answers, &mut touched),
                    Answer::Discovered { network_policies } => self.network_policies = Some(network_policies),
                    Answer::LookedUp(None) | Answer::Nothing => {}
                }
            }
            Err(error) => match self.plans.remove(&error.id()) {
                Some(DirtyKey::Job(key)) => {
                    self.of_jobs.crashed();
                    tracing::error!(namespace = key.0, job = key.1, %error, "a plan crashed; the job waits for a change");
                    self.jobs.crashed(&key);
                }
                Some(DirtyKey::Profile(key)) => {
                    tracing::error!(namespace = key.0, profile = key.1, %error, "a write crashed");
                    self.profiles.crashed(&key);
                }
                Some(DirtyKey::Queue(queue)) => {
                    self.of_queues.crashed();
                    tracing::error!(queue, %error, "a plan crashed; the queue waits for a change");
                    self.queues.crashed(&queue);
                }
                None => tracing::error!(%error, "a call crashed"),
            },
        }
        self.dirty.extend(touched);
        self.settle_commands(None);
    }

    /// Looks at everything that something happened to.
    fn work(&mut self) {
        while self.plans.len() < PLANS_MAX
            && let Some(touched) = self.dirty.pop_first()
        {
            match &touched {
                DirtyKey::Job(key) => self.work_on_job(key.clone(), touched),
                DirtyKey::Profile(key) => self.work_on_profile(&key.clone(), touched),
                DirtyKey::Queue(name) => self.work_on_queue(&name.clone(), touched),
            }
        }
        self.settle_commands(None);
    }

    fn work_on_queue(&mut self, name: &str, touched: DirtyKey) {
        let groups = self.index.queues.contains_key(name).then(|| self.index.groups_in(name));
        self.metrics.queue(name, groups);
        match self.queues.begin(name, &self.index, &self.recorder) {
            queue::Begin::Nothing => {}
            queue::Begin::Wait(at) => self.timers.at(&touched, at),
            queue::Begin::Carry(plan) => {
                let call = queue::carry_out(self.client.clone(), plan);
                let (rounds, begun) = (Arc::clone(&self.of_queues), Instant::now());
                let handle = self.calls.spawn(async move {
                    let answer = call.await;
                    rounds.ended(begun.elapsed(), answer.is_done());
                    Answer::Queue(answer)
                });
                self.plans.insert(handle.id(), touched);
            }
        }
    }

    fn work_on_profile(&mut self, key: &crate::index::Key, touched: DirtyKey) {
        match self.profiles.begin(key, &self.index, Instant::now()) {
            profiles::Begin::Nothing => {}
            profiles::Begin::Wait(at) => self.timers.at(&touched, at),
            profiles::Begin::Write(write) => {
                let call = profiles::carry_out(self.client.clone(), write);
                let handle = self.calls.spawn(async move { Answer::Profile(call.await) });
                self.plans.insert(handle.id(), touched);
            }
        }
    }

    fn work_on_job(&mut self, key: crate::index::Key, touched: DirtyKey) {
        if self.commands.holds(&key) {
            return;
        }
        let surroundings = job::Surroundings {
            index: &self.index,
            network_policies: self.network_policies.unwrap_or(false),
            recorder: &self.recorder,
            queued: self.dirty.len() + self.plans.len(),
            now: clock::now(),
        };
        match self.jobs.begin(&key, &surroundings) {
            job::Begin::Nothing => {}
            job::Begin::Wait(at) => self.timers.at(&touched, at),
            job::Begin::Carry(plan) => {
                if let Some(at) = plan.wake_at {
                    self.timers.at(&touched, at);
                }
                let watch = self.metrics.job_begins(&plan);
                let call = job::execute::carry_out(self.client.clone(), Arc::clone(&self.keys), plan);
                let handle = self.calls.spawn(async move {
                    let answer = call.await;
                    watch.ended(&answer);
                    Answer::Job(answer)
                });
                self.plans.insert(handle.id(), touched);
            }
        }
    }
}

/// Whether NetworkPolicy is served. Waits for a server that is not there yet; one that never answers counts as no.
async fn serves_network_policies(client: Client) -> bool {
    for tries in 1..=DISCOVERY_TRIES_MAX {
        match client.list_api_group_resources("networking.k8s.io/v1").await {
            Ok(list) => return list.resources.iter().any(|resource| resource.name == "networkpolicies"),
            Err(error) if failure(&error) == Failure::Unavailable => {
                tokio::time::sleep(backoff::wait(Failure::Unavailable, tries).min(Duration::from_secs(5))).await;
            }
            Err(_) => return false,
        }
    }
    tracing::warn!("discovery does not answer; jobs get no NetworkPolicy");
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream::{self, SelectAll};
    use kube::client::Body;

    #[tokio::test]
    async fn pods_are_watched_wherever_in_a_burst_the_jobs_are_listed() {
        let nowhere = tower::service_fn(|_: http::Request<Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()))
        });
        let client = Client::new(nowhere, "ns");
        for before in [0, 1, BURST_MAX - 1, BURST_MAX] {
            let (recorder, _) = EventRecorder::new(client.clone(), "test");
            let mut controllers = Loop::new(client.clone(), recorder, Metrics::default());
            let mut inputs = (0..before).map(|_| Input::Priority(Change::Replace(Vec::new()))).collect::<Vec<_>>();
            inputs.push(Input::Job(Change::Replace(Vec::new())));
            let first = inputs.remove(0);
            let mut feed = SelectAll::new();
            feed.push(stream::iter(inputs).chain(stream::pending()).boxed());
            controllers.burst(first, &mut feed);
            assert_eq!(feed.len(), 2, "{before} changes came before the Jobs");
        }
    }
}
