//! Flags of `logs`.

use clap::Args;
use pumice_jobs::select::Selector;

use crate::completion;

/// Flags of `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Name, job/NAME, a pattern that hits one, or `last` for the newest
    #[arg(add = completion::jobs())]
    pub job: Selector,
    /// Go on until the job ends
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last lines of each pod
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Only this pod
    #[arg(long)]
    pub pod: Option<String>,
    /// Only this container
    #[arg(short, long)]
    pub container: Option<String>,
    /// Begin lines with the pod's name [default: with more than one pod]
    #[arg(long)]
    pub prefix: Option<bool>,
}
