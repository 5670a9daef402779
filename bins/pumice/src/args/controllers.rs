//! Flags that say which controllers run, and where their settings stand.
//!
//! Invariant: names and defaults are those of Volcano's controller manager.

use std::time::Duration;

use clap::{ArgAction, Args};
use pumice_controllers::{Enabled, Options};

use super::cluster::duration;

/// Which controllers, and their settings.
#[derive(Debug, Args)]
pub struct WhichArgs {
    /// Controllers to run: `*` for all that are not named, `name` or `+name` to turn one on, `-name` to turn it off
    #[arg(long, value_name = "NAMES", default_value = "*,-sharding-controller", allow_hyphen_values = true)]
    pub controllers: Enabled,
    /// Namespace of the ConfigMap that says which HyperNodes are discovered [default: $KUBE_POD_NAMESPACE, else volcano-system]
    #[arg(long, value_name = "NAMESPACE")]
    pub hypernode_configmap_namespace: Option<String>,
    /// ConfigMap that says how nodes are shared out among schedulers, key sharding.yaml
    #[arg(long, value_name = "NAME", default_value = "volcano-sharding-configmap")]
    pub sharding_configmap: String,
    /// Its namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "volcano-system")]
    pub sharding_configmap_namespace: String,
    /// Without that ConfigMap: a scheduler and its nodes, as name:type:minUtil:maxUtil:preferWarmup:minNodes:maxNodes;
    /// repeatable [default: volcano:volcano:0.0:0.6:false:2:100 agent-scheduler:agent:0.7:1.0:true:2:100]
    #[arg(long, value_name = "SHARE", value_delimiter = ',')]
    pub scheduler_configs: Vec<String>,
    /// Without that ConfigMap: how often the nodes are shared out anew
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub shard_sync_period: Duration,
    /// Without that ConfigMap: whether they are when nodes come and go, too
    #[arg(long, value_name = "true|false", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub enable_node_event_trigger: bool,
}

impl WhichArgs {
    /// Writes the flags into the controllers' options.
    pub fn apply(&self, options: &mut Options) -> Result<(), String> {
        let named = |variable: &str, absent: &str| {
            let value = std::env::var_os(variable).and_then(|value| value.into_string().ok());
            value.filter(|value| !value.is_empty()).unwrap_or_else(|| absent.to_owned())
        };
        let namespace = self.hypernode_configmap_namespace.clone();
        let namespace = namespace.unwrap_or_else(|| named("KUBE_POD_NAMESPACE", "volcano-system"));
        options.enabled = self.controllers.clone();
        options.network_settings = Options::network_settings(&namespace, &named("HELM_RELEASE_NAME", "volcano"));
        options.sharding_settings =
            Options::sharding_settings(&self.sharding_configmap_namespace, &self.sharding_configmap);
        if !self.scheduler_configs.is_empty() {
            options.sharding = pumice_controllers::Sharding::of_flags(&self.scheduler_configs)
                .map_err(|error| format!("--scheduler-configs: {error}"))?;
        }
        if self.shard_sync_period < Duration::from_secs(1) {
            return Err("--shard-sync-period must be a second or more".to_owned());
        }
        options.sharding.period = self.shard_sync_period;
        options.sharding.follows_nodes = self.enable_node_event_trigger;
        Ok(())
    }
}
