//! Whether a job is tried again after a failure: what it says itself, else policies over the categories that executors give
//! failures, as Armada's.
//!
//! Invariant: a job is tried again at most as often as it or its policy and the fleet let it, and a failure that ends it says
//! when that was why. Policies are those of the fleet's configuration, and those that requests have set; a name is looked up
//! in the configuration first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pumice_units::Quantity;
use serde::{Deserialize, Serialize};

use crate::failure::{Cause, Failure};
use crate::memory_bump::MemoryBump;

/// Longest name of a policy: it may become a label.
const NAME_MAX: usize = 63;
/// Rules of a policy.
const RULES_MAX: usize = 100;
/// The field that bounds all retries.
const GLOBAL: &str = "globalMaxRetries";

/// How often a job is tried.
#[derive(Debug, Clone)]
pub struct Retries {
    /// Runs that were tried and given back before the job fails.
    pub returned_max: u32,
    /// Which failures are tried again.
    pub policies: Arc<RetryPolicies>,
    /// Runs on a cluster of which nothing was heard for so many milliseconds have failed, but for those of queues that have
    /// them started elsewhere; 0 = never.
    pub heartbeat_timeout_ms: i64,
}

impl Default for Retries {
    /// No failure is tried again, as with Armada, and no cluster is given up.
    fn default() -> Self {
        Self { returned_max: 3, policies: Arc::default(), heartbeat_timeout_ms: 0 }
    }
}

/// Which failures are tried again.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetryPolicies {
    /// Whether any is. Without a policy none is, so this is for turning all of them off.
    pub enabled: bool,
    /// Most retries of a job, whatever its policy says.
    pub global_max_retries: u32,
    /// The policy of queues that name none; empty for none.
    pub default_policy_name: String,
    /// The policies of the configuration.
    pub policies: Vec<RetryPolicy>,
}

impl Default for RetryPolicies {
    fn default() -> Self {
        Self { enabled: true, global_max_retries: 5, default_policy_name: String::new(), policies: Vec::new() }
    }
}

/// Says which failures of jobs are tried again, and how often. Queues name the policies that hold for their jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    pub name: String,
    /// Tries after the first one.
    pub retry_limit: u32,
    /// Where no rule fits.
    pub default_action: RetryAction,
    /// The first that fits counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RetryRule>,
}

/// What a failure leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryAction {
    Fail,
    /// It is tried again.
    Retry,
}

/// What to do about failures of a category.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryRule {
    /// What it leads to.
    pub action: RetryAction,
    pub on_category: String,
    /// The subcategory; empty for any of the category.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub on_subcategory: String,
    /// What is different about the next try.
    #[serde(default)]
    pub mutate: Mutation,
}

/// What is different about the next try.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mutation {
    /// Where it may run.
    pub affinity: AffinityMutation,
    /// What it asks for.
    pub resources: ResourceMutation,
}

/// What the next try asks for.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResourceMutation {
    /// More memory, requests and limits alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryBump>,
}

/// Where the next try may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AffinityMutation {
    /// On another node than this one.
    pub avoid_same_node: bool,
}

/// What a job says of its own failures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnRetries {
    /// How often it is tried again, whatever made it fail.
    pub limit: u32,
    /// How many bytes it asks for after it ran out of memory: each time the next that is more, which is no try of `limit`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<i64>,
}

/// A run that failed, as far as it matters for what follows.
pub(crate) struct Failed<'f> {
    pub failure: &'f Failure,
    /// How often its job was tried again.
    pub used: u32,
    /// What its job says.
    pub own: Option<&'f OwnRetries>,
    /// Bytes that it asked for.
    pub memory: i64,
}

impl Failed<'_> {
    /// What its job wants, which is at most so many tries again; none where it says nothing.
    fn wish(&self, most: u32) -> Option<Verdict> {
        let own = self.own?;
        let is_oom = self.failure.cause == Cause::Oom;
        let next = if is_oom { own.memory.iter().find(|bytes| **bytes > self.memory) } else { None };
        let raised = own.memory.iter().filter(|bytes| **bytes <= self.memory).count();
        let others = self.used.saturating_sub(u32::try_from(raised).unwrap_or(u32::MAX));
        if next.is_none() && others >= own.limit {
            return Some(self.tired("what the job says"));
        }
        if self.used >= most {
            return Some(self.tired(GLOBAL));
        }
        let more = next.map(|bytes| MemoryBump::Static(Quantity::from_bytes(bytes - self.memory)));
        Some(Verdict::Retry { avoid: false, memory: more })
    }

    /// It was tried as often as `key` lets it.
    fn tired(&self, key: &str) -> Verdict {
        let used = self.used;
        let text = format!("tried again {used} times, which is as often as it may be ({key})");
        Verdict::Fail((used > 0).then_some(text))
    }
}

/// What follows from a failure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    /// The job is tried again, on another node where that is true, and with more memory.
    Retry { avoid: bool, memory: Option<MemoryBump> },
    /// It fails. The text says so where it was tried as often as it may be.
    Fail(Option<String>),
}

/// What a policy can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It has no such name.
    #[error("name: {0:?} is none: use a-z, 0-9 and `-`, at most {NAME_MAX}, with a letter or digit at both ends")]
    Name(String),
    /// There are too many rules.
    #[error("rules: there are {0}: have at most {RULES_MAX}")]
    Rules(usize),
    /// A rule fits everything.
    #[error("rules[{0}].onCategory: it is missing; defaultAction is for failures that fit no rule")]
    Category(usize),
}

impl RetryPolicy {
    /// Refuses what can't be one.
    ///
    /// # Errors
    /// The first field that has no such value.
    pub fn check(&self) -> Result<(), PolicyError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = self.name.as_bytes();
        let ends = [bytes.first(), bytes.last()].into_iter().all(|byte| byte.is_some_and(|byte| plain(*byte)));
        if !ends || bytes.len() > NAME_MAX || !bytes.iter().all(|byte| plain(*byte) || *byte == b'-') {
            return Err(PolicyError::Name(self.name.chars().take(2 * NAME_MAX).collect()));
        }
        if self.rules.len() > RULES_MAX {
            return Err(PolicyError::Rules(self.rules.len()));
        }
        match self.rules.iter().position(|rule| rule.on_category.is_empty()) {
            Some(index) => Err(PolicyError::Category(index)),
            None => Ok(()),
        }
    }
}

impl RetryPolicies {
    /// Names of the configuration's policies.
    pub fn names(&self) -> BTreeSet<&str> {
        self.policies.iter().map(|policy| policy.name.as_str()).collect()
    }

    /// A policy, of the configuration or of those that requests have set.
    fn find<'p>(&'p self, set: &'p BTreeMap<String, RetryPolicy>, name: &str) -> Option<&'p RetryPolicy> {
        self.policies.iter().find(|policy| policy.name == name).or_else(|| set.get(name))
    }

    /// What follows from a failure. `set` are policies beside those of the configuration, `names` those of the job's queue, of
    /// which the first counts.
    pub(crate) fn verdict(
        &self,
        set: &BTreeMap<String, RetryPolicy>,
        names: &[String],
        failed: &Failed<'_>,
    ) -> Verdict {
        if !self.enabled {
            let why = "not tried again: this fleet tries no failed job again (retryPolicy.enabled)";
            return Verdict::Fail(failed.own.map(|_| why.to_owned()));
        }
        let wish = failed.wish(self.global_max_retries);
        if let Some(retry @ Verdict::Retry { .. }) = wish {
            return retry;
        }
        match (self.by_policy(set, names, failed), wish) {
            (Verdict::Fail(None), Some(wish)) => wish,
            (verdict, _) => verdict,
        }
    }

    fn by_policy(&self, set: &BTreeMap<String, RetryPolicy>, names: &[String], failed: &Failed<'_>) -> Verdict {
        let Failed { failure, used, .. } = failed;
        let name = names.first().unwrap_or(&self.default_policy_name);
        if name.is_empty() {
            return Verdict::Fail(None);
        }
        let Some(policy) = self.find(set, name) else {
            return Verdict::Fail(Some(format!("not tried again: there is no retry policy {name}")));
        };
        let fits = |rule: &&RetryRule| {
            rule.on_category == failure.category
                && (rule.on_subcategory.is_empty() || rule.on_subcategory == failure.subcategory)
        };
        let rule = policy.rules.iter().find(fits);
        if rule.map_or(policy.default_action, |rule| rule.action) == RetryAction::Fail {
            return Verdict::Fail(None);
        }
        let (most, key) = match self.global_max_retries < policy.retry_limit {
            true => (self.global_max_retries, GLOBAL.to_owned()),
            false => (policy.retry_limit, format!("retryLimit of policy {name}")),
        };
        if *used >= most {
            return failed.tired(&key);
        }
        let Mutation { affinity, resources } = rule.map(|rule| rule.mutate).unwrap_or_default();
        Verdict::Retry { avoid: affinity.avoid_same_node, memory: resources.memory }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_decides_and_limits_hold() {
        let policies = |global: u32, enabled: bool| -> RetryPolicies {
            serde_json::from_value(json!({
                "enabled": enabled,
                "globalMaxRetries": global,
                "defaultPolicyName": "careful",
                "policies": [
                    {"name": "careful", "retryLimit": 2, "defaultAction": "Fail", "rules": [
                        {"action": "Fail", "onCategory": "transient", "onSubcategory": "disk"},
                        {"action": "Retry", "onCategory": "transient", "mutate": {"affinity": {"avoidSameNode": true}}},
                    ]},
                    {"name": "stubborn", "retryLimit": 9, "defaultAction": "Retry"},
                ],
            }))
            .unwrap()
        };
        let set = serde_json::from_value(json!({
            "greedy": {"name": "greedy", "retryLimit": 1, "defaultAction": "Fail", "rules": [
                {"action": "Retry", "onCategory": "oom", "mutate": {"resources": {"memory": {"factor": 1.5}}}},
            ]},
            "stubborn": {"name": "stubborn", "retryLimit": 0, "defaultAction": "Fail"},
        }))
        .unwrap();
        let again = |avoid, memory| Verdict::Retry { avoid, memory };
        let tired = |text: &str| Verdict::Fail(Some(text.to_owned()));
        for (enabled, queue, used, category, subcategory, verdict) in [
            (true, "", 0, "transient", "net", again(true, None)),
            (true, "", 0, "transient", "disk", Verdict::Fail(None)),
            (true, "", 0, "other", "", Verdict::Fail(None)),
            (
                true,
                "",
                2,
                "transient",
                "",
                tired("tried again 2 times, which is as often as it may be (retryLimit of policy careful)"),
            ),
            (true, "stubborn", 4, "other", "", again(false, None)),
            (
                true,
                "stubborn",
                5,
                "other",
                "",
                tired("tried again 5 times, which is as often as it may be (globalMaxRetries)"),
            ),
            (true, "unknown", 0, "transient", "", tired("not tried again: there is no retry policy unknown")),
            (true, "greedy", 0, "oom", "", again(false, Some(MemoryBump::Factor(1.5)))),
            (
                true,
                "greedy",
                1,
                "oom",
                "",
                tired("tried again 1 times, which is as often as it may be (retryLimit of policy greedy)"),
            ),
            (false, "stubborn", 0, "transient", "", Verdict::Fail(None)),
        ] {
            let names: Vec<String> = Some(queue.to_owned()).filter(|name| !name.is_empty()).into_iter().collect();
            let failure =
                Failure { category: category.to_owned(), subcategory: subcategory.to_owned(), ..Failure::default() };
            let failed = Failed { failure: &failure, used, own: None, memory: 0 };
            assert_eq!(policies(5, enabled).verdict(&set, &names, &failed), verdict, "{queue} {used} {category}");
        }
        let failed = Failed { failure: &Failure::default(), used: 0, own: None, memory: 0 };
        assert_eq!(policies(0, true).verdict(&set, &["stubborn".to_owned()], &failed), Verdict::Fail(None));
    }

    #[test]
    fn what_a_job_says_of_its_failures_goes_before_its_queues_policy() {
        let policy = json!({"name": "strict", "retryLimit": 1, "defaultAction": "Fail", "rules": [
            {"action": "Retry", "onCategory": "transient", "mutate": {"affinity": {"avoidSameNode": true}}},
        ]});
        let policies = |enabled: bool| -> RetryPolicies {
            let policies =
                json!({"enabled": enabled, "globalMaxRetries": 4, "defaultPolicyName": "strict", "policies": [policy]});
            serde_json::from_value(policies).unwrap()
        };
        let own = |limit: u32, memory: &[i64]| OwnRetries { limit, memory: memory.to_vec() };
        let plain = Verdict::Retry { avoid: false, memory: None };
        let more = |bytes: i64| {
            let memory = Some(MemoryBump::Static(Quantity::from_bytes(bytes)));
            Verdict::Retry { avoid: false, memory }
        };
        let tired = |used: u32, key: &str| {
            Verdict::Fail(Some(format!("tried again {used} times, which is as often as it may be ({key})")))
        };
        let job = "what the job says";
        for (own, used, memory, cause, category, verdict) in [
            (own(2, &[]), 0, 100, Cause::Error, "", plain.clone()),
            (own(2, &[]), 1, 100, Cause::Oom, "", plain.clone()),
            (own(2, &[]), 2, 100, Cause::Error, "", tired(2, job)),
            (own(9, &[]), 4, 100, Cause::Error, "", tired(4, GLOBAL)),
            // Its queue's policy may want one that it does not.
            (own(0, &[]), 0, 100, Cause::Error, "transient", Verdict::Retry { avoid: true, memory: None }),
            (own(0, &[]), 1, 100, Cause::Error, "transient", tired(1, "retryLimit of policy strict")),
            (own(0, &[200, 300]), 0, 100, Cause::Oom, "", more(100)),
            (own(0, &[200, 300]), 1, 200, Cause::Oom, "", more(100)),
            (own(0, &[200, 300]), 2, 300, Cause::Oom, "", tired(2, job)),
            (own(0, &[200, 300]), 0, 100, Cause::Error, "", Verdict::Fail(None)),
            // Raises are no tries of the limit.
            (own(1, &[200, 300]), 2, 300, Cause::Error, "", plain),
            (own(1, &[200, 300]), 3, 300, Cause::Oom, "", tired(3, job)),
            (own(9, &[200]), 4, 100, Cause::Oom, "", tired(4, GLOBAL)),
        ] {
            let failure = Failure { cause, category: category.to_owned(), ..Failure::default() };
            let failed = Failed { failure: &failure, used, own: Some(&own), memory };
            assert_eq!(policies(true).verdict(&BTreeMap::new(), &[], &failed), verdict, "{own:?} {used} {cause:?}");
            let off = Verdict::Fail(Some(
                "not tried again: this fleet tries no failed job again (retryPolicy.enabled)".to_owned(),
            ));
            assert_eq!(policies(false).verdict(&BTreeMap::new(), &[], &failed), off);
        }
    }

    #[test]
    fn a_policy_that_can_not_be_is_refused_by_its_field() {
        let rule = |category: &str| json!({"action": "Retry", "onCategory": category});
        for (name, rules, wanted) in [
            ("a", vec![rule("oom")], None),
            ("a-1", vec![], None),
            ("", vec![], Some("name: \"\" is none")),
            ("-a", vec![], Some("name: \"-a\" is none")),
            ("A", vec![], Some("name: \"A\" is none")),
            (&"a".repeat(64), vec![], Some("name: \"aaa")),
            ("a", vec![rule("oom"), rule("")], Some("rules[1].onCategory: it is missing")),
            ("a", vec![rule("oom"); 101], Some("rules: there are 101: have at most 100")),
        ] {
            let policy = json!({"name": name, "retryLimit": 1, "defaultAction": "Fail", "rules": rules});
            let policy: RetryPolicy = serde_json::from_value(policy).unwrap();
            let found = policy.check().err().map(|error| error.to_string());
            assert_eq!(found.is_some(), wanted.is_some(), "{name} {found:?}");
            assert!(found.unwrap_or_default().starts_with(wanted.unwrap_or_default()), "{name}");
            let kept = serde_json::to_value(&policy).unwrap();
            assert_eq!(serde_json::from_value::<RetryPolicy>(kept).unwrap(), policy);
        }
    }
}
