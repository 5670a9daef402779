//! Flags of the scheduler: Volcano's beside ours.
//!
//! Invariant: every flag of Volcano's scheduler is accepted. What has no meaning here is said to have none, by a warning
//! that names what takes its place.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use pumice_scheduler::{LeaseOptions, Options, Sharding};

use super::cluster::{ClusterArgs, LeaseArgs, OwnArgs};
use super::meaningless::meaningless;
use super::record::KeepArgs;
use super::serving::ServingArgs;

/// `key:value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(pub String, pub String);

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once(':').ok_or_else(|| format!("{text:?} is no label; try key:value"))?;
        Ok(Self(key.trim().to_owned(), value.trim().to_owned()))
    }
}

/// What is placed where, and how.
#[derive(Debug, Args)]
#[command(next_help_heading = "Scheduling")]
pub struct PolicyArgs {
    /// Volcano's scheduler configuration; changes are taken while it runs
    #[arg(long, value_name = "FILE")]
    pub scheduler_conf: Option<PathBuf>,
    /// Scheduler names answered to; repeatable [default: the ones of this way to run it]
    #[arg(long, value_name = "NAME")]
    pub scheduler_name: Vec<String>,
    /// Queue of PodGroups that name none
    #[arg(long, value_name = "QUEUE", default_value = pumice_api::names::DEFAULT_QUEUE)]
    pub default_queue: String,
    /// Use only nodes with one of these labels; repeatable
    #[arg(long, value_name = "KEY:VALUE", value_delimiter = ',')]
    pub node_selector: Vec<Label>,
    /// Use only nodes of this zone, and place only pods that name it in their node selector
    #[arg(long, value_name = "ZONE")]
    pub zone: Option<String>,
    /// Binds under way to one node at a time; 0 = no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_binding_per_node: u32,
    /// Make the pods of gangs that no present node fits, for an autoscaler to see: true, false, or auto (where nodes or the
    /// API server show that there is one)
    #[arg(long, value_name = "true|false|auto", default_value = "auto", value_parser = ["true", "false", "auto"])]
    pub autoscaling: String,
    /// Keep to the NodeShard of --scheduler-sharding-name: none, hard or soft
    #[arg(long, value_name = "MODE", default_value = "none", value_parser = ["none", "hard", "soft"])]
    pub scheduler_sharding_mode: String,
    /// Name of the NodeShard
    #[arg(long, value_name = "NAME", default_value = "volcano")]
    pub scheduler_sharding_name: String,
    #[command(flatten)]
    meaningless: MeaninglessArgs,
}

impl PolicyArgs {
    /// Puts the flags into `options` and says what has no meaning.
    pub fn apply(&self, options: &mut Options) {
        options.config.clone_from(&self.scheduler_conf);
        if !self.scheduler_name.is_empty() {
            options.scheduler_names.clone_from(&self.scheduler_name);
        }
        options.default_queue.clone_from(&self.default_queue);
        options.node_selector =
            self.node_selector.iter().map(|Label(key, value)| (key.clone(), value.clone())).collect();
        options.zone.clone_from(&self.zone);
        options.max_binding_per_node = self.max_binding_per_node;
        options.autoscaling = self.autoscaling.parse().ok();
        options.sharding = (self.scheduler_sharding_mode != "none").then(|| Sharding {
            hard: self.scheduler_sharding_mode == "hard",
            name: self.scheduler_sharding_name.clone(),
        });
        self.meaningless.warn();
    }
}

meaningless! {
    schedule_period, "schedule-period", "cycles are started by events, not by a clock";
    resync_period, "resync-period", "watches are followed without a resync";
    priority_class, "priority-class", "priority classes always count";
    kube_api_qps, "kube-api-qps", "calls adapt to how fast the API server answers";
    kube_api_burst, "kube-api-burst", "calls adapt to how fast the API server answers";
    minimum_feasible_nodes, "minimum-feasible-nodes", "every node is considered";
    minimum_percentage_nodes_to_find, "minimum-percentage-nodes-to-find", "every node is considered";
    percentage_nodes_to_find, "percentage-nodes-to-find", "every node is considered";
    plugins_dir, "plugins-dir", "plugins are crates of their own, or HTTP extenders";
    csi_storage, "csi-storage", "volumes always count";
    cache_dumper, "cache-dumper", "ask why.pumice.sh instead of dumping the cache";
    cache_dump_dir, "cache-dump-dir", "ask why.pumice.sh instead of dumping the cache";
    node_worker_threads, "node-worker-threads", "nodes are taken in as they come";
    gate_removal_worker_num, "gate-removal-worker-num", "calls share one adaptive window";
    ignored_provisioners, "ignored-provisioners", "limits of volumes are read from CSINode objects alone";
    resource_sync_timeout, "resource-sync-timeout", "nothing is decided before everything was listed";
    disable_default_scheduler_config, "disable-default-scheduler-config", "a refused file is an error at the start";
    lock_object_namespace, "lock-object-namespace", "use --leader-elect-resource-namespace";
    leader_elect_resource_lock, "leader-elect-resource-lock", "the lock is always a Lease";
    enable_pprof, "enable-pprof", "use perf";
    ca_cert_file, "ca-cert-file", "metrics are served over plain HTTP";
    tls_cert_file, "tls-cert-file", "metrics are served over plain HTTP";
    tls_private_key_file, "tls-private-key-file", "metrics are served over plain HTTP";
    feature_gates, "feature-gates", "features are not switched";
    logtostderr, "logtostderr", "use --log";
    verbosity, "v", "use --log";
}

/// `pumice scheduler run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Record what the scheduler is told and decides in this folder (see docs/recording.md)
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    #[command(flatten)]
    pub keep: KeepArgs,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub own: OwnArgs,
    #[command(flatten)]
    pub serving: ServingArgs,
    #[command(flatten)]
    lease: LeaseArgs,
}

impl RunArgs {
    /// The Lease, if one is wanted: named after the only scheduler name. `identity` tells the instances apart.
    pub fn lease(&self, identity: String) -> Result<Option<LeaseOptions>, String> {
        let name = match &self.policy.scheduler_name[..] {
            [only] => only,
            _ => pumice_api::names::SCHEDULER_VOLCANO,
        };
        self.lease.lease(name, identity)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        run: RunArgs,
    }

    fn parsed(line: &str) -> RunArgs {
        Cli::try_parse_from(std::iter::once("scheduler").chain(line.split_whitespace())).unwrap().run
    }

    #[test]
    fn volcanos_own_command_line_is_taken() {
        let run = parsed(
            "--logtostderr --scheduler-conf=/volcano.scheduler/volcano-scheduler.conf --enable-healthz=true \
             --enable-metrics=true --leader-elect=false --kube-api-qps=2000 --kube-api-burst=2000 \
             --schedule-period=1s --node-worker-threads=20 --percentage-nodes-to-find=0 --feature-gates=A=true \
             --node-selector=pool:a --node-selector=pool:b --v=3",
        );
        assert!(run.serving.health().is_some() && !run.lease.leader_elect);
        assert_eq!(run.policy.node_selector, [Label("pool".into(), "a".into()), Label("pool".into(), "b".into())]);
        let given: Vec<&str> = run.policy.meaningless.given().into_iter().map(|(flag, _)| flag).collect();
        assert_eq!(given.len(), 8, "{given:?}");
        assert!(matches!(run.lease("me".into()), Ok(None)));
        assert_eq!(run.serving.metrics(8080).map(|at| at.to_string()).as_deref(), Some("0.0.0.0:8080"));
    }

    #[test]
    fn the_lease_is_named_after_the_only_scheduler_name() {
        let name = |line: &str| parsed(line).lease("me".into()).unwrap().unwrap().name;
        assert_eq!(name(""), "volcano");
        assert_eq!(name("--scheduler-name=mine"), "mine");
        assert_eq!(name("--scheduler-name=a --scheduler-name=b"), "volcano");
        assert_eq!(name("--scheduler-name=a --leader-elect-resource-name=c"), "c");
        assert!(parsed("--leader-elect-renew-deadline=20s").lease("me".into()).is_err());
    }

    #[test]
    fn labels_are_refused_with_what_to_try() {
        assert!("pool=a".parse::<Label>().unwrap_err().contains("try key:value"));
    }
}
