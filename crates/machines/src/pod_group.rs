//! The machine of PodGroups for pods that nobody made one for: bare pods, pods of Kubernetes' own kinds, of any controller that
//! knows nothing of groups, and of Kubernetes' own PodGroups.
//!
//! Invariant: a group is only touched if it was made here (label [`names::MADE_OF`]) and its pods' owner is its own; it is
//! written again when what it was made of has changed, so that what people change in it stays. All pods of one controller are
//! in one group, made before the first of them is scheduled; the group of a pod alone comes after its bind, off the path.
//! Called by the shell for each group that something happened to.

mod build;
mod member;
mod native;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use pumice_api::names;
use pumice_api::scheduling::PodGroup;
use serde_json::Value;

pub use member::{Member, Origin, Template, inherited};
pub use native::{Native, NativeGroup, NativeSpec, Workload, WorkloadSpec};

/// What of a pod's owner its group depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnerFacts {
    /// Those of its annotations that groups take over or read: see [`inherited`].
    pub annotations: BTreeMap<String, String>,
    /// How many pods it wants, where it says so.
    pub replicas: Option<i32>,
    /// How many pods it has at a time before any of them is ready, where it says so.
    pub at_once: Option<i32>,
}

/// What is known of an owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Owner<'a> {
    /// Nobody has looked yet.
    Unread,
    Gone,
    /// Of a kind whose annotations mean nothing.
    Silent,
    There(&'a OwnerFacts),
}

/// Where a group's content comes from, beside its pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source<'a> {
    Pod,
    /// The controller of its pods.
    Owner(Owner<'a>),
    /// Kubernetes' own PodGroup; none while it is not there.
    Native(Option<Native<'a>>),
}

impl Source<'_> {
    /// Whether what is missing would make another group than there was: no reason to change the one that is there.
    fn is_partly_gone(&self) -> bool {
        match self {
            Self::Owner(owner) => *owner == Owner::Gone,
            Self::Native(native) => native.is_some_and(|native| native.lacks_template()),
            Self::Pod => false,
        }
    }
}

/// The newest pod of a group: the one made of the newest template.
#[derive(Clone, Copy, Debug)]
pub struct Newest<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub owners: &'a [OwnerReference],
    /// What its group takes from it.
    pub template: &'a Template,
}

/// What a step looks at.
#[derive(Clone, Debug)]
pub struct GroupView<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// The group, if there is one of that name.
    pub group: Option<&'a PodGroup>,
    /// Where its content comes from.
    pub source: Source<'a>,
    /// Pods of it that have not ended.
    pub pods: usize,
    /// Those of them that stay.
    pub staying: usize,
    /// The newest one, whether it has ended since or not.
    pub newest: Option<Newest<'a>>,
    /// Name and uid of those that don't carry the name of their group.
    pub untold: Vec<(&'a str, &'a str)>,
    /// The one pod is still on its way to a node.
    pub may_wait: bool,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupEffect {
    /// Read the owner of the pods.
    ReadOwner,
    Create(Box<PodGroup>),
    /// Merge into the group.
    Patch(Value),
    /// Delete the group of this uid.
    Delete {
        uid: String,
    },
    /// Write the group's name on a pod.
    Tell {
        pod: String,
        uid: String,
    },
}

/// Decides what to do about a group now.
pub fn step(view: &GroupView<'_>) -> Vec<GroupEffect> {
    if view.pods == 0 {
        return without_pods(view);
    }
    let Some(newest) = &view.newest else { return Vec::new() };
    if view.source == Source::Owner(Owner::Unread) {
        return vec![GroupEffect::ReadOwner];
    }
    let mut effects = Vec::new();
    match view.group {
        Some(group) if group.metadata.deletion_timestamp.is_some() => return effects,
        Some(group) if is_ours(group) && !view.source.is_partly_gone() => {
            effects.extend(build::wanted(view, newest).and_then(|wanted| build::difference(group, wanted)));
        }
        // Of somebody else's the scheduler has these pods in it all the same.
        Some(_) => {}
        None if view.staying == 0 || view.may_wait => return effects,
        None => match build::wanted(view, newest) {
            Some(wanted) => effects.push(GroupEffect::Create(Box::new(wanted))),
            None => return effects,
        },
    }
    // In a PodGroup of Kubernetes' own they say so in their spec.
    if !matches!(view.source, Source::Native(_)) {
        let tell = |(pod, uid): &(&str, &str)| GroupEffect::Tell { pod: (*pod).to_owned(), uid: (*uid).to_owned() };
        effects.extend(view.untold.iter().map(tell));
    }
    effects
}

/// A group whose owner wants no pods is in the way of nobody, but its queue counts it.
fn without_pods(view: &GroupView<'_>) -> Vec<GroupEffect> {
    let Source::Owner(Owner::There(owner)) = view.source else { return Vec::new() };
    let idle = view
        .group
        .filter(|group| owner.replicas == Some(0) && is_ours(group) && group.metadata.deletion_timestamp.is_none());
    let uid = idle.and_then(|group| group.metadata.uid.clone());
    uid.map(|uid| GroupEffect::Delete { uid }).into_iter().collect()
}

/// Whether it was made here.
fn is_ours(group: &PodGroup) -> bool {
    group.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::MADE_OF))
}

#[cfg(test)]
mod tests;
