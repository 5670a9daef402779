//! Which run a pod is of, by its name: warnings and measurements tell no more of a pod.
//!
//! Invariant: the names are those of objects whose labels say of which run they are, or that are being made for it; none is
//! taken apart. The shell adds what it watches and makes, and asks for what else the cluster names.

use std::collections::BTreeMap;

use pumice_ledger::RunId;

use super::facts::{Kind, PodFacts};

/// Pods of runs, and Jobs of Volcano jobs, by namespace and name.
#[derive(Debug, Default)]
pub struct PodIndex(BTreeMap<String, BTreeMap<String, Named>>);

#[derive(Debug)]
struct Named {
    run: RunId,
    kind: Kind,
    /// Empty while it is being made.
    uid: String,
}

impl PodIndex {
    /// What is being made for a run has this name.
    pub fn making(&mut self, run: RunId, kind: Kind, namespace: &str, name: &str) {
        self.put(namespace, name, Named { run, kind, uid: String::new() });
    }

    /// A pod, or a Job, is there.
    pub fn there(&mut self, facts: &PodFacts) {
        let PodFacts { run, kind, uid, .. } = facts;
        self.put(&facts.namespace, &facts.name, Named { run: *run, kind: *kind, uid: uid.clone() });
    }

    fn put(&mut self, namespace: &str, name: &str, named: Named) {
        let of_namespace = match self.0.get_mut(namespace) {
            Some(of_namespace) => of_namespace,
            None => self.0.entry(namespace.to_owned()).or_default(),
        };
        of_namespace.insert(name.to_owned(), named);
    }

    /// The run of a pod, be it a pod of its own or one of its Job. With its uid, where that is told: an earlier one of the same
    /// name is another.
    pub fn run_of(&self, namespace: &str, name: &str, uid: &str) -> Option<RunId> {
        let of_namespace = self.0.get(namespace)?;
        if let Some(named) = of_namespace.get(name) {
            let is_it = uid.is_empty() || named.uid.is_empty() || named.uid == uid;
            return is_it.then_some(named.run);
        }
        // Pods of a Job are called after it: by its name, their task and their number.
        let of_job = name.rmatch_indices('-').filter_map(|(at, _)| of_namespace.get(&name[..at]));
        of_job.into_iter().find(|named| named.kind == Kind::Job).map(|named| named.run)
    }

    /// Forgets all but those of runs that are known. `O(names)`.
    pub fn retain(&mut self, is_known: impl Fn(RunId) -> bool) {
        for of_namespace in self.0.values_mut() {
            of_namespace.retain(|_, named| is_known(named.run));
        }
        self.0.retain(|_, of_namespace| !of_namespace.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use pumice_ledger::JobId;

    use super::*;
    use pumice_fleet_model::names::{former_pod_name, pod_name};

    fn run(attempt: u32) -> RunId {
        RunId { job: JobId(1), attempt }
    }

    #[test]
    fn a_run_is_found_by_the_names_of_its_pods() {
        let mut names = PodIndex::default();
        names.making(run(1), Kind::Pod, "n", &pod_name(run(1)));
        names.making(run(3), Kind::Job, "n", &pod_name(run(3)));
        let of = |name: &str, uid: &str| names.run_of("n", name, uid);
        assert_eq!(of(&pod_name(run(1)), "u"), Some(run(1)));
        assert_eq!(of(&format!("{}-a-b-12", pod_name(run(3))), "u"), Some(run(3)));
        // A pod has no others.
        assert_eq!(of(&format!("{}-a-0", pod_name(run(1))), "u"), None);
        assert_eq!((of("other", ""), of("", ""), names.run_of("m", &pod_name(run(1)), "")), (None, None, None));
        names.retain(|known| known == run(3));
        assert_eq!(names.run_of("n", &pod_name(run(1)), ""), None);
        assert_eq!(names.run_of("n", &pod_name(run(3)), ""), Some(run(3)));
        names.retain(|_| false);
        assert!(names.0.is_empty());
    }

    #[test]
    fn two_pods_that_had_one_name_one_after_another_are_told_apart() {
        let mut names = PodIndex::default();
        // The first as an earlier release called it.
        let name = former_pod_name(run(1));
        assert_eq!(name, pod_name(run(2)));
        let facts = |of: RunId, uid: &str| {
            let pod = serde_json::json!({ "metadata": { "name": name, "namespace": "n", "uid": uid,
                "labels": { crate::labels::RUN_LABEL: of.to_string() } } });
            PodFacts::of(&serde_json::from_value(pod).expect("a pod")).expect("of a run")
        };
        names.there(&facts(run(1), "u"));
        assert_eq!(names.run_of("n", &name, "u"), Some(run(1)));
        names.there(&facts(run(2), "v"));
        assert_eq!((names.run_of("n", &name, "u"), names.run_of("n", &name, "v")), (None, Some(run(2))));
        assert_eq!(names.run_of("n", &name, ""), Some(run(2)));
    }
}
