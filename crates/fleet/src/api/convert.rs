//! A request to submit jobs, into what is checked, and what was checked into what is written.
//!
//! Pure: time and randomness are arguments. Jobs of one request have ids in its order, since jobs that were submitted at once
//! wait in the order of their ids.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_ledger::{Digest, Gang, JobId, Shape, Submitted, TimeMs};
use pumice_units::Quantity;
use thiserror::Error;

use super::spec::{JobSpec, canonical};
use crate::database::{NewJob, Submission};
use crate::submit::{self, Completed, IngressConfig, Item, ItemError, Rules, ServiceConfig, ServiceType, SubmitError};
use pumice_wire::api::{self, JobSubmitRequest, JobSubmitRequestItem};
use pumice_wire::kubernetes::PodSpec;

/// Bits of a request's randomness; the one above them is room for counting its jobs.
const RANDOM_BITS: u32 = 79;

/// Why a submission is refused.
#[derive(Debug, Error)]
pub enum Refusal {
    /// A rule is broken.
    #[error(transparent)]
    Rule(Box<SubmitError>),
    /// Scheduling can't read the pod spec.
    #[error("jobRequestItems[{index}].podSpec: {source}")]
    Template {
        /// The job's place in the request, from zero.
        index: usize,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
}

impl From<SubmitError> for Refusal {
    fn from(error: SubmitError) -> Refusal {
        Refusal::Rule(Box::new(error))
    }
}

/// Who submits, and when.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who.
    pub user: String,
    /// When.
    pub at: TimeMs,
    /// Random bits, of which the lower 79 count.
    pub random: u128,
}

/// What a request says, its rules checked, as it is to be written. `O(size of the request)`.
///
/// # Errors
/// The first rule that is broken.
pub fn submission(message: JobSubmitRequest, rules: &Rules, request: &Request) -> Result<Submission, Refusal> {
    let asked = asked(message, rules)?;
    let completed = submit::check(&asked, rules)?;
    let mut written = Submission {
        at: request.at,
        queue: asked.queue,
        job_set: asked.job_set,
        user: request.user.clone(),
        shapes: BTreeMap::new(),
        jobs: Vec::with_capacity(completed.len()),
    };
    // A shape follows from the specification, which many jobs share.
    let mut known: BTreeMap<Digest, Digest> = BTreeMap::new();
    let random = request.random & ((1 << RANDOM_BITS) - 1);
    for (index, (job, item)) in completed.into_iter().zip(asked.items).enumerate() {
        let refuse = |source| Refusal::Template { index, source };
        let spec = spec(&job, item, &request.user, rules);
        let (digest, bytes) = spec.write().map_err(refuse)?;
        let shape = match known.get(&digest) {
            Some(shape) => *shape,
            None => {
                let shape = shape(&job, &spec).map_err(refuse)?;
                let (key, _) = serde_json::to_value(&shape).and_then(canonical).map_err(refuse)?;
                written.shapes.insert(key, shape);
                known.insert(digest, key);
                key
            }
        };
        let submitted = Submitted {
            job: JobId::new(request.at, random + index as u128),
            spec: digest,
            shape,
            priority: job.priority,
            gang: job.gang.map(|gang| Gang {
                id: gang.id,
                cardinality: gang.cardinality,
                uniformity: gang.uniformity_label,
            }),
            fail_fast: job.fail_fast,
        };
        written.jobs.push(NewJob {
            submitted,
            spec: bytes,
            namespace: job.namespace,
            client_id: job.client_id,
            external_uri: job.external_job_uri,
        });
    }
    Ok(written)
}

/// What a request asks for.
fn asked(message: JobSubmitRequest, rules: &Rules) -> Result<submit::Submission, Refusal> {
    let items = message.job_request_items.into_iter().enumerate();
    let items = items.map(|(index, asked)| {
        let refuse = |cause| Refusal::from(SubmitError::Item { index, cause });
        item(asked, rules).map_err(refuse)
    });
    Ok(submit::Submission {
        items: items.collect::<Result<_, _>>()?,
        queue: message.queue,
        job_set: message.job_set_id,
    })
}

#[allow(deprecated, reason = "older clients send what newer ones do not")]
fn item(asked: JobSubmitRequestItem, rules: &Rules) -> Result<Item, ItemError> {
    let max = rules.max_pod_spec_size_bytes;
    let decode = |spec: &PodSpec| {
        if spec.raw().len() > max {
            return Err(ItemError::PodSpecTooLarge { max });
        }
        spec.to_json().map_err(|source| ItemError::PodSpec { source })
    };
    Ok(Item {
        priority: asked.priority,
        namespace: asked.namespace,
        labels: asked.labels,
        annotations: asked.annotations,
        pod_specs: asked.pod_specs.iter().map(decode).collect::<Result<_, _>>()?,
        pod_spec: asked.pod_spec.as_ref().map(decode).transpose()?,
        required_node_labels: asked.required_node_labels,
        client_id: asked.client_id,
        ingress: asked.ingress.into_iter().map(ingress).collect(),
        services: asked.services.into_iter().map(service).collect(),
        scheduler: asked.scheduler,
        external_job_uri: asked.external_job_uri,
    })
}

fn ingress(config: api::IngressConfig) -> IngressConfig {
    IngressConfig {
        ports: config.ports,
        annotations: config.annotations,
        tls_enabled: config.tls_enabled,
        cert_name: config.cert_name,
        use_cluster_ip: config.use_cluster_ip,
    }
}

fn service(config: api::ServiceConfig) -> ServiceConfig {
    let headless = config.r#type == i32::from(api::ServiceType::Headless);
    let service_type = if headless { ServiceType::Headless } else { ServiceType::NodePort };
    ServiceConfig { service_type, ports: config.ports, name: config.name }
}

/// What is kept of a job that was checked.
fn spec(job: &Completed, item: Item, owner: &str, rules: &Rules) -> JobSpec {
    let services = item.services.into_iter().map(|config| api::ServiceConfig {
        r#type: match config.service_type {
            ServiceType::NodePort => api::ServiceType::NodePort.into(),
            ServiceType::Headless => api::ServiceType::Headless.into(),
        },
        ports: config.ports,
        name: if rules.allow_custom_service_names { config.name } else { String::new() },
    });
    let ingresses = item.ingress.into_iter().map(|config| api::IngressConfig {
        ports: config.ports,
        annotations: config.annotations,
        tls_enabled: config.tls_enabled,
        cert_name: config.cert_name,
        use_cluster_ip: config.use_cluster_ip,
        ..api::IngressConfig::default()
    });
    JobSpec {
        owner: owner.to_owned(),
        namespace: job.namespace.clone(),
        labels: job.labels.clone(),
        annotations: job.annotations.clone(),
        pod_spec: job.pod_spec.clone(),
        services: services.collect(),
        ingresses: ingresses.collect(),
        scheduler: job.scheduler.clone(),
    }
}

/// What scheduling reads.
fn shape(job: &Completed, spec: &JobSpec) -> Result<Shape, serde_json::Error> {
    let metadata = ObjectMeta {
        namespace: Some(spec.namespace.clone()),
        labels: Some(spec.labels.clone()),
        annotations: Some(spec.annotations.clone()),
        ..ObjectMeta::default()
    };
    let pod_spec: core::PodSpec = serde_json::from_value(spec.pod_spec.clone())?;
    let template = pumice_translate::pod_template(&metadata, &pod_spec);
    let amount = |(name, amount): (&String, &Quantity)| {
        (name.clone(), if name == "cpu" { amount.cpu_milli() } else { amount.value() })
    };
    Ok(Shape {
        priority_class: job.priority_class.clone(),
        requests: job.requests.iter().map(amount).collect(),
        template: serde_json::to_value(template)?,
    })
}

#[cfg(test)]
pub(super) mod tests;
