//! PodGroups for pods that nobody made one for: the shell around that machine.
//!
//! Invariant: of pods only those are watched that name one of our schedulers and are of no Volcano Job, and of each of them
//! only what its group needs is kept. A pod alone gets its group after its bind, or when it has waited for a while.

mod carry;
mod members;
mod natives;
mod owners;
mod part;

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use pumice_api::names;
use pumice_api::scheduling::PodGroup;
use pumice_cluster::{Change, EventRecorder, WatchScope, watch, watch_all, watch_optional};
use pumice_machines::pod_group::{GroupEffect, GroupView, Newest, Origin, OwnerFacts, Source, step};
use tokio::time::Instant;

use crate::cache::Cache;
use crate::index::{Key, key};
use crate::small_loop::{Controller, Plan};
use carry::{About, Carrying};
use members::{Gathered, Members, SeenPod};
use natives::{NativeChange, Natives};
use owners::{Kind, Owners, SlimOwner};
use pumice_clock as clock;

/// How long a pod alone may be on its way to a node before its group is made: most are bound by then, and a group made before
/// would be one more thing that the scheduler looks at.
const WAIT: Duration = Duration::from_secs(5);

pub(crate) enum Input {
    /// A pod of the scheduler name of this number.
    Pod(usize, Change<SeenPod>),
    /// The pod of this uid carries its group's name.
    Annotated(String),
    Group(Box<Change<PodGroup>>),
    Native(Box<NativeChange>),
    Owner(Kind, Change<SlimOwner>),
    /// The owner of this uid was looked for.
    Read(String, Option<OwnerFacts>),
}

fn group_input(change: Change<PodGroup>) -> Input {
    Input::Group(Box::new(change))
}

/// Everything that is known of pods without a group.
pub(crate) struct PodGroups {
    client: Client,
    recorder: EventRecorder,
    schedulers: Vec<String>,
    members: Members,
    groups: Cache<PodGroup>,
    natives: Natives,
    owners: Owners,
}

impl PodGroups {
    /// `schedulers` are the names whose pods get groups.
    pub fn new(client: Client, recorder: EventRecorder, schedulers: Vec<String>) -> Self {
        Self {
            client,
            recorder,
            members: Members::new(schedulers.len()),
            schedulers,
            groups: Cache::default(),
            natives: Natives::default(),
            owners: Owners::default(),
        }
    }

    fn source<'a>(&'a self, key: &Key, gathered: Option<&Gathered>) -> Source<'a> {
        match gathered.map(|gathered| &gathered.origin) {
            Some(Origin::Alone) => Source::Pod,
            Some(Origin::Native) => Source::Native(self.natives.look(key)),
            Some(Origin::Owned(owner)) => Source::Owner(self.owners.look(&key.0, owner)),
            // No pods: it may be the group of somebody who wants none.
            None => {
                let group = self.groups.items.get(key);
                let mut owners = group.into_iter().flat_map(|group| group.metadata.owner_references.iter().flatten());
                let owner = owners.find(|owner| names::made_group_name(&owner.uid) == key.1);
                owner.map_or(Source::Pod, |owner| Source::Owner(self.owners.look(&key.0, owner)))
            }
        }
    }

    fn effects(&self, key: &Key, gathered: Option<&Gathered>, may_wait: bool) -> Vec<GroupEffect> {
        step(&GroupView {
            namespace: &key.0,
            name: &key.1,
            group: self.groups.items.get(key),
            source: self.source(key, gathered),
            pods: gathered.map_or(0, |gathered| gathered.pods),
            staying: gathered.map_or(0, |gathered| gathered.staying),
            newest: gathered.map(|gathered| Newest {
                name: &gathered.newest.name,
                uid: &gathered.newest.uid,
                owners: &gathered.newest.owners,
                template: &gathered.newest.template,
            }),
            untold: gathered.map(Gathered::untold).unwrap_or_default(),
            may_wait,
        })
    }
}

impl Controller for PodGroups {
    const NAME: &'static str = "podgroup";
    type Key = Key;
    type Input = Input;

    fn feed(&self, client: &Client) -> SelectAll<BoxStream<'static, Input>> {
        let mut feed = SelectAll::new();
        for (number, name) in self.schedulers.iter().enumerate() {
            let scope = WatchScope {
                labels: Some(format!("!{}", names::JOB_NAME)),
                fields: Some(format!("spec.schedulerName={name}")),
            };
            feed.push(watch_all(client, scope).map(move |change| Input::Pod(number, change)).boxed());
        }
        let ours = WatchScope::labels(names::MADE_OF);
        feed.push(watch(Api::all(client.clone()), ours).map(group_input).boxed());
        for natives in Natives::watch(client) {
            feed.push(natives.map(|change| Input::Native(Box::new(change))).boxed());
        }
        for kind in Kind::WATCHED {
            let owners = Api::all_with(client.clone(), &kind.resource());
            let owners = watch_optional(owners, WatchScope::default());
            feed.push(owners.map(move |change| Input::Owner(*kind, change)).boxed());
        }
        feed
    }

    fn is_complete(&self) -> bool {
        self.members.is_listed() && self.groups.is_listed && self.natives.is_listed() && self.owners.is_listed()
    }

    fn take(&mut self, input: Input, touched: &mut BTreeSet<Key>) {
        let Self { members, groups, natives, owners, .. } = self;
        match input {
            Input::Pod(scheduler, change) => members.take(scheduler, change, touched),
            Input::Annotated(uid) => members.annotated(&uid),
            Input::Group(change) => groups.take(*change, |group, _| {
                touched.insert(key(&group.metadata));
            }),
            Input::Native(change) => natives.take(*change, |key| {
                if members.gathered(&key).is_some() {
                    touched.insert(key);
                }
            }),
            Input::Owner(kind, change) => owners.take(kind, change, |owner| {
                let metadata = &owner.metadata;
                let group = names::made_group_name(metadata.uid.as_deref().unwrap_or_default());
                let key = (metadata.namespace.clone().unwrap_or_default(), group);
                if members.gathered(&key).is_some() || groups.items.contains_key(&key) {
                    touched.insert(key);
                }
            }),
            Input::Read(uid, facts) => owners.read(uid, facts),
        }
    }

    fn plan(&mut self, key: &Key) -> Plan<Input> {
        let idle = Plan { call: None, look_again: None };
        let gathered = self.members.gathered(key);
        if gathered.is_none() {
            self.owners.forget(&key.1);
        }
        self.natives.note_lacking(key);
        let wait = gathered.and_then(|gathered| still_waits(gathered, clock::now()));
        let effects = self.effects(key, gathered, wait.is_some());
        if effects.is_empty() {
            // Only a group that is not there has anything to wait for.
            let look_again = match wait {
                Some(wait) if !self.groups.items.contains_key(key) => Some(Instant::now() + wait),
                _ => None,
            };
            return Plan { look_again, ..idle };
        }
        let about = gathered.map(|gathered| About {
            pod: ObjectMeta {
                namespace: Some(key.0.clone()),
                name: Some(gathered.newest.name.clone()),
                uid: Some(gathered.newest.uid.clone()),
                ..ObjectMeta::default()
            },
            origin: gathered.origin.clone(),
        });
        let carrying =
            Carrying { client: self.client.clone(), recorder: self.recorder.clone(), key: key.clone(), about };
        Plan { call: Some(carrying.carry_out(effects).boxed()), look_again: None }
    }
}

/// How long the group of a pod alone may still wait for its bind.
fn still_waits(gathered: &Gathered, now: Timestamp) -> Option<Duration> {
    if gathered.origin != Origin::Alone || gathered.is_bound || gathered.is_all_told() {
        return None;
    }
    let age = Duration::try_from(now.duration_since(gathered.newest.created)).unwrap_or_default();
    WAIT.checked_sub(age).filter(|wait| !wait.is_zero())
}
