//! What a PodDisruptionBudget allows, from the pods that it selects.
//!
//! Invariant: pure, and as upstream decides: a pod whose eviction was granted counts as gone from that moment, for at most
//! [`CONFIRMED_WITHIN`]. Asked by the task that keeps the status, and by evictions.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use pumice_objects::meta::{self, parse_time};
use serde_json::{Value, json};

use pumice_clock::wire_time;

/// How long a granted eviction may take to become a deletion; after that the pod counts again.
const CONFIRMED_WITHIN: SignedDuration = SignedDuration::from_mins(2);
/// The condition of a budget.
const CONDITION: &str = "DisruptionAllowed";

/// A pod that a budget selects.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) is_ready: bool,
    pub(crate) is_leaving: bool,
}

/// How many pods there should be: by the scale of their controllers, or as many as there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) by_scale: i64,
    pub(crate) counted: i64,
}

/// A status, and when it has to be looked at again even if nothing happens.
pub(crate) struct BudgetStatus {
    pub(crate) status: Value,
    pub(crate) look_again: Option<Timestamp>,
}

/// A number, or a share of `whole`, rounded up.
fn scaled(value: &Value, whole: i64) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    Some((percent.saturating_mul(whole).saturating_add(99)).div_euclid(100))
}

/// Pods that should be there, and how many of them have to be healthy.
fn wanted(spec: &Value, expected: Expected) -> (i64, i64) {
    if !spec["maxUnavailable"].is_null() {
        let whole = expected.by_scale;
        let healthy = whole.saturating_sub(scaled(&spec["maxUnavailable"], whole).unwrap_or(0));
        return (whole, healthy.max(0));
    }
    let least = &spec["minAvailable"];
    if least.is_string() {
        return (expected.by_scale, scaled(least, expected.by_scale).unwrap_or(0));
    }
    // Upstream takes a budget that says nothing for one of at least one pod.
    (expected.counted, least.as_i64().unwrap_or(1))
}

/// The status that a budget should have.
pub(crate) fn status_of(budget: &Value, members: &[Member], expected: Expected, now: Timestamp) -> BudgetStatus {
    let before = &budget["status"];
    let mut look_again: Option<Timestamp> = None;
    let mut granted = BTreeMap::new();
    for member in members.iter().filter(|member| !member.is_leaving) {
        let Some(time) = before["disruptedPods"][&member.name].as_str().and_then(parse_time) else { continue };
        let Some(until) = time.checked_add(CONFIRMED_WITHIN).ok().filter(|until| *until > now) else { continue };
        look_again = Some(look_again.map_or(until, |first| first.min(until)));
        granted.insert(member.name.clone(), before["disruptedPods"][&member.name].clone());
    }
    let healthy = members
        .iter()
        .filter(|member| member.is_ready && !member.is_leaving && !granted.contains_key(&member.name))
        .count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let (expected, desired) = wanted(&budget["spec"], expected);
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let mut status = json!({
        "conditions": before["conditions"].as_array().cloned().unwrap_or_default(),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": meta::generation(budget),
    });
    if !granted.is_empty() {
        status["disruptedPods"] = json!(granted);
    }
    set_condition(&mut status, now);
    BudgetStatus { status, look_again }
}

/// Says whether anything is allowed.
fn set_condition(status: &mut Value, now: Timestamp) {
    let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0) > 0;
    let (word, reason) = if allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut condition = json!({
        "type": CONDITION, "status": word, "reason": reason, "message": "",
        "observedGeneration": status["observedGeneration"], "lastTransitionTime": wire_time(now),
    });
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    let old = conditions.iter().position(|old| old["type"] == CONDITION).map(|at| conditions.remove(at));
    if let Some(old) = old.filter(|old| old["status"] == word) {
        condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    conditions.push(condition);
}

/// The status after an eviction was granted; nothing where none is allowed.
pub(crate) fn grant(status: &Value, pod: &str, now: Timestamp) -> Option<Value> {
    let allowed = status["disruptionsAllowed"].as_i64().filter(|allowed| *allowed > 0)?;
    let mut after = status.clone();
    after["disruptionsAllowed"] = json!(allowed - 1);
    if !after["disruptedPods"].is_object() {
        after["disruptedPods"] = json!({});
    }
    after["disruptedPods"][pod] = json!(wire_time(now));
    set_condition(&mut after, now);
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T12:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().expect("time")
    }

    fn members(ready: usize, waiting: usize) -> Vec<Member> {
        let member = |index: usize| Member { name: format!("p{index}"), is_ready: index < ready, is_leaving: false };
        (0..ready + waiting).map(member).collect()
    }

    /// Pods that are expected, that are to be healthy, and how many may go.
    fn allowed(spec: Value, ready: usize, waiting: usize, by_scale: i64) -> [i64; 3] {
        let budget = json!({"metadata": {"generation": 3}, "spec": spec});
        let expected = Expected { by_scale, counted: i64::try_from(ready + waiting).expect("small") };
        let status = status_of(&budget, &members(ready, waiting), expected, now()).status;
        assert_eq!(status["observedGeneration"], 3);
        ["expectedPods", "desiredHealthy", "disruptionsAllowed"].map(|field| status[field].as_i64().expect("number"))
    }

    #[test]
    fn numbers_and_shares() {
        for (spec, ready, waiting, by_scale, wanted) in [
            (json!({"minAvailable": 2}), 3, 0, 9, [3, 2, 1]),
            (json!({"minAvailable": 5}), 3, 0, 3, [3, 5, 0]),
            (json!({"minAvailable": "50%"}), 3, 0, 3, [3, 2, 1]),
            (json!({"minAvailable": "100%"}), 3, 0, 3, [3, 3, 0]),
            (json!({"maxUnavailable": 1}), 3, 0, 3, [3, 2, 1]),
            (json!({"maxUnavailable": 1}), 2, 1, 3, [3, 2, 0]),
            (json!({"maxUnavailable": "30%"}), 10, 0, 10, [10, 7, 3]),
            (json!({"maxUnavailable": "100%"}), 2, 0, 2, [2, 0, 2]),
            (json!({"maxUnavailable": 9}), 2, 0, 2, [2, 0, 2]),
            (json!({"minAvailable": 0}), 0, 0, 0, [0, 0, 0]),
            (json!({}), 2, 0, 2, [2, 1, 1]),
        ] {
            assert_eq!(allowed(spec.clone(), ready, waiting, by_scale), wanted, "{spec}");
        }
    }

    #[test]
    fn a_granted_eviction_counts_until_the_pod_goes_or_too_much_time_has_passed() {
        let mut budget = json!({"spec": {"minAvailable": 1}});
        let expected = Expected { by_scale: 3, counted: 3 };
        let first = status_of(&budget, &members(3, 0), expected, now());
        assert_eq!(first.status["disruptionsAllowed"], 2);
        assert_eq!(first.look_again, None);
        let granted = grant(&first.status, "p0", now()).expect("allowed");
        assert_eq!(granted["disruptionsAllowed"], 1);
        budget["status"] = granted;
        let second = status_of(&budget, &members(3, 0), expected, now());
        assert_eq!((second.status["disruptionsAllowed"].as_i64(), second.look_again.is_some()), (Some(1), true));
        assert_eq!(second.status["currentHealthy"], 2);
        budget["status"] = second.status.clone();
        let again = status_of(&budget, &members(3, 0), expected, now()).status;
        assert_eq!(again, second.status, "nothing is written twice");
        let mut leaving = members(3, 0);
        leaving[0].is_leaving = true;
        let third = status_of(&budget, &leaving, expected, now());
        assert_eq!((third.status["currentHealthy"].as_i64(), &third.status["disruptedPods"]), (Some(2), &Value::Null));
        let late = now().checked_add(CONFIRMED_WITHIN).expect("time");
        assert_eq!(status_of(&budget, &members(3, 0), expected, late).status["disruptionsAllowed"], 2);
        let last = json!({"disruptionsAllowed": 1, "conditions": []});
        let none = grant(&last, "p", now()).expect("allowed");
        assert_eq!((&none["conditions"][0]["status"], grant(&none, "q", now())), (&json!("False"), None));
    }
}
