//! What the database keeps of a job for its executor, under a digest of its content.
//!
//! Invariant: equal specifications have equal bytes, whatever the order in which their fields came; jobs share them, so the
//! job's id is put in when one is used. The names of fields are the format, and so is their order, which is that of the
//! alphabet: those of an earlier release are read for ever.

use std::collections::BTreeMap;

use pumice_fleet_model::submission::with_id;
use pumice_ledger::{Digest, JobId, RunId, TimeMs};
use pumice_objects::protobuf::ProtobufError;
use pumice_wire::api::{IngressConfig, Job, ServiceConfig};
use pumice_wire::executor::Lease;
use pumice_wire::kubernetes::PodSpec;
use serde::{Deserialize, Serialize, Serializer, ser};
use serde_json::Value;

use super::job_states::time;

/// What is needed to make the pod of a job. Jobs with equal specifications share one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// Annotations of the pod, before the id is put in.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Ingresses that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "in_order")]
    pub ingresses: Vec<IngressConfig>,
    /// Labels of the pod, before the id is put in.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Where its pod is made.
    pub namespace: String,
    pub owner: String,
    /// The pod spec in Kubernetes' JSON, with all defaults.
    #[serde(serialize_with = "value_in_order")]
    pub pod_spec: Value,
    /// The scheduler that was asked for; carried, never read.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler: String,
    /// Services that were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "in_order")]
    pub services: Vec<ServiceConfig>,
}

/// What its row or its submission tells of a job.
#[derive(Debug, Clone, Copy)]
pub struct JobTold<'j> {
    pub job: JobId,
    pub queue: &'j str,
    pub job_set: &'j str,
    /// Its place in the queue.
    pub priority: u32,
    /// When it was submitted.
    pub submitted: TimeMs,
}

impl JobSpec {
    /// Its JSON in one form, and the digest of that.
    ///
    /// # Errors
    /// Where it has no JSON.
    pub fn write(&self) -> Result<(Digest, Vec<u8>), serde_json::Error> {
        serde_json::to_vec(self).map(digested)
    }

    /// A specification of its JSON.
    ///
    /// # Errors
    /// Where it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Labels of the job's pod.
    pub fn labels_of(&self, job: JobId) -> BTreeMap<String, String> {
        with_id(&self.labels, &job.to_string())
    }

    /// Annotations of the job's pod.
    pub fn annotations_of(&self, job: JobId) -> BTreeMap<String, String> {
        with_id(&self.annotations, &job.to_string())
    }

    /// What a run's executor is told, apart from what its queue wants.
    ///
    /// # Errors
    /// Where the pod spec has no form on the wire, which no check lets through.
    pub fn lease(&self, run: RunId, queue: &str, job_set: &str, node: &str) -> Result<Lease, ProtobufError> {
        Ok(Lease {
            run_id: run.to_string(),
            job_id: run.job.to_string(),
            attempt: run.attempt,
            queue: queue.to_owned(),
            job_set: job_set.to_owned(),
            user: self.owner.clone(),
            namespace: self.namespace.clone(),
            node: node.to_owned(),
            pod_spec: Some(PodSpec::from_json(&self.pod_spec)?),
            labels: self.labels_of(run.job),
            annotations: self.annotations_of(run.job),
            services: self.services.clone(),
            ingresses: self.ingresses.clone(),
            ..Lease::default()
        })
    }

    /// The job as Armada's API tells of it.
    pub fn job(&self, told: JobTold<'_>) -> Job {
        Job {
            id: told.job.to_string(),
            job_set_id: told.job_set.to_owned(),
            queue: told.queue.to_owned(),
            priority: f64::from(told.priority),
            created: Some(time(told.submitted)),
            namespace: self.namespace.clone(),
            owner: self.owner.clone(),
            labels: self.labels_of(told.job),
            annotations: self.annotations_of(told.job),
            pod_specs: PodSpec::from_json(&self.pod_spec).into_iter().collect(),
            ingress: self.ingresses.clone(),
            services: self.services.clone(),
            scheduler: self.scheduler.clone(),
            ..Job::default()
        }
    }
}

/// JSON with its fields in order, and its digest.
pub fn canonical(value: &Value) -> Result<(Digest, Vec<u8>), serde_json::Error> {
    serde_json::to_vec(&InOrder(value)).map(digested)
}

/// The first half of the SHA-256.
fn digested(bytes: Vec<u8>) -> (Digest, Vec<u8>) {
    let hash = ring::digest::digest(&ring::digest::SHA256, &bytes);
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_ref()[..16]);
    (Digest(u128::from_be_bytes(half)), bytes)
}

fn in_order<S: Serializer>(value: &impl Serialize, serializer: S) -> Result<S::Ok, S::Error> {
    let value = serde_json::to_value(value).map_err(ser::Error::custom)?;
    value_in_order(&value, serializer)
}

fn value_in_order<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    InOrder(value).serialize(serializer)
}

/// JSON whose fields are written in the order of the alphabet. Recursive: pod specs are nested 32 levels at most.
struct InOrder<'v>(&'v Value);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => serializer.collect_seq(items.iter().map(InOrder)),
            Value::Object(fields) => {
                let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
                fields.sort_unstable_by_key(|(name, _)| *name);
                serializer.collect_map(fields.into_iter().map(|(name, field)| (name, InOrder(field))))
            }
            other => other.serialize(serializer),
        }
    }
}
