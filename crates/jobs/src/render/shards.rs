//! The records of a job in its pods: the rule that gives each pod its slice, and the command that runs the slice.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector};

use super::RenderError;
use super::volumes::Volumes;
use crate::bundle::{Location, StoreAddress, location};
use crate::shards::report::NODE_VARIABLE;
use crate::shards::{Plan, Template};

/// The variable with the rule; `VC_TASK_INDEX` beside it tells which slice is a pod's own.
pub const RULE_VARIABLE: &str = "PUMICE_SHARDS";

/// The volume of a bundle's folder.
const VOLUME: &str = "bundle";

/// Records, and what runs them in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardRun {
    /// The records of each pod.
    pub plan: Plan,
    /// The `jobctl` of the pods: a path, or a name on their `PATH`.
    pub jobctl: String,
    /// Where the records are that a pod can't compute, and where results of a run are recorded.
    pub bundle: Option<Location>,
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

    /// The variables with the rule and with the place of records and results; results say where they come from.
    pub(super) fn variables(&self) -> Result<Vec<EnvVar>, RenderError> {
        let rule = self.plan.rule().map_err(RenderError::Rule)?;
        let bundle = self.bundle.as_ref().map(|bundle| (location::VARIABLE, bundle.to_string()));
        let variable =
            |(name, value): (&str, _)| EnvVar { name: name.to_owned(), value: Some(value), ..EnvVar::default() };
        let mut variables: Vec<EnvVar> = [(RULE_VARIABLE, rule)].into_iter().chain(bundle).map(variable).collect();
        if self.bundle.as_ref().is_some_and(|bundle| bundle.run.is_some()) {
            let node = ObjectFieldSelector { field_path: "spec.nodeName".to_owned(), ..Default::default() };
            variables.push(EnvVar {
                name: NODE_VARIABLE.to_owned(),
                value_from: Some(EnvVarSource { field_ref: Some(node), ..EnvVarSource::default() }),
                ..EnvVar::default()
            });
        }
        Ok(variables)
    }

    /// The service account that may read and record what is in ConfigMaps: it has the bundle's name.
    pub(super) fn service_account(&self) -> Option<String> {
        match &self.bundle.as_ref()?.address {
            StoreAddress::ConfigMaps { name, .. } => Some(name.clone()),
            StoreAddress::Folder(_) => None,
        }
    }

    /// Shows the pod the folder of records and results, at the same path.
    pub(super) fn mount(&self, volumes: &mut Volumes) {
        let Some(Location { address: StoreAddress::Folder(path), .. }) = &self.bundle else { return };
        if let Some(path) = path.to_str().filter(|path| !volumes.has(path)) {
            volumes.add_directory(VOLUME, path);
        }
    }
}
