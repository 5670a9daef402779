//! The records of a job in its pods: the rule that gives each pod its slice, and the command that runs the slice.

use k8s_openapi::api::core::v1::EnvVar;

use super::RenderError;
use crate::shards::{Plan, Template};

/// The variable with the rule; `VC_TASK_INDEX` beside it tells which slice is a pod's own.
pub const RULE_VARIABLE: &str = "PUMICE_SHARDS";

/// Records, and what runs them in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardRun {
    /// The records of each pod.
    pub plan: Plan,
    /// The `jobctl` of the pods: a path, or a name on their `PATH`.
    pub jobctl: String,
}

impl ShardRun {
    /// Pods of the job.
    pub(super) fn pods(&self) -> u32 {
        self.plan.pods()
    }

    /// The words that run `words` for each record of a pod. Names in braces must be those of records.
    pub(super) fn command(&self, words: Vec<String>) -> Result<Vec<String>, RenderError> {
        Template::new(&words, &self.plan.shards().names()).map_err(RenderError::Template)?;
        let own = [self.jobctl.as_str(), "shard", "exec", "--"];
        Ok(own.into_iter().map(str::to_owned).chain(words).collect())
    }

    /// The variable with the rule.
    pub(super) fn variable(&self) -> Result<EnvVar, RenderError> {
        let rule = self.plan.rule().map_err(RenderError::Rule)?;
        Ok(EnvVar { name: RULE_VARIABLE.to_owned(), value: Some(rule), ..EnvVar::default() })
    }
}
