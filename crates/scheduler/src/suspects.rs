//! After a panic of the engine: which object is it, so that all others go on?
//!
//! Invariant: between two panics the circle of suspects shrinks, so the search ends; who is found is put aside until it
//! is gone. A group and its pods are one suspect. What is held back and has a node still counts there, as a pod of
//! others. Pure; owned by the loop.
//!
//! The search: of those that changed since the last cycle that went well, one half is held back. A panic clears those
//! held back, a cycle that goes well clears the others; and so on, until one is left.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use pumice_engine::{Delta, PodTemplate};

/// Most objects that are put aside before the scheduler ends: what panics so often is no one object's doing.
const ASIDE_MAX: usize = 64;
/// Most panics in one search; halving finds one of 2^32 in fewer.
const PANICS_MAX: usize = 40;

/// A suspect by its hash: most are never asked for their name.
type Suspect = u64;

/// What is told of one that was put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Aside {
    /// `PodGroup ns/name`, or whatever it is.
    pub(crate) what: String,
    /// Namespace and name, where it is a PodGroup.
    pub(crate) group: Option<(String, String)>,
}

#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Changed since the last cycle that went well, in order.
    fresh: Vec<Suspect>,
    /// Under suspicion, and in the World.
    loaded: Vec<Suspect>,
    /// Under suspicion, and held back.
    held: Vec<Suspect>,
    /// Found. True once it was told.
    aside: HashMap<Suspect, bool>,
    /// Of whom changes are held back: `held` and `aside`.
    closed: HashSet<Suspect>,
    /// What those held back would be, in order.
    kept: Vec<(Suspect, Delta)>,
    searching: bool,
    panics: usize,
    told: Vec<Aside>,
}

impl Suspects {
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
            self.kept.retain(|(other, kept)| *other != suspect || !same_object(kept, &delta));
            self.forget(suspect);
            return Some(delta);
        }
        if let Some(told) = self.aside.get_mut(&suspect) {
            if !std::mem::replace(told, true) {
                self.told.push(describe(&delta));
            }
        } else {
            self.kept.push((suspect, delta.clone()));
        }
        as_use(delta)
    }

    /// One that was put aside and is gone may come again.
    fn forget(&mut self, suspect: Suspect) {
        if self.aside.remove(&suspect).is_some() {
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
        circle.retain(|suspect| !self.aside.contains_key(suspect));
        if circle.is_empty() || self.panics > PANICS_MAX || self.aside.len() >= ASIDE_MAX {
            return false;
        }
        self.narrow(circle);
        // The World is made anew: all are told again.
        self.kept.clear();
        true
    }

    /// A cycle went well. What may be let in now.
    pub(crate) fn went_well(&mut self) -> Vec<Delta> {
        self.fresh.clear();
        if !self.searching {
            return Vec::new();
        }
        let circle = std::mem::take(&mut self.held);
        self.narrow(circle);
        let (kept, free): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.kept).into_iter().partition(|(suspect, _)| self.closed.contains(suspect));
        self.kept = kept;
        if !self.searching {
            // The one that is left is named by what was held back of it.
            for (suspect, delta) in std::mem::take(&mut self.kept) {
                if self.aside.insert(suspect, true) == Some(false) {
                    self.told.push(describe(&delta));
                }
            }
        }
        free.into_iter().map(|(_, delta)| delta).collect()
    }

    /// Holds back one half of the circle, or has found who it is.
    fn narrow(&mut self, mut circle: Vec<Suspect>) {
        self.closed = self.aside.keys().copied().collect();
        self.loaded.clear();
        self.held.clear();
        self.fresh.clear();
        self.searching = circle.len() > 1;
        if self.searching {
            self.held = circle.split_off(circle.len() / 2);
            self.loaded = circle;
            self.closed.extend(&self.held);
        } else {
            self.panics = 0;
            self.aside.extend(circle.iter().map(|found| (*found, false)));
            self.closed.extend(circle);
        }
    }

    /// Who has been put aside since this was asked last.
    pub(crate) fn take_told(&mut self) -> Vec<Aside> {
        std::mem::take(&mut self.told)
    }

    /// A search is under way: the next cycle is part of it.
    pub(crate) fn is_searching(&self) -> bool {
        self.searching
    }

    /// How many are put aside.
    pub(crate) fn aside(&self) -> usize {
        self.aside.len()
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

fn describe(delta: &Delta) -> Aside {
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
    Aside { what, group }
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
            node: node.map(str::to_owned),
            ..PodFacts::default()
        }))
    }

    /// A world of `names` in which a cycle panics while `bad` is there. Returns panics and what is in the end.
    fn search(suspects: &mut Suspects, names: &[String], bad: &str) -> (usize, HashSet<String>) {
        let named = |delta: &Delta| match delta {
            Delta::GroupUpsert(group) => group.name.clone(),
            other => panic!("{other:?}"),
        };
        let mut panics = 0;
        let mut world: HashSet<String> = HashSet::new();
        let mut relist = true;
        loop {
            if relist {
                world = names.iter().filter_map(|name| suspects.pass(group(name))).map(|delta| named(&delta)).collect();
                relist = false;
            }
            if world.contains(bad) {
                panics += 1;
                assert!(suspects.panicked(None), "the search goes on");
                relist = true;
                continue;
            }
            world.extend(suspects.went_well().iter().map(named));
            if !suspects.searching && !world.contains(bad) {
                return (panics, world);
            }
        }
    }

    #[test]
    fn one_of_many_is_found_and_the_others_go_on() {
        let names: Vec<String> = (0..1000).map(|index| format!("g{index}")).collect();
        for bad in ["g0", "g499", "g500", "g999"] {
            let mut suspects = Suspects::default();
            let (panics, world) = search(&mut suspects, &names, bad);
            assert!(panics <= 11, "{panics} panics");
            assert_eq!((world.len(), suspects.aside()), (999, 1));
            let told = suspects.take_told();
            assert_eq!(
                told.iter().map(|aside| aside.what.as_str()).collect::<Vec<_>>(),
                [format!("PodGroup ns/{bad}")]
            );
            assert!(suspects.pass(group(bad)).is_none(), "it stays aside");
            let gone = Delta::GroupRemove { namespace: "ns".into(), name: bad.into(), uid: String::new() };
            assert!(suspects.pass(gone).is_some());
            assert!(suspects.pass(group(bad)).is_some(), "another of that name gets its chance");
        }
    }

    #[test]
    fn a_single_change_is_found_at_once_and_its_pods_stay_where_they_are() {
        let mut suspects = Suspects::default();
        suspects.pass(group("calm"));
        suspects.went_well();
        suspects.pass(group("bad"));
        assert!(suspects.panicked(None));
        assert!(!suspects.searching);
        assert!(suspects.pass(group("calm")).is_some());
        assert!(suspects.pass(pod("waits", "bad", None)).is_none());
        let Some(Delta::TaskUpsert(runs)) = suspects.pass(pod("runs", "bad", Some("n"))) else {
            panic!("it takes room")
        };
        assert_eq!((runs.mine, runs.group.clone(), runs.node.as_deref()), (false, None, Some("n")));
    }

    #[test]
    fn what_can_not_be_told_ends_the_search() {
        let mut suspects = Suspects::default();
        assert!(!suspects.panicked(None), "nothing has changed");
        let delta = group("bad");
        for index in 0..ASIDE_MAX {
            assert!(suspects.panicked(Some(&group(&index.to_string()))));
        }
        assert!(!suspects.panicked(Some(&delta)), "so many are no one object's doing");
    }
}
