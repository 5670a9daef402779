//! What the leader says when it is asked why something waits.
//!
//! Each pool answers between two of its rounds, when its World is at rest; the answer goes out when all pools have said
//! something.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use pumice_ledger::{ExecutorSettings, Job, JobId, Ledger, NodeRef, Phase, Proposal, RunPhase};
use tokio::sync::oneshot;

use super::{Term, Waiting};
use crate::rounds::group_of;

/// Questions that wait for their pools; beyond that they are refused.
const QUESTIONS_MAX: usize = 1_000;
/// Longest list in an answer.
const LISTED_MAX: usize = 5;

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

/// Text, or what there is none of.
pub type Told = Result<String, String>;

/// A question on its way through the pools.
pub(super) struct Asked {
    question: Question,
    /// By pool.
    told: BTreeMap<String, Option<String>>,
    answer: oneshot::Sender<Told>,
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
    pub(super) fn ask(&mut self, question: Question, answer: oneshot::Sender<Told>) {
        if self.questions.len() >= QUESTIONS_MAX {
            // Dropping the answer says to try again.
            return;
        }
        self.questions.push(Asked { question, told: BTreeMap::new(), answer });
    }

    /// Lets the pools at rest say what they know.
    pub(super) fn answer(&mut self) {
        for mut asked in std::mem::take(&mut self.questions) {
            for (name, waiting) in &mut self.pools {
                if !asked.told.contains_key(name) {
                    let told = said(&asked.question, &self.ledger, waiting);
                    asked.told.insert(name.clone(), told);
                }
            }
            if self.busy.iter().all(|name| asked.told.contains_key(name)) {
                let told = whole(&asked.question, &self.ledger, &asked.told);
                // Whoever asked may be gone.
                let _ = asked.answer.send(told);
            } else {
                self.questions.push(asked);
            }
        }
    }
}

/// What a pool says.
fn said(question: &Question, ledger: &Ledger, waiting: &mut Waiting) -> Option<String> {
    match question {
        Question::Job(id) => {
            let job = ledger.job(*id).filter(|job| job.phase == Phase::Queued)?;
            let (namespace, group) = group_of(ledger, *id, job);
            waiting.pool.why(&namespace, &group)
        }
        Question::Queue(name) => waiting.pool.queue_why(name),
        Question::Rounds => {
            let LastRound { took_ms, leases, preemptions, number } = waiting.last;
            Some(format!(
                "round {number}: {leases} leases and {preemptions} preemptions proposed in {took_ms} ms, over {} nodes",
                waiting.pool.nodes()
            ))
        }
    }
}

/// The answer of all pools together.
fn whole(question: &Question, ledger: &Ledger, told: &BTreeMap<String, Option<String>>) -> Told {
    let mut text = match question {
        Question::Job(id) => {
            let job = ledger.job(*id).ok_or_else(|| format!("there is no job {id} that has not ended"))?;
            of_job(ledger, *id, job, told.values().any(Option::is_some))
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
    if told.is_empty() {
        text.push_str("no executor has told of any nodes: nothing can start\n");
    }
    for (pool, said) in told {
        if let Some(said) = said {
            // A string takes all that is written.
            let _ = writeln!(text, "pool {pool}: {said}");
        }
    }
    Ok(text)
}

fn of_job(ledger: &Ledger, id: JobId, job: &Job, is_looked_at: bool) -> String {
    let run = ledger.current(id).and_then(|run| Some((run, ledger.run(run)?)));
    if let Some((run, row)) = run.filter(|_| job.phase != Phase::Queued) {
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
        let mut text = format!("job {id} {how}: run {run} {place}\n");
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
    if let Some((gang, cardinality, _, members)) = ledger.gang(job)
        && members.len() < cardinality as usize
        && job.attempts == 0
    {
        let _ = writeln!(
            text,
            "its gang {gang} has {} of its {cardinality} members: they start together, once all are submitted",
            members.len()
        );
        return text;
    }
    if !is_looked_at {
        let ahead = ledger.first(queue, usize::MAX, LISTED_MAX);
        let ahead: Vec<String> = ahead.iter().filter(|other| **other != id).map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "so many of its queue go before it that no round has looked at it yet (maxQueueLookback); the first are {}",
            ahead.join(", ")
        );
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
