//! CronJobs, Volcano's and Kubernetes' own: the shell around the CronJob machine.
//!
//! Invariant: a Job belongs to the CronJob that controls it, by uid. Of Volcano's Jobs only those with the label of a CronJob
//! are watched; Kubernetes' own carry none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use futures::FutureExt as _;
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1 as native;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use pumice_api::batch::CronJob;
use pumice_api::names;
use pumice_clock as clock;
use pumice_cluster::{Change, EventRecorder, WatchScope, failure, watch_optional, words};
use pumice_machines::cron::{Cron, CronEffect, CronView, EffectOf, Schedule, ScheduleError, step, zone_name};
use pumice_machines::workload::{WorkEvent, reference_to};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::cache::Cache;
use crate::deletion;
use crate::index::{Key, key};
use crate::object_events::ObjectEvents;
use crate::small_loop::{Answer, Controller, Plan};

/// A kind that is read from and written to the API.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + k8s_openapi::Resource
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Default
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + k8s_openapi::Resource
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Default
        + Send
        + Sync
        + 'static
{
}

/// A kind of CronJob, as its controller runs.
pub(crate) trait Scheduled: Cron<Job: Kind, Status: Send> + Kind {
    /// The name under which the controller is enabled, counted and logged.
    const CONTROLLER: &'static str;

    /// Its Jobs, and as few others as can be.
    fn jobs() -> WatchScope;
}

impl Scheduled for CronJob {
    const CONTROLLER: &'static str = "cronjob";

    fn jobs() -> WatchScope {
        WatchScope::labels(names::CRON_JOB)
    }
}

impl Scheduled for native::CronJob {
    const CONTROLLER: &'static str = "batch-cronjob";

    fn jobs() -> WatchScope {
        WatchScope::default()
    }
}

pub(crate) enum Input<C: Scheduled> {
    Cron(Box<Change<C>>),
    Job(Box<Change<C::Job>>),
}

fn cron_input<C: Scheduled>(change: Change<C>) -> Input<C> {
    Input::Cron(Box::new(change))
}

fn job_input<C: Scheduled>(change: Change<C::Job>) -> Input<C> {
    Input::Job(Box::new(change))
}

/// Everything that is known of CronJobs.
pub(crate) struct CronJobs<C: Scheduled = CronJob> {
    client: Client,
    recorder: EventRecorder,
    crons: Cache<C>,
    jobs: Cache<C::Job>,
    /// Names of the Jobs of each CronJob.
    made: BTreeMap<Key, BTreeSet<String>>,
}

/// The controller of CronJobs of `batch.volcano.sh`.
pub(crate) type OfVolcano = CronJobs<CronJob>;
/// The controller of CronJobs of `batch/v1`.
pub(crate) type Native = CronJobs<native::CronJob>;

impl<C: Scheduled> CronJobs<C> {
    pub fn new(client: Client, recorder: EventRecorder) -> Self {
        Self { client, recorder, crons: Cache::default(), jobs: Cache::default(), made: BTreeMap::new() }
    }
}

/// Name and uid of the CronJob that controls a Job.
fn maker<C: Scheduled>(job: &C::Job) -> Option<(&str, &str)> {
    let mut owners = Resource::meta(job).owner_references.iter().flatten();
    let of_cron = |version: &str| version == <C as k8s_openapi::Resource>::API_VERSION;
    let owner = owners.find(|owner| {
        owner.controller == Some(true)
            && owner.kind == <C as k8s_openapi::Resource>::KIND
            && of_cron(&owner.api_version)
    })?;
    Some((&owner.name, &owner.uid))
}

impl<C: Scheduled> Controller for CronJobs<C> {
    const NAME: &'static str = C::CONTROLLER;
    type Key = Key;
    type Input = Input<C>;

    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Input<C>>> {
        let mut feed = SelectAll::new();
        feed.push(watch_optional(Api::all(client.clone()), WatchScope::default()).map(cron_input).boxed());
        feed.push(watch_optional(Api::all(client.clone()), C::jobs()).map(job_input).boxed());
        feed
    }

    fn is_complete(&self) -> bool {
        self.crons.is_listed && self.jobs.is_listed
    }

    fn take(&mut self, input: Input<C>, touched: &mut BTreeSet<Key>) {
        let Self { crons, jobs, made, .. } = self;
        match input {
            Input::Cron(change) => crons.take(*change, |cron, _| {
                touched.insert(key(Resource::meta(cron)));
            }),
            Input::Job(change) => jobs.take(*change, |job, is_there| {
                let Some((owner, _)) = maker::<C>(job) else { return };
                let (namespace, name) = key(Resource::meta(job));
                let cron = (namespace, owner.to_owned());
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

    fn plan(&mut self, key: &Key) -> Plan<Input<C>> {
        let idle = Plan { call: None, look_again: None };
        let Some(cron) = self.crons.items.get(key) else { return idle };
        let names = self.made.get(key).into_iter().flatten();
        let jobs = names.filter_map(|name| self.jobs.items.get(&(key.0.clone(), name.clone())));
        let uid = Resource::meta(cron).uid.as_deref();
        let ours = jobs.filter(|job| maker::<C>(job).map(|(_, uid)| uid) == uid);
        let schedule = read(cron);
        let now = clock::now();
        let plan = step(&CronView { cron, schedule: schedule.as_ref(), jobs: ours.collect() }, now);
        let events = ObjectEvents::new(&self.recorder, reference_to::<C>(Resource::meta(cron)));
        let mut effects = Vec::new();
        for effect in plan.effects {
            match effect {
                CronEffect::Record { is_warning, reason, message } => {
                    events.tell(WorkEvent { is_warning, reason, message });
                }
                effect => effects.push(effect),
            }
        }
        let look_again = plan.wake_at.map(|at| Instant::now() + until(at, now));
        if effects.is_empty() {
            return Plan { call: None, look_again };
        }
        let carrying = Carrying { client: self.client.clone(), events, cron: cron.clone() };
        Plan { call: Some(carrying.carry_out(effects).boxed()), look_again }
    }
}

/// The schedule of a CronJob, in its time zone or in this machine's.
fn read(cron: &impl Cron) -> Result<Schedule, ScheduleError> {
    let (schedule, zone) = cron.times();
    let zone = match zone_name(schedule, zone) {
        Some(name) => TimeZone::get(name).map_err(|_| ScheduleError::UnknownZone(name.to_owned()))?,
        None => TimeZone::system(),
    };
    Schedule::read(schedule, zone)
}

/// How long it is until then.
pub(crate) fn until(at: Timestamp, now: Timestamp) -> std::time::Duration {
    at.duration_since(now).try_into().unwrap_or_default()
}

/// Effects of one CronJob on their way.
struct Carrying<C> {
    client: Client,
    events: ObjectEvents,
    /// The CronJob as the plan saw it.
    cron: C,
}

impl<C: Scheduled> Carrying<C> {
    async fn carry_out(self, effects: Vec<EffectOf<C>>) -> Answer<Input<C>> {
        let mut answer = Answer { observed: Vec::new(), failure: None };
        for effect in effects {
            match self.one(effect).await {
                Ok(observed) => answer.observed.extend(observed),
                Err(error) => answer.failure = answer.failure.or(Some(failure(&error))),
            }
        }
        answer
    }

    async fn one(&self, effect: EffectOf<C>) -> Result<Option<Input<C>>, kube::Error> {
        let (namespace, name) = key(Resource::meta(&self.cron));
        let jobs = || Api::<C::Job>::namespaced(self.client.clone(), &namespace);
        match effect {
            CronEffect::CreateJob(job) => {
                let name = Resource::meta(&*job).name.clone().unwrap_or_default();
                let created = jobs().create(&PostParams::default(), &job).await;
                match &created {
                    Ok(_) => self.tell(false, "SuccessfulCreate", format!("Created job {name}")),
                    Err(error) => self.tell(true, "FailedCreate", format!("can't create job {name}: {}", words(error))),
                }
                created.map(|job| Some(job_input(Change::Applied(job))))
            }
            CronEffect::DeleteJob { name, uid } => {
                let left = deletion::delete(&jobs(), Some(&namespace), &name, uid).await?;
                self.tell(false, "SuccessfulDelete", format!("Deleted job {name}"));
                Ok(Some(job_input(left)))
            }
            CronEffect::WriteStatus(status) => {
                let api: Api<C> = Api::namespaced(self.client.clone(), &namespace);
                // A merge would keep times that the new status leaves out.
                let cron = self.cron.with_status(*status);
                let written = api.replace_status(&name, &PostParams::default(), &cron).await?;
                Ok(Some(cron_input(Change::Applied(written))))
            }
            CronEffect::Record { .. } => Ok(None),
        }
    }

    fn tell(&self, is_warning: bool, reason: &'static str, message: String) {
        self.events.tell(WorkEvent { is_warning, reason, message });
    }
}
