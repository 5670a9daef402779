//! Whose turn it is among jobs of a queue that are of one priority class: the lower priority, then who came first.
//!
//! What the engine calls runs begins with the priority and goes on with the job's id, which begins with its time, and the
//! names of groups follow. So the order of names is the order of turns, and the plugin reads nothing else.

use std::cmp::Ordering;
use std::fmt::Write as _;

use pumice_engine::plugin::{Alike, ClassRow, GroupId, Plugin, Tables};
use pumice_ledger::{JobId, RunId};

use super::whole;

/// Its name in the configuration.
pub const NAME: &str = "turn";
/// How the engine begins the name of a group that it made for a single run.
const MADE_PREFIX: &str = "podgroup-";

/// Room for a uid of a run of few attempts: there are hundreds of thousands of them.
const UID_LENGTH: usize = 40;

/// The plugin.
#[derive(Debug)]
pub struct Turn {
    /// Whether turns go before what users of the pool hold: not where users are queues.
    pub ranks: bool,
}

impl Plugin for Turn {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn admits_alike(&self, _tables: &Tables, _group: GroupId) -> Alike {
        Alike::Key(0)
    }

    fn job_order(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        tables.group(left).name().cmp(tables.group(right).name())
    }

    fn ranks(&self) -> bool {
        self.ranks
    }

    fn job_rank(&self, tables: &Tables, left: GroupId, right: GroupId) -> Ordering {
        if self.ranks { self.job_order(tables, left, right) } else { Ordering::Equal }
    }
}

/// What the engine calls a run: its name says when it is its turn.
pub fn uid(priority: u32, run: RunId) -> String {
    let mut uid = String::with_capacity(UID_LENGTH);
    let _ = write!(uid, "{priority:010}.{run}");
    uid
}

/// The run of a single pod's uid, as text.
pub fn name_in(uid: &str) -> &str {
    uid.split_once('.').map_or(uid, |(_, run)| run)
}

/// The run of a uid, be it of a single pod or of one of several.
pub fn run_of(uid: &str) -> Option<RunId> {
    whole::without_pod(uid).rsplit_once('.')?.1.parse().ok()
}

/// The name of a gang's group, in one order with those that the engine gives to single runs.
pub fn gang_name(priority: u32, first: JobId) -> String {
    format!("{MADE_PREFIX}{priority:010}.{first}")
}

/// The name of the group that the engine makes for a single run.
pub fn single_name(priority: u32, run: RunId) -> String {
    format!("{MADE_PREFIX}{}", uid(priority, run))
}

/// The uid of the run in the name of the group that the engine made for it.
pub fn uid_of_single(group: &str) -> Option<&str> {
    group.strip_prefix(MADE_PREFIX)
}

/// The job in the name of a group, the first of its gang.
pub fn job_of(group: &str) -> Option<JobId> {
    group.rsplit_once('.')?.1.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_the_order_of_turns() {
        let run = |job, attempt| RunId { job: JobId(job), attempt };
        let single = |priority, job| single_name(priority, run(job, 1));
        let names = [single(0, 1), gang_name(0, JobId(2)), single(0, 3), single(9, 0), gang_name(10, JobId(0))];
        assert!(names.is_sorted());
        assert_eq!(run_of(&uid(7, run(5, 2))), Some(run(5, 2)));
        assert_eq!(name_in(&uid(7, run(5, 2))), run(5, 2).to_string());
        assert_eq!(job_of(&format!("q/{}", names[2])), Some(JobId(3)));
        assert_eq!(job_of(&names[1]), Some(JobId(2)));
        assert_eq!((run_of("x"), job_of("q/podgroup-x")), (None, None));
    }
}
