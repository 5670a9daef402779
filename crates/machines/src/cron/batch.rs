//! Kubernetes' own CronJobs and Jobs.

use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use pumice_api::batch::ConcurrencyPolicy;

use super::{Cron, End, Recorded, Run, Terms};
use crate::batch_job::outcome;
use crate::workload::{owner_of, reference_to};

impl Cron for CronJob {
    type Job = Job;
    type Status = CronJobStatus;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn times(&self) -> (&str, Option<&str>) {
        (&self.spec.schedule, self.spec.time_zone.as_deref())
    }

    fn terms(&self) -> Terms {
        let spec = &self.spec;
        let policy = match spec.concurrency_policy.as_deref() {
            Some("Forbid") => Some(ConcurrencyPolicy::Forbid),
            Some("Replace") => Some(ConcurrencyPolicy::Replace),
            _ => None,
        };
        Terms {
            is_suspended: spec.suspend == Some(true),
            policy,
            deadline_seconds: spec.starting_deadline_seconds,
            successes_kept: spec.successful_jobs_history_limit,
            failures_kept: spec.failed_jobs_history_limit,
        }
    }

    fn recorded(&self) -> Recorded {
        let status = self.status.clone().unwrap_or_default();
        Recorded {
            active: status.active.unwrap_or_default(),
            scheduled: status.last_schedule_time.map(|time| time.0),
            succeeded: status.last_successful_time.map(|time| time.0),
        }
    }

    fn changed_status(&self, next: Recorded) -> Option<CronJobStatus> {
        let next = CronJobStatus {
            active: Some(next.active).filter(|active| !active.is_empty()),
            last_schedule_time: next.scheduled.map(Time),
            last_successful_time: next.succeeded.map(Time),
        };
        (next != self.status.clone().unwrap_or_default()).then_some(next)
    }

    fn with_status(&self, status: CronJobStatus) -> Self {
        Self { status: Some(status), ..self.clone() }
    }

    fn job(&self, name: String, time: String) -> Job {
        let template = self.spec.job_template.clone();
        let given = template.metadata.unwrap_or_default();
        let mut annotations = given.annotations.unwrap_or_default();
        annotations.insert(Job::TIME.to_owned(), time);
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: self.metadata.namespace.clone(),
            labels: given.labels,
            annotations: Some(annotations),
            finalizers: given.finalizers,
            owner_references: Some(vec![owner_of::<Self>(&self.metadata)]),
            ..ObjectMeta::default()
        };
        Job { metadata, spec: template.spec, status: None }
    }
}

impl Run for Job {
    const TIME: &'static str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn end(&self) -> Option<End> {
        let is_success = outcome(self)?;
        let at = self.status.as_ref().and_then(|status| status.completion_time.as_ref()).map(|time| time.0);
        Some(End { is_success, at, word: if is_success { "Complete" } else { "Failed" }.to_owned() })
    }

    fn reference(&self) -> ObjectReference {
        reference_to::<Self>(&self.metadata)
    }

    /// One that somebody made of a CronJob by hand keeps nobody waiting.
    fn is_scheduled(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(Self::TIME))
    }
}
