//! Whether tasks that wait for tasks can ever start.

use pumice_api::batch::{Job, TaskSpec};
use pumice_api::names::SCHEDULER_DEFAULT;
use pumice_machines::job::at_once;

use crate::{Findings, Rules, order};

/// Whether every dependency names a task and following them never comes back.
pub(super) fn are_acyclic(tasks: &[TaskSpec]) -> bool {
    let names: Vec<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    let targets = |index: usize| tasks[index].depends_on.iter().flat_map(|depends| &depends.name).map(String::as_str);
    order::check(&names, targets).is_ok()
}

/// Warns of a gang that another scheduler waits for in vain: ours leaves out of its minimum what can't be there yet, Volcano's
/// own does not. Kubernetes' own knows no gangs. The job's defaults are filled in.
pub(super) fn doubt(job: &Job, rules: &Rules, findings: &mut Findings) {
    let spec = &job.spec;
    let named = spec.scheduler_name.as_str();
    if named == SCHEDULER_DEFAULT || rules.scheduler_names.iter().any(|ours| ours == named) {
        return;
    }
    let depends = |task: &&TaskSpec| task.depends_on.as_ref().is_some_and(|depends_on| !depends_on.name.is_empty());
    let can_be: i64 = spec.tasks.iter().filter(|task| !depends(task)).map(|task| i64::from(at_once(task))).sum();
    let minima: i64 = spec.tasks.iter().map(|task| i64::from(task.min_available.unwrap_or(task.replicas))).sum();
    let least = i64::from(spec.min_available);
    if least <= can_be && least < minima {
        return;
    }
    let Some(task) = spec.tasks.iter().find(depends) else { return };
    // Minima of tasks count there only where together they are no more than the job's.
    findings.warn(format!(
        "pods of task {} are made only when those that it dependsOn run, and minAvailable {least} counts them: scheduler          {named} may wait for them for ever, as Volcano's own does; write minAvailable: {can_be}, and none in the tasks",
        task.name
    ));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn warnings(scheduler: &str, min_available: i32, tasks: serde_json::Value) -> Vec<String> {
        let spec = json!({"schedulerName": scheduler, "minAvailable": min_available, "tasks": tasks});
        let job: Job = serde_json::from_value(json!({"metadata": {"name": "j"}, "spec": spec})).unwrap();
        let mut findings = Findings::default();
        doubt(&job, &Rules::default(), &mut findings);
        findings.warnings
    }

    #[test]
    fn a_gang_that_another_scheduler_never_starts_is_warned_of_with_the_number_to_write() {
        let on = json!({"name": ["work"]});
        let whole = json!([{"name": "master", "replicas": 2, "dependsOn": on}, {"name": "work", "replicas": 3}]);
        let minima = json!([
            {"name": "master", "replicas": 2, "minAvailable": 1, "dependsOn": on},
            {"name": "work", "replicas": 3, "minAvailable": 1},
        ]);
        let none = json!([{"name": "master", "replicas": 2, "dependsOn": {}}, {"name": "work", "replicas": 3}]);
        for (scheduler, least, tasks, warned) in [
            ("theirs", 5, &whole, true),
            ("theirs", 4, &whole, true),
            ("theirs", 3, &whole, false),
            ("theirs", 3, &minima, true),
            ("theirs", 2, &minima, true),
            ("theirs", 1, &minima, false),
            ("theirs", 5, &none, false),
            ("volcano", 5, &whole, false),
            ("default-scheduler", 5, &whole, false),
        ] {
            let found = warnings(scheduler, least, tasks.clone());
            assert_eq!(found.len(), usize::from(warned), "{scheduler} {least} {tasks}: {found:?}");
            assert!(found.iter().all(|text| text.contains("write minAvailable: 3")), "{found:?}");
        }
    }
}
