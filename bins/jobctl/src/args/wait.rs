//! Flags of `wait`.

use std::time::Duration;

use clap::Args;

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
