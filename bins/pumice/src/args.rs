//! The command line of `pumice`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub mod admission;
pub mod api;
mod backup;
pub mod ca;
pub mod cluster;
pub mod controllers;
pub mod fleet;
pub mod history;
pub mod image;
pub mod install;
mod meaningless;
pub mod node;
pub mod oidc;
pub mod record;
pub mod reserve;
pub mod retention;
pub mod scheduler;
pub mod serving;
pub mod simulate;
mod status;
pub mod tenant;
pub mod tenants;
pub mod vcctl;
pub use backup::{BackupArgs, RestoreArgs};
use pumice_node::{Faults, NodeShape};
pub use status::{StatusArgs, StatusForm};

/// Batch computing on this machine, a cluster, or a fleet.
#[derive(Debug, Parser)]
#[command(name = "pumice", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `pumice` can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Bring up the whole platform on this machine and keep it up
    Up(Box<UpArgs>),
    /// Stop the platform of this machine and end its pods
    Down(DownArgs),
    /// Tell how the platform of this machine does; exits 0 when it is ready, 1 when it is not, 3 when none runs
    Status(StatusArgs),
    /// Save everything of the platform of this machine in one file, while it runs or not
    Backup(BackupArgs),
    /// Make the platform's directory anew from a backup
    Restore(RestoreArgs),
    /// Look after the certificate authority of the platform of this machine
    #[command(subcommand)]
    Ca(ca::CaCommand),
    /// Run the API server by itself, and write kubeconfigs for the other components
    #[command(name = "apiserver")]
    ApiServer(Box<api::ApiServerArgs>),
    /// Run the scheduler by itself, or use its tools
    #[command(subcommand)]
    Scheduler(SchedulerCommand),
    /// Run the controllers by themselves
    #[command(subcommand)]
    Controllers(ControllersCommand),
    /// Queue jobs for many clusters, behind Armada's API (see docs/fleet.md)
    #[command(subcommand)]
    Fleet(fleet::FleetCommand),
    /// Keep the history of jobs by itself
    #[command(subcommand)]
    History(HistoryCommand),
    /// Run admission by itself, as a cluster's webhooks
    #[command(subcommand)]
    Admission(AdmissionCommand),
    /// Run nodes by themselves, drain one, or ask why one takes no more
    #[command(subcommand)]
    Node(NodeCommand),
    /// Work with the images of this machine
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// Keep nodes for some or from everybody, from one time to another (see docs/maintenance.md)
    Reserve(Box<reserve::ReserveArgs>),
    /// Say who the users of the platform are, and what their pods are on the machine (see docs/tenants.md)
    Tenant(Box<tenant::TenantArgs>),
    #[command(flatten)]
    Vcctl(vcctl::Group),
    /// Print the custom resource definitions, for kubectl apply -f -
    Crds,
    /// Print the namespace, service accounts and rights of the components on a cluster, for kubectl apply -f -
    Roles(install::RolesArgs),
    /// Make links to this program under Volcano's names: vcctl, vsub, vjobs, vqueues, vcancel, vsuspend, vresume
    Links {
        /// Where to make them [default: where this program is]
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Hold the processes of one pod; started by the node agent
    #[command(hide = true)]
    Shim {
        /// What the agent says to the shim.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// What `pumice scheduler` can do.
#[derive(Debug, Subcommand)]
pub enum SchedulerCommand {
    /// Run the scheduler on a cluster; takes every flag of Volcano's
    Run(Box<scheduler::RunArgs>),
    /// Run a recording again and say whether every plan comes out as it was; exits 1 when one does not, 2 when the
    /// recording can't be read or run
    Replay(record::ReplayArgs),
    /// Work with recordings
    #[command(subcommand)]
    Record(record::RecordCommand),
    /// Run scheduling cases and say, line by line, how the answers compare; exits 1 when one fails, 2 when the file
    /// can't be read
    Check {
        /// The cases, in YAML, or one that was cut from a recording.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Run a workload's trace on a virtual cluster and say how it fared (see docs/simulate.md)
    Simulate(Box<simulate::SimulateArgs>),
}

/// What `pumice controllers` can do.
#[derive(Debug, Subcommand)]
pub enum ControllersCommand {
    /// Run the controllers on a cluster
    Run(Box<cluster::ControllersArgs>),
}

/// What `pumice history` can do.
#[derive(Debug, Subcommand)]
pub enum HistoryCommand {
    /// Keep what became of a cluster's jobs, and answer what its API server passes on
    Run(Box<history::HistoryRunArgs>),
}

/// What `pumice admission` can do.
#[derive(Debug, Subcommand)]
pub enum AdmissionCommand {
    /// Answer the webhooks of a cluster; takes every flag of Volcano's webhook manager
    Run(Box<admission::AdmissionArgs>),
    /// Print a part of the rules as policies that the API server evaluates itself, for kubectl apply -f -
    Policies(admission::PoliciesArgs),
}

/// What `pumice node` can do.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Run pods on this machine, for an API server in another process
    Run(Box<node::NodeRunArgs>),
    /// Add nodes without machines to a cluster, and keep them (see docs/simulated-nodes.md)
    Simulated(cluster::NodeArgs),
    /// List what pods and claims of this machine left that can't be removed (`jobctl node list` lists nodes)
    List(node::ListArgs),
    /// Remove what was set aside, once what kept it has gone
    RemoveSetAside(node::RemoveSetAsideArgs),
    /// Let nothing start on a node that is not sure to have ended by then, and have it empty from then on
    Drain(Box<reserve::DrainArgs>),
    /// Let a drained node take pods again
    #[command(alias = "uncordon")]
    Undrain {
        #[command(flatten)]
        api: vcctl::ApiFlags,
        #[command(flatten)]
        named: vcctl::NameAndOutput,
    },
    /// Tell why a node takes no more, and when it will
    Why {
        #[command(flatten)]
        api: vcctl::ApiFlags,
        #[command(flatten)]
        named: vcctl::NameAndOutput,
    },
}

/// Where everything is kept.
#[derive(Debug, Args)]
pub struct DataDir {
    /// Where everything is kept [default: $PUMICE_DATA_DIR, else $XDG_DATA_HOME/pumice, else ~/.local/share/pumice]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

/// Flags of `pumice up`.
#[derive(Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Return when the platform is ready and leave it running; what it says goes to DIR/up.log
    #[arg(long)]
    pub background: bool,
    #[command(flatten)]
    pub api: api::ApiArgs,
    #[command(flatten)]
    pub sharing: tenants::TenantsArgs,
    #[command(flatten)]
    pub scheduling: scheduler::PolicyArgs,
    /// Don't record what the scheduler is told and decides (see docs/recording.md)
    #[arg(long)]
    pub no_recording: bool,
    #[command(flatten)]
    pub keep: record::KeepArgs,
    #[command(flatten)]
    pub history: history::HistoryArgs,
    #[command(flatten)]
    pub retention: retention::RetentionArgs,
    #[command(flatten)]
    pub node: node::MachineArgs,
    /// Whether this machine is a node
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set)]
    pub local_node: bool,
    /// Bring up API and store though something on this machine keeps its pods from being looked after; those that run go on
    #[arg(long, conflicts_with = "local_node")]
    pub without_pods: bool,
    #[command(flatten)]
    pub simulated: SimulatedArgs,
    /// Start the scheduler only once this file exists, to measure it on work that is there already
    #[arg(long, value_name = "FILE", hide = true)]
    pub scheduler_after: Option<PathBuf>,
    /// What is logged to standard error, such as info or pumice_scheduler=debug
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    pub log: String,
}

impl UpArgs {
    /// Whether this machine runs pods.
    pub fn runs_pods(&self) -> bool {
        self.local_node && !self.without_pods
    }
}

/// Nodes without machines (see docs/simulated-nodes.md).
#[derive(Debug, Args)]
pub struct SimulatedArgs {
    /// Nodes that only pretend to run pods, to try out scheduling
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub simulated_nodes: u32,
    /// What each of them offers
    #[arg(long, value_name = "SHAPE", default_value = "cpu=32,memory=256Gi,pods=110")]
    pub simulated_node_shape: NodeShape,
    /// What goes wrong on them, such as seed=7,refused=0.01,start=2s
    #[arg(long, value_name = "FAULTS", default_value = "")]
    pub simulated_faults: Faults,
}

/// Flags of `pumice down`.
#[derive(Debug, Args)]
pub struct DownArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Most time that a pod has to end, such as 10s [default: each pod's own terminationGracePeriodSeconds]
    #[arg(long, value_name = "DURATION", value_parser = cluster::duration)]
    pub grace: Option<std::time::Duration>,
    /// Kill the pods at once
    #[arg(long, conflicts_with = "grace")]
    pub now: bool,
}
