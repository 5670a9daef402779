//! Retention: finished work leaves after a time, or when there is more than a number of it.
//!
//! Invariant: what leaves is decided by `machines::retention` from what exists, so a restart changes nothing. At most
//! [`DELETES_MAX`] removals are under way at once, so that a flood of finished work holds nobody up, and each is of the very
//! object that was looked at, by uid. Nothing leaves before the history has taken it in. On a cluster of others only Volcano's
//! kinds are watched.

mod known;
mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use pumice_api::batch::Job;
use pumice_api::flow::JobFlow;
use pumice_api::retention::Retention;
use pumice_cluster::{Change, Failure, WatchScope, failure, watch_all, watch_optional};
use pumice_machines::retention::{Class, Kind, Reason, decide};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::cron_jobs::until;
use crate::metrics::Metrics;
use crate::small_loop::{Answer, Controller, Plan};
use known::{Known, Leaver};
use pumice_clock as clock;
use read::{ReadBatchJob, ReadFlow, ReadJob, ReadObject, ReadPod};

/// Most removals at once, of all namespaces and kinds.
const DELETES_MAX: usize = 8;
/// Most removals of one plan.
const PLAN_MAX: usize = 64;
/// Longest sleep; the wall clock may jump.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Time until the history is asked again.
const HISTORY_PAUSE: Duration = Duration::from_secs(1);
/// Pods that have ended. Of those that run nothing is told.
const ENDED_PODS: &str = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown";

/// Says whether the history has taken in all that was written of a kind up to a resource version.
pub type TakenIn = Arc<dyn Fn(Kind, &str) -> bool + Send + Sync>;

/// A class in a namespace.
pub(crate) type Key = (Class, String);

/// A change of one of the kinds.
pub(crate) enum Input {
    Work(Kind, Change<ReadObject>),
    Namespace(Change<PartialObjectMeta<Namespace>>),
}

/// Everything that is known of finished work.
pub(crate) struct Removals {
    client: Client,
    metrics: Metrics,
    defaults: Retention,
    /// Bounds of namespaces that say their own.
    of_namespaces: BTreeMap<String, Retention>,
    namespaces_listed: bool,
    own_cluster: bool,
    taken_in: Option<TakenIn>,
    known: Known,
    room: Arc<Semaphore>,
}

impl Removals {
    pub fn new(
        client: Client,
        metrics: Metrics,
        defaults: Retention,
        own_cluster: bool,
        taken_in: Option<TakenIn>,
    ) -> Self {
        Self {
            client,
            metrics,
            defaults,
            of_namespaces: BTreeMap::new(),
            namespaces_listed: false,
            own_cluster,
            taken_in,
            known: Known::default(),
            room: Arc::new(Semaphore::new(DELETES_MAX)),
        }
    }

    fn retention(&self, namespace: &str) -> &Retention {
        self.of_namespaces.get(namespace).unwrap_or(&self.defaults)
    }

    fn namespace(&mut self, namespace: &PartialObjectMeta<Namespace>, is_there: bool, touched: &mut BTreeSet<Key>) {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        let none = BTreeMap::new();
        let annotations = namespace.metadata.annotations.as_ref();
        let annotations = if is_there { annotations.unwrap_or(&none) } else { &none };
        let (said, errors) = self.defaults.of_namespace(annotations);
        for error in errors {
            tracing::warn!(namespace = name, %error, "the platform's bound counts in its place");
        }
        let before = *self.retention(&name);
        if said == self.defaults {
            self.of_namespaces.remove(&name);
        } else {
            self.of_namespaces.insert(name.clone(), said);
        }
        if said != before {
            touched.extend(self.known.classes(&name));
        }
    }

    fn namespaces(&mut self, change: Change<PartialObjectMeta<Namespace>>, touched: &mut BTreeSet<Key>) {
        match change {
            Change::Applied(one) => self.namespace(&one, true, touched),
            Change::Deleted(one) => self.namespace(&one, false, touched),
            Change::Replace(all) => {
                self.namespaces_listed = true;
                for name in std::mem::take(&mut self.of_namespaces).into_keys() {
                    touched.extend(self.known.classes(&name));
                }
                all.iter().for_each(|one| self.namespace(one, true, touched));
            }
        }
    }
}

impl Controller for Removals {
    const NAME: &'static str = "retention";
    /// Each plan takes a part of what is to leave, so one follows another until nothing is.
    const ROUNDS_MAX: u32 = u32::MAX;
    type Key = Key;
    type Input = Input;

    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Input>> {
        let mut feed = SelectAll::new();
        let all = WatchScope::default;
        feed.push(watch_all(client, all()).map(|change| work::<ReadJob>(Kind::Job, change)).boxed());
        let flows = watch_optional(Api::all(client.clone()), all());
        feed.push(flows.map(|change| work::<ReadFlow>(Kind::JobFlow, change)).boxed());
        feed.push(watch_optional(Api::all(client.clone()), all()).map(Input::Namespace).boxed());
        if self.own_cluster {
            feed.push(watch_all(client, all()).map(|change| work::<ReadBatchJob>(Kind::BatchJob, change)).boxed());
            let ended = WatchScope::fields(ENDED_PODS);
            feed.push(watch_all(client, ended).map(|change| work::<ReadPod>(Kind::Pod, change)).boxed());
        }
        feed
    }

    fn is_complete(&self) -> bool {
        let volcanos = [Kind::Job, Kind::JobFlow];
        let all = [Kind::Job, Kind::JobFlow, Kind::BatchJob, Kind::Pod];
        self.namespaces_listed && self.known.are_listed(if self.own_cluster { &all } else { &volcanos })
    }

    fn take(&mut self, input: Input, touched: &mut BTreeSet<Key>) {
        match input {
            Input::Work(kind, change) => self.known.take(kind, change, touched),
            Input::Namespace(change) => self.namespaces(change, touched),
        }
    }

    fn plan(&mut self, key: &Key) -> Plan<Input> {
        let (class, namespace) = key;
        let bounds = class.bounds(self.retention(namespace));
        let now = clock::now();
        let Some(finished) = self.known.finished(key) else { return Plan { call: None, look_again: None } };
        let decision = decide(finished, bounds, now, PLAN_MAX);
        let look_again = decision.wake_at.map(|at| Instant::now() + until(at, now).min(SLEEP_MAX));
        if decision.leaving.is_empty() {
            return Plan { call: None, look_again };
        }
        let leavers = decision.leaving.into_iter();
        let leavers = leavers.filter_map(|(one, reason)| Some((self.known.leaver(key, &one.name)?, reason)));
        let is_taken_in =
            |leaver: &Leaver| self.taken_in.as_ref().is_none_or(|taken_in| taken_in(class.kind(), &leaver.version));
        let leavers: Vec<_> = leavers.take_while(|(leaver, _)| is_taken_in(leaver)).collect();
        if leavers.is_empty() {
            return Plan { call: None, look_again: Some(Instant::now() + HISTORY_PAUSE) };
        }
        let removal =
            Removal { client: self.client.clone(), metrics: self.metrics.clone(), room: Arc::clone(&self.room) };
        Plan { call: Some(removal.carry_out(class.kind(), leavers).boxed()), look_again }
    }
}

fn work<R: Into<ReadObject>>(kind: Kind, change: Change<R>) -> Input {
    Input::Work(kind, change.map(Into::into))
}

/// Objects on their way out.
struct Removal {
    client: Client,
    metrics: Metrics,
    room: Arc<Semaphore>,
}

impl Removal {
    async fn carry_out(self, kind: Kind, leavers: Vec<(Leaver, Reason)>) -> Answer<Input> {
        let mut answer = Answer { observed: Vec::new(), failure: None };
        let removals = stream::iter(leavers).map(|(leaver, reason)| self.one(kind, leaver, reason));
        let mut removals = removals.buffer_unordered(DELETES_MAX);
        while let Some(removed) = removals.next().await {
            match removed {
                Ok(gone) => answer.observed.push(Input::Work(kind, Change::Deleted(gone))),
                Err(error) => answer.failure = answer.failure.or(Some(failure(&error))),
            }
        }
        drop(removals);
        answer
    }

    async fn one(&self, kind: Kind, leaver: Leaver, reason: Reason) -> Result<ReadObject, kube::Error> {
        let room = self.room.acquire().await;
        match kind {
            Kind::Job => self.delete::<Job>(&leaver).await,
            Kind::BatchJob => self.delete::<batch::Job>(&leaver).await,
            Kind::JobFlow => self.delete::<JobFlow>(&leaver).await,
            Kind::Pod => self.delete::<Pod>(&leaver).await,
        }?;
        drop(room);
        self.metrics.removed(kind, reason);
        tracing::debug!(?kind, namespace = leaver.namespace, name = &*leaver.name, ?reason, "finished work left");
        Ok(leaver.into())
    }

    /// Deletes an object and what it made. Who is gone already, or another of that name, is none of ours.
    async fn delete<K>(&self, leaver: &Leaver) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let params = DeleteParams {
            // What has ended needs no time to end.
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(leaver.uid.to_string()), resource_version: None }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let api = Api::<PartialObjectMeta<K>>::namespaced(self.client.clone(), &leaver.namespace);
        match api.delete(&leaver.name, &params).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(failure(&error), Failure::NotFound | Failure::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
