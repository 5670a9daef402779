//! Flags of the commands that go into a pod of a job, or of a new one: `shell` and `notebook`.

use clap::{Args, ValueHint};
use pumice_jobs::job::Selector;

use super::JobArgs;
use super::completion;

/// Flags of `shell`.
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// Job to go into: name, job/NAME, a pattern that hits one, or `last` for the newest [default: a new one]
    #[arg(conflicts_with_all = ["JobArgs", "keep", "dry_run"], add = completion::jobs())]
    pub job: Option<Selector>,
    #[command(flatten)]
    pub pod: WhichPod,
    /// Leave the new job when the shell ends
    #[arg(long)]
    pub keep: bool,
    /// Print what would be submitted, and submit nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Program and arguments [default: bash, else sh]
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::AnyPath)]
    pub argv: Vec<String>,
    #[command(flatten)]
    pub flags: JobArgs,
}

/// Flags of `notebook`.
#[derive(Debug, Args)]
pub struct NotebookArgs {
    /// Job of a notebook to come back to: name, job/NAME, or `last` for the newest [default: a new one]
    #[arg(conflicts_with_all = ["JobArgs", "dry_run"], add = completion::jobs())]
    pub job: Option<Selector>,
    #[command(flatten)]
    pub pod: WhichPod,
    /// Port of this machine; 0 is any [default: 8888, or the next free one]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Print what would be submitted, and submit nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub flags: JobArgs,
}

/// Which pod of the job.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which pod")]
pub struct WhichPod {
    /// Only pods of this task
    #[arg(long, requires = "job")]
    pub task: Option<String>,
    /// Only pods at this index [default: the first that runs]
    #[arg(long, requires = "job")]
    pub index: Option<u32>,
    /// This pod
    #[arg(long, requires = "job", value_name = "NAME", conflicts_with_all = ["task", "index"])]
    pub pod: Option<String>,
    /// This container [default: the pod's main one]
    #[arg(short, long, requires = "job", value_name = "NAME")]
    pub container: Option<String>,
}
