//! Flags that say which controllers run, and where their settings stand.
//!
//! Invariant: names and defaults are those of Volcano's controller manager. Every flag of it is accepted; what has no meaning
//! here is said to have none, by a warning that names what takes its place.

use std::time::Duration;

use clap::{ArgAction, Args};
use pumice_controllers::{Enabled, Options};

use super::cluster::duration;
use super::meaningless::meaningless;

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

meaningless! {
    kube_api_qps, "kube-api-qps", "calls adapt to how fast the API server answers";
    kube_api_burst, "kube-api-burst", "calls adapt to how fast the API server answers";
    worker_threads, "worker-threads", "calls adapt to how fast the API server answers";
    worker_threads_for_cronjob, "worker-threads-for-cronjob", "calls adapt to how fast the API server answers";
    worker_threads_for_podgroup, "worker-threads-for-podgroup", "calls adapt to how fast the API server answers";
    worker_threads_for_queue, "worker-threads-for-queue", "calls adapt to how fast the API server answers";
    worker_threads_for_gc, "worker-threads-for-gc", "calls adapt to how fast the API server answers";
    max_requeue_num, "max-requeue-num", "what fails is tried again, ever later, and never given up";
    inherit_owner_annotations, "inherit-owner-annotations", "annotations of owners always count";
    lock_object_namespace, "lock-object-namespace", "use --leader-elect-resource-namespace";
    leader_elect_resource_lock, "leader-elect-resource-lock", "the lock is always a Lease";
    ca_cert_file, "ca-cert-file", "metrics are served over plain HTTP";
    tls_cert_file, "tls-cert-file", "metrics are served over plain HTTP";
    tls_private_key_file, "tls-private-key-file", "metrics are served over plain HTTP";
    feature_gates, "feature-gates", "features are not switched; see --controllers";
    logtostderr, "logtostderr", "use --log";
    verbosity, "v", "use --log";
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::cluster::ControllersArgs;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ControllersArgs,
    }

    #[test]
    fn the_command_line_of_a_volcano_deployment_is_understood() {
        let line = "run --logtostderr --enable-healthz=true --enable-metrics=true --leader-elect=false --kube-api-qps=50 \
            --kube-api-burst=100 --worker-threads=3 --worker-threads-for-gc=5 --worker-threads-for-podgroup=5 \
            --worker-threads-for-queue=5 --worker-threads-for-cronjob=3 --max-requeue-num=15 \
            --inherit-owner-annotations=true --scheduler-name=volcano --controllers=*,-sharding-controller --v=4";
        let args = Line::try_parse_from(line.split_whitespace()).unwrap().args;
        assert_eq!(args.meaningless.given().len(), 11);
        assert_eq!(args.serving.metrics(8081).map(|at| at.port()), Some(8081));
        assert_eq!(args.serving.health().map(|at| at.port()), Some(11251));
    }
}
