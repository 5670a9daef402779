//! Why there is no log of a job to show: its pods have not started, never did, or are gone.
//!
//! Invariant: pure; says no more than the objects do. Called by `jobctl logs`.

use pumice_api::batch::{Job, JobPhase};

use super::{Attempt, JobLogs, LogOptions};
use crate::explain::job_end;
use crate::job::{JobEnd, JobRef, end_of};

/// Nodes that are named.
const NODES_SHOWN: usize = 3;

/// What is said in place of a log, and what to type next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// A sentence without its stop.
    pub sentence: String,
    pub next: String,
}

/// Why these logs, read to their end, had nothing of the job.
pub fn absence(job: &JobRef, state: &Job, options: &LogOptions, logs: &JobLogs) -> Absence {
    let silent = logs.retained().map(|retained| retained.silent_nodes.clone());
    let found = Found { pods_there: logs.pods_there().len(), silent_nodes: silent };
    of(job, state, options, &found)
}

/// What was found instead.
struct Found {
    pods_there: usize,
    /// Nodes that did not say whether they retain logs; none where the platform retains no logs, or was not asked.
    silent_nodes: Option<Vec<String>>,
}

fn of(job: &JobRef, state: &Job, options: &LogOptions, found: &Found) -> Absence {
    let (name, flag) = (&job.name, job.namespace_flag());
    let verb = |verb: &str| format!("jobctl {verb} {name}{flag}");
    let retained = retention(found);
    match options.attempt {
        Attempt::Previous => {
            let sentence = format!("there is no log of an earlier attempt of job {name}: {retained}");
            return Absence { sentence, next: verb("logs") };
        }
        Attempt::Number(number) => {
            let sentence = format!("there is no log of attempt {number} of job {name}: {retained}");
            return Absence { sentence, next: verb("logs") };
        }
        Attempt::Latest => {}
    }
    let because = job_end::because(state).map(|because| format!(": {because}")).unwrap_or_default();
    let (sentence, next) = match (end_of(state), has_run(state)) {
        (None, _) if found.pods_there > 0 || !has_run(state) => {
            (format!("no pod of job {name} has started"), verb("why"))
        }
        (Some(JobEnd::Aborted), false) => {
            (format!("job {name} was suspended before a pod of it ran{because}"), verb("resume"))
        }
        (Some(end), false) if found.pods_there == 0 => {
            (format!("job {name} {} before a pod of it ran{because}", end.word()), verb("get"))
        }
        _ if found.pods_there > 0 => {
            (format!("the pods of job {name} that are there have written nothing"), verb("get"))
        }
        _ => (format!("the pods of job {name} are gone: {retained}"), verb("history")),
    };
    Absence { sentence, next }
}

fn retention(found: &Found) -> String {
    match found.silent_nodes.as_deref() {
        None => "logs of pods that are gone can't be read here".to_owned(),
        Some([]) => "no node retains it, or it is empty".to_owned(),
        Some(silent) => {
            let more = match silent.len().saturating_sub(NODES_SHOWN) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named = silent[..silent.len().min(NODES_SHOWN)].join(", ");
            format!("no node that answered retains it; {named}{more} did not answer")
        }
    }
}

/// Whether pods of the job may have written something and be gone.
pub fn may_have_written(state: &Job) -> bool {
    has_run(state) || end_of(state).is_some()
}

/// Whether enough pods ran at some time for the job to be Running.
fn has_run(state: &Job) -> bool {
    let status = &state.status;
    let ended = status.succeeded > 0 || status.failed > 0 || status.running > 0;
    ended || status.conditions.iter().any(|condition| condition.status == JobPhase::Running)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_said_is_true() {
        let job = JobRef { namespace: "n".into(), name: "j".into() };
        let state = |phase: &str, ran: bool, reason: &str, message: &str| -> Value {
            let conditions = if ran { json!([{"status": "Running"}]) } else { json!([]) };
            json!({"status": {"state": {"phase": phase, "reason": reason, "message": message}, "conditions": conditions}})
        };
        let (here, asked, not_asked) = (1, Some(vec![]), None::<Vec<String>>);
        let silent = Some(vec!["n2".to_owned()]);
        for (state, attempt, pods_there, silent_nodes, sentence, next) in [
            (state("Pending", false, "", ""), Attempt::Latest, 0, &not_asked, "no pod of job j has started", "why"),
            (state("Running", true, "", ""), Attempt::Latest, here, &asked, "no pod of job j has started", "why"),
            (
                state("Failed", false, "DependencyNotMet", "waited for job d to succeed, which is Failed"),
                Attempt::Latest,
                0,
                &asked,
                "job j failed before a pod of it ran: waited for job d to succeed, which is Failed",
                "get",
            ),
            (
                state("Aborted", false, "AbortJob", "Start to execute action AbortJob"),
                Attempt::Latest,
                0,
                &asked,
                "job j was suspended before a pod of it ran",
                "resume",
            ),
            (
                state("Terminated", true, "TerminateJob", ""),
                Attempt::Latest,
                0,
                &not_asked,
                "the pods of job j are gone: logs of pods that are gone can't be read here",
                "history",
            ),
            (
                state("Terminated", true, "", ""),
                Attempt::Latest,
                0,
                &asked,
                "the pods of job j are gone: no node retains it, or it is empty",
                "history",
            ),
            (
                state("Running", true, "", ""),
                Attempt::Latest,
                0,
                &silent,
                "the pods of job j are gone: no node that answered retains it; n2 did not answer",
                "history",
            ),
            (
                state("Failed", true, "", ""),
                Attempt::Latest,
                here,
                &asked,
                "the pods of job j that are there have written nothing",
                "get",
            ),
            (
                state("Failed", true, "", ""),
                Attempt::Previous,
                here,
                &asked,
                "there is no log of an earlier attempt of job j: no node retains it, or it is empty",
                "logs",
            ),
            (
                state("Failed", true, "", ""),
                Attempt::Number(2),
                here,
                &not_asked,
                "there is no log of attempt 2 of job j: logs of pods that are gone can't be read here",
                "logs",
            ),
        ] {
            let typed: Job = serde_json::from_value(state.clone()).unwrap();
            let options = LogOptions { attempt, ..LogOptions::default() };
            let found = of(&job, &typed, &options, &Found { pods_there, silent_nodes: silent_nodes.clone() });
            assert_eq!(found.sentence, sentence, "{state}");
            assert_eq!(found.next, format!("jobctl {next} j --namespace n"), "{state}");
        }
    }
}
