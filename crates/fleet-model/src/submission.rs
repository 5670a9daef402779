//! What a submission must be, and what is made of it: jobs that lack nothing.
//!
//! [`check`] goes through Armada's rules in Armada's order and refuses the whole request at the first that is broken; what
//! it gives is complete, so nobody after it asks for a default. Invariant: no clock, no ids, no I/O; the pod spec of a
//! [`Completed`] has a form in protobuf, is nested no deeper than 32 levels and asks for amounts that can be
//! added. The server's submit calls it; ids come later, by [`Completed::for_id`].

mod complete;
mod error;
mod failures;
mod gang;
mod resources;
mod rules;
mod services;
mod spec;
mod validate;
mod volcano_job;

use std::collections::BTreeMap;

use pumice_units::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use error::{Amount, ContainerPath, ItemError, Misfit, SubmitError};
pub use gang::Gang;
pub use pumice_ledger::{OwnRetries, PriceBand};
pub use rules::{Effect, Operator, Rules, Toleration};
pub use services::{Addressing, ForId, IngressPlan, IngressRule, ServiceKind, ServicePlan, ServicePort, with_id};
pub use volcano_job::{JobError, VolcanoJob, VolcanoJobs, VolcanoTask};

/// Annotations with a meaning.
pub mod annotations {
    /// The gang that the job is of.
    pub const GANG_ID: &str = "armadaproject.io/gangId";
    /// How many jobs the gang has.
    pub const GANG_CARDINALITY: &str = "armadaproject.io/gangCardinality";
    /// The label that all nodes of the gang share.
    pub const GANG_UNIFORMITY: &str = "armadaproject.io/gangNodeUniformityLabel";
    /// Whether a returned lease is the end of the job.
    pub const FAIL_FAST: &str = "armadaproject.io/failFast";
    /// The band of a market pool.
    pub const PRICE_BAND: &str = "armadaproject.io/priceBand";
    /// A whole Volcano Job, as JSON or YAML, in place of a pod spec. Not in Armada.
    pub const VOLCANO_JOB: &str = "pumice.sh/volcano-job";
    /// Where the submitter has more about the job.
    pub const EXTERNAL_JOB_URI: &str = "armadaproject.io/externalJobUri";
}

/// A request to submit jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    pub queue: String,
    pub job_set: String,
    pub items: Vec<RequestedJob>,
}

/// A job of a request. Jobs of one request often ask for the same, which is then checked and completed once.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestedJob {
    /// What no job before asks for.
    Item(Box<Item>),
    /// What an item before asks for, but for what each job has of its own.
    Again(Again),
}

/// A job that asks for what an item before asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Again {
    /// That item's place in the request, from zero.
    pub of: usize,
    /// As [`Item::priority`].
    pub priority: f64,
    /// As [`Item::client_id`].
    pub client_id: String,
    /// As [`Item::external_job_uri`].
    pub external_job_uri: String,
}

/// A job as it was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// Its place in the queue: lower first.
    pub priority: f64,
    /// Where its pod is made.
    pub namespace: String,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Pod specs in Kubernetes' JSON, of which there may be one.
    pub pod_specs: Vec<Value>,
    /// The pod spec in the field that is deprecated.
    pub pod_spec: Option<Value>,
    /// Labels that the node must have, from the field that is deprecated.
    pub required_node_labels: BTreeMap<String, String>,
    /// The submitter's name for the job, by which it is not submitted twice; empty for none.
    pub client_id: String,
    /// Ports that are reached from outside.
    pub ingress: Vec<IngressConfig>,
    /// Ports that are reached in the cluster.
    pub services: Vec<ServiceConfig>,
    /// The scheduler that was asked for; carried, never read.
    pub scheduler: String,
    /// Where the submitter has more about the job; empty for none.
    pub external_job_uri: String,
}

/// An ingress that was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IngressConfig {
    pub ports: Vec<u32>,
    /// Annotations of the ingress.
    pub annotations: BTreeMap<String, String>,
    /// Whether it speaks TLS.
    pub tls_enabled: bool,
    /// The secret with its certificate; empty for the cluster's.
    pub cert_name: String,
    /// Whether the service behind it has an address of its own.
    pub use_cluster_ip: bool,
}

/// A service that was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceConfig {
    /// How it is reached.
    pub service_type: ServiceType,
    pub ports: Vec<u32>,
    /// Its name; empty for one made of the job's id.
    pub name: String,
}

/// How a service is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    /// By a port of every node.
    #[default]
    NodePort,
    /// By the pod's own address.
    Headless,
}

/// A job that lacks nothing but its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completed {
    /// Its place in the queue: lower first.
    pub priority: u32,
    /// Where its pod is made.
    pub namespace: String,
    /// Labels of the pod, before the id is put in.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod, before the id is put in.
    pub annotations: BTreeMap<String, String>,
    /// The pod spec in Kubernetes' JSON, with all defaults.
    pub pod_spec: Value,
    /// Services that stand beside the pod.
    pub services: Vec<ServicePlan>,
    /// Ingresses that stand beside the pod.
    pub ingresses: Vec<IngressPlan>,
    /// The submitter's name for the job.
    pub client_id: Option<String>,
    /// Where the submitter has more about the job.
    pub external_job_uri: Option<String>,
    /// The scheduler that was asked for; empty for none.
    pub scheduler: String,
    /// The jobs that start with it or not at all.
    pub gang: Option<Gang>,
    /// Whether a returned lease is the end of the job.
    pub fail_fast: bool,
    /// The fleet's priority class.
    pub priority_class: String,
    /// What the pod takes, as Kubernetes counts it: all containers together, or the largest init container where that is
    /// more, sidecars beside both.
    pub requests: BTreeMap<String, Quantity>,
    /// The band of a market pool.
    pub price_band: Option<PriceBand>,
    /// What it says of its failures.
    pub retries: Option<OwnRetries>,
    /// Its pods, where it is a Volcano job; it has no pod spec then, and requests nothing by itself.
    #[serde(rename = "whole", default, skip_serializing_if = "Option::is_none")]
    pub volcano_job: Option<VolcanoJob>,
}

/// A job of a request that was checked, as it stands in [`RequestedJob`].
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    /// A job that lacks nothing but its id.
    Item(Box<Completed>),
    /// One that has what the item at `of` has, but for the other fields, as [`Completed`] has them.
    Again {
        of: usize,
        /// Its place in the queue.
        priority: u32,
        /// The submitter's name for it.
        client_id: Option<String>,
        /// Where the submitter has more about it.
        external_job_uri: Option<String>,
    },
}

/// The jobs of a request, in its order, or why none of them is taken. `O(size of the request)`.
///
/// # Errors
/// The first broken rule, in Armada's order: the request's own, then item by item.
pub fn check(submission: &Submission, rules: &Rules) -> Result<Vec<Checked>, SubmitError> {
    validate::request(submission, rules)?;
    let queue = &submission.queue;
    let mut checked = Vec::with_capacity(submission.items.len());
    for (index, asked) in submission.items.iter().enumerate() {
        let job = match asked {
            RequestedJob::Item(item) if volcano_job::is_volcano_job(item) => {
                volcano_job::complete(item, queue, rules).map(|completed| Checked::Item(Box::new(completed)))
            }
            RequestedJob::Item(item) => validate::item(item, queue, rules)
                .and_then(|pod_spec| complete::complete(item, pod_spec, rules))
                .map(|completed| Checked::Item(Box::new(completed))),
            RequestedJob::Again(again) => validate::again(again, rules).map(|()| complete::again(again, &checked)),
        };
        checked.push(job.map_err(|cause| SubmitError::Item { index, cause })?);
    }
    Ok(checked)
}

#[cfg(test)]
mod tests;
