//! What a Job's `podFailurePolicy` makes of a failed pod. The first rule that matches counts.

use k8s_openapi::api::batch::v1::{PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};

use super::StepContext;
use crate::workload::OwnedPod;

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It counts toward the limit.
    Count,
    /// It does not.
    Ignore,
    /// Its index has failed.
    FailIndex,
    /// The Job has failed.
    FailJob,
}

/// What follows, and why.
pub(super) struct Judged {
    pub action: Action,
    pub message: String,
}

/// Judges a failed pod.
pub(super) fn judge(context: &StepContext<'_>, pod: &OwnedPod) -> Judged {
    let rules = context.spec.pod_failure_policy.as_ref().map_or(&[][..], |policy| &policy.rules);
    for (place, rule) in rules.iter().enumerate() {
        let Some(matched) = matched(context, pod, rule) else { continue };
        let action = match rule.action.as_str() {
            "Ignore" => Action::Ignore,
            "FailJob" => Action::FailJob,
            "FailIndex" if context.spec.backoff_limit_per_index.is_some() => Action::FailIndex,
            "Count" => Action::Count,
            // Of a later version.
            _ => continue,
        };
        return Judged { action, message: format!("{matched} matching {} rule at index {place}", rule.action) };
    }
    Judged { action: Action::Count, message: String::new() }
}

/// What of a pod a rule matches.
fn matched(context: &StepContext<'_>, pod: &OwnedPod, rule: &PodFailurePolicyRule) -> Option<String> {
    let namespace = context.job.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(codes) = &rule.on_exit_codes {
        let fits = |end: &&crate::workload::ContainerEnd| {
            codes.container_name.as_ref().is_none_or(|name| *name == end.name)
                && end.code != 0
                && is_in(codes, end.code)
        };
        let end = pod.ends.iter().find(fits)?;
        let (container, code) = (&end.name, end.code);
        return Some(format!("Container {container} for pod {namespace}/{} failed with exit code {code}", pod.name));
    }
    let patterns = rule.on_pod_conditions.as_deref().unwrap_or_default();
    let pattern = patterns.iter().find(|pattern| {
        let status = pod.conditions.get(&pattern.type_).map_or("", String::as_str);
        status == pattern.status.as_deref().unwrap_or("True")
    })?;
    Some(format!("Pod {namespace}/{} has condition {}", pod.name, pattern.type_))
}

fn is_in(codes: &PodFailurePolicyOnExitCodesRequirement, code: i32) -> bool {
    let listed = codes.values.contains(&code);
    match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}
