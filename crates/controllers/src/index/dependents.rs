//! Who waits for whose end: annotation `pumice.sh/after` of jobs.
//!
//! Invariant: a job that others wait for is in here whether or not it exists. How it ended is kept beyond its own end for as
//! long as somebody waits: one that ends and is removed in the same breath has ended. Owned by the index, asked for each look at
//! a job that waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pumice_api::batch::{Job, JobPhase};
use pumice_machines::job::After;

use super::{DirtyKey, Key};

/// A job that others wait for.
#[derive(Default)]
struct Awaited {
    /// Names of those that wait.
    waiting: BTreeSet<String>,
    /// Its phase; how it ended, if it is gone.
    phase: Option<JobPhase>,
}

/// Jobs that others wait for.
#[derive(Default)]
pub(crate) struct Dependents {
    awaited: HashMap<Key, Awaited>,
}

fn names(job: &Job) -> BTreeSet<String> {
    let after = After::of(job).ok().flatten();
    after.iter().flat_map(After::jobs).map(str::to_owned).collect()
}

fn phase(job: &Job) -> JobPhase {
    job.status.state.phase.clone().unwrap_or(JobPhase::Pending)
}

impl Dependents {
    /// Takes what became of the job at `key`: what was known of it, and what is now. `of` knows the other jobs.
    pub fn changed(
        &mut self,
        key: &Key,
        old: Option<&Job>,
        new: Option<&Job>,
        of: &HashMap<Key, Job>,
        touched: &mut Vec<DirtyKey>,
    ) {
        if let Some(awaited) = self.awaited.get_mut(key) {
            // One that is removed stays as it ended, until there is another of its name.
            let ended = old.map(phase).filter(|phase| phase.is_finished() || *phase == JobPhase::Aborted);
            let now = new.map(phase).or(ended);
            if awaited.phase != now {
                touched.extend(awaited.waiting.iter().map(|name| DirtyKey::Job((key.0.clone(), name.clone()))));
            }
            awaited.phase = now;
        }
        let (before, after) = (old.map(names).unwrap_or_default(), new.map(names).unwrap_or_default());
        for name in before.difference(&after) {
            let place = (key.0.clone(), name.clone());
            if let Some(awaited) = self.awaited.get_mut(&place) {
                awaited.waiting.remove(&key.1);
                if awaited.waiting.is_empty() {
                    self.awaited.remove(&place);
                }
            }
        }
        for name in after.difference(&before) {
            let place = (key.0.clone(), name.clone());
            let phase = of.get(&place).map(phase);
            let awaited = self.awaited.entry(place).or_insert_with(|| Awaited { phase, ..Awaited::default() });
            awaited.waiting.insert(key.1.clone());
        }
    }

    /// The phases of the jobs that a job waits for, as far as they exist or have ended.
    pub fn awaited(&self, namespace: &str, job: &Job) -> BTreeMap<String, JobPhase> {
        let phase = |name: String| {
            let awaited = self.awaited.get(&(namespace.to_owned(), name.clone()))?;
            Some((name, awaited.phase.clone()?))
        };
        names(job).into_iter().filter_map(phase).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Jobs that come, change and go.
    #[derive(Default)]
    struct World {
        dependents: Dependents,
        jobs: HashMap<Key, Job>,
    }

    fn at(name: &str) -> Key {
        ("ns".to_owned(), name.to_owned())
    }

    impl World {
        /// Names of those to look at once a job is like this, or gone.
        fn now(&mut self, name: &str, phase: Option<&str>, after: &str) -> Vec<String> {
            let (key, mut touched) = (at(name), Vec::new());
            let new = phase.map(|phase| {
                let annotations = if after.is_empty() { json!({}) } else { json!({"pumice.sh/after": after}) };
                let value = json!({"metadata": {"name": name, "annotations": annotations}, "status": {"state": {"phase": phase}}});
                serde_json::from_value::<Job>(value).unwrap()
            });
            let old = self.jobs.remove(&key);
            self.dependents.changed(&key, old.as_ref(), new.as_ref(), &self.jobs, &mut touched);
            self.jobs.extend(new.map(|job| (key, job)));
            let name = |one| if let DirtyKey::Job((_, name)) = one { name } else { unreachable!() };
            touched.into_iter().map(name).collect()
        }

        fn awaited(&self, name: &str) -> Vec<(String, String)> {
            let all = self.dependents.awaited("ns", &self.jobs[&at(name)]);
            all.into_iter().map(|(name, phase)| (name, phase.to_string())).collect()
        }
    }

    fn pair(name: &str, phase: &str) -> (String, String) {
        (name.to_owned(), phase.to_owned())
    }

    #[test]
    fn those_that_wait_are_told_of_each_phase() {
        let mut world = World::default();
        assert_eq!(world.now("a", Some("Pending"), ""), [""; 0]);
        assert_eq!(world.now("b", Some("Pending"), "ok:a,any:x"), [""; 0]);
        assert_eq!(world.awaited("b"), [pair("a", "Pending")]);
        assert_eq!(world.now("c", Some("Pending"), "failed:a"), [""; 0]);
        assert_eq!(world.now("a", Some("Running"), ""), ["b", "c"]);
        assert_eq!(world.now("a", Some("Running"), ""), [""; 0], "nothing that matters");
        assert_eq!(world.now("x", Some("Pending"), ""), ["b"]);
        assert_eq!(world.now("x", None, ""), ["b"]);
        assert_eq!(world.now("c", Some("Pending"), "failed:y"), [""; 0]);
        assert_eq!(world.now("a", Some("Completed"), ""), ["b"]);
        assert_eq!(world.awaited("b"), [pair("a", "Completed")]);
    }

    #[test]
    fn one_that_ended_and_is_gone_has_ended_while_somebody_waits() {
        let mut world = World::default();
        world.now("a", Some("Running"), "");
        world.now("b", Some("Pending"), "ok:a");
        world.now("a", Some("Completed"), "");
        assert_eq!(world.now("a", None, ""), [""; 0]);
        assert_eq!(world.awaited("b"), [pair("a", "Completed")]);
        assert_eq!(world.now("a", Some("Running"), ""), ["b"], "another of its name");
        assert_eq!(world.now("a", None, ""), ["b"]);
        assert_eq!(world.awaited("b"), []);
        world.now("b", None, "");
        assert!(world.dependents.awaited.is_empty(), "nobody waits any more");
    }
}
