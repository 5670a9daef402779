//! The objects that plugins have made for jobs, by what is written on them.
//!
//! Invariant: known from the watches alone, so that a new life of the controllers knows without asking which objects are
//! right, and any life hears of those that somebody removed. Of an object nothing is kept but whose it is and a hash.

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_cluster::Change;
use pumice_machines::job::{ObjectId, ObjectKind};

use super::{Key, key, owner_reference};

/// Annotation of a plugin's object: a hash of what the plugin wanted when the object was written.
pub(crate) const CONTENT: &str = "pumice.sh/content";

struct Child {
    job: Key,
    job_uid: String,
    content: Option<String>,
}

/// An object that is no longer there, or no longer the job's.
#[derive(Debug, PartialEq)]
pub(crate) struct Lost {
    pub job: Key,
    pub job_uid: String,
    pub id: ObjectId,
}

/// All of them, by namespace, kind and name.
#[derive(Default)]
pub(crate) struct ChildObjects {
    known: HashMap<(String, ObjectId), Child>,
}

impl ChildObjects {
    /// Takes a change of one kind; tells what was lost.
    pub fn changed(&mut self, kind: ObjectKind, change: Change<ObjectMeta>) -> Vec<Lost> {
        match change {
            Change::Applied(metadata) => self.put(kind, metadata).into_iter().collect(),
            Change::Deleted(metadata) => self.lose(object_key(kind, &metadata)).into_iter().collect(),
            Change::Replace(all) => {
                let there: HashSet<_> = all.iter().map(|metadata| object_key(kind, metadata)).collect();
                let of_kind = self.known.keys().filter(|(_, id)| id.kind == kind);
                let gone: Vec<_> = of_kind.filter(|place| !there.contains(*place)).cloned().collect();
                let mut lost: Vec<Lost> = gone.into_iter().filter_map(|place| self.lose(place)).collect();
                lost.extend(all.into_iter().filter_map(|metadata| self.put(kind, metadata)));
                lost
            }
        }
    }

    /// Whether the job's object was written when its plugin wanted this, and is there.
    pub fn is_right(&self, namespace: &str, id: &ObjectId, job_uid: &str, content: &str) -> bool {
        let made = self.known.get(&(namespace.to_owned(), id.clone()));
        made.is_some_and(|made| made.job_uid == job_uid && made.content.as_deref() == Some(content))
    }

    fn put(&mut self, kind: ObjectKind, mut metadata: ObjectMeta) -> Option<Lost> {
        let place = object_key(kind, &metadata);
        let Some(owner) = owner_reference(&metadata) else { return self.lose(place) };
        let (job, job_uid) = ((place.0.clone(), owner.name.clone()), owner.uid.clone());
        let lost = self.known.get(&place).is_some_and(|made| made.job_uid != job_uid);
        let lost = if lost { self.lose(place.clone()) } else { None };
        let content = metadata.annotations.as_mut().and_then(|all| all.remove(CONTENT));
        self.known.insert(place, Child { job, job_uid, content });
        lost
    }

    fn lose(&mut self, place: (String, ObjectId)) -> Option<Lost> {
        let Child { job, job_uid, .. } = self.known.remove(&place)?;
        Some(Lost { job, job_uid, id: place.1 })
    }
}

fn object_key(kind: ObjectKind, metadata: &ObjectMeta) -> (String, ObjectId) {
    let (namespace, name) = key(metadata);
    (namespace, ObjectId { kind, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(name: &str, job_uid: &str, content: &str) -> ObjectMeta {
        serde_json::from_value(json!({
            "name": name, "namespace": "ns", "annotations": {CONTENT: content},
            "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": job_uid,
                "controller": true}],
        }))
        .unwrap()
    }

    fn id(name: &str) -> ObjectId {
        ObjectId { kind: ObjectKind::Service, name: name.to_owned() }
    }

    fn lost(name: &str, job_uid: &str) -> Lost {
        Lost { job: ("ns".to_owned(), "j".to_owned()), job_uid: job_uid.to_owned(), id: id(name) }
    }

    #[test]
    fn right_is_what_is_there_for_this_very_job_with_this_content() {
        let mut made = ChildObjects::default();
        assert_eq!(made.changed(ObjectKind::Service, Change::Replace(vec![object("s", "u", "1")])), []);
        let cases = [("ns", "s", "u", "1", true), ("ns", "s", "u", "2", false), ("ns", "s", "v", "1", false)];
        for (namespace, name, job_uid, content, expected) in cases {
            assert_eq!(made.is_right(namespace, &id(name), job_uid, content), expected, "{name} {job_uid} {content}");
        }
        assert!(!made.is_right("other", &id("s"), "u", "1"));
        assert!(!made.is_right("ns", &ObjectId { kind: ObjectKind::Secret, name: "s".to_owned() }, "u", "1"));
    }

    #[test]
    fn what_goes_or_changes_hands_is_lost_to_its_job() {
        let mut made = ChildObjects::default();
        let mut change = |change| made.changed(ObjectKind::Service, change);
        let three = ["a", "b", "c"].map(|name| object(name, "u", "1"));
        assert_eq!(change(Change::Replace(three.to_vec())), []);
        assert_eq!(change(Change::Applied(object("a", "u", "2"))), []);
        assert_eq!(change(Change::Deleted(object("a", "u", "2"))), [lost("a", "u")]);
        assert_eq!(change(Change::Deleted(object("a", "u", "2"))), []);
        assert_eq!(change(Change::Applied(object("b", "v", "1"))), [lost("b", "u")]);
        let orphan = ObjectMeta { owner_references: None, ..object("b", "v", "1") };
        assert_eq!(change(Change::Applied(orphan)), [lost("b", "v")]);
        assert_eq!(change(Change::Replace(Vec::new())), [lost("c", "u")]);
        assert_eq!(made.changed(ObjectKind::Secret, Change::Replace(Vec::new())), [], "of another kind");
    }
}
