//! The quarantine: after a panic of the engine, which object is it, so that all others go on?
//!
//! Invariant: between two panics the circle of suspects shrinks, so the search ends; who is found is quarantined until it
//! is gone. A group and its pods are one suspect. What is held back and has a node still counts there, as a pod of
//! others. Pure; owned by the loop.
//!
//! The search: of those that changed since the last cycle that went well, one half is held back. A panic clears those
//! held back, a cycle that goes well clears the others; and so on, until one is left.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use pumice_engine::{Delta, PodTemplate};

/// Most objects that are quarantined before the scheduler ends: what panics so often is no one object's doing.
const QUARANTINED_MAX: usize = 64;
/// Most panics in one search; halving finds one of 2^32 in fewer.
const PANICS_MAX: usize = 40;

/// A suspect by its hash: most are never asked for their name.
type Suspect = u64;

/// An object that was quarantined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quarantined {
    /// `PodGroup ns/name`, or whatever it is.
    pub(crate) what: String,
    /// Namespace and name, where it is a PodGroup.
    pub(crate) group: Option<(String, String)>,
}

/// The objects that the engine panics over, found by halves.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Changed since the last cycle that went well, in order.
    fresh: Vec<Suspect>,
    /// Under suspicion, and in the World.
    loaded: Vec<Suspect>,
    /// Under suspicion, and held back.
    withheld: Vec<Suspect>,
    /// Found. True once it was reported.
    quarantined: HashMap<Suspect, bool>,
    /// Of whom changes are held back: `withheld` and `quarantined`.
    closed: HashSet<Suspect>,
    /// What those held back would be, in order.
    withheld_deltas: Vec<(Suspect, Delta)>,
    searching: bool,
    panics: usize,
    /// Quarantined since the last [`Quarantine::take_new`].
    new: Vec<Quarantined>,
}

impl Quarantine {
    /// What of a change the World may hear of.
    pub(crate) fn pass(&mut self, delta: Delta) -> Option<Delta> {
        let suspect = suspect(&delta);
        if !self.searching {
            self.fresh.push(suspect);
        }
        if !self.closed.contains(&suspect) {
            return Some(delta);
        }
        if is_removal(&delta) {
            self.withheld_deltas.retain(|(other, kept)| *other != suspect || !same_object(kept, &delta));
            self.forget(suspect);
            return Some(delta);
        }
        if let Some(reported) = self.quarantined.get_mut(&suspect) {
            if !std::mem::replace(reported, true) {
                self.new.push(describe(&delta));
            }
        } else {
            self.withheld_deltas.push((suspect, delta.clone()));
        }
        as_use(delta)
    }

    /// One that was quarantined and is gone may come again.
    fn forget(&mut self, suspect: Suspect) {
        if self.quarantined.remove(&suspect).is_some() {
            self.closed.remove(&suspect);
        }
    }

    /// The engine panicked, over `delta` if that is known. False if nothing can be held against anybody: give up.
    pub(crate) fn panicked(&mut self, delta: Option<&Delta>) -> bool {
        self.panics += 1;
        let mut circle = match delta {
            Some(delta) => vec![suspect(delta)],
            None if self.searching => std::mem::take(&mut self.loaded),
            None => std::mem::take(&mut self.fresh),
        };
        // Order matters not, but that the halves are the same each time.
        circle.sort_unstable();
        circle.dedup();
        circle.retain(|suspect| !self.quarantined.contains_key(suspect));
        if circle.is_empty() || self.panics > PANICS_MAX || self.quarantined.len() >= QUARANTINED_MAX {
            return false;
        }
        self.narrow(circle);
        // The World is made anew: all changes come again.
        self.withheld_deltas.clear();
        true
    }

    /// A cycle went well. What may be let in now.
    pub(crate) fn went_well(&mut self) -> Vec<Delta> {
        self.fresh.clear();
        if !self.searching {
            return Vec::new();
        }
        let circle = std::mem::take(&mut self.withheld);
        self.narrow(circle);
        let (withheld_deltas, free): (Vec<_>, Vec<_>) = std::mem::take(&mut self.withheld_deltas)
            .into_iter()
            .partition(|(suspect, _)| self.closed.contains(suspect));
        self.withheld_deltas = withheld_deltas;
        if !self.searching {
            // The one that is left is named by what was held back of it.
            for (suspect, delta) in std::mem::take(&mut self.withheld_deltas) {
                if self.quarantined.insert(suspect, true) == Some(false) {
                    self.new.push(describe(&delta));
                }
            }
        }
        free.into_iter().map(|(_, delta)| delta).collect()
    }

    /// Holds back one half of the circle, or has found who it is.
    fn narrow(&mut self, mut circle: Vec<Suspect>) {
        self.closed = self.quarantined.keys().copied().collect();
        self.loaded.clear();
        self.withheld.clear();
        self.fresh.clear();
        self.searching = circle.len() > 1;
        if self.searching {
            self.withheld = circle.split_off(circle.len() / 2);
            self.loaded = circle;
            self.closed.extend(&self.withheld);
        } else {
            self.panics = 0;
            self.quarantined.extend(circle.iter().map(|found| (*found, false)));
            self.closed.extend(circle);
        }
    }

    /// Those quarantined since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<Quarantined> {
        std::mem::take(&mut self.new)
    }

    /// A search is under way: the next cycle is part of it.
    pub(crate) fn is_searching(&self) -> bool {
        self.searching
    }

    /// How many are quarantined.
    pub(crate) fn quarantined(&self) -> usize {
        self.quarantined.len()
    }
}

/// Whom a change is about: a pod with a group stands for the group.
fn suspect(delta: &Delta) -> Suspect {
    let mut hasher = DefaultHasher::new();
    match delta {
        Delta::TaskUpsert(pod) => match &pod.group {
            Some(group) => ("group", &pod.namespace, group).hash(&mut hasher),
            None => ("pod", &pod.uid).hash(&mut hasher),
        },
        Delta::TaskRemove(uid) => ("pod", uid).hash(&mut hasher),
        Delta::GroupUpsert(group) => ("group", &group.namespace, &group.name).hash(&mut hasher),
        Delta::GroupRemove { namespace, name, .. } => ("group", namespace, name).hash(&mut hasher),
        Delta::NodeUpsert(node) => ("node", &node.name).hash(&mut hasher),
        Delta::NodeRemove(name) => ("node", name).hash(&mut hasher),
        Delta::QueueUpsert(queue) => ("queue", &queue.name).hash(&mut hasher),
        Delta::QueueRemove(name) => ("queue", name).hash(&mut hasher),
        Delta::ShapeUpsert { owner_uid, .. } | Delta::ShapeRemove { owner_uid } => {
            ("shape", owner_uid).hash(&mut hasher);
        }
        // Few, and cheap to tell apart by all they say.
        other => format!("{other:?}").hash(&mut hasher),
    }
    hasher.finish()
}

fn is_removal(delta: &Delta) -> bool {
    matches!(
        delta,
        Delta::TaskRemove(_)
            | Delta::GroupRemove { .. }
            | Delta::NodeRemove(_)
            | Delta::QueueRemove(_)
            | Delta::ShapeRemove { .. }
    )
}

/// Whether a removal is of the object that was kept; of a group, not of its pods.
fn same_object(kept: &Delta, removal: &Delta) -> bool {
    !(matches!(kept, Delta::TaskUpsert(_)) && matches!(removal, Delta::GroupRemove { .. }))
}

/// A pod on a node takes its room, whoever looks after it.
fn as_use(delta: Delta) -> Option<Delta> {
    let Delta::TaskUpsert(mut pod) = delta else { return None };
    pod.node.as_ref()?;
    pod.mine = false;
    pod.group = None;
    let requests = std::mem::take(&mut pod.template.requests);
    pod.template = PodTemplate { requests, ..PodTemplate::default() }.into();
    Some(Delta::TaskUpsert(pod))
}

fn describe(delta: &Delta) -> Quarantined {
    let group = match delta {
        Delta::TaskUpsert(pod) => pod.group.clone().map(|group| (pod.namespace.clone(), group)),
        Delta::GroupUpsert(group) => Some((group.namespace.clone(), group.name.clone())),
        _ => None,
    };
    let what = match (&group, delta) {
        (Some((namespace, name)), _) => format!("PodGroup {namespace}/{name}"),
        (None, Delta::TaskUpsert(pod)) => format!("Pod {}/{}", pod.namespace, pod.name),
        (None, Delta::NodeUpsert(node)) => format!("Node {}", node.name),
        (None, Delta::QueueUpsert(queue)) => format!("Queue {}", queue.name),
        (None, Delta::ShapeUpsert { owner_uid, .. }) => format!("Job with uid {owner_uid}"),
        (None, other) => format!("{other:?}").chars().take(100).collect(),
    };
    Quarantined { what, group }
}

#[cfg(test)]
mod tests {
    use pumice_engine::{GroupFacts, PodFacts};

    use super::*;

    fn group(name: &str) -> Delta {
        Delta::GroupUpsert(Box::new(GroupFacts { namespace: "ns".into(), name: name.into(), ..GroupFacts::default() }))
    }

    fn pod(name: &str, group: &str, node: Option<&str>) -> Delta {
        Delta::TaskUpsert(Box::new(PodFacts {
            uid: name.into(),
            namespace: "ns".into(),
            name: name.into(),
            mine: true,
            group: Some(group.into()),
            node: node.map(Into::into),
            ..PodFacts::default()
        }))
    }

    /// A world of `names` in which a cycle panics while `bad` is there. Returns panics and what is in the end.
    fn search(quarantine: &mut Quarantine, names: &[String], bad: &str) -> (usize, HashSet<String>) {
        let named = |delta: &Delta| match delta {
            Delta::GroupUpsert(group) => group.name.clone(),
            other => panic!("{other:?}"),
        };
        let mut panics = 0;
        let mut world: HashSet<String> = HashSet::new();
        let mut relist = true;
        loop {
            if relist {
                world =
                    names.iter().filter_map(|name| quarantine.pass(group(name))).map(|delta| named(&delta)).collect();
                relist = false;
            }
            if world.contains(bad) {
                panics += 1;
                assert!(quarantine.panicked(None), "the search goes on");
                relist = true;
                continue;
            }
            world.extend(quarantine.went_well().iter().map(named));
            if !quarantine.searching && !world.contains(bad) {
                return (panics, world);
            }
        }
    }

    #[test]
    fn one_of_many_is_found_and_the_others_go_on() {
        let names: Vec<String> = (0..1000).map(|index| format!("g{index}")).collect();
        for bad in ["g0", "g499", "g500", "g999"] {
            let mut quarantine = Quarantine::default();
            let (panics, world) = search(&mut quarantine, &names, bad);
            assert!(panics <= 11, "{panics} panics");
            assert_eq!((world.len(), quarantine.quarantined()), (999, 1));
            let new = quarantine.take_new();
            assert_eq!(
                new.iter().map(|quarantined| quarantined.what.as_str()).collect::<Vec<_>>(),
                [format!("PodGroup ns/{bad}")]
            );
            assert!(quarantine.pass(group(bad)).is_none(), "it stays quarantined");
            let gone = Delta::GroupRemove { namespace: "ns".into(), name: bad.into(), uid: "".into() };
            assert!(quarantine.pass(gone).is_some());
            assert!(quarantine.pass(group(bad)).is_some(), "another of that name gets its chance");
        }
    }

    #[test]
    fn a_single_change_is_found_at_once_and_its_pods_stay_where_they_are() {
        let mut quarantine = Quarantine::default();
        quarantine.pass(group("calm"));
        quarantine.went_well();
        quarantine.pass(group("bad"));
        assert!(quarantine.panicked(None));
        assert!(!quarantine.searching);
        assert!(quarantine.pass(group("calm")).is_some());
        assert!(quarantine.pass(pod("waits", "bad", None)).is_none());
        let Some(Delta::TaskUpsert(runs)) = quarantine.pass(pod("runs", "bad", Some("n"))) else {
            panic!("it takes room")
        };
        assert_eq!((runs.mine, runs.group.clone(), runs.node.as_deref()), (false, None, Some("n")));
    }

    #[test]
    fn what_can_not_be_told_ends_the_search() {
        let mut quarantine = Quarantine::default();
        assert!(!quarantine.panicked(None), "nothing has changed");
        let delta = group("bad");
        for index in 0..QUARANTINED_MAX {
            assert!(quarantine.panicked(Some(&group(&index.to_string()))));
        }
        assert!(!quarantine.panicked(Some(&delta)), "so many are no one object's doing");
    }
}
