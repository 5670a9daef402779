//! When a pod that does not start is given up, and which refusals to make one are final: rules as data.
//!
//! Mirrors Armada's pod checks. Invariant: patterns are compiled once, by [`Checks::new`], so that a wrong one is found
//! at the start.

use regex::Regex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use pumice_ledger::TimeMs;

use super::facts::{ContainerState, Kind, PodEvent, PodFacts, PodPhase};

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Action {
    /// It gets more time.
    Wait,
    /// It is deleted and its lease returned.
    Retry,
    Fail,
}

/// Rules for pods that are pending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PendingCheckRules {
    /// Init containers that are not through this long after the first started fail the run.
    pub init_deadline_ms: i64,
    /// A pod without a node after this long is retried, and counts as not attempted.
    pub node_deadline_ms: i64,
    /// A Volcano Job that does not run after this long is retried in another cluster.
    pub job_deadline_ms: i64,
    /// A pod of which nothing at all was heard for this long is retried.
    pub update_deadline_ms: i64,
    /// By the pod's events; for each the first rule that matches.
    pub events: Vec<EventRule>,
    /// By what its containers wait for; for each the first rule that matches.
    pub containers: Vec<ContainerRule>,
    /// Patterns of refusals to make a pod that fail the run, apart from the API's reasons `Invalid` and `Forbidden`.
    pub fatal_refusals: Vec<String>,
}

/// A rule for warnings about a pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventRule {
    /// Found anywhere in the message.
    pub pattern: String,
    /// It applies where the pattern is not found.
    #[serde(default)]
    pub inverse: bool,
    /// How long the pod must have been as it is.
    pub grace_ms: i64,
    pub action: Action,
}

/// A rule for containers that wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerRule {
    /// The whole reason.
    pub pattern: String,
    /// How long the pod must have been as it is.
    pub grace_ms: i64,
    pub action: Action,
}

impl Default for PendingCheckRules {
    fn default() -> Self {
        let event = |pattern: &str, inverse, grace_ms, action| EventRule {
            pattern: pattern.to_owned(),
            inverse,
            grace_ms,
            action,
        };
        let container =
            |pattern: &str, grace_ms, action| ContainerRule { pattern: pattern.to_owned(), grace_ms, action };
        Self {
            init_deadline_ms: 5 * MINUTE,
            node_deadline_ms: 5 * MINUTE,
            job_deadline_ms: 15 * MINUTE,
            update_deadline_ms: 5 * MINUTE,
            events: vec![
                event("Failed to pull image.* failed to pull and unpack image", false, 90 * SECOND, Action::Fail),
                event(
                    "Failed to pull image.*code = Unknown desc = Error response from daemon",
                    false,
                    90 * SECOND,
                    Action::Fail,
                ),
                event("nodes are available", true, 5 * MINUTE, Action::Retry),
            ],
            containers: vec![
                container("InvalidImageName", 0, Action::Fail),
                container("ImagePullBackOff|ErrImagePull", 15 * MINUTE, Action::Retry),
                container(".*", 5 * MINUTE, Action::Retry),
            ],
            fatal_refusals: vec!["admission webhook".to_owned(), "namespaces \".*\" not found".to_owned()],
        }
    }
}

/// A pattern that is none.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{pattern:?} is no pattern")]
pub struct PatternError {
    pub pattern: String,
    /// What is wrong with it.
    #[source]
    pub source: regex::Error,
}

/// [`StuckRules`] with their patterns compiled.
#[derive(Clone, Debug)]
pub struct Checks {
    rules: PendingCheckRules,
    events: Vec<Regex>,
    containers: Vec<Regex>,
    fatal: Vec<Regex>,
}

/// What is wrong with a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub action: Action,
    /// One word.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl Verdict {
    fn wait() -> Self {
        Self { action: Action::Wait, reason: String::new(), message: String::new() }
    }

    fn new(action: Action, reason: &str, message: impl Into<String>) -> Self {
        Self { action, reason: reason.to_owned(), message: message.into() }
    }
}

impl Checks {
    /// Compiles the rules.
    ///
    /// # Errors
    /// The first pattern that is none.
    pub fn new(rules: &PendingCheckRules) -> Result<Self, PatternError> {
        let compile =
            |pattern: &str| Regex::new(pattern).map_err(|source| PatternError { pattern: pattern.to_owned(), source });
        Ok(Self {
            events: rules.events.iter().map(|rule| compile(&rule.pattern)).collect::<Result<_, _>>()?,
            containers: rules
                .containers
                .iter()
                .map(|rule| compile(&format!("^(?:{})$", rule.pattern)))
                .collect::<Result<_, _>>()?,
            fatal: rules.fatal_refusals.iter().map(|pattern| compile(pattern)).collect::<Result<_, _>>()?,
            rules: rules.clone(),
        })
    }

    /// Whether a refusal to make a pod fails its run, by the API's reason and its words.
    #[must_use]
    pub fn is_fatal(&self, reason: &str, message: &str) -> bool {
        matches!(reason, "Invalid" | "Forbidden") || self.fatal.iter().any(|pattern| pattern.is_match(message))
    }

    /// What becomes of a pod, given the warnings about it. A pod that has started, or is being deleted, waits.
    #[must_use]
    pub fn verdict(&self, pod: &PodFacts, events: &[PodEvent], now: TimeMs) -> Verdict {
        if !matches!(pod.phase, PodPhase::Pending | PodPhase::Unknown) || pod.deletion.is_some() {
            return Verdict::wait();
        }
        let (rules, in_state) = (&self.rules, now.since(pod.since));
        if pod.kind == Kind::Job {
            // Where one that is being ended is held up, its pods may run on: it is not for another to begin.
            return if pod.phase == PodPhase::Pending && in_state > rules.job_deadline_ms {
                Verdict::new(Action::Retry, "JobStuck", "the Volcano Job did not come to run in time")
            } else {
                Verdict::wait()
            };
        }
        if pod.init_since.is_some_and(|since| now.since(since) > rules.init_deadline_ms) {
            return Verdict::new(Action::Fail, "InitContainersStuck", "init containers do not come to an end");
        }
        if pod.node.is_empty() {
            return if in_state > rules.node_deadline_ms {
                Verdict::new(Action::Retry, "UnableToSchedule", "the pod got no node in time")
            } else {
                Verdict::wait()
            };
        }
        if pod.containers.is_empty() && events.is_empty() && in_state > rules.update_deadline_ms {
            return Verdict::new(Action::Retry, "NoUpdates", "nothing was heard of the pod in time");
        }
        let by_event = events.iter().map(|event| self.of_event(event, in_state));
        let by_container = pod.containers.iter().map(|container| match &container.state {
            ContainerState::Waiting { reason, message } => {
                self.of_container(&container.name, reason, message, in_state)
            }
            ContainerState::Running | ContainerState::Ended { .. } => Verdict::wait(),
        });
        // The first of the worst, so that the same pod always gets the same words.
        by_event
            .chain(by_container)
            .fold(Verdict::wait(), |worst, next| if next.action > worst.action { next } else { worst })
    }

    fn of_event(&self, event: &PodEvent, in_state: i64) -> Verdict {
        let rules = self.rules.events.iter().zip(&self.events);
        let matching = rules.into_iter().find(|(rule, pattern)| pattern.is_match(&event.message) != rule.inverse);
        match matching {
            Some((rule, _)) if in_state >= rule.grace_ms => Verdict::new(rule.action, &event.reason, &event.message),
            _ => Verdict::wait(),
        }
    }

    fn of_container(&self, name: &str, reason: &str, message: &str, in_state: i64) -> Verdict {
        let rules = self.rules.containers.iter().zip(&self.containers);
        let matching = rules.into_iter().find(|(_, pattern)| pattern.is_match(reason));
        match matching {
            Some((rule, _)) if in_state >= rule.grace_ms => {
                Verdict::new(rule.action, reason, format!("container {name} waits: {reason}: {message}"))
            }
            _ => Verdict::wait(),
        }
    }
}

#[cfg(test)]
mod tests;
