//! What a container's probe asks, how often, and when its answers are taken for the truth.
//!
//! Pure. Semantics of <https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/>.

use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::api::core::v1::Probe as WireProbe;

use crate::grace;
use crate::probes::action::{Action, ActionError};

/// Time from one question to the next of a probe that says none, as Kubernetes has it.
const PERIOD_SECONDS: u64 = 10;
/// Longest time for an answer of a probe that says none.
const TIMEOUT_SECONDS: u64 = 1;
/// Good answers in a row that are believed of a probe that says no number.
const SUCCESSES: u32 = 1;
/// Failures in a row that are believed of a probe that says no number.
const FAILURES: u32 = 3;

/// One probe of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Probe {
    pub action: Action,
    /// Time from the container's start to the first question.
    pub delay: Duration,
    /// Time from one question to the next.
    pub period: Duration,
    /// Longest time for an answer.
    pub timeout: Duration,
    /// Answers in a row that make a container that failed good again.
    pub successes: u32,
    /// Failures in a row that are believed.
    pub failures: u32,
    /// Seconds that the container has to end, where the probe says so itself.
    pub grace_seconds: Option<u64>,
}

impl Probe {
    /// The probe as a pod's spec has it; `None` where there is none.
    pub(crate) fn of(probe: Option<&WireProbe>, container: &Container) -> Result<Option<Probe>, ActionError> {
        let Some(probe) = probe else { return Ok(None) };
        let seconds = |given: Option<i32>, otherwise: u64| {
            Duration::from_secs(given.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(otherwise))
        };
        let at_least_one = |given: Option<i32>, otherwise: u32| {
            given.and_then(|times| u32::try_from(times).ok()).filter(|times| *times > 0).unwrap_or(otherwise)
        };
        Ok(Some(Probe {
            action: Action::of_probe(probe, container)?,
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, PERIOD_SECONDS).max(Duration::from_secs(1)),
            timeout: seconds(probe.timeout_seconds, TIMEOUT_SECONDS).max(Duration::from_secs(1)),
            successes: at_least_one(probe.success_threshold, SUCCESSES),
            failures: at_least_one(probe.failure_threshold, FAILURES),
            grace_seconds: probe.termination_grace_period_seconds.map(grace::grace),
        }))
    }
}

/// Answers of one probe, counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    last: bool,
    in_a_row: u32,
}

impl Tally {
    /// Counts an answer. It is given back when there have been enough of its kind in a row to be believed.
    pub(crate) fn count(&mut self, answer: bool, probe: &Probe) -> Option<bool> {
        self.in_a_row = if self.last == answer { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = answer;
        let needed = if answer { probe.successes } else { probe.failures };
        (self.in_a_row >= needed).then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn probe(spec: Value) -> Probe {
        let container: Container = serde_json::from_value(json!({"name": "c", "readinessProbe": spec})).unwrap();
        Probe::of(container.readiness_probe.as_ref(), &container).unwrap().unwrap()
    }

    #[test]
    fn what_is_not_said_is_as_kubernetes_has_it() {
        let found = probe(json!({"exec": {"command": ["true"]}}));
        let times = [found.delay, found.period, found.timeout].map(|time| time.as_secs());
        assert_eq!((times, found.successes, found.failures, found.grace_seconds), ([0, 10, 1], 1, 3, None));
        let found = probe(json!({"exec": {"command": ["true"]}, "initialDelaySeconds": 5, "periodSeconds": 0,
            "timeoutSeconds": -1, "successThreshold": 2, "failureThreshold": 0, "terminationGracePeriodSeconds": 0}));
        let times = [found.delay, found.period, found.timeout].map(|time| time.as_secs());
        assert_eq!((times, found.successes, found.failures, found.grace_seconds), ([5, 1, 1], 2, 3, Some(0)));
    }

    #[test]
    fn an_answer_counts_when_there_were_enough_in_a_row() {
        let probe = probe(json!({"exec": {"command": ["true"]}, "successThreshold": 2, "failureThreshold": 3}));
        for (answers, expected) in
            [("+", "."), ("++", ".+"), ("---", "..-"), ("--+--", "....."), ("++---+", ".+..-."), ("----", "..--")]
        {
            let mut tally = Tally::default();
            let verdicts: String = answers
                .chars()
                .map(|answer| match tally.count(answer == '+', &probe) {
                    Some(true) => '+',
                    Some(false) => '-',
                    None => '.',
                })
                .collect();
            assert_eq!(verdicts, expected, "{answers}");
        }
    }
}
