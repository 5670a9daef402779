//! Flags of every component that runs by itself on a cluster.
//!
//! Invariant: the names are those of Volcano's programs, so that a deployment's command line goes on working.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use pumice_cluster::LeaseOptions;
use pumice_units::GoDuration;

/// Reads a duration as Go writes it, such as `15s` or `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: GoDuration = text.parse().map_err(|_| format!("{text:?} is no duration; try 15s"))?;
    u64::try_from(parsed.as_millis()).map(Duration::from_millis).map_err(|_| format!("{text:?} is negative"))
}

/// Which API server, and what is said about it.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Address of the API server, instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// What is logged to standard error, such as info or pumice_scheduler=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
}

/// The Lease that one of several instances holds.
#[derive(Debug, Args)]
pub struct LeaseArgs {
    /// Work only while holding a Lease, so that several instances may stand by
    #[arg(long, value_name = "true|false", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub leader_elect: bool,
    /// Namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = pumice_api::names::NAMESPACE_SYSTEM)]
    pub leader_elect_resource_namespace: String,
    /// Name of the Lease [default: Volcano's for this component]
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,
    /// Others may take the Lease over when it was not renewed for so long
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// The leader gives up when it could not renew for so long
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Pause between attempts
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
}

impl LeaseArgs {
    /// The Lease, if one is wanted, called `default_name` unless the flags name it. `identity` tells the instances apart.
    pub fn lease(&self, default_name: &str, identity: String) -> Result<Option<LeaseOptions>, String> {
        if !self.leader_elect {
            return Ok(None);
        }
        let (duration, deadline) = (self.leader_elect_lease_duration, self.leader_elect_renew_deadline);
        if deadline >= duration || self.leader_elect_retry_period >= deadline {
            return Err("--leader-elect-retry-period must be shorter than --leader-elect-renew-deadline, and that \
                shorter than --leader-elect-lease-duration"
                .to_owned());
        }
        let name = self.leader_elect_resource_name.as_deref().unwrap_or(default_name);
        let options = LeaseOptions::new(&self.leader_elect_resource_namespace, name, identity);
        let retry = self.leader_elect_retry_period;
        Ok(Some(LeaseOptions { duration, renew_deadline: deadline, retry, ..options }))
    }
}

/// Whose cluster it is.
#[derive(Debug, Args)]
pub struct OwnArgs {
    /// The API server is `pumice apiserver` and nodes are `pumice node run`: pods of default-scheduler are ours, too, nodes make
    /// folders for claims, and Kubernetes' own workloads are carried out
    #[arg(long)]
    pub own_cluster: bool,
}

impl OwnArgs {
    /// Names of the schedulers that are ours, unless they were given.
    pub fn schedulers(&self) -> Vec<String> {
        let names =
            if self.own_cluster { pumice_api::names::SCHEDULERS_UP } else { pumice_api::names::SCHEDULERS_CLUSTER };
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// `pumice controllers run`.
#[derive(Debug, Args)]
pub struct ControllersArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Names of the schedulers whose pods get PodGroups; repeatable [default: volcano, pumice]
    #[arg(long, value_name = "NAME")]
    pub scheduler_name: Vec<String>,
    #[command(flatten)]
    pub own: OwnArgs,
    #[command(flatten)]
    pub which: super::controllers::WhichArgs,
    #[command(flatten)]
    pub retention: super::retention::RetentionArgs,
    #[command(flatten)]
    pub serving: super::serving::ServingArgs,
    #[command(flatten)]
    pub lease: LeaseArgs,
    #[command(flatten)]
    pub(super) meaningless: super::controllers::MeaninglessArgs,
}

impl ControllersArgs {
    /// Says what has no meaning.
    pub fn warn(&self) {
        self.meaningless.warn();
    }
}

/// `pumice node simulated`.
#[derive(Debug, Args)]
pub struct NodeArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// How many nodes
    #[arg(long, value_name = "N")]
    pub nodes: u32,
    /// What each of them offers
    #[arg(long, value_name = "SHAPE", default_value = "cpu=32,memory=256Gi,pods=110")]
    pub shape: pumice_node::NodeShape,
    /// What goes wrong on them, such as seed=7,refused=0.01,start=2s
    #[arg(long, value_name = "FAULTS", default_value = "")]
    pub faults: pumice_node::Faults,
    /// How often each node's Lease is renewed; 0 = never, for a cluster that does not look at them
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub renew_every: Duration,
}
