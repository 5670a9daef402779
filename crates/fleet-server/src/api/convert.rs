//! A request to submit jobs, into what is checked, and what was checked into what is written.
//!
//! Pure: time and randomness are arguments. Jobs of one request have ids in its order, since jobs that were submitted at once
//! wait in the order of their ids. What several jobs of a request ask for alike is read, checked and encoded once.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_fleet_model::submission::{
    self, Again, Checked, Completed, IngressConfig, Item, ItemError, RequestedJob, Rules, ServiceConfig, ServiceType,
    SubmitError,
};
use pumice_ledger::{Digest, Gang, JobId, Shape, Submitted, TimeMs, VolcanoJob, VolcanoTask};
use pumice_units::Quantity;
use pumice_wire::api::{self, JobSubmitRequest, JobSubmitRequestItem};
use pumice_wire::kubernetes::PodSpec;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use super::spec::{JobSpec, canonical};
use crate::database::{NewJob, Submission};

mod alike;

use alike::firsts;

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
    pub user: String,
    pub at: TimeMs,
    /// Random bits, of which the lower 79 count.
    pub random: u128,
}

/// Shapes that are known by what placing reads.
type Shapes = HashMap<Vec<u8>, Digest>;

/// What jobs that ask for the same share.
struct Kind {
    spec: Digest,
    shape: Digest,
    namespace: String,
    gang: Option<Gang>,
    fail_fast: bool,
}

/// What a request says, its rules checked, as it is to be written. `O(size of the request)`.
///
/// # Errors
/// The first rule that is broken.
pub fn submission(message: JobSubmitRequest, rules: &Rules, request: &Request) -> Result<Submission, Refusal> {
    let asked = submission_of(message, rules)?;
    let checked = submission::check(&asked, rules)?;
    let mut written = Submission {
        at: request.at,
        queue: asked.queue,
        job_set: asked.job_set,
        user: request.user.clone(),
        specs: BTreeMap::new(),
        shapes: BTreeMap::new(),
        jobs: Vec::with_capacity(checked.len()),
    };
    let mut shapes = Shapes::new();
    let mut kinds: HashMap<usize, Kind> = HashMap::new();
    let random = request.random & ((1 << RANDOM_BITS) - 1);
    for (index, (checked, asked)) in checked.into_iter().zip(asked.items).enumerate() {
        let (of, priority, client_id, external_uri) = match checked {
            Checked::Item(mut job) => {
                let own = (index, job.priority, job.client_id.take(), job.external_job_uri.take());
                let spec = spec(&mut job, asked, &request.user, rules);
                let kind = kind(&job, spec, &mut shapes, &mut written);
                kinds.insert(index, kind.map_err(|source| Refusal::Template { index, source })?);
                own
            }
            Checked::Again { of, priority, client_id, external_job_uri } => (of, priority, client_id, external_job_uri),
        };
        let kind = kinds.get(&of).expect("an item comes before those that ask for the same");
        let submitted = Submitted {
            job: JobId::new(request.at, random + index as u128),
            spec: kind.spec,
            shape: kind.shape,
            priority,
            gang: kind.gang.clone(),
            fail_fast: kind.fail_fast,
        };
        written.jobs.push(NewJob { submitted, namespace: kind.namespace.clone(), client_id, external_uri });
    }
    Ok(written)
}

/// Writes what jobs share.
fn kind(
    job: &Completed,
    spec: JobSpec,
    shapes: &mut Shapes,
    written: &mut Submission,
) -> Result<Kind, serde_json::Error> {
    let (digest, bytes) = spec.write()?;
    written.specs.insert(digest, bytes);
    let placing = Placing::of(&spec);
    // A shape takes longer to make than to tell whether it is known, and jobs with programs of their own share it.
    let key = serde_json::to_vec(&placing)?;
    let shape = match shapes.get(&key) {
        Some(shape) => *shape,
        None => {
            let made = match &job.volcano_job {
                Some(whole) => whole_shape(job, &spec.namespace, whole)?,
                None => shape(job, placing)?,
            };
            let (shape, _) = canonical(&serde_json::to_value(&made)?)?;
            written.shapes.insert(shape, made);
            shapes.insert(key, shape);
            shape
        }
    };
    let gang = job.gang.as_ref().map(|gang| Gang {
        id: gang.id.clone(),
        cardinality: gang.cardinality,
        uniformity: gang.uniformity_label.clone(),
    });
    Ok(Kind { spec: digest, shape, namespace: spec.namespace, gang, fail_fast: job.fail_fast })
}

/// What a request asks for.
fn submission_of(message: JobSubmitRequest, rules: &Rules) -> Result<submission::Submission, Refusal> {
    let firsts = firsts(&message.job_request_items);
    let items = message.job_request_items.into_iter().zip(firsts).enumerate();
    let items = items.map(|(index, (asked, of))| {
        if of < index {
            let JobSubmitRequestItem { priority, client_id, external_job_uri, .. } = asked;
            return Ok(RequestedJob::Again(Again { of, priority, client_id, external_job_uri }));
        }
        let item = item(asked, rules).map_err(|cause| SubmitError::Item { index, cause })?;
        Ok(RequestedJob::Item(Box::new(item)))
    });
    Ok(submission::Submission {
        items: items.collect::<Result<_, Refusal>>()?,
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

/// What is kept of a job that was checked: it is taken out.
fn spec(job: &mut Completed, asked: RequestedJob, owner: &str, rules: &Rules) -> JobSpec {
    let (services, ingresses) = match asked {
        RequestedJob::Item(item) => (item.services, item.ingress),
        RequestedJob::Again(_) => (Vec::new(), Vec::new()),
    };
    let services = services.into_iter().map(|config| api::ServiceConfig {
        r#type: match config.service_type {
            ServiceType::NodePort => api::ServiceType::NodePort.into(),
            ServiceType::Headless => api::ServiceType::Headless.into(),
        },
        ports: config.ports,
        name: if rules.allow_custom_service_names { config.name } else { String::new() },
    });
    let ingresses = ingresses.into_iter().map(|config| api::IngressConfig {
        ports: config.ports,
        annotations: config.annotations,
        tls_enabled: config.tls_enabled,
        cert_name: config.cert_name,
        use_cluster_ip: config.use_cluster_ip,
        ..api::IngressConfig::default()
    });
    JobSpec {
        owner: owner.to_owned(),
        namespace: std::mem::take(&mut job.namespace),
        labels: std::mem::take(&mut job.labels),
        annotations: std::mem::take(&mut job.annotations),
        pod_spec: job.pod_spec.take(),
        services: services.collect(),
        ingresses: ingresses.collect(),
        scheduler: std::mem::take(&mut job.scheduler),
    }
}

/// What scheduling may read of a specification: all but what containers run.
#[derive(Serialize)]
struct Placing<'s> {
    namespace: &'s str,
    labels: &'s BTreeMap<String, String>,
    annotations: &'s BTreeMap<String, String>,
    pod_spec: Value,
}

/// Fields of containers that place no pod.
const PROGRAM: [&str; 3] = ["args", "command", "env"];

impl<'s> Placing<'s> {
    fn of(spec: &'s JobSpec) -> Placing<'s> {
        let JobSpec { namespace, labels, annotations, pod_spec, .. } = spec;
        let container = |container: &Value| match container {
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(name, _)| !PROGRAM.contains(&name.as_str()));
                Value::Object(kept.map(|(name, field)| (name.clone(), field.clone())).collect())
            }
            other => other.clone(),
        };
        let field = |(name, field): (&String, &Value)| match (name.as_str(), field) {
            ("containers" | "initContainers", Value::Array(list)) => {
                (name.clone(), Value::Array(list.iter().map(container).collect()))
            }
            _ => (name.clone(), field.clone()),
        };
        let pod_spec = pod_spec.as_object().into_iter().flatten().map(field).collect();
        Placing { namespace, labels, annotations, pod_spec: Value::Object(pod_spec) }
    }
}

/// The shape of a job: what scheduling reads of it. Jobs of one shape wait in one line.
fn shape(job: &Completed, placing: Placing<'_>) -> Result<Shape, serde_json::Error> {
    let metadata = ObjectMeta {
        namespace: Some(placing.namespace.to_owned()),
        labels: Some(placing.labels.clone()),
        annotations: Some(placing.annotations.clone()),
        ..ObjectMeta::default()
    };
    let pod_spec: core::PodSpec = serde_json::from_value(placing.pod_spec)?;
    let shape = shape_of(&job.priority_class, &job.requests, &metadata, &pod_spec)?;
    Ok(Shape { price_band: job.price_band, retries: job.retries.clone(), ..shape })
}

/// What scheduling reads of a pod of a priority class that asks for so much.
///
/// # Errors
/// Where it has no JSON.
pub fn shape_of(
    class: &str,
    requests: &BTreeMap<String, Quantity>,
    metadata: &ObjectMeta,
    pod_spec: &core::PodSpec,
) -> Result<Shape, serde_json::Error> {
    let template = pumice_translate::pod_template(metadata, pod_spec);
    let amount = |(name, amount): (&String, &Quantity)| {
        (name.clone(), if name == "cpu" { amount.cpu_milli() } else { amount.value() })
    };
    Ok(Shape {
        priority_class: class.to_owned(),
        requests: requests.iter().map(amount).collect(),
        template: serde_json::to_value(template)?,
        volcano_job: None,
        price_band: None,
        retries: None,
    })
}

/// The shape of a Volcano job of that namespace: what scheduling reads of each of its templates, and all of it together.
///
/// # Errors
/// Where a template can't be read.
fn whole_shape(job: &Completed, namespace: &str, whole: &submission::VolcanoJob) -> Result<Shape, serde_json::Error> {
    let class = &job.priority_class;
    let parts: Vec<VolcanoTask> =
        whole.parts.iter().map(|one| part_shape(class, namespace, one)).collect::<Result<_, _>>()?;
    let mut requests: BTreeMap<String, i64> = BTreeMap::new();
    for part in &parts {
        for (name, amount) in &part.requests {
            let sum = requests.entry(name.clone()).or_default();
            *sum = sum.saturating_add(amount.saturating_mul(i64::from(part.pods)));
        }
    }
    Ok(Shape {
        priority_class: class.clone(),
        requests,
        template: serde_json::Value::Null,
        volcano_job: Some(VolcanoJob { least: whole.least, parts }),
        price_band: job.price_band,
        retries: job.retries.clone(),
    })
}

fn part_shape(class: &str, namespace: &str, part: &submission::VolcanoTask) -> Result<VolcanoTask, serde_json::Error> {
    let metadata: ObjectMeta = serde_json::from_value(part.template["metadata"].clone())?;
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        labels: metadata.labels,
        annotations: metadata.annotations,
        ..ObjectMeta::default()
    };
    let pod_spec: core::PodSpec = serde_json::from_value(part.template["spec"].clone())?;
    let Shape { requests, template, .. } = shape_of(class, &part.requests, &metadata, &pod_spec)?;
    Ok(VolcanoTask { pods: part.pods, requests, template })
}

#[cfg(test)]
pub(super) mod tests;
