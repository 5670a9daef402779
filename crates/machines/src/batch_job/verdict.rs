//! When a Job has done enough, or failed too often.
//!
//! Invariant: what was announced once stays: its reason and message are those of the end.

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::JobStatus;

use super::StepContext;
use super::counting::Count;
use super::indexes::Indexes;

pub(super) const COMPLETE: &str = "Complete";
pub(super) const FAILED: &str = "Failed";
const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
const FAILURE_TARGET: &str = "FailureTarget";
const DEFAULT_BACKOFF_LIMIT: i32 = 6;

/// What a Job comes to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    pub is_success: bool,
    pub reason: String,
    pub message: String,
}

impl Verdict {
    fn failure(reason: &str, message: &str) -> Self {
        Self { is_success: false, reason: reason.to_owned(), message: message.to_owned() }
    }

    fn success(reason: &str, message: String) -> Self {
        Self { is_success: true, reason: reason.to_owned(), message }
    }

    /// The verdict that an earlier step announced in the conditions: it stands, whatever the pods do since.
    pub fn recorded(status: &JobStatus) -> Option<Self> {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let find = |kind: &str| conditions.iter().find(|one| one.type_ == kind && one.status == "True");
        let (condition, is_success) = match find(FAILURE_TARGET) {
            Some(failure) => (failure, false),
            None => (find(SUCCESS_CRITERIA_MET)?, true),
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Some(Self { is_success, reason: text(&condition.reason), message: text(&condition.message) })
    }

    /// The condition that announces it.
    pub fn announced(&self) -> &'static str {
        if self.is_success { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET }
    }

    /// The reason of an event about it.
    pub fn event(&self) -> &'static str {
        const REASONS: [&str; 5] = [
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "PodFailurePolicy",
            "MaxFailedIndexesExceeded",
            "FailedIndexes",
        ];
        REASONS.into_iter().find(|reason| *reason == self.reason).unwrap_or(FAILED)
    }

    /// What it comes to now, if to anything.
    pub fn reached(
        context: &StepContext<'_>,
        status: &JobStatus,
        count: &Count,
        fails_job: Option<String>,
    ) -> Option<Self> {
        if let Some(message) = fails_job {
            return Some(Self::failure("PodFailurePolicy", &message));
        }
        if let Some(success) = by_policy(context, count) {
            return Some(success);
        }
        failed(context, status, count).or_else(|| done(context, count))
    }
}

fn failed(context: &StepContext<'_>, status: &JobStatus, count: &Count) -> Option<Verdict> {
    let spec = context.spec;
    let failed_indexes = count.failed_indexes.len();
    if spec.max_failed_indexes.is_some_and(|most| failed_indexes > usize::try_from(most).unwrap_or(0)) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Verdict::failure("MaxFailedIndexesExceeded", message));
    }
    let limit = spec.backoff_limit.unwrap_or(DEFAULT_BACKOFF_LIMIT);
    if count.failures() > usize::try_from(limit).unwrap_or(0) || restarted_too_often(context, limit) {
        return Some(Verdict::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    let deadline = spec
        .active_deadline_seconds
        .and_then(|seconds| status.start_time.as_ref()?.0.checked_add(SignedDuration::from_secs(seconds.max(0))).ok());
    if !context.is_suspended() && deadline.is_some_and(|deadline| deadline <= context.now) {
        return Some(Verdict::failure("DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    let all = context.completions() as usize;
    if context.is_indexed() && failed_indexes > 0 && failed_indexes + count.completed.len() >= all {
        return Some(Verdict::failure("FailedIndexes", "Job has failed indexes"));
    }
    None
}

/// Where containers are restarted in their pods, their restarts are the failures.
fn restarted_too_often(context: &StepContext<'_>, limit: i32) -> bool {
    let restarts_within = context.spec.template.spec.as_ref().and_then(|pod| pod.restart_policy.as_deref());
    if restarts_within != Some("OnFailure") {
        return false;
    }
    let restarts = context.active().fold(0_i32, |sum, pod| sum.saturating_add(pod.restarts));
    if limit == 0 { restarts > 0 } else { restarts >= limit }
}

fn done(context: &StepContext<'_>, count: &Count) -> Option<Verdict> {
    let successes = count.successes(context);
    let is_done = match context.spec.completions {
        Some(wanted) => successes >= usize::try_from(wanted).unwrap_or(0),
        None => successes > 0 && context.active().next().is_none() && context.terminating() == 0,
    };
    if !is_done {
        return None;
    }
    Some(Verdict::success("CompletionsReached", "Reached expected number of succeeded pods".to_owned()))
}

fn by_policy(context: &StepContext<'_>, count: &Count) -> Option<Verdict> {
    if !context.is_indexed() {
        return None;
    }
    let rules = context.spec.success_policy.as_ref()?;
    let met = rules.rules.iter().position(|rule| {
        let (among, named) = match &rule.succeeded_indexes {
            Some(text) => {
                let named = Indexes::read(text, context.completions());
                (count.completed.len_within(&named), named.len())
            }
            None => (count.completed.len(), context.completions() as usize),
        };
        let wanted = rule.succeeded_count.map_or(named, |count| usize::try_from(count).unwrap_or(0));
        !count.completed.is_empty() && among >= wanted
    });
    met.map(|place| Verdict::success("SuccessPolicy", format!("Matched rules at index {place}")))
}
