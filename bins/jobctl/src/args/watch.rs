//! Flags of `watch`.

use clap::Args;

/// Flags of `watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Jobs of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}
