//! Flags of `job`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use pumice_vcctl::job::Filter;
use pumice_vcctl::job::new::NewJob;

use super::{NamedAndOutput, Namespaces, Output};

/// The verbs of `job`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a Job, of flags or of a file
    Run(RunArgs),
    /// List Jobs
    List(ListArgs),
    /// Show everything about a Job
    #[command(visible_alias = "get")]
    View(NamedAndOutput),
    /// End a Job's pods; it can be resumed
    Suspend(NamedAndOutput),
    /// Let a suspended Job go on
    Resume(NamedAndOutput),
    /// Delete a Job and its pods
    Delete(NamedAndOutput),
}

/// Flags of `job run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Manifest with one Job, YAML or JSON; `-` is standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    pub filename: Option<PathBuf>,
    /// Namespace [default: the file's, else default]
    #[arg(short = 'n', long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Name of the Job
    #[arg(short = 'N', long, default_value = "", hide_default_value = true)]
    pub name: String,
    /// Image of its pods
    #[arg(short = 'i', long, default_value = "busybox")]
    pub image: String,
    /// Scheduler
    #[arg(short = 'S', long, value_name = "NAME", default_value = "volcano")]
    pub scheduler: String,
    #[command(flatten)]
    pub size: Size,
    #[command(flatten)]
    pub output: Output,
}

/// How much a Job of flags is, and what it runs.
#[derive(Debug, Args)]
pub struct Size {
    /// Pods that must run together
    #[arg(short = 'm', long, value_name = "N", default_value_t = 1)]
    min: i32,
    /// Pods
    #[arg(short = 'r', long, value_name = "N", default_value_t = 1)]
    replicas: i32,
    /// What each pod asks for
    #[arg(short = 'R', long, value_name = "AMOUNTS", default_value = "cpu=1000m,memory=100Mi")]
    requests: String,
    /// What each pod may use at most
    #[arg(short = 'L', long, value_name = "AMOUNTS", default_value = "cpu=1000m,memory=100Mi")]
    limits: String,
    /// Command of the pods, as typed into a shell [default: the image's]
    #[arg(short = 'c', long, value_name = "COMMAND", default_value = "", hide_default_value = true)]
    command: String,
}

impl Size {
    /// The Job that is meant.
    pub fn job(self, name: String, image: String, scheduler: String) -> NewJob {
        let Size { min, replicas, requests, limits, command } = self;
        NewJob { name, image, min, replicas, requests, limits, scheduler, command }
    }
}

/// Flags of `job list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub namespaces: Namespaces,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Only Jobs of this queue
    #[arg(short = 'q', long, default_value = "", hide_default_value = true)]
    pub queue: String,
    #[command(flatten)]
    pub output: Output,
}

/// Which Jobs are listed.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only Jobs of this scheduler
    #[arg(short = 'S', long, value_name = "NAME", default_value = "", hide_default_value = true)]
    scheduler: String,
    /// Only Jobs with this in their name
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    selector: String,
}

impl FilterArgs {
    /// What is meant, of `queue` where that is not empty.
    pub fn filter(self, queue: String) -> Filter {
        Filter { queue, scheduler: self.scheduler, part_of_name: self.selector }
    }
}
