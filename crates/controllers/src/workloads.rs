//! ReplicaSets, Deployments, StatefulSets and Jobs of Kubernetes' own: the shell around their machines.
//!
//! Invariant: on a Kubernetes these are its controller manager's; they run where they are asked for, as `pumice up` does. Pods
//! are watched from the first object on that owns some: a platform without such objects pays for four empty watches. Pods with
//! the label of Volcano's Jobs are never looked at.

mod calls;
mod deployments;
mod pods;
mod stateful_sets;

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt as _;
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use pumice_api::names;
use pumice_cluster::{Change, EventRecorder, WatchScope, watch_all, watch_optional};
use pumice_machines::batch_job::{self, JobView};
use pumice_machines::replica_set::{self, SetView};
use pumice_machines::workload::{OwnedPod, WorkPlan, read_selector, reference_to};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::cron_jobs::until;
use crate::index::{self, key};
use crate::object_events::ObjectEvents;
use crate::small_loop::{Controller, Plan};
use calls::Carrying;
use pods::{Pods, SeenPod};
use pumice_clock as clock;

/// Something to look after.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    Deployment(index::Key),
    Job(index::Key),
    ReplicaSet(index::Key),
    StatefulSet(index::Key),
}

pub(crate) enum Input {
    Claim(Box<Change<PersistentVolumeClaim>>),
    Deployment(Box<Change<Deployment>>),
    Job(Box<Change<Job>>),
    Pod(Box<Change<SeenPod>>),
    ReplicaSet(Box<Change<ReplicaSet>>),
    Revision(Box<Change<ControllerRevision>>),
    StatefulSet(Box<Change<StatefulSet>>),
    /// Whether pods of this object could be made, and if not, why.
    Refused(Key, Option<String>),
}

macro_rules! input {
    ($($kind:ty => $input:ident),* $(,)?) => {
        $(impl From<Change<$kind>> for Input {
            fn from(change: Change<$kind>) -> Self {
                Self::$input(Box::new(change))
            }
        })*
    };
}

input! {
    ControllerRevision => Revision,
    Deployment => Deployment,
    Job => Job,
    PersistentVolumeClaim => Claim,
    ReplicaSet => ReplicaSet,
    SeenPod => Pod,
    StatefulSet => StatefulSet,
}

/// A watch that is begun when it is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Need {
    #[default]
    None,
    /// Something is there that it is for.
    Wanted,
    Begun,
}

impl Need {
    fn want(&mut self) {
        if *self == Self::None {
            *self = Self::Wanted;
        }
    }

    /// Whether it is to be begun now.
    fn begin(&mut self) -> bool {
        let begins = *self == Self::Wanted;
        if begins {
            *self = Self::Begun;
        }
        begins
    }
}

/// Everything that is known of them.
pub(crate) struct Workloads {
    client: Client,
    recorder: EventRecorder,
    deployments: Cache<Deployment>,
    replica_sets: Cache<ReplicaSet>,
    stateful_sets: Cache<StatefulSet>,
    jobs: Cache<Job>,
    pods: Pods,
    revisions: Cache<ControllerRevision>,
    claims: Cache<PersistentVolumeClaim>,
    of_pods: Need,
    of_places: Need,
    /// Why pods of an object could not be made.
    refused: BTreeMap<Key, String>,
}

impl Workloads {
    pub fn new(client: Client, recorder: EventRecorder) -> Self {
        Self {
            client,
            recorder,
            deployments: Cache::default(),
            replica_sets: Cache::default(),
            stateful_sets: Cache::default(),
            jobs: Cache::default(),
            pods: Pods::default(),
            revisions: Cache::default(),
            claims: Cache::default(),
            of_pods: Need::None,
            of_places: Need::None,
            refused: BTreeMap::new(),
        }
    }

    fn take_pods(&mut self, change: Change<SeenPod>, touched: &mut BTreeSet<Key>) {
        let Self { pods, deployments, replica_sets, stateful_sets, jobs, .. } = self;
        pods.take(change, |pod| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            if let Some(owner) = &pod.owner {
                // A Deployment that is recreated waits for the end of pods.
                if let Key::ReplicaSet(place) = owner {
                    let above = replica_sets.items.get(place).and_then(|set| deployment_of(&set.metadata));
                    let recreated = above.filter(|above| deployments.items.get(above).is_some_and(is_recreated));
                    touched.extend(recreated.map(Key::Deployment));
                }
                touched.insert(owner.clone());
                return;
            }
            // Whoever selects it may take it in, and nobody selects by nothing.
            if pod.seen.labels.is_empty() {
                return;
            }
            let fits = |selector| read_selector(selector).matches(|key| pod.seen.labels.get(key).map(String::as_str));
            for set in replica_sets.of_namespace(namespace) {
                if set.spec.as_ref().is_some_and(|spec| fits(&spec.selector)) {
                    touched.insert(Key::ReplicaSet(key(&set.metadata)));
                }
            }
            for set in stateful_sets.of_namespace(namespace) {
                if set.spec.as_ref().is_some_and(|spec| fits(&spec.selector)) {
                    touched.insert(Key::StatefulSet(key(&set.metadata)));
                }
            }
            for job in jobs.of_namespace(namespace) {
                if job.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_some_and(fits) {
                    touched.insert(Key::Job(key(&job.metadata)));
                }
            }
            if pod.seen.is_tracked
                && let Some(job) = pod.seen.labels.get(batch_job::NAME_LABEL)
            {
                touched.insert(Key::Job((namespace.to_owned(), job.clone())));
            }
        });
    }

    fn plan_replica_set(&self, place: &index::Key) -> Option<Plan<Input>> {
        let set = self.replica_sets.items.get(place)?;
        let key = Key::ReplicaSet(place.clone());
        let pods = self.pods.of(&key);
        let refused = self.refused.get(&key).map(String::as_str);
        let now = clock::now();
        let work = replica_set::step(&SetView { set, pods, refused }, now);
        let events = ObjectEvents::new(&self.recorder, reference_to::<ReplicaSet>(&set.metadata));
        Some(self.plan_work(key, events, work, now, |status| ReplicaSet { status: Some(status), ..set.clone() }, None))
    }

    fn plan_job(&self, place: &index::Key) -> Option<Plan<Input>> {
        let key = Key::Job(place.clone());
        let pods = self.pods.of(&key);
        let now = clock::now();
        let Some(job) = self.jobs.items.get(place) else {
            // Nobody counts them any more.
            let left: Vec<&OwnedPod> = pods
                .into_iter()
                .filter(|pod| pod.owner_uid.is_some() || pod.labels.get(batch_job::NAME_LABEL) == Some(&place.1))
                .collect();
            let pods = batch_job::abandoned(&left);
            let metadata =
                ObjectMeta { namespace: Some(place.0.clone()), name: Some(place.1.clone()), ..ObjectMeta::default() };
            let events = ObjectEvents::new(&self.recorder, reference_to::<Job>(&metadata));
            let work: WorkPlan<JobStatus> = WorkPlan { pods, ..WorkPlan::default() };
            return Some(self.plan_work(key, events, work, now, |_| Job::default(), None));
        };
        let former: Vec<&OwnedPod> =
            pods.iter().filter(|pod| pod.owner_uid.is_some() && pod.owner_uid != job.metadata.uid).copied().collect();
        let mut plan = batch_job::step(&JobView { job, pods }, now);
        plan.work.pods.extend(batch_job::abandoned(&former));
        let events = ObjectEvents::new(&self.recorder, reference_to::<Job>(&job.metadata));
        let over = if plan.is_over { job.metadata.uid.clone() } else { None };
        Some(self.plan_work(key, events, plan.work, now, |status| Job { status: Some(status), ..job.clone() }, over))
    }

    /// The calls of a plan about pods; at its end the object itself goes if it is `over`.
    fn plan_work<K, S>(
        &self,
        key: Key,
        events: ObjectEvents,
        work: WorkPlan<S>,
        now: Timestamp,
        with_status: impl FnOnce(S) -> K,
        over: Option<String>,
    ) -> Plan<Input>
    where
        K: crate::cron_jobs::Kind,
        Input: From<Change<K>>,
    {
        work.events.into_iter().for_each(|told| events.tell(told));
        let look_again = work.wake_at.map(|at| Instant::now() + until(at, now));
        let object = work.status.map(|status| with_status(*status));
        if object.is_none() && work.pods.is_empty() && over.is_none() {
            return Plan { call: None, look_again };
        }
        let carrying = Carrying { client: self.client.clone(), events, key };
        Plan { call: Some(carrying.work(object, work.pods, over).boxed()), look_again }
    }
}

fn is_recreated(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// The uid of who controls an object.
fn controller(metadata: &ObjectMeta) -> Option<&str> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// The Deployment that controls a ReplicaSet.
fn deployment_of(set: &ObjectMeta) -> Option<index::Key> {
    let mut owners = set.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true) && owner.kind == "Deployment")?;
    Some((set.namespace.clone().unwrap_or_default(), owner.name.clone()))
}

impl Controller for Workloads {
    const NAME: &'static str = "workload";
    /// While many pods come and go there is always a count to write.
    const ROUNDS_MAX: u32 = 1024;
    type Key = Key;
    type Input = Input;

    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Input>> {
        let mut feed = SelectAll::new();
        let all = WatchScope::default;
        feed.push(watch_optional(Api::<Deployment>::all(client.clone()), all()).map(Input::from).boxed());
        feed.push(watch_optional(Api::<ReplicaSet>::all(client.clone()), all()).map(Input::from).boxed());
        feed.push(watch_optional(Api::<StatefulSet>::all(client.clone()), all()).map(Input::from).boxed());
        feed.push(watch_optional(Api::<Job>::all(client.clone()), all()).map(Input::from).boxed());
        feed
    }

    fn more(&mut self, client: &Client) -> Vec<BoxStream<'static, Input>> {
        let mut more = Vec::new();
        if self.of_pods.begin() {
            let scope = WatchScope::labels(format!("!{}", names::JOB_NAME));
            more.push(watch_all::<SeenPod>(client, scope).map(Input::from).boxed());
        }
        if self.of_places.begin() {
            let all = WatchScope::default;
            let claims = watch_optional(Api::<PersistentVolumeClaim>::all(client.clone()), all());
            let revisions = watch_optional(Api::<ControllerRevision>::all(client.clone()), all());
            more.push(claims.map(Input::from).boxed());
            more.push(revisions.map(Input::from).boxed());
        }
        more
    }

    fn is_complete(&self) -> bool {
        let kinds = self.deployments.is_listed
            && self.replica_sets.is_listed
            && self.stateful_sets.is_listed
            && self.jobs.is_listed;
        let pods = self.of_pods == Need::None || self.pods.is_listed();
        let places = self.of_places == Need::None || (self.claims.is_listed && self.revisions.is_listed);
        kinds && pods && places
    }

    fn take(&mut self, input: Input, touched: &mut BTreeSet<Key>) {
        match input {
            Input::Deployment(change) => self.deployments.take(*change, |deployment, _| {
                touched.insert(Key::Deployment(key(&deployment.metadata)));
            }),
            Input::ReplicaSet(change) => {
                let Self { replica_sets, deployments, of_pods, .. } = self;
                replica_sets.take(*change, |set, _| {
                    of_pods.want();
                    touched.insert(Key::ReplicaSet(key(&set.metadata)));
                    match deployment_of(&set.metadata) {
                        Some(above) => drop(touched.insert(Key::Deployment(above))),
                        None => {
                            let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
                            let near = deployments.of_namespace(namespace);
                            touched.extend(near.map(|one| Key::Deployment(key(&one.metadata))));
                        }
                    }
                });
            }
            Input::StatefulSet(change) => {
                let Self { stateful_sets, of_pods, of_places, .. } = self;
                stateful_sets.take(*change, |set, _| {
                    of_pods.want();
                    of_places.want();
                    touched.insert(Key::StatefulSet(key(&set.metadata)));
                });
            }
            Input::Job(change) => {
                let Self { jobs, of_pods, .. } = self;
                jobs.take(*change, |job, _| {
                    of_pods.want();
                    touched.insert(Key::Job(key(&job.metadata)));
                });
            }
            Input::Pod(change) => self.take_pods(*change, touched),
            Input::Revision(change) => self.revisions.take(*change, |revision, _| {
                let mut owners = revision.metadata.owner_references.iter().flatten();
                if let Some(owner) = owners.find(|owner| owner.controller == Some(true)) {
                    let namespace = revision.metadata.namespace.clone().unwrap_or_default();
                    touched.insert(Key::StatefulSet((namespace, owner.name.clone())));
                }
            }),
            Input::Claim(change) => self.claims.take(*change, |_, _| {}),
            Input::Refused(key, None) => drop(self.refused.remove(&key)),
            Input::Refused(key, Some(why)) => drop(self.refused.insert(key, why)),
        }
    }

    fn plan(&mut self, key: &Key) -> Plan<Input> {
        let plan = match key {
            Key::Deployment(place) => self.plan_deployment(place),
            Key::ReplicaSet(place) => self.plan_replica_set(place),
            Key::StatefulSet(place) => self.plan_stateful_set(place),
            Key::Job(place) => self.plan_job(place),
        };
        plan.unwrap_or_else(|| {
            self.refused.remove(key);
            Plan { call: None, look_again: None }
        })
    }
}
