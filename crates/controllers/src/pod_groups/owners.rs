//! The controllers of pods: Kubernetes' own kinds, whose annotations say how large a gang is.
//!
//! Invariant: of an owner only what a group needs is kept. ReplicaSets and StatefulSets are watched, since they are scaled and
//! live long; of the other kinds an owner is read once, when its group is to be made. A server need not have any of them.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ApiResource;
use kube::{Api, Client};
use pumice_api::names;
use pumice_cluster::{Change, Failure, failure};
use pumice_machines::pod_group::{Owner, OwnerFacts, inherited};
use serde::Deserialize;

use super::part::{self, Part, Slim};
use crate::cache::Cache;

/// A kind whose annotations count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ReplicaSet,
    StatefulSet,
    DaemonSet,
    Job,
    ReplicationController,
}

/// What the API calls a kind. All of them are of version `v1`.
struct Names {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
}

impl Kind {
    /// Kinds that are watched.
    pub const WATCHED: &'static [Self] = &[Self::ReplicaSet, Self::StatefulSet];

    fn names(self) -> Names {
        let (group, kind, plural) = match self {
            Self::ReplicaSet => ("apps", "ReplicaSet", "replicasets"),
            Self::StatefulSet => ("apps", "StatefulSet", "statefulsets"),
            Self::DaemonSet => ("apps", "DaemonSet", "daemonsets"),
            Self::Job => ("batch", "Job", "jobs"),
            Self::ReplicationController => ("", "ReplicationController", "replicationcontrollers"),
        };
        Names { group, kind, plural }
    }

    fn of(owner: &OwnerReference) -> Option<Self> {
        let all = [Self::ReplicaSet, Self::StatefulSet, Self::DaemonSet, Self::Job, Self::ReplicationController];
        let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        all.into_iter().find(|one| {
            let names = one.names();
            names.group == group && names.kind == owner.kind
        })
    }

    /// What its API is called.
    pub fn resource(self) -> ApiResource {
        let Names { group, kind, plural } = self.names();
        part::resource(group, "v1", kind, plural)
    }
}

/// An owner, without what no group needs.
pub(crate) type SlimOwner = Slim<OwnerFacts>;

/// How many pods an owner wants.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Scale {
    replicas: Option<i32>,
    pod_management_policy: Option<String>,
    /// Of a Job, as is the next.
    parallelism: Option<i32>,
    completions: Option<i32>,
}

impl Scale {
    /// How many pods are made before any of them is ready.
    fn at_once(&self) -> Option<i32> {
        let one_by_one = self.pod_management_policy.as_deref() == Some("OrderedReady");
        let limits = [self.replicas, self.parallelism, self.completions, one_by_one.then_some(1)];
        limits.into_iter().flatten().min()
    }
}

impl Part for OwnerFacts {
    type Spec = Scale;

    fn of(annotations: BTreeMap<String, String>, spec: Scale) -> Self {
        Self { annotations: inherited(annotations), replicas: spec.replicas, at_once: spec.at_once() }
    }
}

/// Everything that is known of owners.
#[derive(Default)]
pub(crate) struct Owners {
    watched: [Cache<SlimOwner>; Kind::WATCHED.len()],
    /// Those that were read, by the name of their group; none is there no more.
    read: HashMap<String, Option<OwnerFacts>>,
}

impl Owners {
    /// Whether each watch has told of all its objects.
    pub fn is_listed(&self) -> bool {
        self.watched.iter().all(|shelf| shelf.is_listed)
    }

    /// Takes a change in, and names each owner that it was about.
    pub fn take(&mut self, kind: Kind, change: Change<SlimOwner>, mut about: impl FnMut(&SlimOwner)) {
        let shelf = Kind::WATCHED.iter().position(|one| *one == kind).and_then(|at| self.watched.get_mut(at));
        if let Some(shelf) = shelf {
            shelf.take(change, |owner, _| about(owner));
        }
    }

    /// An owner of this uid was looked for.
    pub fn read(&mut self, uid: String, facts: Option<OwnerFacts>) {
        self.read.insert(names::made_group_name(&uid), facts);
    }

    /// The group of this name has no pods any more.
    pub fn forget(&mut self, group: &str) {
        self.read.remove(group);
    }

    /// What is known of an owner.
    pub fn look(&self, namespace: &str, owner: &OwnerReference) -> Owner<'_> {
        if Kind::of(owner).is_none() {
            return Owner::Silent;
        }
        let place = (namespace.to_owned(), owner.name.clone());
        let mut held = self.watched.iter().filter_map(|shelf| shelf.items.get(&place));
        if let Some(held) = held.find(|held| held.metadata.uid.as_ref() == Some(&owner.uid)) {
            return Owner::There(&held.part);
        }
        match self.read.get(&names::made_group_name(&owner.uid)) {
            Some(Some(facts)) => Owner::There(facts),
            Some(None) => Owner::Gone,
            None => Owner::Unread,
        }
    }
}

/// Looks for an owner. One that is gone, was replaced, or is not for us to see is none.
pub(crate) async fn read(
    client: &Client,
    namespace: &str,
    owner: &OwnerReference,
) -> Result<Option<OwnerFacts>, kube::Error> {
    let Some(kind) = Kind::of(owner) else { return Ok(None) };
    let api: Api<SlimOwner> = Api::namespaced_with(client.clone(), namespace, &kind.resource());
    match api.get(&owner.name).await {
        Ok(found) => Ok((found.metadata.uid.as_ref() == Some(&owner.uid)).then_some(found.part)),
        Err(error) if failure(&error) == Failure::NotFound => Ok(None),
        Err(error) if failure(&error) == Failure::Forbidden => {
            tracing::warn!(kind = owner.kind, %error, "its annotations don't count for the PodGroup of its pods");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reference(api_version: &str, kind: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "o".into(),
            uid: uid.into(),
            ..OwnerReference::default()
        }
    }

    #[test]
    fn kinds_are_told_by_group_and_kind() {
        let cases = [
            ("apps/v1", "ReplicaSet", Some(Kind::ReplicaSet)),
            ("apps/v1", "DaemonSet", Some(Kind::DaemonSet)),
            ("batch/v1", "Job", Some(Kind::Job)),
            ("batch.volcano.sh/v1alpha1", "Job", None),
            ("v1", "ReplicationController", Some(Kind::ReplicationController)),
            ("argoproj.io/v1alpha1", "Workflow", None),
        ];
        for (version, kind, expected) in cases {
            assert_eq!(Kind::of(&reference(version, kind, "u")), expected, "{version} {kind}");
        }
    }

    #[test]
    fn owners_say_how_many_pods_they_make_before_one_is_ready() {
        for (spec, at_once) in [
            (json!({"replicas": 3}), Some(3)),
            (json!({"replicas": 3, "podManagementPolicy": "Parallel"}), Some(3)),
            (json!({"replicas": 3, "podManagementPolicy": "OrderedReady"}), Some(1)),
            (json!({"parallelism": 4, "completions": 2}), Some(2)),
            (json!({"parallelism": 4}), Some(4)),
            (json!({"selector": {}}), None),
        ] {
            let owner: SlimOwner = serde_json::from_value(json!({"metadata": {"name": "o"}, "spec": spec})).unwrap();
            assert_eq!(owner.part.at_once, at_once, "{spec}");
        }
    }

    #[test]
    fn an_owner_is_known_by_its_uid() {
        let mut owners = Owners::default();
        let owner = json!({"metadata": {"namespace": "n", "name": "o", "uid": "u", "annotations":
            {"volcano.sh/sla-waiting-time": "1h", "other": "x"}}, "spec": {"replicas": 2, "template": {}}});
        let held: SlimOwner = serde_json::from_value(owner).unwrap();
        owners.take(Kind::ReplicaSet, Change::Replace(vec![held]), |_| {});
        let set = |uid: &str| reference("apps/v1", "ReplicaSet", uid);
        let Owner::There(facts) = owners.look("n", &set("u")) else { panic!() };
        assert_eq!((facts.replicas, facts.annotations.len()), (Some(2), 1));
        assert_eq!(owners.look("n", &set("other")), Owner::Unread);
        owners.read("other".into(), None);
        assert_eq!(owners.look("n", &set("other")), Owner::Gone);
        owners.forget("podgroup-other");
        assert_eq!(owners.look("n", &set("other")), Owner::Unread);
        assert_eq!(owners.look("n", &reference("x/v1", "Workflow", "u")), Owner::Silent);
    }
}
