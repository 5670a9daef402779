//! Clusters, the executors that see them late, and the network between these and the leader.

use pumice_fleet_executor::facts::{Container, ContainerState};
use pumice_fleet_executor::pending_checks::PendingCheckRules;
use pumice_fleet_model::submission::annotations::VOLCANO_JOB;
use serde_json::Value;

use super::*;

/// A stream, with what is under way in both directions.
pub(super) struct Link {
    pub number: u64,
    pub up: VecDeque<wire::FromExecutor>,
    pub down: VecDeque<wire::ToExecutor>,
    pub sequence: u64,
}

/// A cluster: its truth, and the executor that sees it late.
pub(super) struct Cluster {
    pub name: &'static str,
    pub core: Core,
    pub link: Option<Link>,
    /// Pods, and Volcano Jobs.
    pub pods: BTreeMap<RunId, PodFacts>,
    /// Jobs that never come to run.
    pub stuck: BTreeSet<RunId>,
    /// What the executor has not heard yet of pods, and of Jobs: it watches them apart.
    pub unseen: VecDeque<Input>,
    pub unseen_jobs: VecDeque<Input>,
    pub jobs_seen: bool,
    pub calls: VecDeque<Output>,
    /// When it last said that it lives.
    pub beat: TimeMs,
    /// Until when nothing gets through.
    pub dark: TimeMs,
}

fn core() -> Core {
    let stuck = PendingCheckRules { job_deadline_ms: 180 * SECOND, ..PendingCheckRules::default() };
    Core::new(Settings { starts_max: 3, stuck, ..Settings::default() }).expect("patterns are good")
}

impl World {
    pub(super) fn cluster(&mut self, index: usize) {
        // The executor dies: it finds the pods that there are.
        if !self.even && self.fault(10) {
            let cluster = &mut self.clusters[index];
            cluster.core = core();
            cluster.link = None;
            cluster.calls.clear();
            cluster.jobs_seen = false;
            cluster.list(Kind::Pod);
            cluster.list(Kind::Job);
        }
        if self.fault(1) {
            self.clusters[index].dark = self.now.plus(self.rng.gen_range(30 * SECOND..400 * SECOND));
        }
        if self.fault(20) || self.is_dark(index) {
            self.cut(index);
        }
        // A watch breaks: what it did not tell is told as what there is.
        for kind in [Kind::Pod, Kind::Job] {
            if self.fault(3) {
                self.clusters[index].list(kind);
            }
        }
        self.connect(index);
        self.network(index);
        self.progress(index);
        let now = self.now;
        let cluster = &mut self.clusters[index];
        for _ in 0..2 {
            if let Some(input) = cluster.unseen.pop_front() {
                cluster.hear(now, input);
            }
            if let Some(input) = cluster.unseen_jobs.pop_front() {
                cluster.jobs_seen = true;
                cluster.hear(now, input);
            }
        }
        cluster.hear(now, Input::Tick);
        self.call(index);
    }

    fn is_dark(&self, index: usize) -> bool {
        !self.calm && self.now < self.clusters[index].dark
    }

    /// The stream ends; the server hears of it at once, or later by the next one.
    fn cut(&mut self, index: usize) {
        let cluster = &mut self.clusters[index];
        if let Some(link) = cluster.link.take() {
            cluster.hear(self.now, Input::Disconnected);
            if let Some(leader) = &mut self.leader
                && self.rng.gen_bool(0.5)
            {
                leader.sessions.close(cluster.name, link.number);
            }
        }
    }

    fn connect(&mut self, index: usize) {
        if self.is_dark(index) {
            return;
        }
        let cluster = &mut self.clusters[index];
        let is_known = cluster.core.is_synced() && cluster.jobs_seen;
        if cluster.link.is_some() || !is_known || (!self.calm && self.rng.gen_bool(0.7)) {
            return;
        }
        let Some(leader) = &mut self.leader else { return };
        self.sessions += 1;
        let hello = wire::Hello {
            executor: cluster.name.to_owned(),
            session_id: String::new(),
            format_version: FORMAT,
            ..Default::default()
        };
        let first = wire::FromExecutor { sequence: 1, message: Some(from_executor::Message::Hello(hello)) };
        let opened = leader.sessions.open(&first, Some(cluster.name), self.sessions, self.now);
        let (_, welcome) = opened.expect("a session");
        cluster.link = Some(Link { number: self.sessions, up: VecDeque::new(), down: [welcome].into(), sequence: 1 });
        cluster.hear(self.now, Input::Connected { session: self.sessions });
    }

    /// One message or none gets through each way.
    fn network(&mut self, index: usize) {
        let cluster = &mut self.clusters[index];
        if self.now.since(cluster.beat) >= HEARTBEAT_MS
            && let Some(link) = &mut cluster.link
        {
            cluster.beat = self.now;
            link.sequence += 1;
            let message = Some(from_executor::Message::Heartbeat(wire::Heartbeat::default()));
            link.up.push_back(wire::FromExecutor { sequence: link.sequence, message });
        }
        let Some(link) = &mut cluster.link else { return };
        let number = link.number;
        if (self.calm || self.rng.gen_bool(0.7))
            && let Some(message) = link.down.pop_front()
        {
            cluster.hear(self.now, Input::Message { session: number, message: Box::new(message) });
        }
        let Some(link) = &mut cluster.link else { return };
        if (self.calm || self.rng.gen_bool(0.7))
            && let Some(message) = link.up.pop_front()
            && let Some(leader) = &mut self.leader
        {
            let again = message.clone();
            let received = leader.sessions.receive(cluster.name, number, message, &leader.ledger, self.now);
            leader.reports.extend(received.expect("in order").reports);
            if !self.calm && self.rng.gen_bool(0.1) {
                let received = leader.sessions.receive(cluster.name, number, again, &leader.ledger, self.now);
                assert!(received.expect("a repeat is left out").reports.is_empty());
            }
        }
    }

    /// Pods go on by themselves, and so do Jobs.
    fn progress(&mut self, index: usize) {
        let runs: Vec<RunId> = self.clusters[index].pods.keys().copied().collect();
        for run in runs {
            let interfered = self.fault(3);
            // Some last until their cluster has been silent for long.
            let is_long = !self.calm && self.rerun.contains(&run.job) && run.job.0.is_multiple_of(3);
            let (moves, fails) = (self.rng.gen_ratio(1, if is_long { 200 } else { 6 }), self.rng.gen_ratio(1, 8));
            let (restarts, is_slow) = (self.fault(150), self.rng.gen_bool(0.5));
            let (now, version) = (self.now, self.version());
            let cluster = &mut self.clusters[index];
            let is_stuck = cluster.stuck.contains(&run);
            let Some(pod) = cluster.pods.get_mut(&run) else { continue };
            let leaves = pod.deletion.is_some() && (self.calm || self.rng.gen_bool(0.3));
            if leaves || interfered {
                let (kind, uid) = (pod.kind, pod.uid.clone());
                cluster.pods.remove(&run);
                cluster.shows(kind, Input::PodRemoved { run, uid });
                continue;
            }
            if !moves || is_stuck || pod.phase.is_finished() {
                continue;
            }
            let (is_job, fails) = (pod.kind == Kind::Job, fails || pod.deletion.is_some());
            let before = pod.phase;
            pod.phase = match before {
                PodPhase::Pending => PodPhase::Running,
                // Its pods are ended first.
                PodPhase::Running if is_job && fails && is_slow => PodPhase::Unknown,
                PodPhase::Running if is_job && !fails && restarts => PodPhase::Pending,
                PodPhase::Unknown => PodPhase::Failed,
                _ if fails => PodPhase::Failed,
                _ => PodPhase::Succeeded,
            };
            pod.version = version;
            pod.since = now;
            if pod.phase == PodPhase::Succeeded {
                self.succeeded.insert(run);
            }
            if pod.phase == PodPhase::Failed && is_slow {
                let (exit_code, reason, message) = (137, "OOMKilled".to_owned(), String::new());
                let state = ContainerState::Ended { exit_code, reason, message };
                pod.containers.push(Container { name: "main".to_owned(), state });
            }
            let seen = pod.clone();
            if is_job && before == PodPhase::Running && seen.phase != PodPhase::Succeeded {
                let uid = format!("{}/member", seen.version);
                let failed = PodFacts { kind: Kind::Pod, uid, phase: PodPhase::Failed, ..seen.clone() };
                cluster.shows(Kind::Pod, Input::MemberFailed(Box::new(failed)));
            }
            cluster.shows(seen.kind, Input::Pod(Box::new(seen)));
        }
    }

    fn version(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }

    /// The cluster answers a call, or the answer is lost, or nothing happens.
    fn call(&mut self, index: usize) {
        let Some(call) = self.clusters[index].calls.pop_front() else { return };
        let (lost, refused, unheard) = (self.fault(50), self.fault(30), self.fault(50));
        let is_stuck = self.fault(40);
        let unheard_as = if self.rng.gen_bool(0.5) { RefusalKind::Unclear } else { RefusalKind::Unanswered };
        let (now, version) = (self.now, self.version());
        let name = self.clusters[index].name;
        let answer = match call {
            Output::Create { run, .. } if lost || refused => {
                let kind = if lost { unheard_as } else { RefusalKind::Refused };
                let refusal = Refusal { kind, reason: "Fault".to_owned(), message: "injected".to_owned() };
                Input::NotCreated { run, refusal }
            }
            Output::Create { run, objects } => {
                self.begins(run, name, objects.kind);
                let told = &objects.pod["metadata"]["annotations"][CUT_OFF_ANNOTATION];
                let cut_off_ms = told.as_str().map(|text| text.parse().expect("a number"));
                let cluster = &mut self.clusters[index];
                let uid = format!("{run}/{version}");
                let made = || PodFacts { kind: objects.kind, ..pod(run, uid, version, now, cut_off_ms) };
                let pod = cluster.pods.entry(run).or_insert_with(made).clone();
                if is_stuck && pod.kind == Kind::Job {
                    cluster.stuck.insert(run);
                }
                let uid = pod.uid.clone();
                cluster.shows(pod.kind, Input::Pod(Box::new(pod)));
                if unheard {
                    let refusal =
                        Refusal { kind: unheard_as, reason: "Fault".to_owned(), message: "unheard".to_owned() };
                    Input::NotCreated { run, refusal }
                } else {
                    Input::Created { run, uid }
                }
            }
            Output::Delete { run, .. } if lost => Input::Deleted { run, answer: DeleteAnswer::Failed },
            Output::Delete { run, kind, uid, how, .. } => {
                assert_eq!(kind == Kind::Job, self.whole.contains(&run.job), "{run} is deleted as a {kind:?}");
                let cluster = &mut self.clusters[index];
                let found = cluster.pods.get_mut(&run).filter(|pod| uid.as_ref().is_none_or(|uid| *uid == pod.uid));
                let answer = match (found, how) {
                    (None, _) => DeleteAnswer::NotFound,
                    (Some(pod), Deletion::IfVersion(wanted)) if wanted != pod.version => DeleteAnswer::Changed,
                    (Some(pod), _) => {
                        pod.deletion = Some(now);
                        pod.version = version;
                        let seen = Input::Pod(Box::new(pod.clone()));
                        cluster.shows(kind, seen);
                        DeleteAnswer::Accepted
                    }
                };
                Input::Deleted { run, answer: if unheard { DeleteAnswer::Failed } else { answer } }
            }
            Output::Report(_) | Output::EndSession(_) | Output::RunErrand(_) => return,
        };
        self.clusters[index].hear(now, answer);
    }

    /// A pod or Job is made: of a run that the log leased, and beside no other of its job, unless that may be.
    fn begins(&mut self, run: RunId, cluster: &'static str, kind: Kind) {
        assert_eq!(kind == Kind::Job, self.whole.contains(&run.job), "{run} is made as a {kind:?}");
        let leased = self.log.iter().flat_map(|entry| &entry.events).any(
            |event| matches!(event, Event::Leased { run: other, at, .. } if *other == run && at.cluster == cluster),
        );
        assert!(leased, "{run} runs on {cluster} and was never leased");
        assert!(self.made.get(&run).is_none_or(|before| *before == cluster), "{run} runs on two clusters");
        self.made.insert(run, cluster);
        if !self.even && self.rerun.contains(&run.job) {
            return;
        }
        for other in self.clusters.iter().flat_map(|cluster| cluster.pods.values()) {
            let beside = other.run.job == run.job && other.run != run && !other.phase.is_finished();
            assert!(!beside, "{run} runs beside {}", other.run);
        }
    }
}

impl Cluster {
    /// A cluster without anything.
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            core: core(),
            link: None,
            pods: BTreeMap::new(),
            stuck: BTreeSet::new(),
            unseen: [Input::Pods(Vec::new())].into(),
            unseen_jobs: [Input::Jobs(Vec::new())].into(),
            jobs_seen: false,
            calls: VecDeque::new(),
            beat: TimeMs(0),
            dark: TimeMs(0),
        }
    }

    /// The executor hears of it some time.
    fn shows(&mut self, kind: Kind, input: Input) {
        match kind {
            Kind::Pod => self.unseen.push_back(input),
            Kind::Job => self.unseen_jobs.push_back(input),
        }
    }

    /// The executor hears of all that there are of a kind, and of nothing that was before.
    fn list(&mut self, kind: Kind) {
        let all = self.pods.values().filter(|pod| pod.kind == kind).cloned().collect();
        match kind {
            Kind::Pod => self.unseen = [Input::Pods(all)].into(),
            Kind::Job => self.unseen_jobs = [Input::Jobs(all)].into(),
        }
    }

    /// The executor hears something; what it says goes on the stream, what it calls for is done later.
    pub(super) fn hear(&mut self, now: TimeMs, input: Input) {
        for output in self.core.apply(now, input) {
            match output {
                Output::Report(runs) => {
                    if let Some(link) = &mut self.link {
                        link.sequence += 1;
                        let message = Some(from_executor::Message::Runs(runs));
                        link.up.push_back(wire::FromExecutor { sequence: link.sequence, message });
                    }
                }
                Output::EndSession(end) => panic!("{end:?}"),
                call => self.calls.push_back(call),
            }
        }
    }
}

pub(super) fn lease(run: RunId, rerun: &BTreeSet<JobId>, is_whole: bool) -> wire::Lease {
    let name = if rerun.contains(&run.job) { RERUN } else { "q" };
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let tasks = json!([{"name": "t", "replicas": PODS, "template": {"spec": spec}}]);
    let job = is_whole.then(|| json!({"spec": {"minAvailable": LEAST, "tasks": tasks}}));
    wire::Lease {
        run_id: run.to_string(),
        job_id: run.job.to_string(),
        attempt: run.attempt,
        queue: name.to_owned(),
        cut_off_ms: cut_off_ms(Retries::default().heartbeat_timeout(Some(&queue(name)))),
        job_set: "s".to_owned(),
        namespace: "n".to_owned(),
        node: if is_whole { String::new() } else { "n".to_owned() },
        pod_spec: if is_whole { None } else { Some(PodSpec::from_json(&spec).expect("a spec")) },
        annotations: job.map(|job: Value| (VOLCANO_JOB.to_owned(), job.to_string())).into_iter().collect(),
        ..wire::Lease::default()
    }
}

fn pod(run: RunId, uid: String, version: String, now: TimeMs, cut_off_ms: Option<i64>) -> PodFacts {
    PodFacts {
        run,
        kind: Kind::Pod,
        queue: "q".to_owned(),
        namespace: "n".to_owned(),
        name: pod_name(run),
        uid,
        version,
        node: "n".to_owned(),
        phase: PodPhase::Pending,
        cut_off_ms,
        since: now,
        deletion: None,
        init_since: None,
        reason: String::new(),
        message: String::new(),
        containers: Vec::new(),
    }
}
