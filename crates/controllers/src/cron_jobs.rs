//! CronJobs: the shell around the CronJob machine.
//!
//! Invariant: a Job belongs to the CronJob that controls it, by uid. Of Jobs only those with the label of a CronJob are watched.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PostParams;
use kube::{Api, Client};
use pumice_api::batch::{CronJob, Job};
use pumice_api::names;
use pumice_cluster::events::{Occurrence, Severity};
use pumice_cluster::{Change, EventRecorder, WatchScope, failure, watch_optional, words};
use pumice_machines::cron::{CronEffect, CronView, Schedule, ScheduleError, step, zone_name};
use tokio::time::Instant;

use crate::clock;
use crate::index::{Key, key};
use crate::made_jobs::{controller_of, delete};
use crate::shelf::Shelf;
use crate::small_loop::{Answer, Controller, Plan};

pub(crate) enum Input {
    Cron(Box<Change<CronJob>>),
    Job(Box<Change<Job>>),
}

fn cron_input(change: Change<CronJob>) -> Input {
    Input::Cron(Box::new(change))
}

fn job_input(change: Change<Job>) -> Input {
    Input::Job(Box::new(change))
}

/// Everything that is known of CronJobs.
pub(crate) struct CronJobs {
    client: Client,
    recorder: EventRecorder,
    crons: Shelf<CronJob>,
    jobs: Shelf<Job>,
    /// Names of the Jobs of each CronJob.
    made: BTreeMap<Key, BTreeSet<String>>,
}

impl CronJobs {
    pub fn new(client: Client, recorder: EventRecorder) -> Self {
        Self { client, recorder, crons: Shelf::default(), jobs: Shelf::default(), made: BTreeMap::new() }
    }
}

impl Controller for CronJobs {
    const NAME: &'static str = "cronjob";
    type Key = Key;
    type Input = Input;

    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Input>> {
        let mut feed = SelectAll::new();
        feed.push(watch_optional(Api::all(client.clone()), WatchScope::default()).map(cron_input).boxed());
        let of_crons = WatchScope::labels(names::CRON_JOB);
        feed.push(watch_optional(Api::all(client.clone()), of_crons).map(job_input).boxed());
        feed
    }

    fn is_complete(&self) -> bool {
        self.crons.is_listed && self.jobs.is_listed
    }

    fn take(&mut self, input: Input, touched: &mut BTreeSet<Key>) {
        let Self { crons, jobs, made, .. } = self;
        match input {
            Input::Cron(change) => crons.take(*change, |cron, _| {
                touched.insert(key(&cron.metadata));
            }),
            Input::Job(change) => jobs.take(*change, |job, is_there| {
                let Some(owner) = controller_of(job, CronJob::KIND) else { return };
                let (namespace, name) = key(&job.metadata);
                let cron = (namespace, owner.name.clone());
                let of_cron = made.entry(cron.clone()).or_default();
                if is_there {
                    of_cron.insert(name);
                } else {
                    of_cron.remove(&name);
                }
                if of_cron.is_empty() {
                    made.remove(&cron);
                }
                touched.insert(cron);
            }),
        }
    }

    fn plan(&mut self, key: &Key) -> Plan<Input> {
        let idle = Plan { call: None, look_again: None };
        let Some(cron) = self.crons.items.get(key) else { return idle };
        let names = self.made.get(key).into_iter().flatten();
        let jobs = names.filter_map(|name| self.jobs.items.get(&(key.0.clone(), name.clone())));
        let ours =
            jobs.filter(|job| controller_of(job, CronJob::KIND).map(|owner| &owner.uid) == cron.metadata.uid.as_ref());
        let schedule = read(cron);
        let now = clock::now();
        let plan = step(&CronView { cron, schedule: schedule.as_ref(), jobs: ours.collect() }, now);
        let mut effects = Vec::new();
        for effect in plan.effects {
            match effect {
                CronEffect::Record { is_warning, reason, message } => {
                    let severity = if is_warning { Severity::Warning } else { Severity::Normal };
                    let (about, reason) = (reference(cron), reason.to_owned());
                    self.recorder.record(Occurrence { about, severity, reason, message, at: now });
                }
                effect => effects.push(effect),
            }
        }
        let look_again = plan.wake_at.map(|at| Instant::now() + until(at, now));
        if effects.is_empty() {
            return Plan { call: None, look_again };
        }
        let carrying = Carrying { client: self.client.clone(), recorder: self.recorder.clone(), cron: cron.clone() };
        Plan { call: Some(carrying.carry_out(effects).boxed()), look_again }
    }
}

/// The schedule of a CronJob, in its time zone or in this machine's.
fn read(cron: &CronJob) -> Result<Schedule, ScheduleError> {
    let spec = &cron.spec;
    let zone = match zone_name(&spec.schedule, spec.time_zone.as_deref()) {
        Some(name) => TimeZone::get(name).map_err(|_| ScheduleError::UnknownZone(name.to_owned()))?,
        None => TimeZone::system(),
    };
    Schedule::read(&spec.schedule, zone)
}

fn until(at: Timestamp, now: Timestamp) -> std::time::Duration {
    at.duration_since(now).try_into().unwrap_or_default()
}

/// Effects of one CronJob on their way.
struct Carrying {
    client: Client,
    recorder: EventRecorder,
    /// The CronJob as the plan saw it.
    cron: CronJob,
}

impl Carrying {
    async fn carry_out(self, effects: Vec<CronEffect>) -> Answer<Input> {
        let mut answer = Answer { observed: Vec::new(), failure: None };
        for effect in effects {
            match self.one(effect).await {
                Ok(observed) => answer.observed.extend(observed),
                Err(error) => answer.failure = answer.failure.or(Some(failure(&error))),
            }
        }
        answer
    }

    async fn one(&self, effect: CronEffect) -> Result<Option<Input>, kube::Error> {
        let (namespace, name) = key(&self.cron.metadata);
        match effect {
            CronEffect::CreateJob(job) => {
                let jobs: Api<Job> = Api::namespaced(self.client.clone(), &namespace);
                let name = job.metadata.name.clone().unwrap_or_default();
                let created = jobs.create(&PostParams::default(), &job).await;
                match &created {
                    Ok(_) => self.record(Severity::Normal, "SuccessfulCreate", format!("Created job {name}")),
                    Err(error) => {
                        let message = format!("can't create job {name}: {}", words(error));
                        self.record(Severity::Warning, "FailedCreate", message);
                    }
                }
                created.map(|job| Some(job_input(Change::Applied(job))))
            }
            CronEffect::DeleteJob { name, uid } => {
                let left = delete(&self.client, &namespace, &name, uid).await?;
                self.record(Severity::Normal, "SuccessfulDelete", format!("Deleted job {name}"));
                Ok(Some(job_input(left)))
            }
            CronEffect::WriteStatus(status) => {
                let api: Api<CronJob> = Api::namespaced(self.client.clone(), &namespace);
                // A merge would keep times that the new status leaves out.
                let cron = CronJob { status: *status, ..self.cron.clone() };
                let written = api.replace_status(&name, &PostParams::default(), &cron).await?;
                Ok(Some(cron_input(Change::Applied(written))))
            }
            CronEffect::Record { .. } => Ok(None),
        }
    }

    fn record(&self, severity: Severity, reason: &str, message: String) {
        let (about, reason) = (reference(&self.cron), reason.to_owned());
        self.recorder.record(Occurrence { about, severity, reason, message, at: clock::now() });
    }
}

fn reference(cron: &CronJob) -> ObjectReference {
    ObjectReference {
        api_version: Some(CronJob::API_VERSION.to_owned()),
        kind: Some(CronJob::KIND.to_owned()),
        namespace: cron.metadata.namespace.clone(),
        name: cron.metadata.name.clone(),
        uid: cron.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
