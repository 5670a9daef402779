//! Whether tasks that wait for tasks can ever start.

use pumice_api::batch::TaskSpec;

use crate::order;

/// Whether every dependency names a task and following them never comes back.
pub(super) fn are_acyclic(tasks: &[TaskSpec]) -> bool {
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    let targets = |index: usize| tasks[index].depends_on.iter().flat_map(|depends| &depends.name).map(String::as_str);
    order::check(&names, targets).is_ok()
}
