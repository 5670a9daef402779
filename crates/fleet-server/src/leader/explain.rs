//! What the leader says when it is asked why something waits.
//!
//! Each pool answers between two of its rounds, when its World is at rest; the answer goes out when all pools have said
//! something.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use pumice_clock as clock;
use pumice_fleet_scheduling::group_of;
use pumice_ledger::{
    ExecutorSettings, GangView, HeartbeatTimeout, Job, JobId, Ledger, NodeRef, Phase, Proposal, Retries, RunPhase,
    TimeMs,
};
use tokio::sync::oneshot;

use super::{Term, Waiting};
use crate::doctor::time;

/// Questions that wait for their pools; beyond that they are refused.
const QUESTIONS_MAX: usize = 1_000;
/// Longest list in an answer.
const LISTED_MAX: usize = 5;
/// Queues of which the report of a round tells.
const QUEUES_LISTED_MAX: usize = 50;

/// What may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Why a job waits, or where it runs.
    Job(JobId),
    /// What a queue has and waits for.
    Queue(String),
    /// What the last round of each pool did.
    Rounds,
}

/// Clusters that nobody speaks for, and for how many milliseconds nothing was heard of each.
type Away = BTreeMap<String, i64>;

/// What answers are made of beside what pools say.
#[derive(Clone, Copy)]
struct Known<'k> {
    ledger: &'k Ledger,
    away: &'k Away,
    /// What becomes of runs in clusters that are away.
    retries: &'k Retries,
}

/// Text, or what there is none of.
pub type Explanation = Result<String, String>;

/// A question on its way through the pools.
pub(super) struct OpenQuestion {
    question: Question,
    /// By pool.
    by_pool: BTreeMap<String, Option<String>>,
    answer: oneshot::Sender<Explanation>,
}

/// What the last round of a pool did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LastRound {
    /// How long it took.
    pub took_ms: u64,
    /// Leases that it proposed.
    pub leases: usize,
    /// Runs that it proposed to preempt.
    pub preemptions: usize,
    /// Rounds of this pool so far.
    pub number: u64,
}

impl LastRound {
    /// The round after this one.
    pub(super) fn next(self, took: Duration, proposals: &[Proposal]) -> Self {
        Self {
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            leases: proposals.iter().map(|proposal| proposal.starts().len()).sum(),
            preemptions: proposals.iter().filter(|proposal| matches!(proposal, Proposal::Preempt { .. })).count(),
            number: self.number + 1,
        }
    }
}

impl Term {
    pub(super) fn ask(&mut self, question: Question, answer: oneshot::Sender<Explanation>) {
        if self.questions.len() >= QUESTIONS_MAX {
            // Dropping the answer says to try again.
            return;
        }
        self.questions.push(OpenQuestion { question, by_pool: BTreeMap::new(), answer });
    }

    /// Lets the pools at rest say what they know.
    pub(super) fn answer(&mut self) {
        for mut open in std::mem::take(&mut self.questions) {
            for (name, waiting) in &mut self.pools {
                if !open.by_pool.contains_key(name) {
                    let by_pool = pool_answer(&open.question, &self.ledger, waiting);
                    open.by_pool.insert(name.clone(), by_pool);
                }
            }
            if self.busy.iter().all(|name| open.by_pool.contains_key(name)) {
                let away = self.sessions.away(TimeMs(clock::now_ms()));
                let known = Known { ledger: &self.ledger, away: &away, retries: &self.retries };
                let by_pool = whole(&open.question, known, &open.by_pool);
                // Whoever asked may be gone.
                let _ = open.answer.send(by_pool);
            } else {
                self.questions.push(open);
            }
        }
    }
}

/// What a pool says.
fn pool_answer(question: &Question, ledger: &Ledger, waiting: &mut Waiting) -> Option<String> {
    match question {
        Question::Job(id) => {
            let job = ledger.job(*id).filter(|job| job.phase == Phase::Queued)?;
            let (namespace, group) = group_of(ledger, *id, job);
            waiting.pool.why(&namespace, &group)
        }
        Question::Queue(name) => waiting.pool.queue_why(name),
        Question::Rounds => {
            let LastRound { took_ms, leases, preemptions, number } = waiting.last;
            let mut text = format!(
                "round {number}: {leases} leases and {preemptions} preemptions proposed in {took_ms} ms, over {} nodes",
                waiting.pool.nodes()
            );
            // What it has of what it deserves.
            let busy = || ledger.queues().filter(|queue| queue.active > 0);
            for line in busy().take(QUEUES_LISTED_MAX).filter_map(|queue| waiting.pool.queue_line(queue.name)) {
                let _ = write!(text, "\n  {line}");
            }
            let more = busy().count().saturating_sub(QUEUES_LISTED_MAX);
            if more > 0 {
                let _ = write!(text, "\n  and {more} more queues");
            }
            Some(text)
        }
    }
}

/// The answer of all pools together.
fn whole(question: &Question, known: Known<'_>, by_pool: &BTreeMap<String, Option<String>>) -> Explanation {
    let Known { ledger, away, .. } = known;
    let mut text = match question {
        Question::Job(id) => {
            let job = ledger.job(*id).ok_or_else(|| format!("there is no job {id} that has not ended"))?;
            let mut text = of_job(known, *id, job, by_pool.is_empty() || by_pool.values().any(Option::is_some));
            if job.phase == Phase::Queued {
                for (cluster, silent_ms) in away {
                    let time = time(*silent_ms / 1_000);
                    let _ = writeln!(
                        text,
                        "cluster {cluster} has not been heard of for {time}: nothing starts there until it is back"
                    );
                }
            }
            text
        }
        Question::Queue(name) => {
            let queue = ledger.queue(name).ok_or_else(|| format!("there is no queue {name}"))?;
            let mut text = format!("queue {name}: {} jobs wait, {} have not ended\n", queue.waiting, queue.active);
            match queue.definition {
                None => text.push_str("nobody has made this queue: its jobs wait until somebody does\n"),
                Some(definition) if definition.cordoned => text.push_str("it is cordoned: nothing of it starts\n"),
                Some(_) => {}
            }
            text
        }
        Question::Rounds => String::new(),
    };
    if *question == Question::Rounds {
        for (name, settings) in ledger.executors().iter().filter(|(_, settings)| settings.cordoned) {
            let ExecutorSettings { cordon_reason, set_by, .. } = settings;
            let _ = writeln!(text, "executor {name} is cordoned by {set_by}: {cordon_reason}");
        }
    }
    if by_pool.is_empty() {
        text.push_str("no executor has told of any nodes: nothing can start\n");
    }
    for (pool, pool_answer) in by_pool {
        if let Some(pool_answer) = pool_answer {
            // A string takes all that is written.
            let _ = writeln!(text, "pool {pool}: {pool_answer}");
        }
    }
    Ok(text)
}

/// What is known of a run in a cluster that nobody speaks for, and what becomes of it.
fn of_away(known: Known<'_>, id: JobId, job: &Job, how: &str, silent_ms: i64) -> String {
    let queue = known.ledger.queue(known.ledger.owner(job).0);
    let then = match known.retries.heartbeat_timeout(queue.and_then(|queue| queue.definition)) {
        HeartbeatTimeout::Rerun { after_ms } => format!(
            "it is started elsewhere once that is {} (label pumice.sh/rerun-after of its queue)",
            time(after_ms / 1_000)
        ),
        HeartbeatTimeout::Fail { after_ms } => format!(
            "once that is {} this run has failed (executorTimeout), and so has the job, unless its retry policy tries it again",
            time(after_ms / 1_000)
        ),
        HeartbeatTimeout::Never => {
            "what becomes of it counts when its cluster is back, or is said to be gone for good".to_owned()
        }
    };
    let silent = time(silent_ms / 1_000);
    format!("its cluster has not been heard of for {silent}; when it was, job {id} {how}\n{then}\n")
}

fn of_job(known: Known<'_>, id: JobId, job: &Job, is_looked_at: bool) -> String {
    let Known { ledger, away, .. } = known;
    let run = ledger.current(id).and_then(|run| Some((run, ledger.run(run)?)));
    if let Some((run, row)) = run
        && job.phase != Phase::Queued
    {
        let (node, cluster) = (&row.at.node, &row.at.cluster);
        let how = match row.phase {
            RunPhase::Leased => "is leased: its cluster is to make the pod",
            RunPhase::Pending => "has its pod, which does not run yet",
            RunPhase::Running => "runs",
            RunPhase::Stopping => "leaves its node, and then waits again",
        };
        let place = match row.places.len() {
            0 => format!("on node {node} of cluster {cluster}"),
            nodes => format!("in cluster {cluster}, with room on {nodes} of its nodes"),
        };
        let mut text = match away.get(cluster) {
            None => format!("job {id} {how}: run {run} {place}\n"),
            Some(silent_ms) => of_away(known, id, job, &format!("{how}: run {run} {place}"), *silent_ms),
        };
        if let Some(away) = &row.away {
            let (types, priority) = (away.node_types.join(" or "), away.priority);
            let _ = writeln!(
                text,
                "it is away from home, on a node of type {types} at priority {priority}: jobs at home there go before it, and \
                 it makes room for them first"
            );
        }
        return text;
    }
    let mut text = format!("job {id} waits");
    if job.phase == Phase::Leaving {
        text.push_str(" until its last run has left its node");
    }
    text.push('\n');
    let (queue, _) = ledger.owner(job);
    match ledger.queue(queue).map(|queue| queue.definition) {
        None | Some(None) => {
            return text + &format!("its queue {queue} is gone: it starts when somebody makes it anew\n");
        }
        Some(Some(definition)) if definition.cordoned => {
            return text + &format!("its queue {queue} is cordoned: nothing of it starts\n");
        }
        Some(Some(_)) => {}
    }
    if let Some(GangView { id: gang, cardinality, members, .. }) = ledger.gang(job)
        && members.len() < cardinality as usize
        && job.attempts == 0
    {
        let _ = writeln!(
            text,
            "its gang {gang} has {} of its {cardinality} members: they start together, once all are submitted; if one of them was \
             cancelled or has ended, submit another in its place, or cancel these",
            members.len()
        );
        return text;
    }
    if !is_looked_at {
        let ahead = ledger.first(queue, usize::MAX, LISTED_MAX);
        let ahead: Vec<String> = ahead.iter().filter(|other| **other != id).map(ToString::to_string).collect();
        if ahead.is_empty() {
            text.push_str("no round has looked at it yet\n");
        } else {
            let _ = writeln!(
                text,
                "so many of its queue go before it that no round has looked at it yet (maxQueueLookback); the first are {}",
                ahead.join(", ")
            );
        }
    }
    if !job.avoid.is_empty() {
        let named = |at: &NodeRef| match at.node.as_str() {
            "" => format!("all of {}", at.cluster),
            node => format!("{node} of {}", at.cluster),
        };
        let avoid: Vec<String> = job.avoid.iter().map(named).collect();
        let _ = writeln!(text, "it was tried {} times, and keeps off the nodes {}", job.attempts, avoid.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use pumice_ledger::{Digest, Entry, Event, Inbox, PriorityClass, Queue, RunId, Shape, Submitted, TimeMs};

    use super::*;

    /// A queue with one job on cluster `one` and one that waits.
    fn ledger(rerun_after_ms: i64) -> Ledger {
        let mut ledger = Ledger::new([("c".to_owned(), PriorityClass { value: 0, preemptible: true })].into());
        let queue = Queue { name: "q".to_owned(), rerun_after_ms, ..Queue::default() };
        let shape = Shape {
            priority_class: "c".to_owned(),
            requests: BTreeMap::new(),
            template: serde_json::Value::Null,
            volcano_job: None,
            price_band: None,
            retries: None,
        };
        let submitted = |job| {
            let (job, spec, shape) = (JobId(job), Digest(1), Digest(2));
            Event::Submitted(Submitted { job, spec, shape, priority: 0, gang: None, fail_fast: false })
        };
        let set = vec![Event::QueueSet(Box::new(queue))];
        ledger.fold(&Entry { events: set, ..Entry::new(TimeMs(1), "q", "") });
        let (shapes, events) = ([(Digest(2), shape)].into(), vec![submitted(1), submitted(2)]);
        ledger.fold(&Entry { shapes, events, ..Entry::new(TimeMs(1), "q", "set") });
        let at = NodeRef { cluster: "one".to_owned(), node: "n".to_owned() };
        let lease = Proposal::Lease { jobs: vec![(JobId(1), at)], pool: "p".to_owned(), away: None };
        ledger.decide(TimeMs(2), Inbox { proposals: vec![lease], ..Inbox::default() }, Retries::default());
        assert!(ledger.run(RunId { job: JobId(1), attempt: 1 }).is_some());
        ledger
    }

    #[test]
    fn a_cluster_that_is_away_is_called_that() {
        let away: Away = [("one".to_owned(), 35_000)].into();
        let by_pool: BTreeMap<String, Option<String>> = [("p".to_owned(), Some("no room".to_owned()))].into();
        for (rerun_after_ms, silent_max_ms, job, words) in [
            (0, 0, 1, "its cluster has not been heard of for 35 s; when it was, job"),
            (0, 0, 1, "counts when its cluster is back, or is said to be gone for good"),
            (0, 3_600_000, 1, "once that is 60 min this run has failed (executorTimeout), and so has the job, unless"),
            (
                180_000,
                3_600_000,
                1,
                "it is started elsewhere once that is 3 min (label pumice.sh/rerun-after of its queue)",
            ),
            (0, 0, 2, "cluster one has not been heard of for 35 s: nothing starts there until it is back"),
        ] {
            let (ledger, retries) =
                (ledger(rerun_after_ms), Retries { heartbeat_timeout_ms: silent_max_ms, ..Retries::default() });
            let known = Known { ledger: &ledger, away: &away, retries: &retries };
            let pool_answer = whole(&Question::Job(JobId(job)), known, &by_pool).expect("a job");
            assert!(pool_answer.contains(words), "{pool_answer}");
            let known = Known { away: &Away::new(), ..known };
            let pool_answer = whole(&Question::Job(JobId(job)), known, &by_pool).expect("a job");
            assert!(!pool_answer.contains("heard of"), "{pool_answer}");
        }
    }

    #[test]
    fn without_a_round_nothing_is_said_of_others() {
        let (ledger, away, retries) = (ledger(0), Away::new(), Retries::default());
        let known = Known { ledger: &ledger, away: &away, retries: &retries };
        let pool_answer = whole(&Question::Job(JobId(2)), known, &BTreeMap::new()).expect("a job");
        assert!(pool_answer.ends_with("no executor has told of any nodes: nothing can start\n"), "{pool_answer}");
        assert!(!pool_answer.contains("maxQueueLookback"), "{pool_answer}");
    }
}
