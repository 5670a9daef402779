//! The Job of one time of a schedule.

use jiff::Timestamp;
use k8s_openapi::Resource as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pumice_api::batch::{CronJob, Job};
use pumice_api::names;

use super::Schedule;

/// The name says the time, so that a time has one Job however often it is made: in minutes, or in seconds where a minute has
/// several.
pub(super) fn job(cron: &CronJob, schedule: &Schedule, due: Timestamp) -> Job {
    let template = &cron.spec.job_template;
    let name = cron.metadata.name.clone().unwrap_or_default();
    let mut annotations = template.metadata.annotations.clone().unwrap_or_default();
    annotations.insert(names::CRON_JOB_TIME.to_owned(), schedule.shown(due));
    let user = cron.metadata.annotations.as_ref().and_then(|all| all.get(names::USER));
    annotations.extend(user.map(|user| (names::USER.to_owned(), user.clone())));
    let mut labels = template.metadata.labels.clone().unwrap_or_default();
    labels.insert(names::CRON_JOB.to_owned(), name.clone());
    let number = if schedule.is_dense() { due.as_second() } else { due.as_second().div_euclid(60) };
    let metadata = ObjectMeta {
        name: Some(format!("{name}-{number}")),
        namespace: cron.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations),
        finalizers: template.metadata.finalizers.clone(),
        owner_references: Some(vec![OwnerReference {
            api_version: CronJob::API_VERSION.to_owned(),
            kind: CronJob::KIND.to_owned(),
            name,
            uid: cron.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    Job { metadata, spec: template.spec.clone(), ..Job::default() }
}
