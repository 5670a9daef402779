//! The machine of Kubernetes' own Jobs (`batch/v1`): pods until enough of them have ended well.
//!
//! Invariant: a pod is counted once, however often its end is seen: its uid is in the status before its finalizer goes, and it is
//! added up when that is gone. Never more than `parallelism` pods are made to run; an index succeeds once; what has finished
//! stays finished. Called by the shell for each Job that something happened to.

mod backoff;
mod counting;
mod failure_policy;
mod indexes;
mod making;
mod verdict;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::replica_set::whole_second;
use crate::workload::{
    OwnedPod, PodEffect, WorkEvent, WorkPlan, claim, owner_of, read_selector, refusal, set_condition, some_count,
};
use counting::Count;
use verdict::{COMPLETE, FAILED, Verdict};

/// The label by which pods of a Job are found again when the Job is gone.
pub const NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// Who works on Jobs that name nobody.
const OURSELVES: &str = "kubernetes.io/job-controller";
const SUSPENDED: &str = "Suspended";

/// What a step looks at.
pub struct JobView<'a> {
    pub job: &'a Job,
    /// The pods that it controls and those of its namespace that nobody controls.
    pub pods: Vec<&'a OwnedPod>,
}

/// What to do about a Job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPlan {
    /// Status, pods and events.
    pub work: WorkPlan<JobStatus>,
    /// Its time after its end is over: it goes.
    pub is_over: bool,
}

/// What is known of a Job while it is decided about.
struct StepContext<'a> {
    job: &'a Job,
    spec: &'a JobSpec,
    own: Vec<&'a OwnedPod>,
    now: Timestamp,
}

impl StepContext<'_> {
    fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    /// How many indexes there are.
    fn completions(&self) -> u32 {
        u32::try_from(self.spec.completions.unwrap_or(0)).unwrap_or(0)
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// Whether a pod is replaced only when it has ended.
    fn waits_for_ends(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
    }

    fn name(&self) -> &str {
        self.job.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether a pod counts as failed.
    fn has_failed(&self, pod: &OwnedPod) -> bool {
        use crate::workload::PodPhase::{Failed, Succeeded};
        match pod.phase {
            Failed => true,
            Succeeded => false,
            _ => pod.is_stopped || (pod.is_leaving && !self.waits_for_ends()),
        }
    }

    fn active(&self) -> impl Iterator<Item = &OwnedPod> {
        self.own.iter().filter(|pod| pod.is_active()).copied()
    }

    fn terminating(&self) -> usize {
        self.own.iter().filter(|pod| pod.is_leaving && !pod.has_ended() && !pod.is_stopped).count()
    }
}

/// Whether another controller looks after the Job.
pub fn is_managed_elsewhere(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != OURSELVES)
}

/// Whether a Job has ended, and well.
pub fn outcome(job: &Job) -> Option<bool> {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let holds = |kind: &str| conditions.iter().any(|one| one.type_ == kind && one.status == "True");
    if holds(COMPLETE) { Some(true) } else { holds(FAILED).then_some(false) }
}

/// Whether a condition of this type, where it holds, is a Job's end.
pub(crate) fn is_end(condition: &str) -> bool {
    [COMPLETE, FAILED].contains(&condition)
}

/// Decides what to do about a Job now. `O(pods log pods + completions)`.
pub fn step(view: &JobView<'_>, now: Timestamp) -> JobPlan {
    let mut plan = JobPlan::default();
    let Some(spec) = &view.job.spec else { return plan };
    if is_managed_elsewhere(view.job) {
        return plan;
    }
    let stays = view.job.metadata.deletion_timestamp.is_none();
    let owner = owner_of::<Job>(&view.job.metadata);
    let selector = spec.selector.as_ref().map(read_selector);
    let selector = selector.unwrap_or_else(pumice_objects::selector::LabelSelector::nothing);
    let finished = outcome(view.job);
    let claimed = claim(&view.pods, &selector, &owner, stays && finished.is_none(), true);
    let context = StepContext { job: view.job, spec, own: claimed.own, now };
    if !stays || finished.is_some() {
        plan.work.pods = let_go(&context);
        if stays {
            plan.is_over = expires(&context, finished, &mut plan.work);
        }
        return plan;
    }
    plan.work.pods = claimed.effects;
    unfinished(&context, &mut plan.work);
    plan
}

/// Pods that are held for counting, when there is nothing more to count.
fn let_go(context: &StepContext<'_>) -> Vec<PodEffect> {
    context.own.iter().filter(|pod| pod.is_tracked).map(|pod| PodEffect::Untrack(pod.id())).collect()
}

/// What to do for pods of a Job that is gone.
pub fn abandoned(pods: &[&OwnedPod]) -> Vec<PodEffect> {
    pods.iter().filter(|pod| pod.is_tracked).map(|pod| PodEffect::Untrack(pod.id())).collect()
}

/// Whether a finished Job is to go by now; if later, that is when to look again.
fn expires(context: &StepContext<'_>, outcome: Option<bool>, work: &mut WorkPlan<JobStatus>) -> bool {
    let Some(seconds) = context.spec.ttl_seconds_after_finished else { return false };
    let kind = if outcome == Some(true) { COMPLETE } else { FAILED };
    let conditions = context.job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ended = conditions.iter().find(|one| one.type_ == kind).and_then(|one| one.last_transition_time.as_ref());
    let at = ended.and_then(|ended| ended.0.checked_add(SignedDuration::from_secs(i64::from(seconds))).ok());
    match at {
        Some(at) if at > context.now => {
            work.look_at(Some(at));
            false
        }
        Some(_) => true,
        None => false,
    }
}

fn unfinished(context: &StepContext<'_>, work: &mut WorkPlan<JobStatus>) {
    let before = context.job.status.clone().unwrap_or_default();
    let mut status = before.clone();
    if status.start_time.is_none() && !context.is_suspended() {
        status.start_time = Some(whole_second(context.now));
    }
    let mut count = Count::of(context, &before);
    let counted = count.take_ends(context);
    // Who sees that it has ended finds nothing that holds its pods.
    let is_settled = count.is_settled() && counted.effects.is_empty();
    work.pods.extend(counted.effects);
    let verdict = Verdict::recorded(&before).or_else(|| Verdict::reached(context, &status, &count, counted.fails_job));
    let mut conditions = status.conditions.take().unwrap_or_default();
    match &verdict {
        Some(verdict) => {
            tell(context, verdict, &mut conditions, work, &before);
            end_pods(context, verdict, work);
            let is_quiet = context.active().next().is_none() && context.terminating() == 0;
            if is_quiet && is_settled {
                finish(context, verdict, &mut conditions, &mut status, work);
            }
        }
        None => go_on(context, &mut conditions, &mut status, &count, work),
    }
    status.conditions = Some(conditions).filter(|conditions| !conditions.is_empty());
    count.write(context, &mut status);
    status.active = some_count(context.active().count());
    status.ready = Some(some_count(context.active().filter(|pod| pod.is_ready()).count()).unwrap_or(0));
    status.terminating = Some(some_count(context.terminating()).unwrap_or(0));
    if status != before {
        work.status = Some(Box::new(status));
    }
}

/// Runs, waits or is suspended.
fn go_on(
    context: &StepContext<'_>,
    conditions: &mut Vec<JobCondition>,
    status: &mut JobStatus,
    count: &Count,
    work: &mut WorkPlan<JobStatus>,
) {
    let was_suspended = conditions.iter().any(|one| one.type_ == SUSPENDED && one.status == "True");
    if context.is_suspended() {
        work.pods.extend(context.active().map(|pod| PodEffect::Withdraw(pod.id())));
        if !was_suspended {
            set_condition(conditions, condition(SUSPENDED, true, "JobSuspended", "Job suspended", context.now));
            work.events.push(WorkEvent { is_warning: false, reason: "Suspended", message: "Job suspended".to_owned() });
        }
        status.start_time = None;
        return;
    }
    if was_suspended {
        set_condition(conditions, condition(SUSPENDED, false, "JobResumed", "Job resumed", context.now));
        work.events.push(WorkEvent { is_warning: false, reason: "Resumed", message: "Job resumed".to_owned() });
        status.start_time = Some(whole_second(context.now));
    }
    let deadline = context
        .spec
        .active_deadline_seconds
        .and_then(|seconds| status.start_time.as_ref()?.0.checked_add(SignedDuration::from_secs(seconds.max(0))).ok());
    work.look_at(deadline);
    match refusal(&context.spec.template) {
        Some(message) => work.events.push(WorkEvent { is_warning: true, reason: "FailedCreate", message }),
        None => making::manage(context, count, work),
    }
}

/// Says what it comes to, before its pods are gone.
fn tell(
    context: &StepContext<'_>,
    verdict: &Verdict,
    conditions: &mut Vec<JobCondition>,
    work: &mut WorkPlan<JobStatus>,
    before: &JobStatus,
) {
    if Verdict::recorded(before).is_some() {
        return;
    }
    set_condition(conditions, condition(verdict.announced(), true, &verdict.reason, &verdict.message, context.now));
    if !verdict.is_success {
        let message = verdict.message.clone();
        work.events.push(WorkEvent { is_warning: true, reason: verdict.event(), message });
    }
}

/// Ends what still runs: of a Job that fails it counts as failed, of one that is done it does not count.
fn end_pods(context: &StepContext<'_>, verdict: &Verdict, work: &mut WorkPlan<JobStatus>) {
    let end = |pod: &OwnedPod| match verdict.is_success {
        true => PodEffect::Withdraw(pod.id()),
        false => PodEffect::Delete(pod.id()),
    };
    work.pods.extend(context.active().map(end));
}

fn finish(
    context: &StepContext<'_>,
    verdict: &Verdict,
    conditions: &mut Vec<JobCondition>,
    status: &mut JobStatus,
    work: &mut WorkPlan<JobStatus>,
) {
    let kind = if verdict.is_success { COMPLETE } else { FAILED };
    set_condition(conditions, condition(kind, true, &verdict.reason, &verdict.message, context.now));
    if verdict.is_success {
        status.completion_time = Some(whole_second(context.now));
        work.events.push(WorkEvent { is_warning: false, reason: "Completed", message: "Job completed".to_owned() });
    }
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: if holds { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(whole_second(now)),
        last_transition_time: Some(whole_second(now)),
    }
}

/// The name of the Job whose pod this is, if its Job is not known.
pub fn job_of(metadata: &ObjectMeta) -> Option<&str> {
    metadata.labels.as_ref()?.get(NAME_LABEL).map(String::as_str)
}

#[cfg(test)]
mod tests;
