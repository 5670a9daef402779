//! PodGroups and Workloads of Kubernetes' own, in whichever version the API server has them.
//!
//! Invariant: what is served in several versions is read in the newest. A server need have none of them. A PodGroup is looked at
//! again when the Workload comes that it refers to.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{BoxStream, StreamExt as _};
use kube::{Api, Client};
use pumice_cluster::{Change, WatchScope, watch_optional};
use pumice_machines::pod_group::{Native, NativeGroup, NativeSpec, Workload, WorkloadSpec};

use super::part::{self, Part, Slim};
use crate::cache::Cache;
use crate::index::{Key, key};

const GROUP: &str = "scheduling.k8s.io";
/// Versions that have PodGroups, newest first, with what objects say of them.
const VERSIONS: [(&str, &str); 3] = [
    ("v1beta1", "scheduling.k8s.io/v1beta1"),
    ("v1alpha3", "scheduling.k8s.io/v1alpha3"),
    ("v1alpha2", "scheduling.k8s.io/v1alpha2"),
];

impl Part for NativeGroup {
    type Spec = NativeSpec;

    fn of(annotations: BTreeMap<String, String>, spec: NativeSpec) -> Self {
        Self::new(&annotations, spec)
    }
}

impl Part for Workload {
    type Spec = WorkloadSpec;

    fn of(_: BTreeMap<String, String>, spec: WorkloadSpec) -> Self {
        spec.into()
    }
}

/// A change of what is served in the version of that number.
pub(crate) enum NativeChange {
    Group(usize, Change<Slim<NativeGroup>>),
    Workload(usize, Change<Slim<Workload>>),
}

/// Everything that is known of them.
#[derive(Default)]
pub(crate) struct Natives {
    groups: [Cache<Slim<NativeGroup>>; VERSIONS.len()],
    workloads: [Cache<Slim<Workload>>; VERSIONS.len()],
    /// PodGroups that were looked at without the Workload that they refer to, by that.
    lacking: BTreeMap<Key, BTreeSet<Key>>,
}

impl Natives {
    /// The watches of groups and Workloads in each version that may be served; one that is not is empty.
    pub fn watch(client: &Client) -> Vec<BoxStream<'static, NativeChange>> {
        let one = |(number, (version, _)): (usize, &(&str, &str))| {
            let groups = Api::all_with(client.clone(), &part::resource(GROUP, version, "PodGroup", "podgroups"));
            let groups = watch_optional(groups, WatchScope::default());
            let workloads = Api::all_with(client.clone(), &part::resource(GROUP, version, "Workload", "workloads"));
            let workloads = watch_optional(workloads, WatchScope::default());
            [
                groups.map(move |change| NativeChange::Group(number, change)).boxed(),
                workloads.map(move |change| NativeChange::Workload(number, change)).boxed(),
            ]
        };
        VERSIONS.iter().enumerate().flat_map(one).collect()
    }

    /// Whether each watch has told of all its objects.
    pub fn is_listed(&self) -> bool {
        self.groups.iter().all(|shelf| shelf.is_listed) && self.workloads.iter().all(|shelf| shelf.is_listed)
    }

    /// Takes a change in, and names each PodGroup that it matters to.
    pub fn take(&mut self, change: NativeChange, mut about: impl FnMut(Key)) {
        let lacking = &mut self.lacking;
        match change {
            NativeChange::Group(number, change) => self.groups[number].take(change, |group, is_there| {
                let key = key(&group.metadata);
                if !is_there {
                    forget(lacking, &key, &group.part);
                }
                about(key);
            }),
            NativeChange::Workload(number, change) => self.workloads[number].take(change, |workload, is_there| {
                let waiting = lacking.remove(&key(&workload.metadata));
                if is_there {
                    waiting.into_iter().flatten().for_each(&mut about);
                }
            }),
        }
    }

    /// A PodGroup, with its Workload if that is there.
    pub fn look(&self, key: &Key) -> Option<Native<'_>> {
        let mut all = self.groups.iter().zip(VERSIONS);
        let (held, (_, api_version)) = all.find_map(|(shelf, version)| Some((shelf.items.get(key)?, version)))?;
        let place = place_of_workload(key, &held.part);
        let mut workloads = self.workloads.iter();
        Some(Native {
            api_version,
            uid: held.metadata.uid.as_deref().unwrap_or_default(),
            group: &held.part,
            workload: place
                .and_then(|place| workloads.find_map(|shelf| shelf.items.get(&place)))
                .map(|held| &held.part),
        })
    }

    /// Notes what the PodGroup that is looked at lacks.
    pub fn note_lacking(&mut self, key: &Key) {
        let lacks = self.look(key).filter(|native| native.workload.is_none());
        if let Some(workload) = lacks.and_then(|native| place_of_workload(key, native.group)) {
            self.lacking.entry(workload).or_default().insert(key.clone());
        }
    }
}

fn place_of_workload(group: &Key, said: &NativeGroup) -> Option<Key> {
    said.workload().map(|name| (group.0.clone(), name.to_owned()))
}

fn forget(lacking: &mut BTreeMap<Key, BTreeSet<Key>>, group: &Key, said: &NativeGroup) {
    let Some(workload) = place_of_workload(group, said) else { return };
    if let Some(waiting) = lacking.get_mut(&workload) {
        waiting.remove(group);
        if waiting.is_empty() {
            lacking.remove(&workload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn slim<P: Part>(name: &str, version: u32, spec: Value) -> Slim<P> {
        let metadata = json!({"namespace": "n", "name": name, "uid": name, "resourceVersion": version.to_string()});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn group(version: u32) -> Slim<NativeGroup> {
        let reference = json!({"workload": {"workloadName": "w", "podGroupTemplateName": "t"}});
        slim("g", version, json!({"podGroupTemplateRef": reference, "schedulingPolicy": {"gang": {"minCount": 2}}}))
    }

    fn touched(natives: &mut Natives, change: NativeChange) -> Vec<String> {
        let mut all = Vec::new();
        natives.take(change, |key| all.push(key.1));
        all
    }

    #[test]
    fn the_newest_version_counts_and_a_workload_may_come_late() {
        let mut natives = Natives::default();
        let place = ("n".to_owned(), "g".to_owned());
        for number in 0..VERSIONS.len() {
            assert!(!natives.is_listed());
            touched(&mut natives, NativeChange::Group(number, Change::Replace(vec![])));
            touched(&mut natives, NativeChange::Workload(number, Change::Replace(vec![])));
        }
        assert!(natives.is_listed() && natives.look(&place).is_none());

        assert_eq!(touched(&mut natives, NativeChange::Group(2, Change::Applied(group(1)))), ["g"]);
        assert_eq!(natives.look(&place).unwrap().api_version, "scheduling.k8s.io/v1alpha2");
        touched(&mut natives, NativeChange::Group(0, Change::Applied(group(1))));
        assert_eq!(natives.look(&place).unwrap().api_version, "scheduling.k8s.io/v1beta1");

        let workload = |version| slim::<Workload>("w", version, json!({"podGroupTemplates": [{"name": "t"}]}));
        natives.note_lacking(&place);
        assert_eq!(touched(&mut natives, NativeChange::Workload(0, Change::Applied(workload(2)))), ["g"]);
        assert!(natives.look(&place).unwrap().workload.is_some());
        natives.note_lacking(&place);
        assert!(natives.lacking.is_empty(), "it is there");

        assert_eq!(touched(&mut natives, NativeChange::Workload(0, Change::Deleted(workload(3)))), [""; 0]);
        natives.note_lacking(&place);
        assert_eq!(natives.lacking.len(), 1);
        touched(&mut natives, NativeChange::Group(0, Change::Deleted(group(4))));
        assert!(natives.lacking.is_empty());
    }
}
