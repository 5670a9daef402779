//! Flags of the verbs that change jobs: `cancel`, `suspend`, `resume`, `delete`, `retry`.

use clap::Args;

use super::{Form, JobsArgs};

/// Jobs to change, and how.
#[derive(Debug, Args)]
pub struct ActArgs {
    #[command(flatten)]
    pub jobs: JobsArgs,
    #[command(flatten)]
    pub careful: Careful,
    /// Return at once
    #[arg(long)]
    pub no_wait: bool,
}

/// Flags of `delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Also those that have not ended; their pods are ended first
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub careful: Careful,
    /// Return at once
    #[arg(long)]
    pub no_wait: bool,
}

/// What keeps a pattern from hitting too much.
#[derive(Debug, Args)]
pub struct Careful {
    /// Only print which jobs it would be
    #[arg(long)]
    pub dry_run: bool,
    /// Don't ask, however many they are
    #[arg(short, long)]
    pub yes: bool,
    /// Print the jobs on standard output in this form; `retry` prints the new ones anyway
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub output: Option<Form>,
}

/// Flags of `retry`.
#[derive(Debug, Args)]
pub struct RetryArgs {
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Only those that failed
    #[arg(long, conflicts_with = "state")]
    pub failed: bool,
    #[command(flatten)]
    pub careful: Careful,
}
