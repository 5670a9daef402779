//! Flags of the commands that stay with jobs while they run: `wait`, `progress` and `watch`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{JobsArgs, duration};

/// Flags of `wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Give up after this long, such as 90s, 10m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// Flags of `progress`.
#[derive(Debug, Args)]
pub struct ProgressArgs {
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Go on until the job ends
    #[arg(short, long)]
    pub follow: bool,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = ProgressForm::Line)]
    pub output: ProgressForm,
}

/// How progress is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressForm {
    /// For people
    Line,
    /// A JSON object a line
    Json,
}

/// Flags of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Jobs of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}
