//! Flags of backups.

use std::path::PathBuf;

use clap::Args;

use super::DataDir;

/// `pumice backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Where the backup goes; must not be there
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub data_dir: DataDir,
}

/// `pumice restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub data_dir: DataDir,
    /// Move the data of a platform that is there aside, within its directory
    #[arg(long)]
    pub force: bool,
}
