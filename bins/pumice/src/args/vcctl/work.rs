//! Flags of `pod` and `cronjob`.

use clap::{Args, Subcommand};

use super::flow::DeleteArgs;
use super::{FromFile, Listed, NamedAndOutput, Namespaces, Output};

/// The verbs of `pod`.
#[derive(Debug, Subcommand)]
pub enum PodVerb {
    /// List pods of Jobs
    List(PodListArgs),
    /// Show one pod
    Get(NamedAndOutput),
    /// Delete a pod; a Job that goes on makes it again
    Delete(NamedAndOutput),
}

/// Flags of `pod list`.
#[derive(Debug, Args)]
pub struct PodListArgs {
    #[command(flatten)]
    pub namespaces: Namespaces,
    /// Only pods of this Job
    #[arg(short = 'j', long, value_name = "NAME")]
    pub job: Option<String>,
    /// Only pods of this queue
    #[arg(short = 'q', long, value_name = "NAME")]
    pub queue: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// The verbs of `cronjob`.
#[derive(Debug, Subcommand)]
pub enum CronVerb {
    /// Make the CronJobs of a file
    Create(FromFile),
    /// List CronJobs
    List(Listed),
    /// Show one CronJob
    Get(NamedAndOutput),
    /// Make no more Jobs; those that exist go on
    Suspend(NamedAndOutput),
    /// Make Jobs again
    Resume(NamedAndOutput),
    /// Delete a CronJob and its Jobs, or those of a file
    Delete(DeleteArgs),
}
