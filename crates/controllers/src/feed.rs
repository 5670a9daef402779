//! All watches as one stream.
//!
//! Invariant: pods are listed after Jobs, so that a job's status never counts a pod that the index has yet to see; a pod that
//! is missing then is gone.

use futures::stream::{BoxStream, SelectAll, StreamExt};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Api, Client};
use pumice_api::batch::Job;
use pumice_api::bus::Command;
use pumice_api::names;
use pumice_api::scheduling::{PodGroup, Queue};
use pumice_cluster::{Change, WatchScope, watch, watch_all};

use crate::slim::SlimPod;

/// A change of one kind.
pub(crate) enum Input {
    Job(Change<Job>),
    Pod(Box<Change<Pod>>),
    Group(Change<PodGroup>),
    Queue(Change<Queue>),
    Command(Change<Command>),
    Claim(Change<PersistentVolumeClaim>),
    Priority(Change<PriorityClass>),
}

/// Kinds that must have been listed before anything is decided.
pub(crate) const KINDS: usize = 7;

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
            _ => None,
        }
    }
}

type Feed = SelectAll<BoxStream<'static, Input>>;

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
    feed
}

/// Adds the pods of jobs.
pub(crate) fn add_pods(feed: &mut Feed, client: &Client) {
    let scope = WatchScope::labels(names::JOB_NAME);
    let pods = watch_all::<SlimPod>(client, scope);
    feed.push(pods.map(|change| Input::Pod(Box::new(change.map(|pod| pod.0)))).boxed());
}
