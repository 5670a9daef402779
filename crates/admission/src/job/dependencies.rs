//! Whether tasks that wait for tasks can ever start.

use std::collections::BTreeMap;

use pumice_api::batch::TaskSpec;

/// Whether every dependency names a task and following them never comes back. `O(tasks + dependencies)`, apart from the map.
pub(super) fn are_acyclic(tasks: &[TaskSpec]) -> bool {
    let position: BTreeMap<&str, usize> =
        tasks.iter().enumerate().map(|(index, task)| (task.name.as_str(), index)).collect();
    let mut waiting = vec![0_usize; tasks.len()];
    let mut waiters: Vec<Vec<usize>> = vec![Vec::new(); tasks.len()];
    for (index, task) in tasks.iter().enumerate() {
        for name in task.depends_on.iter().flat_map(|depends_on| &depends_on.name) {
            let Some(target) = position.get(name.as_str()) else { return false };
            waiting[index] += 1;
            waiters[*target].push(index);
        }
    }
    let mut free: Vec<usize> = (0..tasks.len()).filter(|index| waiting[*index] == 0).collect();
    let mut started = 0;
    while let Some(index) = free.pop() {
        started += 1;
        for waiter in std::mem::take(&mut waiters[index]) {
            waiting[waiter] -= 1;
            if waiting[waiter] == 0 {
                free.push(waiter);
            }
        }
    }
    started == tasks.len()
}
