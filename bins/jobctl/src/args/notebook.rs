//! Flags of `notebook`.

use clap::Args;
use pumice_jobs::job::Selector;

use super::completion;
use super::{JobArgs, WhichPod};

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
