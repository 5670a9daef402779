//! Flags of `progress`.

use clap::{Args, ValueEnum};

use super::JobsArgs;

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
