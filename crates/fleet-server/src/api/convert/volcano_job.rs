//! What scheduling reads of a Volcano job: of each of its templates what it reads of a pod, and all of it together.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_fleet_model::submission::{self, Completed};
use pumice_ledger::{Shape, VolcanoJob, VolcanoTask};

use super::shape_of;

/// The shape of a Volcano job of that namespace.
///
/// # Errors
/// Where a template can't be read.
pub(super) fn shape(
    job: &Completed,
    namespace: &str,
    whole: &submission::VolcanoJob,
) -> Result<Shape, serde_json::Error> {
    let class = &job.priority_class;
    let parts: Vec<VolcanoTask> =
        whole.parts.iter().map(|one| part(class, namespace, one)).collect::<Result<_, _>>()?;
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

fn part(class: &str, namespace: &str, part: &submission::VolcanoTask) -> Result<VolcanoTask, serde_json::Error> {
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
