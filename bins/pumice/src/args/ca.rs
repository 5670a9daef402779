//! Flags of `pumice ca`.

use clap::{Args, Subcommand};

use super::DataDir;

/// What `pumice ca` can do.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Have another certificate authority and other keys take the place of those of now, in two steps, while jobs run (see
    /// docs/certificates.md)
    Rotate(RotateArgs),
    /// Tell until when certificates are good
    Show(DataDir),
}

/// `pumice ca rotate`.
#[derive(Debug, Args)]
pub struct RotateArgs {
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Second step: drop the old authority, and refuse what it issued
    #[arg(long)]
    pub finish: bool,
    /// End tokens of the old key at once, where keys were stolen: pods lose theirs until these are renewed
    #[arg(long)]
    pub force: bool,
}
