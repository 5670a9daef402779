//! Whether a job is tried again after a failure: policies over the categories that executors give failures, as Armada's.
//!
//! Invariant: a job is tried again at most as often as its policy and the fleet let it, and a failure that ends it says
//! when that was why. Read from the fleet's configuration.

use std::sync::Arc;

use serde::Deserialize;

use crate::event::Failure;

/// How often a job is tried.
#[derive(Debug, Clone)]
pub struct Retries {
    /// Runs that were tried and given back before the job fails.
    pub returned_max: u32,
    /// Which failures are tried again.
    pub policies: Arc<RetryPolicies>,
}

impl Default for Retries {
    /// As Armada's: no failure is tried again.
    fn default() -> Self {
        Self { returned_max: 3, policies: Arc::default() }
    }
}

/// Which failures are tried again.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetryPolicies {
    /// Whether any is.
    pub enabled: bool,
    /// Most retries of a job, whatever its policy says.
    pub global_max_retries: u32,
    /// The policy of queues that name none; empty for none.
    pub default_policy_name: String,
    /// The policies.
    pub policies: Vec<RetryPolicy>,
}

impl Default for RetryPolicies {
    fn default() -> Self {
        Self { enabled: false, global_max_retries: 5, default_policy_name: String::new(), policies: Vec::new() }
    }
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// Its name.
    pub name: String,
    /// Tries after the first one.
    pub retry_limit: u32,
    /// Where no rule fits.
    pub default_action: RetryAction,
    /// The first that fits counts.
    #[serde(default)]
    pub rules: Vec<RetryRule>,
}

/// What a failure leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum RetryAction {
    /// The job fails.
    Fail,
    /// It is tried again.
    Retry,
}

/// What to do about failures of a category.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryRule {
    /// What it leads to.
    pub action: RetryAction,
    /// The category.
    pub on_category: String,
    /// The subcategory; empty for any of the category.
    #[serde(default)]
    pub on_subcategory: String,
    /// What is different about the next try.
    #[serde(default)]
    pub mutate: Mutation,
}

/// What is different about the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Mutation {
    /// Where it may run.
    pub affinity: AffinityMutation,
}

/// Where the next try may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AffinityMutation {
    /// On another node than this one.
    pub avoid_same_node: bool,
}

/// What follows from a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The job is tried again, on another node where that is true.
    Retry { avoid: bool },
    /// It fails. The text says so where it was tried as often as it may be.
    Fail(Option<String>),
}

impl RetryPolicies {
    /// What follows from a failure of a job that was tried again `used` times. `names` are the policies of its queue, of
    /// which the first counts.
    pub(crate) fn verdict(&self, names: &[String], used: u32, failure: &Failure) -> Verdict {
        let name = names.first().unwrap_or(&self.default_policy_name);
        let policy = self.policies.iter().find(|policy| policy.name == *name).filter(|_| self.enabled);
        let Some(policy) = policy else { return Verdict::Fail(None) };
        let fits = |rule: &&RetryRule| {
            rule.on_category == failure.category
                && (rule.on_subcategory.is_empty() || rule.on_subcategory == failure.subcategory)
        };
        let rule = policy.rules.iter().find(fits);
        if rule.map_or(policy.default_action, |rule| rule.action) == RetryAction::Fail {
            return Verdict::Fail(None);
        }
        let (most, key) = match self.global_max_retries < policy.retry_limit {
            true => (self.global_max_retries, "globalMaxRetries".to_owned()),
            false => (policy.retry_limit, format!("retryLimit of policy {name}")),
        };
        if used >= most {
            let text = format!("tried again {used} times, which is as often as it may be ({key})");
            return Verdict::Fail((used > 0).then_some(text));
        }
        Verdict::Retry { avoid: rule.is_some_and(|rule| rule.mutate.affinity.avoid_same_node) }
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
        let tired = |text: &str| Verdict::Fail(Some(text.to_owned()));
        for (enabled, queue, used, category, subcategory, verdict) in [
            (true, "", 0, "transient", "net", Verdict::Retry { avoid: true }),
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
            (true, "stubborn", 4, "other", "", Verdict::Retry { avoid: false }),
            (
                true,
                "stubborn",
                5,
                "other",
                "",
                tired("tried again 5 times, which is as often as it may be (globalMaxRetries)"),
            ),
            (true, "unknown", 0, "transient", "", Verdict::Fail(None)),
            (false, "stubborn", 0, "transient", "", Verdict::Fail(None)),
        ] {
            let names: Vec<String> = Some(queue.to_owned()).filter(|name| !name.is_empty()).into_iter().collect();
            let failure =
                Failure { category: category.to_owned(), subcategory: subcategory.to_owned(), ..Failure::default() };
            assert_eq!(policies(5, enabled).verdict(&names, used, &failure), verdict, "{queue} {used} {category}");
        }
        let failure = Failure::default();
        assert_eq!(policies(0, true).verdict(&["stubborn".to_owned()], 0, &failure), Verdict::Fail(None));
    }
}
