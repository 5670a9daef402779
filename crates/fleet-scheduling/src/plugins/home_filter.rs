//! Which of a job and its twins away from home may start in a pass of a round, as a plugin of the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pumice_engine::Reason;
use pumice_engine::plugin::{Alike, ClassRow, GroupId, Plugin, QueueId, Tables};

use crate::away;

/// Its name in the configuration, and in front of what it says.
pub const NAME: &str = "home";

/// Whether it is the pass of those away from home.
#[derive(Debug, Default)]
pub struct Pass(AtomicBool);

impl Pass {
    pub(crate) fn set(&self, second: bool) {
        self.0.store(second, Ordering::Relaxed);
    }

    pub(crate) fn is_second(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Lets jobs at home start in the first pass of a round, and their twins away from home in the second.
#[derive(Debug)]
pub struct HomeFilter {
    /// Whether any may start at home.
    pub home: bool,
    pub pool: String,
    /// Which pass it is.
    pub pass: Arc<Pass>,
}

fn is_away(tables: &Tables, queue: QueueId) -> bool {
    away::home_of(tables.queue(queue).name()).is_some()
}

impl Plugin for HomeFilter {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn admits_alike(&self, _tables: &Tables, _group: GroupId) -> Alike {
        Alike::Key(0)
    }

    /// Who is away makes nobody leave, and once it is the turn of those nobody does.
    fn job_starving(&self, tables: &Tables, group: GroupId) -> Option<bool> {
        (self.pass.is_second() || !self.home || is_away(tables, tables.group(group).queue())).then_some(false)
    }

    fn overused(&self, tables: &Tables, queue: QueueId) -> Option<Reason> {
        let refused = |message: String| Some(Reason::Refused { plugin: NAME.to_owned(), message });
        match is_away(tables, queue) {
            true if !self.pass.is_second() => refused("jobs at home go first".to_owned()),
            false if !self.home => {
                refused(format!("pool {} starts no jobs at home (disableHomeScheduling)", self.pool))
            }
            _ => None,
        }
    }

    /// What is away leaves first.
    fn victim_queue_order(
        &self,
        tables: &Tables,
        left: QueueId,
        right: QueueId,
        _preemptor: QueueId,
    ) -> std::cmp::Ordering {
        is_away(tables, right).cmp(&is_away(tables, left))
    }
}
