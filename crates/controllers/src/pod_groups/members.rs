//! Pods, by the group that is made for them.
//!
//! Invariant: the counts of a group follow its pods; one template is kept once however many pods are made of it. A pod that
//! was told of its group stays told, whatever a watch says that is behind our own write.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pumice_cluster::{Change, partly_read};
use pumice_machines::pod_group::{Member, Origin, Template};
use serde::Deserialize;

use crate::index::Key;

/// A pod as its group sees it.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Pod")]
pub(crate) struct SeenPod {
    metadata: ObjectMeta,
    member: Option<Box<Member>>,
}

impl From<Pod> for SeenPod {
    fn from(pod: Pod) -> Self {
        let member = Member::of(&pod).map(Box::new);
        let ObjectMeta { name, namespace, uid, resource_version, .. } = pod.metadata;
        Self { metadata: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() }, member }
    }
}

partly_read!(SeenPod, Pod, metadata);

/// The newest pod of a group.
pub(crate) struct NewestPod {
    pub created: Timestamp,
    pub name: String,
    pub uid: String,
    pub owners: Vec<OwnerReference>,
    pub template: Arc<Template>,
}

/// The pods of one group that have not ended.
pub(crate) struct Gathered {
    pub origin: Origin,
    pub pods: usize,
    pub staying: usize,
    /// Any of them has a node.
    pub is_bound: bool,
    pub newest: NewestPod,
    /// Names by uid.
    untold: BTreeMap<String, String>,
}

impl Gathered {
    /// Name and uid of those that don't carry the group's name, but for those on their way out.
    pub fn untold(&self) -> Vec<(&str, &str)> {
        self.untold.iter().map(|(uid, name)| (name.as_str(), uid.as_str())).collect()
    }

    pub fn is_all_told(&self) -> bool {
        self.untold.is_empty()
    }
}

/// What is kept of a pod.
struct Note {
    scheduler: usize,
    group: Key,
    is_told: bool,
    is_bound: bool,
    is_leaving: bool,
}

/// All pods that groups are made for.
pub(crate) struct Members {
    notes: HashMap<String, Note>,
    of_group: HashMap<Key, Gathered>,
    templates: HashSet<Arc<Template>>,
    listed: Vec<bool>,
}

impl Members {
    /// `schedulers` is the number of watches.
    pub fn new(schedulers: usize) -> Self {
        Self {
            notes: HashMap::new(),
            of_group: HashMap::new(),
            templates: HashSet::new(),
            listed: vec![false; schedulers],
        }
    }

    /// Whether each watch has told of all its pods.
    pub fn is_listed(&self) -> bool {
        self.listed.iter().all(|listed| *listed)
    }

    /// The pods of a group, if it has any.
    pub fn gathered(&self, group: &Key) -> Option<&Gathered> {
        self.of_group.get(group)
    }

    /// Takes a change of one of the watches in.
    pub fn take(&mut self, scheduler: usize, change: Change<SeenPod>, touched: &mut BTreeSet<Key>) {
        match change {
            Change::Replace(all) => {
                if let Some(listed) = self.listed.get_mut(scheduler) {
                    *listed = true;
                }
                let there: HashSet<&str> = all.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
                let gone = self
                    .notes
                    .iter()
                    .filter(|(uid, note)| note.scheduler == scheduler && !there.contains(uid.as_str()));
                let gone: Vec<String> = gone.map(|(uid, _)| uid.clone()).collect();
                gone.iter().for_each(|uid| self.remove(uid, touched));
                all.into_iter().for_each(|pod| self.put(scheduler, pod, touched));
            }
            Change::Applied(pod) => self.put(scheduler, pod, touched),
            Change::Deleted(pod) => self.remove(pod.metadata.uid.as_deref().unwrap_or_default(), touched),
        }
    }

    /// A pod was told of its group.
    pub fn annotated(&mut self, uid: &str) {
        let Some(note) = self.notes.get_mut(uid) else { return };
        note.is_told = true;
        if let Some(gathered) = self.of_group.get_mut(&note.group) {
            gathered.untold.remove(uid);
        }
    }

    fn put(&mut self, scheduler: usize, pod: SeenPod, touched: &mut BTreeSet<Key>) {
        let SeenPod { metadata: ObjectMeta { namespace, name, uid, .. }, member } = pod;
        let uid = uid.unwrap_or_default();
        let Some(member) = member else { return self.remove(&uid, touched) };
        let mut note = Note {
            scheduler,
            group: (namespace.unwrap_or_default(), member.group.clone()),
            is_told: member.is_told,
            is_bound: member.is_bound,
            is_leaving: member.is_leaving,
        };
        if let Some(old) = self.notes.get(&uid) {
            note.is_told |= old.is_told;
            let state = |note: &Note| (note.is_told, note.is_bound, note.is_leaving);
            if old.group == note.group && state(old) == state(&note) {
                return;
            }
            self.remove(&uid, touched);
        }
        touched.insert(note.group.clone());
        self.add(&uid, name.unwrap_or_default(), &note, *member);
        self.notes.insert(uid, note);
    }

    fn add(&mut self, uid: &str, name: String, note: &Note, member: Member) {
        let template = self.intern(member.template);
        let newest = NewestPod {
            created: member.created,
            name: name.clone(),
            uid: uid.to_owned(),
            owners: member.owners,
            template,
        };
        let mut replaced = None;
        let gathered = match self.of_group.entry(note.group.clone()) {
            Entry::Occupied(entry) => {
                let gathered = entry.into_mut();
                if (gathered.newest.created, &gathered.newest.name) <= (newest.created, &newest.name) {
                    replaced = Some(std::mem::replace(&mut gathered.newest, newest).template);
                } else {
                    replaced = Some(newest.template);
                }
                gathered
            }
            Entry::Vacant(entry) => entry.insert(Gathered {
                origin: member.origin,
                pods: 0,
                staying: 0,
                is_bound: false,
                newest,
                untold: BTreeMap::new(),
            }),
        };
        gathered.pods += 1;
        gathered.staying += usize::from(!note.is_leaving);
        gathered.is_bound |= note.is_bound;
        if !note.is_told && !note.is_leaving {
            gathered.untold.insert(uid.to_owned(), name);
        }
        if let Some(replaced) = replaced {
            self.release(&replaced);
        }
    }

    fn remove(&mut self, uid: &str, touched: &mut BTreeSet<Key>) {
        let Some(note) = self.notes.remove(uid) else { return };
        if let Some(gathered) = self.of_group.get_mut(&note.group) {
            gathered.untold.remove(uid);
            gathered.pods -= 1;
            gathered.staying -= usize::from(!note.is_leaving);
            if gathered.pods == 0
                && let Some(gathered) = self.of_group.remove(&note.group)
            {
                self.release(&gathered.newest.template);
            }
        }
        touched.insert(note.group);
    }

    fn intern(&mut self, template: Template) -> Arc<Template> {
        if let Some(known) = self.templates.get(&template) {
            return Arc::clone(known);
        }
        let template = Arc::new(template);
        self.templates.insert(Arc::clone(&template));
        template
    }

    /// Forgets a template that nobody else holds: this set and the caller do.
    fn release(&mut self, template: &Arc<Template>) {
        if Arc::strong_count(template) <= 2 {
            self.templates.remove(template);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(uid: &str, more: Value) -> SeenPod {
        let mut pod = json!({"metadata": {"namespace": "n", "name": format!("p{uid}"), "uid": uid,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        merge(&mut pod, more);
        serde_json::from_value(pod).unwrap()
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    fn counts(members: &Members) -> Option<(usize, usize, usize)> {
        let gathered = members.gathered(&("n".into(), "podgroup-r".into()))?;
        Some((gathered.pods, gathered.staying, gathered.untold.len()))
    }

    #[test]
    fn counts_follow_the_pods() {
        let mut members = Members::new(2);
        let mut touched = BTreeSet::new();
        let mut take = |members: &mut Members, scheduler, change| {
            touched.clear();
            members.take(scheduler, change, &mut touched);
            touched.len()
        };
        let group = json!({"metadata": {"annotations": {"scheduling.k8s.io/group-name": "podgroup-r"}}});
        take(&mut members, 0, Change::Replace(vec![pod("1", json!({})), pod("2", json!({}))]));
        assert!(!members.is_listed());
        take(&mut members, 1, Change::Replace(vec![pod("3", group)]));
        assert!(members.is_listed());
        assert_eq!(counts(&members), Some((3, 3, 2)));
        assert_eq!(members.templates.len(), 1, "one template");

        assert_eq!(take(&mut members, 0, Change::Applied(pod("1", json!({"status": {"phase": "Running"}})))), 0);
        members.annotated("1");
        assert_eq!(counts(&members), Some((3, 3, 1)));
        // A watch that is behind.
        assert_eq!(take(&mut members, 0, Change::Applied(pod("1", json!({})))), 0);
        assert_eq!(counts(&members), Some((3, 3, 1)));
        let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(take(&mut members, 0, Change::Applied(pod("2", leaving))), 1);
        assert_eq!(counts(&members), Some((3, 2, 0)));
        take(&mut members, 0, Change::Deleted(pod("2", json!({}))));
        assert_eq!(take(&mut members, 0, Change::Applied(pod("1", json!({"status": {"phase": "Failed"}})))), 1);
        assert_eq!(counts(&members), Some((1, 1, 0)));
        // Of another watch.
        take(&mut members, 0, Change::Replace(vec![]));
        assert_eq!(counts(&members), Some((1, 1, 0)));
        take(&mut members, 1, Change::Replace(vec![]));
        assert_eq!(counts(&members), None);
        assert!(members.templates.is_empty() && members.notes.is_empty());
    }
}
