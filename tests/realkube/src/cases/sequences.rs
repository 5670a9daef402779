//! What whoever watches a Job sees of it when several things happen to it, one after another or into each other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pumice_testkit::{Clients, eventually_within};
use serde_json::{Value, json};

use super::job_watch::{JobWatch, PODS, Seen, Task, count, ended, live, manifest, phase, phases};
use super::{command_of, create, is_leaving};

/// How many jobs, each with a sequence of its own.
const SEQUENCES: u64 = 40;
/// Things that happen to each.
const LENGTH: usize = 3;
/// Another seed makes other sequences.
const SEED: u64 = 2026;
/// Some of the pods take five seconds to go, each time.
const WITHIN: Duration = Duration::from_secs(240);

/// Something that happens to a job.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// A pod of the task `w` ends with an exit code.
    PodFails,
    /// Somebody deletes a pod of the task `w`.
    PodGoes,
    /// The pod of the task `t` ends well.
    TaskCompletes,
    Command(&'static str),
}

/// What the last of a sequence is drawn from.
const EVENTS: [Event; 8] = [
    Event::PodFails,
    Event::PodGoes,
    Event::TaskCompletes,
    Event::Command("RestartJob"),
    Event::Command("AbortJob"),
    Event::Command("ResumeJob"),
    Event::Command("TerminateJob"),
    Event::Command("CompleteJob"),
];

/// How many of them, from the first, may come at each place: early on, none that does nothing to a job that runs, or after which
/// nothing happens any more.
const CHOICE: [usize; LENGTH] = [5, 6, 8];

/// What a policy does.
const ACTIONS: [&str; 8] = [
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "RestartPod",
    "AbortJob",
    "TerminateJob",
    "CompleteJob",
];

/// Equal seeds give equal numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.next() % all.len() as u64) as usize]
    }
}

/// A job and what happens to it.
#[derive(Debug)]
struct Sequence {
    name: String,
    /// What happens, and whether it waits until the job has come to rest; otherwise it comes while the one before is under way.
    events: [(Event, bool); LENGTH],
    /// What policies do when a pod fails, when a pod goes (if anything), and when a task completes.
    actions: [Option<&'static str>; 3],
    max_retry: u32,
    /// How long its pods take to go.
    stop: &'static str,
    /// How many of the events have happened.
    happened: usize,
    /// What is yet to be seen of the last one.
    expected: Option<Expected>,
}

#[derive(Debug)]
struct Expected {
    phase: &'static str,
    /// Statuses that were seen before.
    after: usize,
    /// Pods that are counted at least when the phase is told.
    pods: i64,
}

impl Sequence {
    fn draw(number: u64) -> Self {
        let mut random = Random(SEED.wrapping_add(number));
        let mut is_patient = true;
        let events = [0, 1, 2].map(|place| {
            (random.pick(&EVENTS[..CHOICE[place]]), std::mem::replace(&mut is_patient, random.pick(&[true, false])))
        });
        let mut action = || Some(random.pick(&ACTIONS));
        let [fails, goes, completes] = [action(), action(), action()];
        Self {
            name: format!("s{number}"),
            events,
            actions: [fails, random.pick(&[None, goes]), completes],
            max_retry: random.pick(&[1, 2, 9, 9, 9, 9]),
            stop: random.pick(&["0s", "20ms", "1s", "5s"]),
            happened: 0,
            expected: None,
        }
    }

    fn manifest(&self) -> String {
        let rules = ["PodFailed", "PodEvicted", "TaskCompleted"].into_iter().zip(self.actions);
        let rules: Vec<String> =
            rules.filter_map(|(event, action)| Some(format!("{{event: {event}, action: {}}}", action?))).collect();
        let policies = format!("policies: [{}]", rules.join(", "));
        let (minimum, max_retry) = (format!("minAvailable: {PODS}"), format!("maxRetry: {}", self.max_retry));
        let stop = format!("pumice.sh/simulated-stop-duration: {}", self.stop);
        let annotations = [stop.as_str()];
        let task = |name, replicas| Task { name, replicas, annotations: &annotations, ..Task::default() };
        let spec = [minimum.as_str(), &max_retry, &policies];
        manifest(&self.name, "pumice.sh/retry-backoff: 0s", &spec, [task("t", 1), task("w", 2)])
    }

    /// What the event asks of the job.
    fn action(&self, event: Event) -> Option<&'static str> {
        match event {
            Event::PodFails => self.actions[0],
            Event::PodGoes => self.actions[1],
            Event::TaskCompletes => self.actions[2],
            Event::Command(action) => Some(action),
        }
    }

    /// Whether what was expected has been seen.
    ///
    /// # Panics
    /// When it was told without the pods that are meant.
    fn has_met(&mut self, seen: &Seen) -> bool {
        let Some(expected) = &self.expected else { return true };
        let news = &seen[&self.name][expected.after..];
        let Some(status) = news.iter().find(|status| phase(status) == expected.phase) else { return false };
        let pods = live(status) + ended(status) + count(status, "terminating");
        assert!(pods >= expected.pods, "{} of {self:?} is told with {status}", expected.phase);
        self.expected = None;
        true
    }

    /// Lets the next event happen, as one of many calls. One that finds no pod is none.
    fn happens(&mut self, world: &World, seen: &Seen, calls: &mut Calls) {
        let (event, is_patient) = self.events[self.happened];
        self.happened += 1;
        let pod = match event {
            Event::PodFails => world.running(&self.name, "w").next(),
            Event::PodGoes => world.running(&self.name, "w").last(),
            Event::TaskCompletes => world.running(&self.name, "t").next(),
            Event::Command(_) => None,
        };
        match (event, pod) {
            (Event::Command(action), _) => calls.commands += &command_of(&self.name, action),
            (_, None) => return,
            (Event::PodFails, Some(pod)) => calls.failing.push(pod.to_owned()),
            (Event::PodGoes, Some(pod)) => calls.going.push(pod.to_owned()),
            (Event::TaskCompletes, Some(pod)) => calls.completing.push(pod.to_owned()),
        }
        let statuses = &seen[&self.name];
        let from = statuses.last().map_or("", phase);
        let through = self.action(event).and_then(|action| through(from, action)).filter(|_| is_patient);
        let gone = i64::from(event == Event::PodGoes);
        let pods = if from == "Running" { PODS - gone } else { 0 };
        self.expected = through.map(|phase| Expected { phase, after: statuses.len(), pods });
    }
}

/// The phase that an action leads through from a phase in which a job rests.
fn through(from: &str, action: &str) -> Option<&'static str> {
    match (from, action) {
        ("Running", "AbortJob") => Some("Aborting"),
        ("Running", "TerminateJob") => Some("Terminating"),
        ("Running", "CompleteJob") => Some("Completing"),
        ("Running", "RestartJob" | "RestartTask" | "RestartPod" | "RestartPartition") => Some("Restarting"),
        ("Aborted", "ResumeJob") => Some("Restarting"),
        _ => None,
    }
}

/// What there is at a moment.
#[derive(Default)]
struct World {
    /// Jobs that a Command waits for.
    commanded: BTreeSet<String>,
    jobs: BTreeMap<String, Value>,
    pods: BTreeMap<String, Vec<Value>>,
}

impl World {
    /// Commands come first: one that is not there any more has been carried out, and what it did is in the job that is read after.
    fn look(clients: &Clients) -> Self {
        let mut world = Self::default();
        for object in clients.list("commands,jobs.batch.volcano.sh,pods") {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            match object["kind"].as_str() {
                Some("Command") => drop(world.commanded.insert(text(&object["target"]["name"]))),
                Some("Job") => drop(world.jobs.insert(text(&object["metadata"]["name"]), object["status"].clone())),
                _ => {
                    let job = text(&object["metadata"]["labels"]["volcano.sh/job-name"]);
                    world.pods.entry(job).or_default().push(object);
                }
            }
        }
        world
    }

    fn pods(&self, job: &str) -> &[Value] {
        self.pods.get(job).map_or(&[], Vec::as_slice)
    }

    /// Names of the pods of a task that run.
    fn running(&self, job: &str, task: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{job}-{task}-");
        let running = self.pods(job).iter().filter(|pod| pod["status"]["phase"] == "Running" && !is_leaving(pod));
        running.filter_map(|pod| pod["metadata"]["name"].as_str()).filter(move |name| name.starts_with(&prefix))
    }

    /// Whether a job rests: all its pods run or have ended, or it is over, its counts are those of the pods that are there, and all of
    /// it was seen.
    fn is_at_rest(&self, job: &str, seen: &Seen) -> bool {
        let Some(status) = self.jobs.get(job) else { return false };
        let pods = self.pods(job);
        let there = |phase: &str| pods.iter().filter(|pod| pod["status"]["phase"] == phase).count() as i64;
        let words = [("Pending", "pending"), ("Running", "running"), ("Succeeded", "succeeded"), ("Failed", "failed")];
        let agree = words.iter().all(|(phase, name)| there(phase) == count(status, name));
        let stays = count(status, "terminating") == 0 && !pods.iter().any(is_leaving);
        let is_over = match phase(status) {
            "Running" => count(status, "running") + ended(status) == PODS,
            "Aborted" | "Terminated" | "Completed" | "Failed" => true,
            _ => false,
        };
        let is_seen = seen.get(job).and_then(|all| all.last()) == Some(status);
        agree && stays && is_over && is_seen && !self.commanded.contains(job)
    }
}

/// What happens to several jobs at once.
#[derive(Default)]
struct Calls {
    failing: Vec<String>,
    completing: Vec<String>,
    going: Vec<String>,
    commands: String,
}

impl Calls {
    /// Pods may have gone meanwhile, of which these calls then complain.
    fn make(&self, clients: &Clients) {
        for (pods, phase, exit_code) in [(&self.failing, "Failed", 3), (&self.completing, "Succeeded", 0)] {
            // As a kubelet would write it: simulated nodes only end pods at a time that was said before.
            let ended = json!({"terminated": {"exitCode": exit_code, "reason": "Ended"}});
            let patch = json!([
                {"op": "replace", "path": "/status/phase", "value": phase},
                {"op": "replace", "path": "/status/containerStatuses/0/ready", "value": false},
                {"op": "replace", "path": "/status/containerStatuses/0/state", "value": ended},
            ]);
            if !pods.is_empty() {
                let patch = patch.to_string();
                let words = ["patch", "pods", "--subresource=status", "--type=json", "-p", &patch];
                clients.kubectl(words.into_iter().chain(pods.iter().map(String::as_str)));
            }
        }
        if !self.going.is_empty() {
            let words = ["delete", "pods", "--wait=false", "--ignore-not-found"];
            clients.kubectl(words.into_iter().chain(self.going.iter().map(String::as_str)));
        }
        if !self.commands.is_empty() {
            create(clients, &self.commands);
        }
    }
}

/// Three things happen to each of forty jobs, drawn by a seed: a pod fails or goes, a task completes, each with a policy, or a Command
/// comes. Of what happens to a job at rest the phase is known that it leads through; of the rest, that each step is one that there is.
pub fn each_phase_is_told_whatever_happens_in_a_row(clients: &Clients) {
    let mut watch = JobWatch::start(clients);
    let mut sequences: Vec<Sequence> = (0..SEQUENCES).map(Sequence::draw).collect();
    let manifests: Vec<String> = sequences.iter().map(Sequence::manifest).collect();
    create(clients, &manifests.concat());
    let mut told = 0;
    eventually_within(WITHIN, "all has happened and each job has come to rest", || {
        let world = World::look(clients);
        let seen = watch.seen();
        let mut calls = Calls::default();
        let mut waits = None;
        for sequence in &mut sequences {
            let rests = world.is_at_rest(&sequence.name, seen);
            let was_expected = sequence.expected.is_some();
            let has_met = sequence.has_met(seen);
            told += u64::from(was_expected && has_met);
            let next = sequence.events.get(sequence.happened);
            if has_met && rests && next.is_none() {
                continue;
            }
            if has_met && next.is_some_and(|(_, is_patient)| rests || !is_patient) {
                sequence.happens(&world, seen, &mut calls);
            }
            waits.get_or_insert_with(|| format!("{sequence:?}: {:?}", seen.get(&sequence.name).map(|all| phases(all))));
        }
        calls.make(clients);
        waits.map_or(Ok(()), Err)
    });
    // Or else nearly nothing has happened.
    assert!(told > SEQUENCES / 2, "{told} phases that were expected");
}
