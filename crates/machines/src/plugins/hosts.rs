//! The names by which a job's pods find each other, and how many of them can be written out.
//!
//! Invariant: host = the template's hostname, else the pod's name; domain = the template's subdomain, else the job's name.
//! Called by all plugins that name pods, and by admission, which refuses what would not fit.

use pumice_api::batch::{Job, TaskSpec};
use pumice_api::names;

use crate::job_object;

/// Most pods of a job whose addresses are written out: each change of the job rewrites them all.
pub const LISTED_MAX: i64 = 2_000;
/// Most bytes of an environment variable. Linux starts no program with a longer one than 128 KiB, its name included.
pub const VARIABLE_BYTES_MAX: usize = 128 * 1024 - 512;
/// Plugins that write out the addresses of pods.
const LISTING: [&str; 3] = ["svc", "tensorflow", "mpi"];

/// Why the addresses of a job's pods can't be written out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyHosts {
    /// Too many of them.
    #[error(
        "job plugin {plugin} writes out the addresses of all pods, of {LISTED_MAX} at most, and the job has {replicas}; \
         ask for fewer pods, or leave the plugin out"
    )]
    Number {
        /// The plugin that lists them.
        plugin: &'static str,
        /// Pods of the job.
        replicas: i64,
    },
    /// A variable that no program could be started with.
    #[error(
        "variable {variable} would have {bytes} bytes of addresses, and {VARIABLE_BYTES_MAX} fit; \
         ask for fewer pods, or for shorter names"
    )]
    Variable {
        variable: String,
        /// Its length.
        bytes: usize,
    },
}

/// Refuses a job of so many pods that a plugin can't list them.
pub fn check_number(job: &Job) -> Result<(), TooManyHosts> {
    let replicas = job.spec.tasks.iter().map(|task| i64::from(task.replicas.max(0))).sum();
    match LISTING.iter().find(|name| job.spec.plugins.contains_key(**name)) {
        Some(plugin) if replicas > LISTED_MAX => Err(TooManyHosts::Number { plugin, replicas }),
        _ => Ok(()),
    }
}

pub(super) fn check_variable(variable: String, bytes: usize) -> Result<(), TooManyHosts> {
    if bytes > VARIABLE_BYTES_MAX { Err(TooManyHosts::Variable { variable, bytes }) } else { Ok(()) }
}

/// A pod's name in the job's domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// First part.
    pub host: String,
    pub domain: String,
}

impl Host {
    /// `host.domain`.
    pub fn address(&self) -> String {
        format!("{}.{}", self.host, self.domain)
    }
}

/// The host that all pods of a task share because its template fixes it.
pub fn fixed(task: &TaskSpec) -> Option<&str> {
    let spec = task.template.spec.as_ref()?;
    spec.hostname.as_deref().filter(|text| !text.is_empty())
}

/// The domain of a task's pods.
pub fn domain<'a>(job: &'a Job, task: &'a TaskSpec) -> &'a str {
    let given = task.template.spec.as_ref().and_then(|spec| spec.subdomain.as_deref());
    given.filter(|text| !text.is_empty()).unwrap_or_else(|| job_object::name(job))
}

/// The host of one pod.
pub fn of_pod(job: &Job, task: &TaskSpec, index: i32) -> Host {
    let host = match fixed(task) {
        Some(host) => host.to_owned(),
        None => names::pod_name(job_object::name(job), &task.name, index),
    };
    Host { host, domain: domain(job, task).to_owned() }
}

/// The hosts of a task; a single one if the template fixes the hostname.
pub fn of_task(job: &Job, task: &TaskSpec) -> Vec<Host> {
    let count = if fixed(task).is_some() { task.replicas.min(1) } else { task.replicas };
    (0..count).map(|index| of_pod(job, task, index)).collect()
}

/// The addresses of a task's pods.
pub fn addresses(job: &Job, task: &TaskSpec) -> Vec<String> {
    of_task(job, task).iter().map(Host::address).collect()
}
