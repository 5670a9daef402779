//! Flags of `pumice status`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::DataDir;
use super::cluster::duration;

/// `pumice status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Ask this API server instead of the platform of --data-dir
    #[arg(long, value_name = "FILE", conflicts_with = "data_dir")]
    pub kubeconfig: Option<PathBuf>,
    /// Wait until the platform is ready
    #[arg(long)]
    pub wait: bool,
    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration, requires = "wait")]
    pub timeout: Duration,
    /// How it is told
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = StatusForm::Text)]
    pub output: StatusForm,
}

/// How the status is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusForm {
    /// For people
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}
