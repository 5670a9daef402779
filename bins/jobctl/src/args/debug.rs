//! Flags of `debug`.

use clap::Args;
use pumice_jobs::job::Selector;

use super::Form;
use super::completion;

/// Flags of `debug`.
#[derive(Debug, Args)]
pub struct DebugArgs {
    /// Name, job/NAME, a pattern that hits one, or `last` for the newest
    #[arg(add = completion::jobs())]
    pub job: Selector,
    /// The pod at this index [default: the one that failed first]
    #[arg(long, value_name = "INDEX")]
    pub shard: Option<u32>,
    /// Run its command here, with its environment
    #[arg(long)]
    pub run: bool,
    /// Lines of its log that are shown
    #[arg(long, value_name = "LINES", default_value_t = 20)]
    pub tail: u32,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = Form::Table, conflicts_with = "run")]
    pub output: Form,
}
