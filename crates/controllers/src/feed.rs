//! All watches as one stream.
//!
//! Invariant: pods are listed after Jobs, so that a job's status never counts a pod that the index has yet to see; a pod that
//! is missing then is gone.

use std::fmt::Debug;

use futures::stream::{BoxStream, SelectAll, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use pumice_api::batch::Job;
use pumice_api::bus::Command;
use pumice_api::names;
use pumice_api::profile::ResourceProfile;
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_cluster::{Change, WatchScope, watch, watch_all, watch_optional};
use pumice_machines::job::ObjectKind;
use serde::de::DeserializeOwned;

use crate::slim::SlimPod;

/// A change of one kind.
pub(crate) enum Input {
    Job(Change<Job>),
    Pod(Box<Change<SlimPod>>),
    Group(Change<PodGroup>),
    Queue(Change<Queue>),
    Command(Change<Command>),
    Claim(Change<PersistentVolumeClaim>),
    Priority(Change<PriorityClass>),
    Profile(Change<ResourceProfile>),
    Node(Box<Change<Node>>),
    /// Objects of plugins, of this kind.
    Child(ObjectKind, Change<ObjectMeta>),
}

/// Kinds that must have been listed before anything is decided.
pub(crate) const KINDS: usize = 13;

impl Input {
    /// A number for the kind, if this is a complete list of it.
    pub fn listed(&self) -> Option<usize> {
        match self {
            Self::Job(Change::Replace(_)) => Some(0),
            Self::Pod(change) if matches!(**change, Change::Replace(_)) => Some(1),
            Self::Group(Change::Replace(_)) => Some(2),
            Self::Queue(Change::Replace(_)) => Some(3),
            Self::Command(Change::Replace(_)) => Some(4),
            Self::Claim(Change::Replace(_)) => Some(5),
            Self::Priority(Change::Replace(_)) => Some(6),
            Self::Child(ObjectKind::ConfigMap, Change::Replace(_)) => Some(7),
            Self::Child(ObjectKind::Secret, Change::Replace(_)) => Some(8),
            Self::Child(ObjectKind::Service, Change::Replace(_)) => Some(9),
            Self::Child(ObjectKind::NetworkPolicy, Change::Replace(_)) => Some(10),
            Self::Profile(Change::Replace(_)) => Some(11),
            Self::Node(change) if matches!(**change, Change::Replace(_)) => Some(12),
            _ => None,
        }
    }
}

pub(crate) type Feed = SelectAll<BoxStream<'static, Input>>;

/// Starts every watch but that of pods.
pub(crate) fn start(client: &Client) -> Feed {
    let all = WatchScope::default;
    let mut feed = SelectAll::new();
    feed.push(watch_all::<Job>(client, all()).map(Input::Job).boxed());
    feed.push(watch_all::<PodGroup>(client, all()).map(Input::Group).boxed());
    feed.push(watch(Api::<Queue>::all(client.clone()), all()).map(Input::Queue).boxed());
    feed.push(watch(Api::<Command>::all(client.clone()), all()).map(Input::Command).boxed());
    feed.push(watch(Api::<PersistentVolumeClaim>::all(client.clone()), all()).map(Input::Claim).boxed());
    feed.push(watch(Api::<PriorityClass>::all(client.clone()), all()).map(Input::Priority).boxed());
    feed.push(watch_optional(Api::<ResourceProfile>::all(client.clone()), all()).map(Input::Profile).boxed());
    feed.push(watch_all::<Node>(client, all()).map(|change| Input::Node(Box::new(change))).boxed());
    feed.push(children::<ConfigMap>(client, ObjectKind::ConfigMap));
    feed.push(children::<Secret>(client, ObjectKind::Secret));
    feed.push(children::<Service>(client, ObjectKind::Service));
    feed.push(children::<NetworkPolicy>(client, ObjectKind::NetworkPolicy));
    feed
}

/// The objects of a kind that carry the label of a job. What is in them is not asked for.
fn children<K>(client: &Client, kind: ObjectKind) -> BoxStream<'static, Input>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + Default + DeserializeOwned + Send + Sync + 'static,
{
    let objects = Api::<PartialObjectMeta<K>>::all(client.clone());
    let objects = watch_optional(objects, WatchScope::labels(names::JOB_NAME));
    objects.map(move |change| Input::Child(kind, change.map(|object| object.metadata))).boxed()
}

/// Adds the pods of jobs.
pub(crate) fn add_pods(feed: &mut Feed, client: &Client) {
    let scope = WatchScope::labels(names::JOB_NAME);
    let pods = watch_all::<SlimPod>(client, scope);
    feed.push(pods.map(|change| Input::Pod(Box::new(change))).boxed());
}
