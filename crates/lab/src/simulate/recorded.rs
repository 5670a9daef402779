//! A recording of the scheduler as a trace: the jobs that came, the nodes that were there, and how it all went.
//!
//! Invariant: jobs ran as long as their pods that ended by themselves did, so that under another policy a pod that starts
//! earlier ends earlier. What a recording can't say is counted in the trace's notes. Called by `read` and by `whatif`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pumice_engine::{
    Delta, GroupFacts, NodeFacts, NodeName, PodFacts, PodPhase, PodUid, Resources, ShapeTask, TimeMs, World,
};
use pumice_recording::{Beginning, Cycle, Entry, Item, PlayError, Range, ReadError, Recording, saved_world};

use super::history::{History, Hold, Outcome};
use super::trace::{JOBS_MAX, Job, Notes, PODS_MAX, Trace};

/// Why a recording is no trace.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// It can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The World that it begins with can't be read.
    #[error(transparent)]
    Start(#[from] PlayError),
    /// It has too many jobs.
    #[error("the recording has more than {JOBS_MAX} jobs: bound it with --from and --to")]
    TooMany,
}

/// What a recording says of a workload.
#[derive(Debug, Default)]
pub struct Recorded {
    pub trace: Trace,
    /// Its nodes, as they were in the end.
    pub nodes: Vec<NodeFacts>,
    /// What the last World began with, and the configuration that it had in the end.
    pub beginning: Beginning,
    /// How the jobs fared, by their names.
    fared: HashMap<String, Fared>,
    cycles: u64,
}

/// How a job fared.
#[derive(Debug, Clone, Default)]
struct Fared {
    submitted: i64,
    outcome: Outcome,
    holds: Vec<(i64, i64)>,
}

/// A job as it is gathered.
#[derive(Debug, Default)]
struct Gathered {
    facts: GroupFacts,
    submitted: i64,
    shape: Vec<ShapeTask>,
    /// Pods that there ever were at once, and all that they asked for.
    pods: u32,
    requests: Resources,
    limit_ms: Option<i64>,
    priority: i32,
    there: u32,
    /// When its pods were bound.
    binds: Vec<i64>,
    holds: Vec<(i64, i64)>,
    /// Of the pods that ended by themselves.
    runs: (i64, i64),
    ended: i64,
    evicted: u32,
    lost_core_ms: i128,
}

/// A pod that is there.
#[derive(Debug, Clone, Copy)]
struct Pod {
    job: usize,
    from: Option<i64>,
    evicted: bool,
    over: bool,
    cpu_milli: i64,
}

/// Reads the jobs that came in that time, and all that became of them.
///
/// # Errors
/// When the recording can't be read, or has too many jobs.
pub fn read(recording: &Recording, range: Range) -> Result<Recorded, RecordedError> {
    let mut gathering = Gathering { range, ..Gathering::default() };
    for item in recording.entries() {
        match item? {
            Item::Entry(Entry::Begin(beginning)) => {
                gathering.notes.count("worlds of the scheduler, one after the other");
                gathering.beginning = *beginning;
            }
            Item::Entry(Entry::Config(text)) => gathering.beginning.config = Some(text),
            Item::Entry(Entry::Cycle(cycle)) => gathering.cycle(&cycle),
            Item::Entry(Entry::Delta(delta)) => gathering.delta(delta)?,
            Item::Entry(_) => {}
            Item::Start(path) => {
                let (beginning, world) = saved_world(&path, &pumice_scheduler::plugins())?;
                gathering.start(beginning, &world);
            }
            Item::Break(_) => gathering.notes.count("breaks in the recording"),
        }
    }
    Ok(gathering.finish())
}

#[derive(Debug, Default)]
struct Gathering {
    range: Range,
    now: i64,
    cycles: u64,
    beginning: Beginning,
    notes: Notes,
    jobs: Vec<Gathered>,
    /// By namespace, name and uid of the group.
    by_group: HashMap<(String, String), usize>,
    by_owner: HashMap<String, Vec<ShapeTask>>,
    pods: HashMap<PodUid, Pod>,
    nodes: BTreeMap<NodeName, NodeFacts>,
    queues: BTreeMap<Arc<str>, i32>,
    priorities: HashMap<String, i32>,
}

impl Gathering {
    /// The recording begins in the middle of a history, with a saved World.
    fn start(&mut self, beginning: Beginning, world: &World) {
        self.notes.count("begins with a saved World: jobs from before are not there");
        self.beginning = beginning;
        self.nodes.extend(world.node_facts().into_iter().map(|node| (node.name.clone(), node)));
        self.queues.extend(world.queues().into_iter().map(|queue| (queue.name.into(), queue.weight)));
    }

    fn cycle(&mut self, cycle: &Cycle) {
        self.now = cycle.at.0;
        self.cycles += 1;
        for bind in &cycle.binds {
            if let Some(pod) = self.pods.get_mut(&bind.uid) {
                pod.from = Some(self.now);
                self.jobs[pod.job].binds.push(self.now);
            }
        }
        for eviction in &cycle.evictions {
            if let Some(pod) = self.pods.get_mut(&eviction.uid) {
                pod.evicted = true;
                self.jobs[pod.job].evicted += 1;
            }
        }
    }

    fn delta(&mut self, delta: Delta) -> Result<(), RecordedError> {
        match delta {
            Delta::NodeUpsert(facts) => drop(self.nodes.insert(facts.name.clone(), facts)),
            Delta::NodeRemove(name) if self.nodes.remove(&name).is_some() => {
                self.notes.count("nodes that went: not there");
            }
            Delta::QueueUpsert(facts) => drop(self.queues.insert(facts.name.into(), facts.weight)),
            Delta::PriorityClassUpsert { name, value, .. } => drop(self.priorities.insert(name, value)),
            Delta::ShapeUpsert { owner_uid, tasks, ended: false } => drop(self.by_owner.insert(owner_uid, tasks)),
            Delta::ShapeRemove { owner_uid } => drop(self.by_owner.remove(&owner_uid)),
            Delta::GroupUpsert(facts) => self.group(*facts)?,
            Delta::GroupRemove { namespace, name, .. } => drop(self.by_group.remove(&(namespace, name))),
            Delta::TaskUpsert(facts) => self.pod(&facts),
            Delta::TaskRemove(uid) => {
                if let Some(pod) = self.pods.remove(&uid) {
                    self.over(&pod, self.now, false);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn group(&mut self, facts: GroupFacts) -> Result<(), RecordedError> {
        let key = (facts.namespace.clone(), facts.name.clone());
        if let Some(job) = self.by_group.get(&key).map(|index| &mut self.jobs[*index])
            && job.facts.uid == facts.uid
        {
            job.facts.queue = facts.queue;
            return Ok(());
        }
        // It came when it was made; what lists no time came with the cycle before it was seen.
        let submitted = if facts.created == TimeMs::default() { self.now } else { facts.created.0 };
        let is_in =
            |at: i64| self.range.from.is_none_or(|from| at >= from.0) && self.range.to.is_none_or(|to| at < to.0);
        if !is_in(submitted) {
            return Ok(());
        }
        if self.jobs.len() >= JOBS_MAX {
            return Err(RecordedError::TooMany);
        }
        let shape = facts.owner.as_ref().and_then(|owner| self.by_owner.get(&owner.uid)).cloned().unwrap_or_default();
        self.by_group.insert(key, self.jobs.len());
        self.jobs.push(Gathered { facts, submitted, shape, ..Gathered::default() });
        Ok(())
    }

    fn pod(&mut self, facts: &PodFacts) {
        if let Some(pod) = self.pods.get_mut(&facts.uid) {
            let ended = matches!(facts.phase, PodPhase::Succeeded | PodPhase::Failed);
            if pod.from.is_none()
                && let Some(started) = facts.started.or(facts.scheduled)
            {
                pod.from = Some(started.0);
                self.jobs[pod.job].binds.push(started.0);
            }
            if ended && !pod.over {
                pod.over = true;
                let pod = *pod;
                let begun = facts.started.map(|at| at.0).or(pod.from);
                let end = facts.ended.map_or(self.now, |at| at.0);
                if let Some(begun) = begun
                    && !pod.evicted
                {
                    let (runs, all) = &mut self.jobs[pod.job].runs;
                    (*runs, *all) = (*runs + 1, all.saturating_add((end - begun).max(1)));
                }
                self.over(&Pod { over: false, ..pod }, end, true);
            }
            return;
        }
        let Some(group) = &facts.group else { return };
        let Some(index) = self.by_group.get(&(facts.namespace.clone(), group.clone())).copied() else { return };
        let template = &facts.template;
        let pod = Pod {
            job: index,
            from: None,
            evicted: false,
            over: false,
            cpu_milli: template.requests.get("cpu").copied().unwrap_or(0),
        };
        let job = &mut self.jobs[index];
        job.there += 1;
        if job.there > job.pods {
            job.pods = job.there;
            for (name, amount) in &template.requests {
                let sum = job.requests.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        job.limit_ms = job.limit_ms.max(template.time_limit_ms);
        job.priority = self.priorities.get(&facts.pod_priority_class).copied().unwrap_or(0);
        self.pods.insert(facts.uid.clone(), pod);
        if facts.node.is_some() {
            // It was there before the recording, or its bind is in a part that is missing.
            self.pod(facts);
        }
    }

    /// A pod holds its node no more. `ended` by itself, or gone.
    fn over(&mut self, pod: &Pod, at: i64, ended: bool) {
        let job = &mut self.jobs[pod.job];
        if !ended {
            job.there = job.there.saturating_sub(1);
        }
        if pod.over {
            return;
        }
        let Some(from) = pod.from else { return };
        job.holds.push((from, at.max(from)));
        job.ended = job.ended.max(at);
        if pod.evicted {
            job.lost_core_ms += i128::from(pod.cpu_milli) * i128::from((at - from).max(0));
        }
    }

    fn finish(mut self) -> Recorded {
        let now = self.now;
        for pod in std::mem::take(&mut self.pods).into_values().filter(|pod| pod.from.is_some() && !pod.over) {
            self.notes.count("pods that still ran: taken as ended with the recording");
            let from = pod.from.unwrap_or(now);
            let (runs, all) = &mut self.jobs[pod.job].runs;
            (*runs, *all) = (*runs + 1, all.saturating_add((now - from).max(1)));
            self.over(&pod, now, true);
        }
        let mut learned: HashMap<(String, String), (i64, i64)> = HashMap::new();
        for job in &self.jobs {
            let kind = (job.facts.namespace.clone(), job.facts.run_profile.clone());
            let (runs, all) = learned.entry(kind).or_default();
            (*runs, *all) = (*runs + job.runs.0, all.saturating_add(job.runs.1));
        }
        let mut recorded = Recorded { cycles: self.cycles, beginning: self.beginning, ..Recorded::default() };
        let mut jobs = Vec::new();
        for gathered in self.jobs {
            let kind = (gathered.facts.namespace.clone(), gathered.facts.run_profile.clone());
            let Some(mut job) = gathered.job(&self.priorities, learned.get(&kind), &mut self.notes) else { continue };
            if recorded.fared.contains_key(&job.name) {
                job.name = format!("{}~{}", job.name, jobs.len());
            }
            recorded.fared.insert(job.name.clone(), gathered.fared());
            jobs.push(job);
        }
        jobs.sort_by_key(|job| job.submit_ms);
        recorded.trace = Trace::new(jobs, self.queues, self.notes);
        // Pods of a trace tolerate nothing, and may run anywhere.
        let open = |node: NodeFacts| NodeFacts { taints: Vec::new(), usage: None, ..node };
        recorded.nodes = self.nodes.into_values().map(open).collect();
        recorded
    }
}

/// What a job asks for as a whole.
struct Requested {
    pods: u32,
    /// Of each pod: the mean, where they differ.
    each: Resources,
    limit_ms: Option<i64>,
}

impl Gathered {
    /// The job as a trace has it; nothing where it is not known how long it runs.
    fn job(&self, priorities: &HashMap<String, i32>, learned: Option<&(i64, i64)>, notes: &mut Notes) -> Option<Job> {
        let mean = |(runs, all): (i64, i64)| (runs > 0).then(|| all / runs.max(1));
        let run_ms = match (mean(self.runs), learned.copied().and_then(mean), self.limit_ms) {
            (Some(run), ..) => run,
            (None, Some(like), _) => {
                notes.count("never ran: taken to run as long as those like it");
                like
            }
            (None, None, Some(limit)) => {
                notes.count("never ran: taken to run for its limit");
                limit
            }
            (None, None, None) => {
                notes.count("never ran, and no limit: left out");
                return None;
            }
        };
        let Requested { pods, each: requests, limit_ms } = self.requested();
        if pods == 0 || pods > PODS_MAX {
            notes.count("without pods, or with too many: left out");
            return None;
        }
        Some(Job {
            name: self.facts.name.clone(),
            submit_ms: self.submitted,
            user: self.facts.namespace.as_str().into(),
            queue: self.facts.queue.as_str().into(),
            pods,
            min: self.facts.min_member.clamp(1, pods),
            requests: Arc::new(requests),
            run_ms,
            limit_ms,
            priority: priorities.get(&self.facts.priority_class).copied().unwrap_or(self.priority),
            preemptable: self.facts.preemptable.unwrap_or(false),
            profile: self.facts.run_profile.as_str().into(),
            deadline_ms: self.facts.deadline.map(|at| at.0),
        })
    }

    fn requested(&self) -> Requested {
        let count: u32 = self.shape.iter().fold(0, |sum, task| sum.saturating_add(task.count));
        if count <= self.pods {
            let each = self.requests.iter().map(|(name, sum)| (name.clone(), sum / i64::from(self.pods.max(1))));
            return Requested { pods: self.pods, each: each.collect(), limit_ms: self.limit_ms };
        }
        let mut sums = Resources::new();
        for task in &self.shape {
            for (name, amount) in &task.template.requests {
                let sum = sums.entry(name.clone()).or_default();
                *sum = sum.saturating_add(amount.saturating_mul(i64::from(task.count)));
            }
        }
        sums.values_mut().for_each(|sum| *sum /= i64::from(count));
        let limit = self.shape.iter().filter_map(|task| task.template.time_limit_ms).max();
        Requested { pods: count, each: sums, limit_ms: self.limit_ms.or(limit) }
    }

    fn fared(&self) -> Fared {
        let mut binds = self.binds.clone();
        binds.sort_unstable();
        let minimum = self.facts.min_member.max(1) as usize;
        let outcome = Outcome {
            started_ms: binds.get(minimum - 1).copied(),
            ended_ms: (self.ended > 0).then_some(self.ended),
            evicted: self.evicted,
            lost_core_ms: self.lost_core_ms,
            ..Outcome::default()
        };
        Fared { submitted: self.submitted, outcome, holds: self.holds.clone() }
    }
}

impl Recorded {
    /// What happened, of the jobs that `trace` still has.
    pub fn history(&self, trace: &Trace) -> History {
        let of = |job: &Job| self.fared.get(&job.name);
        let first = trace.jobs.first().and_then(of).map_or(0, |fared| fared.submitted);
        let at = |ms: i64| ms.saturating_sub(first).max(0);
        let mut history = History::of(trace.jobs.len());
        history.cycles = self.cycles;
        for ((index, job), outcome) in (0_u32..).zip(&trace.jobs).zip(&mut history.outcomes) {
            let Some(fared) = of(job) else { continue };
            *outcome = fared.outcome.clone();
            outcome.started_ms = outcome.started_ms.map(at);
            outcome.ended_ms = outcome.ended_ms.map(at);
            history.holds.extend(fared.holds.iter().map(|(from, to)| Hold {
                job: index,
                pods: 1,
                from_ms: at(*from),
                to_ms: at(*to),
            }));
        }
        history.holds.sort_by_key(|hold| hold.to_ms);
        history.ended_ms = history.holds.last().map_or(0, |hold| hold.to_ms);
        history
    }
}

#[cfg(test)]
mod tests;
