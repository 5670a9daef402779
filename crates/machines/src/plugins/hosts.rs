//! The names by which a job's pods find each other.
//!
//! Invariant: host = the template's hostname, else the pod's name; domain = the template's subdomain, else the job's name.
//! Called by svc and ssh.

use pumice_api::batch::{Job, TaskSpec};
use pumice_api::names;

use crate::job_object;

/// A pod's name in the job's domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// First part.
    pub host: String,
    /// The rest.
    pub domain: String,
}

impl Host {
    /// `host.domain`.
    pub fn address(&self) -> String {
        format!("{}.{}", self.host, self.domain)
    }
}

/// The hosts of a task; a single one if the template fixes the hostname.
pub fn of_task(job: &Job, task: &TaskSpec) -> Vec<Host> {
    let job_name = job_object::name(job);
    let spec = task.template.spec.as_ref();
    let given = |field: Option<&String>| field.filter(|text| !text.is_empty()).cloned();
    let domain = given(spec.and_then(|spec| spec.subdomain.as_ref())).unwrap_or_else(|| job_name.to_owned());
    match given(spec.and_then(|spec| spec.hostname.as_ref())) {
        Some(host) if task.replicas > 0 => vec![Host { host, domain }],
        Some(_) => Vec::new(),
        None => (0..task.replicas)
            .map(|index| Host { host: names::pod_name(job_name, &task.name, index), domain: domain.clone() })
            .collect(),
    }
}
