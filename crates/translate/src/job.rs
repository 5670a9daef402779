//! Jobs: what pods they will have, before they have any.

use pumice_api::batch::{Iteration, Job, JobPhase, TaskSpec};
use pumice_api::names;
use pumice_engine::{Delta, DependsOn, ShapeTask};

use super::template::template;
use super::{count, text};

/// The shape of the job's group.
pub fn job_shape(job: &Job) -> Delta {
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let tasks = job.spec.tasks.iter().enumerate().map(|(index, task)| {
        let metadata = task.template.metadata.clone().unwrap_or_default();
        let spec = task.template.spec.clone().unwrap_or_default();
        ShapeTask {
            // As the controllers name it in its pods, where no admission has.
            role: if task.name.is_empty() { names::unnamed_task(index) } else { task.name.clone() },
            count: count(task.replicas),
            template: template(namespace, &metadata, &spec, None).into(),
            depends_on: depends_on(task),
        }
    });
    Delta::ShapeUpsert {
        owner_uid: text(job.metadata.uid.as_ref()),
        tasks: tasks.collect(),
        ended: job.metadata.deletion_timestamp.is_some() || wants_nothing(job.status.state.phase.as_ref()),
    }
}

fn depends_on(task: &TaskSpec) -> Option<DependsOn> {
    let depends_on = task.depends_on.as_ref().filter(|depends_on| !depends_on.name.is_empty())?;
    Some(DependsOn { tasks: depends_on.name.clone(), any: depends_on.iteration == Some(Iteration::Any) })
}

/// The job has ended, or is being brought to an end: no pods of it are to be placed any more.
fn wants_nothing(phase: Option<&JobPhase>) -> bool {
    use JobPhase::{Aborted, Aborting, Completing, Terminating};
    phase.is_some_and(|phase| phase.is_finished() || matches!(phase, Aborted | Aborting | Completing | Terminating))
}
