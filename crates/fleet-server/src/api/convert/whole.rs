//! What scheduling reads of a whole job: of each of its templates what it reads of a pod, and all of it together.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_fleet_model::submission::{self, Completed};
use pumice_ledger::{Part, Shape, Whole};

use super::shape_of;

/// The shape of a whole job of that namespace.
///
/// # Errors
/// Where a template can't be read.
pub(super) fn shape(job: &Completed, namespace: &str, whole: &submission::Whole) -> Result<Shape, serde_json::Error> {
    let class = &job.priority_class;
    let parts: Vec<Part> = whole.parts.iter().map(|one| part(class, namespace, one)).collect::<Result<_, _>>()?;
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
        whole: Some(Whole { least: whole.least, parts }),
        price_band: job.price_band,
        retries: job.retries.clone(),
    })
}

fn part(class: &str, namespace: &str, part: &submission::Part) -> Result<Part, serde_json::Error> {
    let metadata: ObjectMeta = serde_json::from_value(part.template["metadata"].clone())?;
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        labels: metadata.labels,
        annotations: metadata.annotations,
        ..ObjectMeta::default()
    };
    let pod_spec: core::PodSpec = serde_json::from_value(part.template["spec"].clone())?;
    let Shape { requests, template, .. } = shape_of(class, &part.requests, &metadata, &pod_spec)?;
    Ok(Part { pods: part.pods, requests, template })
}
