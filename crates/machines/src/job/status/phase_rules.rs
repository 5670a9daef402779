//! When a job changes its phase by itself: rules of Pending and Running, and of Restarting.
//!
//! Invariant: total functions of counts; no rule looks at time. Called by `sync` and `restart`.

use pumice_api::batch::{JobPhase, JobSpec};

use crate::job::pod_counts::PodCounts;
use crate::task_numbers::MIN_SUCCESS;

/// `maxRetry` when the job says none, as Volcano's webhook sets it.
const MAX_RETRY_DEFAULT: i32 = 3;

/// A phase to go to, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::job) struct Verdict {
    pub phase: JobPhase,
    pub reason: &'static str,
    pub message: String,
}

impl Verdict {
    fn new(phase: JobPhase, reason: &'static str, message: String) -> Self {
        Self { phase, reason, message }
    }
}

/// How often the job may restart.
pub(in crate::job) fn max_retry(spec: &JobSpec) -> i32 {
    if spec.max_retry > 0 { spec.max_retry } else { MAX_RETRY_DEFAULT }
}

/// Pending: running once the minimum has started.
pub(in crate::job) fn pending(spec: &JobSpec, pod_counts: &PodCounts<'_>) -> Option<Verdict> {
    let counts = &pod_counts.counts;
    let started = i64::from(counts.running) + i64::from(counts.succeeded) + i64::from(counts.failed);
    if started < i64::from(spec.min_available) {
        return None;
    }
    Some(Verdict::new(JobPhase::Running, "", String::new()))
}

/// Running: finished by `minSuccess` or when all pods have ended, back to Pending when too many wait.
pub(in crate::job) fn running(spec: &JobSpec, pod_counts: &PodCounts<'_>) -> Option<Verdict> {
    let counts = &pod_counts.counts;
    if pod_counts.replicas == 0 {
        return None;
    }
    let goals = goals(spec, pod_counts);
    if !goals.is_empty() && goals.iter().all(Goal::is_reached) {
        return Some(Verdict::new(JobPhase::Completed, "MinSuccess", describe(&goals)));
    }
    if i64::from(counts.succeeded) + i64::from(counts.failed) == pod_counts.replicas {
        return Some(ended(spec, pod_counts));
    }
    if i64::from(counts.pending) > pod_counts.replicas - i64::from(spec.min_available) {
        return Some(Verdict::new(JobPhase::Pending, "", String::new()));
    }
    None
}

/// A number of successes that completes the job, together with all others.
struct Goal<'a> {
    /// None for the job's own.
    task: Option<&'a str>,
    succeeded: i32,
    wanted: i32,
}

impl Goal<'_> {
    fn is_reached(&self) -> bool {
        self.succeeded >= self.wanted
    }
}

/// The job's `minSuccess` and those of its tasks: where several are given, each must be reached.
fn goals<'a>(spec: &JobSpec, pod_counts: &PodCounts<'a>) -> Vec<Goal<'a>> {
    let job = spec.min_success.map(|wanted| Goal { task: None, succeeded: pod_counts.counts.succeeded, wanted });
    let tasks = pod_counts.tasks.iter().filter_map(|task| {
        let (wanted, succeeded) = (MIN_SUCCESS.of(task.spec)?, task.counts.succeeded);
        Some(Goal { task: Some(task.spec.name.as_str()), succeeded, wanted })
    });
    job.into_iter().chain(tasks).collect()
}

fn describe(goals: &[Goal<'_>]) -> String {
    let one = |goal: &Goal<'_>| {
        let of_task = goal.task.map(|task| format!(" of task {task}")).unwrap_or_default();
        format!("{} pods{of_task} succeeded, minSuccess is {}", goal.succeeded, goal.wanted)
    };
    goals.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// All pods have ended.
fn ended(spec: &JobSpec, pod_counts: &PodCounts<'_>) -> Verdict {
    let succeeded = pod_counts.counts.succeeded;
    let failed = |reason, message| Verdict::new(JobPhase::Failed, reason, message);
    let minimum: i64 = pod_counts.tasks.iter().map(|task| i64::from(task.min_available())).sum();
    if i64::from(spec.min_available) >= minimum {
        let short = pod_counts.tasks.iter().find_map(|task| {
            let wanted = task.spec.min_available?;
            let seen = !task.slots.is_empty() || !task.ended.is_empty();
            (seen && task.counts.succeeded < wanted).then_some((task, wanted))
        });
        if let Some((task, wanted)) = short {
            let (name, succeeded) = (&task.spec.name, task.counts.succeeded);
            return failed(
                "TooFewSuccesses",
                format!("{succeeded} pods of task {name} succeeded, its minAvailable is {wanted}"),
            );
        }
    }
    if let Some(missed) = goals(spec, pod_counts).into_iter().find(|goal| !goal.is_reached()) {
        return failed("TooFewSuccesses", describe(&[missed]));
    }
    let message =
        format!("{succeeded} of {} pods succeeded, minAvailable is {}", pod_counts.replicas, spec.min_available);
    if succeeded >= spec.min_available {
        Verdict::new(JobPhase::Completed, "PodsSucceeded", message)
    } else {
        failed("TooFewSuccesses", message)
    }
}

/// Restarting: failed when the retries are used up, Pending when enough pods have let go.
pub(in crate::job) fn restarting(spec: &JobSpec, pod_counts: &PodCounts<'_>, retry_count: i32) -> Option<Verdict> {
    let budget = max_retry(spec);
    if retry_count >= budget {
        let message = format!("restarted {retry_count} times, maxRetry is {budget}");
        return Some(Verdict::new(JobPhase::Failed, "RetriesExhausted", message));
    }
    let free = pod_counts.replicas - i64::from(pod_counts.counts.terminating);
    if free >= i64::from(spec.min_available) || pod_counts.counts.terminating == 0 {
        return Some(Verdict::new(JobPhase::Pending, "", String::new()));
    }
    None
}
