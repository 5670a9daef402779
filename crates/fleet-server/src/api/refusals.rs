//! Why what is asked of a job can't be done, so that no answer says that it is.
//!
//! As the log has it: a job that ends a moment later is not among these.

use std::collections::BTreeMap;

use pumice_ledger::{Digest, JobId, Verb};

use super::{Api, Error, JobSpec};
use crate::database::{JobRow, JobState};

impl Api {
    /// Those of the jobs of which it can't be asked, and why.
    pub(super) async fn hindered(&self, verb: Verb, rows: &[JobRow]) -> Result<BTreeMap<JobId, String>, Error> {
        let mut hindered: BTreeMap<JobId, String> = BTreeMap::new();
        for row in rows {
            hindered.extend(of_state(verb, row.state).map(|why| (row.job, why)));
        }
        if verb == Verb::Preempt && self.classes.is_some() {
            let left: Vec<&JobRow> = rows.iter().filter(|row| !hindered.contains_key(&row.job)).collect();
            let classes = self.classes_of(&left).await?;
            for row in left {
                if let Some(class) = classes.get(&row.spec).filter(|class| !self.makes_room(class)) {
                    hindered.insert(row.job, stays(class));
                }
            }
        }
        Ok(hindered)
    }

    /// The priority classes of jobs, by their specifications. A Volcano job, or one that can't be read, has none here.
    async fn classes_of(&self, rows: &[&JobRow]) -> Result<BTreeMap<Digest, String>, Error> {
        let digests: Vec<Digest> = rows.iter().map(|row| row.spec).collect();
        let bodies = self.log().specs(&digests).await?.into_iter();
        let class = |(digest, body): (Digest, Vec<u8>)| {
            let spec = JobSpec::read(&body).ok()?;
            Some((digest, spec.pod_spec["priorityClassName"].as_str()?.to_owned()))
        };
        Ok(bodies.filter_map(class).collect())
    }

    /// Refuses priority classes that no job has, and for preemptions those that make no room.
    pub(super) fn meant(&self, verb: Verb, classes: &[String]) -> Result<(), Error> {
        let Some(known) = &self.classes else { return Ok(()) };
        let wrong = |class: &String, problem| {
            Err(Error::Field { field: "priorityClasses".to_owned(), problem: format!("{class:?}: {problem}") })
        };
        for class in classes {
            if !known.contains_key(class) {
                let names: Vec<&str> = known.keys().map(String::as_str).collect();
                return wrong(class, format!("there is none: try one of {}", names.join(", ")));
            }
            if verb == Verb::Preempt && !self.makes_room(class) {
                return wrong(class, stays(class));
            }
        }
        Ok(())
    }

    /// Whether runs of a class may have to make room. Where classes are not known, they may.
    fn makes_room(&self, class: &str) -> bool {
        self.classes.as_ref().is_none_or(|classes| classes.get(class).is_some_and(|class| class.preemptible))
    }
}

fn stays(class: &str) -> String {
    format!("runs of the priority class {class} are not preemptible: cancel them, or wait")
}

fn of_state(verb: Verb, state: JobState) -> Option<String> {
    use JobState::{Cancelled, Failed, Leaving, Preempted, Queued, Rejected, Succeeded};
    match (verb, state) {
        // It is as was asked.
        (Verb::Cancel, Cancelled) | (Verb::Preempt, Preempted) => None,
        (_, Succeeded | Failed | Rejected | Cancelled | Preempted) => Some(format!("it has ended: {}", state.word())),
        (Verb::Preempt, Queued) => Some("it waits, and has no node to leave".to_owned()),
        (Verb::Preempt, Leaving) => Some("it leaves its node already".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_or_has_no_node_is_told() {
        for (verb, state, wanted) in [
            (Verb::Cancel, JobState::Running, None),
            (Verb::Cancel, JobState::Cancelled, None),
            (Verb::Cancel, JobState::Succeeded, Some("it has ended: succeeded")),
            (Verb::Reprioritize, JobState::Queued, None),
            (Verb::Reprioritize, JobState::Cancelled, Some("it has ended: cancelled")),
            (Verb::Preempt, JobState::Leased, None),
            (Verb::Preempt, JobState::Preempted, None),
            (Verb::Preempt, JobState::Queued, Some("it waits, and has no node to leave")),
            (Verb::Preempt, JobState::Leaving, Some("it leaves its node already")),
            (Verb::Preempt, JobState::Failed, Some("it has ended: failed")),
        ] {
            assert_eq!(of_state(verb, state).as_deref(), wanted, "{verb:?} {state:?}");
        }
    }
}
