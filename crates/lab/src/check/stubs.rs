//! The plugins that only cases have: stand-ins for what Volcano's tests plug in.
//!
//! They come in through the registry like a third party's, so they read no more than one may.

use pumice_engine::plugin::{GroupId, Missing, NodeId, Plugin, Registry, Tables, TaskId, TaskState, Vote};
use pumice_engine::{Check, Reason};

/// The group that the rejecter refuses.
const REJECTED: &str = "pgA";
/// The pod that the device stub keeps off nodes, and the one that it waits for there.
const WAITING: &str = "preemptor";
const LEAVING: &str = "preemptee";

/// Adds the stubs of these names.
pub(super) fn add(registry: &mut Registry, names: &[String]) {
    for name in names {
        if name.contains("reject") {
            registry.add(name, &[], |_| Ok(Box::new(Rejecter)));
        } else if name.contains("fake") {
            registry.add(name, &[], |_| Ok(Box::new(LowPriority)));
        } else {
            registry.add(name, &[], |_| Ok(Box::new(Device)));
        }
    }
}

/// Refuses to admit one group.
#[derive(Debug)]
struct Rejecter;

impl Plugin for Rejecter {
    fn job_enqueueable(&self, tables: &Tables, group: GroupId, _missing: &Missing) -> Result<Vote, Reason> {
        if tables.group(group).name() != REJECTED {
            return Ok(Vote::Permit);
        }
        Err(Reason::Refused { plugin: "stub".to_owned(), message: format!("{REJECTED} is refused") })
    }
}

/// Moves the running pods of the lowest priority.
#[derive(Debug)]
struct LowPriority;

impl Plugin for LowPriority {
    fn victim_tasks(&self, tables: &Tables) -> Vec<TaskId> {
        let running = || tables.task_ids().filter(|task| tables.task(*task).state() == TaskState::Running);
        let priority = |task: TaskId| tables.task(task).priority();
        let Some(highest) = running().map(priority).max() else { return Vec::new() };
        let lowest = running().map(priority).min().filter(|lowest| *lowest < highest);
        running().filter(|task| Some(priority(*task)) == lowest).collect()
    }
}

/// A device that one pod gets only where another gives it back, or is gone.
#[derive(Debug)]
struct Device;

impl Plugin for Device {
    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        tables.task(task).name() == WAITING
    }

    fn check_task(&self, tables: &Tables, _task: TaskId, node: NodeId) -> Option<Check> {
        let mut there = tables.node(node).tasks().iter().map(|task| tables.task(*task));
        let gone = [TaskState::Releasing, TaskState::Succeeded, TaskState::Failed];
        let taken = there.any(|task| task.name() == LEAVING && !gone.contains(&task.state()));
        taken.then_some(Check::Refused)
    }
}
