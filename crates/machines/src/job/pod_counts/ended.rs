//! Pods that ran to their end and are gone: a cluster removes such pods when it has many, and people do.
//!
//! Invariant: while its index is wanted and not restarted, such a pod counts with its result and is not made again. That it
//! was seen to go is told by the shell; if nobody was there, it follows from the counts in the status wherever all that is
//! missing must have ended. Called at each step, and by whatever restarts pods.

use pumice_api::batch::{Job, JobPhase};
use pumice_api::names;

use crate::job::facts::PodPhase;
use crate::job::plan::{Effect, Plan};
use crate::job::pod_counts::{PodCounts, TaskCensus};
use crate::job::remembered::Remembered;
use crate::job::restart::{self, Targets};
use crate::job::{JobView, StepContext};

const SUCCEEDED: i64 = 1;
const FAILED: i64 = 2;

/// The result that a number stands for.
pub(in crate::job) fn result(number: i64) -> Option<PodPhase> {
    match number {
        SUCCEEDED => Some(PodPhase::Succeeded),
        FAILED => Some(PodPhase::Failed),
        _ => None,
    }
}

fn number(phase: PodPhase) -> Option<i64> {
    match phase {
        PodPhase::Succeeded => Some(SUCCEEDED),
        PodPhase::Failed => Some(FAILED),
        _ => None,
    }
}

/// What is known of pods that ended and are gone; `Err` holds what was known before, if there is no room for more.
pub(in crate::job) fn look(view: &JobView<'_>, pod_counts: &PodCounts<'_>) -> Result<Remembered, Remembered> {
    let job = view.job;
    let mut memory = Remembered::default();
    let before = Remembered::read(job, names::ENDED_INDICES, None);
    for task in &pod_counts.tasks {
        let name = &task.spec.name;
        for (index, number) in before.of_task(name).filter(|(index, _)| task.is_free(*index)) {
            memory.set(name, index, number);
        }
    }
    if !counts_are_of_this_run(job) {
        return Ok(memory);
    }
    let known = memory.clone();
    for gone in view.evicted.iter().filter(|gone| gone.version >= job.status.version) {
        let task = pod_counts.task(&gone.task).filter(|task| task.is_free(gone.index));
        if let (Some(_), Some(number)) = (task, number(gone.phase)) {
            memory.set(&gone.task, gone.index, number);
        }
    }
    for task in &pod_counts.tasks {
        unseen(job, task, &mut memory);
    }
    match memory.change(job, names::ENDED_INDICES, None) {
        Ok(_) => Ok(memory),
        Err(_) => Err(known),
    }
}

/// Whether the counts in the status miss no pod that we have deleted.
fn counts_are_of_this_run(job: &Job) -> bool {
    match &job.status.state.phase {
        Some(JobPhase::Pending | JobPhase::Running) => true,
        Some(JobPhase::Restarting) => restart::restarts_some(&job.status.state.reason),
        _ => false,
    }
}

/// Fewer pods that ended than the status counted, by just as many as are missing: these are the ones.
fn unseen(job: &Job, task: &TaskCensus<'_>, memory: &mut Remembered) {
    let name = &task.spec.name;
    let Some(counted) = job.status.task_status_count.get(name) else { return };
    let short = |phase: PodPhase, now: i32| {
        let number = number(phase);
        let known = memory.of_task(name).filter(|(_, one)| Some(*one) == number).count();
        let before = counted.phase.get(phase.as_str()).copied().unwrap_or(0);
        usize::try_from(before.saturating_sub(now)).unwrap_or(0).saturating_sub(known)
    };
    let succeeded = short(PodPhase::Succeeded, task.counts.succeeded);
    let failed = short(PodPhase::Failed, task.counts.failed);
    if succeeded + failed == 0 {
        return;
    }
    let free =
        (0..task.spec.replicas.max(0)).filter(|index| task.is_free(*index) && memory.get(name, *index).is_none());
    // One more than is explained is enough to know that not all are.
    let missing: Vec<i32> = free.take(succeeded + failed + 1).collect();
    if missing.len() == succeeded + failed {
        for (place, index) in missing.into_iter().enumerate() {
            memory.set(name, index, if place < succeeded { SUCCEEDED } else { FAILED });
        }
    }
}

impl StepContext<'_> {
    /// Lets the job remember what has ended, but for what these targets restart, before it does anything else.
    pub(in crate::job) fn with_ended(&self, targets: &Targets, mut plan: Plan) -> Plan {
        if let Ok(Some(annotate)) = self.ended_beside(targets).change(self.view.job, names::ENDED_INDICES, None) {
            plan.stages.insert(0, vec![annotate]);
        }
        plan
    }

    /// What has ended and is gone, but for what these targets restart.
    pub(in crate::job) fn ended_beside(&self, targets: &Targets) -> Remembered {
        let mut left = Remembered::default();
        for task in &self.pod_counts.tasks {
            let restarted = |index: i32| targets.has(task.spec, index);
            for (index, phase) in task.ended.iter().filter(|(index, _)| !restarted(**index)) {
                number(*phase).into_iter().for_each(|number| left.set(&task.spec.name, *index, number));
            }
        }
        left
    }

    /// Lets the job forget all of it: everything starts anew.
    pub(in crate::job) fn without_ended(&self, mut plan: Plan) -> Plan {
        if let Ok(Some(annotate)) = Remembered::default().change(self.view.job, names::ENDED_INDICES, None) {
            plan.stages.insert(0, vec![annotate]);
        }
        plan
    }
}

/// Tells that pods which ended are made again.
pub(in crate::job) fn no_room() -> Effect {
    let message =
        "pods that ended were removed, and the job can't remember more of them: they are made again".to_owned();
    Effect::warning("EndedPodsForgotten", message)
}
