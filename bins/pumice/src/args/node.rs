//! Flags of the node agent, in `pumice up` and by itself.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::api::ProfileArg;
use super::cluster::ClusterArgs;
use super::image::RegistryArgs;
use super::{DataDir, StatusForm};

/// What an image stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ImagesArg {
    /// The image itself, from this machine's store or from its registry
    #[default]
    Registry,
    /// The programs of this machine
    Host,
}

/// What this machine offers.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// What the images of manifests mean on this machine (see docs/images.md)
    #[arg(long, value_name = "FILE")]
    pub image_map: Option<PathBuf>,
    /// What an image is that the image map doesn't have
    #[arg(long, value_enum, default_value_t)]
    pub images: ImagesArg,
    #[command(flatten)]
    pub registry: RegistryArgs,
    /// CPUs that the node offers, such as 8 or 500m [default: what the machine has]
    #[arg(long, value_name = "QUANTITY")]
    pub cpu: Option<String>,
    /// Memory that the node offers, such as 16Gi [default: what the machine has]
    #[arg(long, value_name = "QUANTITY")]
    pub memory: Option<String>,
    /// Pods that the node takes
    #[arg(long, default_value_t = 1000)]
    pub pods: u32,
    /// Processes and threads that one pod may have, where control groups count them; -1 is no limit
    #[arg(long, value_name = "N", default_value_t = i64::from(pumice_node::POD_PIDS_MAX), allow_negative_numbers = true,
          value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX)))]
    pub pod_pids_limit: i64,
    /// Size at which the log of a container is begun anew, such as 256Mi; as much before it is kept [default: 256Mi]
    #[arg(long, value_name = "QUANTITY")]
    pub container_log_max_size: Option<String>,
}

/// `pumice node run`.
#[derive(Debug, Args)]
pub struct NodeRunArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Name of the node, for which the kubeconfig's certificate is [default: this machine's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Port at which the API server reaches the agent; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 10250)]
    pub port: u16,
    /// What pods may ask for in namespaces whose labels don't say it: the --profile of the API server
    #[arg(long, value_enum, default_value_t)]
    pub profile: ProfileArg,
    #[command(flatten)]
    pub node: MachineArgs,
}

/// `pumice node list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// What was set aside
    #[arg(long, required = true)]
    pub set_aside: bool,
    /// How it is told
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = StatusForm::Text)]
    pub output: StatusForm,
}

/// `pumice node remove-set-aside`.
#[derive(Debug, Args)]
pub struct RemoveSetAsideArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Which, as listed by `pumice node list --set-aside`
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}
