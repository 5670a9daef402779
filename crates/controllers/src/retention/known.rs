//! What there is of work, sorted by what may leave.
//!
//! Invariant: each object that may leave stands in exactly one list, that of its class and namespace, by the time of its end;
//! whether it may is looked at again whenever something that this hangs on changes. Of an object only a few words are kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_cluster::Change;
use pumice_machines::retention::{Class, Controller, Finished, Kind, Surroundings, Work, class};

use super::Key;
use super::read::ReadObject;

/// Namespace and name of an object; both are shared with the lists that it stands in.
type Name = (Arc<str>, Arc<str>);

struct Entry {
    uid: Arc<str>,
    version: Box<str>,
    work: Work,
    /// The list that it stands in.
    class: Option<Class>,
}

/// An object that may leave, as a removal needs it.
pub(crate) struct Leaver {
    pub namespace: String,
    pub name: Arc<str>,
    pub uid: Arc<str>,
    pub version: Box<str>,
}

impl From<Leaver> for ReadObject {
    fn from(leaver: Leaver) -> Self {
        let Leaver { namespace, name, uid, .. } = leaver;
        let metadata = ObjectMeta {
            namespace: Some(namespace),
            name: Some(name.to_string()),
            uid: Some(uid.to_string()),
            ..ObjectMeta::default()
        };
        Self { metadata, work: Work::default() }
    }
}

/// Everything that is known.
#[derive(Default)]
pub(crate) struct Known {
    objects: HashMap<Kind, HashMap<Name, Entry>>,
    finished: BTreeMap<Key, BTreeSet<Finished>>,
    /// For each Job that is waited for, how many wait that have not ended.
    awaited: HashMap<Name, usize>,
    /// Whether the Jobs of both kinds that exist have ended, by uid.
    jobs: HashMap<Arc<str>, bool>,
    /// Pods that have ended and that a Job controls, by its uid.
    pods_of: HashMap<Arc<str>, BTreeSet<Name>>,
}

impl Known {
    /// Whether each of these kinds was listed.
    pub fn are_listed(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.objects.contains_key(kind))
    }

    /// What may leave of a class in a namespace.
    pub fn finished(&self, key: &Key) -> Option<&BTreeSet<Finished>> {
        self.finished.get(key)
    }

    /// The classes of a namespace of which something may leave.
    pub fn classes(&self, namespace: &str) -> Vec<Key> {
        self.finished.keys().filter(|(_, of)| of == namespace).cloned().collect()
    }

    /// One that may leave.
    pub fn leaver(&self, (class, namespace): &Key, name: &Arc<str>) -> Option<Leaver> {
        let place = (Arc::from(namespace.as_str()), Arc::clone(name));
        let entry = self.objects.get(&class.kind())?.get(&place)?;
        let (uid, version) = (Arc::clone(&entry.uid), entry.version.clone());
        Some(Leaver { namespace: namespace.clone(), name: Arc::clone(name), uid, version })
    }

    /// Takes a change in, and names the lists that changed.
    pub fn take(&mut self, kind: Kind, change: Change<ReadObject>, touched: &mut BTreeSet<Key>) {
        match change {
            Change::Applied(object) => self.put(kind, object, touched),
            Change::Deleted(object) => {
                let (namespace, name) = crate::index::key(&object.metadata);
                let place = (Arc::from(namespace), Arc::from(name));
                let known = self.objects.get(&kind).and_then(|all| all.get(&place));
                if known.is_some_and(|known| object.metadata.uid.as_deref() == Some(&*known.uid)) {
                    self.remove(kind, &place, touched);
                }
            }
            Change::Replace(all) => {
                let known = self.objects.entry(kind).or_default();
                let there: BTreeSet<_> = all.iter().map(|object| crate::index::key(&object.metadata)).collect();
                let is_there = |(namespace, name): &Name| there.contains(&(namespace.to_string(), name.to_string()));
                let gone: Vec<Name> = known.keys().filter(|place| !is_there(place)).cloned().collect();
                gone.iter().for_each(|place| self.remove(kind, place, touched));
                all.into_iter().for_each(|object| self.put(kind, object, touched));
            }
        }
    }

    fn put(&mut self, kind: Kind, object: ReadObject, touched: &mut BTreeSet<Key>) {
        let ReadObject { metadata, work } = object;
        let (namespace, name) = crate::index::key(&metadata);
        let place = (Arc::from(namespace), Arc::from(name));
        let uid = Arc::from(metadata.uid.unwrap_or_default());
        let before = self.objects.entry(kind).or_default().remove(&place);
        if let Some(before) = &before {
            self.take_out(before, &place);
            if before.uid != uid || before.work.controller != work.controller {
                self.unlink(kind, &place, before, touched);
            }
        }
        let awaited_before = before.map(|before| before.work.awaits).unwrap_or_default();
        self.await_instead(&place.0, &awaited_before, &work.awaits, touched);
        let version = metadata.resource_version.unwrap_or_default().into();
        let entry = Entry { uid, version, work, class: None };
        self.link(kind, &place, &entry, touched);
        self.objects.entry(kind).or_default().insert(place.clone(), entry);
        self.sort(kind, &place, touched);
    }

    fn remove(&mut self, kind: Kind, place: &Name, touched: &mut BTreeSet<Key>) {
        let Some(entry) = self.objects.get_mut(&kind).and_then(|all| all.remove(place)) else { return };
        self.take_out(&entry, place);
        self.await_instead(&place.0, &entry.work.awaits, &[], touched);
        self.unlink(kind, place, &entry, touched);
    }

    /// Notes which pods hang on which Job, and whether that has ended.
    fn link(&mut self, kind: Kind, place: &Name, entry: &Entry, touched: &mut BTreeSet<Key>) {
        match (kind, &entry.work.controller) {
            (Kind::Pod, Some(Controller::Job { uid })) => match self.pods_of.get_mut(uid.as_str()) {
                Some(pods) => drop(pods.insert(place.clone())),
                None => drop(self.pods_of.insert(uid.as_str().into(), BTreeSet::from([place.clone()]))),
            },
            (Kind::Job | Kind::BatchJob, _) => {
                let has_ended = entry.work.ended_at.is_some();
                if self.jobs.insert(Arc::clone(&entry.uid), has_ended) != Some(has_ended) {
                    self.sort_pods(&entry.uid, touched);
                }
            }
            _ => {}
        }
    }

    fn unlink(&mut self, kind: Kind, place: &Name, entry: &Entry, touched: &mut BTreeSet<Key>) {
        match (kind, &entry.work.controller) {
            (Kind::Pod, Some(Controller::Job { uid })) => {
                if let Some(pods) = self.pods_of.get_mut(uid.as_str()) {
                    pods.remove(place);
                    if pods.is_empty() {
                        self.pods_of.remove(uid.as_str());
                    }
                }
            }
            (Kind::Job | Kind::BatchJob, _) => {
                self.jobs.remove(&entry.uid);
                self.sort_pods(&entry.uid, touched);
            }
            _ => {}
        }
    }

    /// Takes an object out of its list.
    fn take_out(&mut self, entry: &Entry, place: &Name) {
        let (Some(class), Some(ended_at)) = (entry.class, entry.work.ended_at) else { return };
        let key = (class, place.0.to_string());
        if let Some(list) = self.finished.get_mut(&key) {
            list.remove(&Finished { ended_at, name: Arc::clone(&place.1) });
            if list.is_empty() {
                self.finished.remove(&key);
            }
        }
    }

    /// Notes for whom a Job waits now.
    fn await_instead(&mut self, namespace: &Arc<str>, before: &[String], now: &[String], touched: &mut BTreeSet<Key>) {
        if before == now {
            return;
        }
        let place = |name: &String| (Arc::clone(namespace), Arc::from(name.as_str()));
        for name in now {
            *self.awaited.entry(place(name)).or_default() += 1;
        }
        for name in before {
            let place = place(name);
            if let Some(count) = self.awaited.get_mut(&place) {
                *count -= 1;
                if *count == 0 {
                    self.awaited.remove(&place);
                }
            }
        }
        for name in before.iter().chain(now) {
            self.sort(Kind::Job, &place(name), touched);
        }
    }

    /// Looks again at the pods of a Job.
    fn sort_pods(&mut self, job: &str, touched: &mut BTreeSet<Key>) {
        for pod in self.pods_of.get(job).cloned().unwrap_or_default() {
            self.sort(Kind::Pod, &pod, touched);
        }
    }

    /// Puts an object into the list that it belongs to now.
    fn sort(&mut self, kind: Kind, place: &Name, touched: &mut BTreeSet<Key>) {
        let Some(entry) = self.objects.get(&kind).and_then(|all| all.get(place)) else { return };
        let owner_ended = match &entry.work.controller {
            Some(Controller::Job { uid }) => self.jobs.get(uid.as_str()).copied(),
            _ => None,
        };
        let is_awaited = kind == Kind::Job && self.awaited.contains_key(place);
        let (before, now) = (entry.class, class(kind, &entry.work, Surroundings { is_awaited, owner_ended }));
        let ended_at = entry.work.ended_at;
        if before == now {
            return;
        }
        if let Some(entry) = self.objects.get_mut(&kind).and_then(|all| all.remove(place)) {
            self.take_out(&entry, place);
            self.objects.entry(kind).or_default().insert(place.clone(), Entry { class: now, ..entry });
        }
        if let (Some(class), Some(ended_at)) = (now, ended_at) {
            let key = (class, place.0.to_string());
            self.finished.entry(key.clone()).or_default().insert(Finished { ended_at, name: Arc::clone(&place.1) });
            touched.insert(key);
        }
    }
}
