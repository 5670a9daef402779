//! Lifecycle policies of a job or task. The first error of a list ends the search in that list.

use std::collections::BTreeSet;

use pumice_api::batch::LifecyclePolicy;
use pumice_api::bus::{Action, Event};
use pumice_machines::job::ScaleUp;
use pumice_objects::field::FieldError;
use pumice_units::GoDuration;

use crate::Findings;

/// Events a user may react to.
pub(crate) const EVENTS: &[Event] = &[
    Event::Any,
    Event::PodPending,
    Event::PodFailed,
    Event::PodEvicted,
    Event::Unknown,
    Event::TaskCompleted,
    Event::TaskFailed,
    Event::JobUpdated,
    Event::OomKilled,
];

/// Actions a user may ask for.
pub(crate) const ACTIONS: &[Action] = &[
    Action::AbortJob,
    Action::RestartJob,
    Action::RestartTask,
    Action::RestartPod,
    Action::RestartPartition,
    Action::TerminateJob,
    Action::CompleteJob,
    Action::ResumeJob,
    Action::ScaleUpMemory,
];

/// Events about a job as a whole: no task, no pod.
const OF_THE_JOB: &[Event] = &[Event::Unknown, Event::JobUpdated];

/// Tells of policies that would never do anything: their action is about pods, and their event is not.
pub(super) fn doubt(policies: &[LifecyclePolicy], findings: &mut Findings) {
    for policy in policies {
        let Some(action @ (Action::RestartPod | Action::RestartTask | Action::RestartPartition)) = &policy.action
        else {
            continue;
        };
        for event in policy.event.iter().chain(&policy.events).filter(|event| OF_THE_JOB.contains(event)) {
            findings.warn(format!(
                "a policy wants {action} on {event}, which is about no pod: it will do nothing; use RestartJob"
            ));
        }
    }
}

/// Judges a list of policies that stands at `path`.
pub(super) fn validate(policies: &[LifecyclePolicy], path: &str, findings: &mut Findings) {
    if let Err(error) = first_error(policies, path) {
        let events: Vec<&str> = EVENTS.iter().map(Event::as_str).collect();
        let actions: Vec<&str> = ACTIONS.iter().map(Action::as_str).collect();
        findings.refuse(format!(
            "{error}; valid events are [{}], valid actions are [{}];",
            events.join(" "),
            actions.join(" ")
        ));
    }
}

fn first_error(policies: &[LifecyclePolicy], path: &str) -> Result<(), String> {
    let mut events = BTreeSet::new();
    let mut exit_codes = BTreeSet::new();
    for policy in policies {
        let own: BTreeSet<&Event> = policy.event.iter().chain(&policy.events).collect();
        match (own.is_empty(), policy.exit_code) {
            (false, Some(_)) => return Err("must not specify event and exitCode simultaneously".into()),
            (true, None) => return Err("either event and exitCode should be specified".into()),
            (false, None) => events_of(&own, &mut events, path)?,
            (true, Some(0)) => return Err("0 is not a valid error code".into()),
            (true, Some(code)) if !exit_codes.insert(code) => return Err(format!("duplicate exitCode {code}")),
            (true, Some(_)) => {}
        }
        action_of(policy, path)?;
        scale_up_of(policy, &own, path)?;
        if let Some(Err(error)) = policy.timeout.as_deref().map(str::parse::<GoDuration>) {
            return Err(format!("invalid policy timeout: {error}"));
        }
    }
    // `*` does not mean this one, so it may stand beside it.
    events.remove(&Event::OomKilled);
    if events.contains(&Event::Any) && events.len() > 1 {
        return Err("if there's * here, no other policy should be here".into());
    }
    Ok(())
}

fn events_of<'a>(own: &BTreeSet<&'a Event>, seen: &mut BTreeSet<&'a Event>, path: &str) -> Result<(), String> {
    for event in own {
        if !EVENTS.contains(event) {
            return Err(FieldError::invalid(path, event.as_str(), "invalid policy event").to_string());
        }
        if !seen.insert(event) {
            return Err(format!("duplicate event {event}  across different policy"));
        }
    }
    Ok(())
}

/// Volcano passes over the action of a policy on an exit code; such a job then does nothing when the code comes.
fn action_of(policy: &LifecyclePolicy, path: &str) -> Result<(), String> {
    match &policy.action {
        Some(action) if ACTIONS.contains(action) => Ok(()),
        action => {
            let word = action.as_ref().map_or("", Action::as_str);
            Err(FieldError::invalid(path, word, "invalid policy action").to_string())
        }
    }
}

/// More memory is the answer to one event only, and comes at once.
fn scale_up_of(policy: &LifecyclePolicy, own: &BTreeSet<&Event>, path: &str) -> Result<(), String> {
    if policy.action != Some(Action::ScaleUpMemory) {
        let member = format!("{path}.scaleUp");
        return match policy.scale_up {
            Some(_) => Err(format!("{member} belongs to action ScaleUpMemory; leave it out or choose that action")),
            None => Ok(()),
        };
    }
    if own.iter().any(|event| **event != Event::OomKilled) || policy.exit_code.is_some() {
        return Err("action ScaleUpMemory answers event OOMKilled alone; give other events and exit codes a policy of their own".into());
    }
    if policy.timeout.is_some() {
        return Err("action ScaleUpMemory takes no timeout: the pod is started again at once".into());
    }
    let rule = ScaleUp::of_policy(policy.scale_up.as_ref());
    rule.map(drop).map_err(|error| format!("{path}.scaleUp: {error}"))
}
