//! Volcano's CronJobs and Jobs.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use pumice_api::batch::{CronJob, CronJobStatus, Job, JobPhase};
use pumice_api::names;

use super::{Cron, End, Recorded, Run, Terms};
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
        Terms {
            is_suspended: self.spec.suspend == Some(true),
            policy: self.spec.concurrency_policy.clone(),
            deadline_seconds: self.spec.starting_deadline_seconds,
            successes_kept: self.spec.successful_jobs_history_limit,
            failures_kept: self.spec.failed_jobs_history_limit,
        }
    }

    fn recorded(&self) -> Recorded {
        Recorded {
            active: self.status.active.clone(),
            scheduled: self.status.last_schedule_time.as_ref().map(|time| time.0),
            succeeded: self.status.last_successful_time.as_ref().map(|time| time.0),
        }
    }

    fn changed_status(&self, next: Recorded) -> Option<CronJobStatus> {
        let next = CronJobStatus {
            active: next.active,
            last_schedule_time: next.scheduled.map(Time),
            last_successful_time: next.succeeded.map(Time),
        };
        (next != self.status).then_some(next)
    }

    fn with_status(&self, status: CronJobStatus) -> Self {
        Self { status, ..self.clone() }
    }

    fn job(&self, name: String, time: String) -> Job {
        let template = &self.spec.job_template;
        let mut annotations = template.metadata.annotations.clone().unwrap_or_default();
        annotations.insert(names::CRON_JOB_TIME.to_owned(), time);
        let user = self.metadata.annotations.as_ref().and_then(|all| all.get(names::USER));
        annotations.extend(user.map(|user| (names::USER.to_owned(), user.clone())));
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.insert(names::CRON_JOB.to_owned(), self.metadata.name.clone().unwrap_or_default());
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: self.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            finalizers: template.metadata.finalizers.clone(),
            owner_references: Some(vec![owner_of::<Self>(&self.metadata)]),
            ..ObjectMeta::default()
        };
        Job { metadata, spec: template.spec.clone(), ..Job::default() }
    }
}

impl Run for Job {
    const TIME: &'static str = names::CRON_JOB_TIME;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    /// A suspended one may run again.
    fn end(&self) -> Option<End> {
        let state = &self.status.state;
        let phase = state.phase.as_ref().filter(|phase| phase.is_finished())?;
        let at = state.last_transition_time.as_ref().map(|time| time.0);
        Some(End { is_success: *phase == JobPhase::Completed, at, word: phase.to_string() })
    }

    fn reference(&self) -> ObjectReference {
        reference_to::<Self>(&self.metadata)
    }
}
