//! A lower priority class never takes room of a higher one to balance shares, as a plugin of the engine.

use pumice_engine::plugin::{Alike, ClassRow, GroupId, Plugin, Tables, TaskId};

/// Its name in the configuration.
pub const NAME: &str = "classes";

/// Lets nobody take room of a higher class to balance shares.
#[derive(Debug)]
pub struct ClassShares;

/// The value of the class of a pod's group.
fn class(tables: &Tables, task: TaskId) -> i32 {
    let row = tables.task(task);
    row.group().map_or_else(|| row.priority(), |group| tables.group(group).priority())
}

impl Plugin for ClassShares {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn admits_alike(&self, _tables: &Tables, _group: GroupId) -> Alike {
        Alike::Key(0)
    }

    fn reclaimable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        let most = class(tables, preemptor);
        Some(candidates.iter().copied().filter(|victim| class(tables, *victim) <= most).collect())
    }

    /// Its answers read the preemptor's class.
    fn victim_key(&self, tables: &Tables, preemptor: TaskId) -> Option<u64> {
        Some(u64::from(class(tables, preemptor).cast_unsigned()))
    }
}
