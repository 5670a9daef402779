//! The Job machine: one step of a job's life.
//!
//! Invariant: [`step`] is a pure function of [`JobView`], which the shell builds from objects alone. The shell carries the
//! [`Plan`] out, puts the answers into its index and steps again until nothing is left to do. Called by the job controller
//! for each job that something happened to.

mod facts;
mod memory;
mod plan;
mod plugin_objects;
mod pod_counts;
mod pods;
mod policy;
mod remembered;
mod restart;
mod retries;
mod status;
mod sync;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use pumice_api::batch::{Job, JobPhase};
use pumice_api::bus::Action;
use pumice_api::names;
use pumice_api::profile::ResourceProfile;
use pumice_api::scheduling::PodGroup;

pub use crate::profile::{Learned, Lesson};
pub use crate::task_numbers::{MAX_PARALLEL, MIN_SUCCESS, RETRIES, TASK_NUMBERS, TaskNumber, TaskNumberError, at_once};
pub use facts::{JobPod, PodFacts, PodPhase};
pub use memory::learning::LEARN_MEMORY;
pub use memory::rule_of;
pub use memory::scale_up::{ScaleUp, ScaleUpError};
pub use memory::sizes::gets_more_memory;
pub use plan::{Effect, Ensured, Existing, ObjectId, ObjectKind, Plan, Severity, StatusChange};
pub use pods::scale_down::{PENDING_FIRST, has_free_indices, scale_down_of};
pub use policy::events::Evicted;
pub use restart::Mark;
pub use status::transitions::{Transition, transition};
pub use sync::start_after::{After, AfterError};

use memory::learning;
use pod_counts::{PodCounts, ended};
use policy::events::Signal;
use policy::{Judgement, Order};
use remembered::Remembered;
use restart::{Targets, is_unfinished};
use status::phase_rules::Verdict;
use status::{Draft, active_deadline};

/// Everything a step looks at. All of it is observed; nothing is remembered.
pub struct JobView<'a> {
    pub job: &'a Job,
    /// The pods this job controls, by name.
    pub pods: &'a BTreeMap<String, PodFacts>,
    /// Pods that went away since the last step without being asked to by us.
    pub evicted: &'a [Evicted],
    /// The job's group, if there is one.
    pub group: Option<&'a PodGroup>,
    /// Whether the job's queue exists.
    pub queue_exists: bool,
    /// Names of the claims in the job's namespace.
    pub claims: &'a BTreeSet<String>,
    /// Plugin objects known to be right, with the job's generation they were made for.
    pub applied: &'a BTreeMap<ObjectId, i64>,
    /// Values of the priority classes.
    pub priorities: &'a BTreeMap<String, i32>,
    /// Phases of the jobs that this one waits for ([`After`]), as far as they exist; of one that is gone, how it ended.
    pub awaited: &'a BTreeMap<String, JobPhase>,
    /// Whether the cluster serves NetworkPolicy.
    pub network_policies: bool,
    /// What was learned of earlier runs in the job's namespace, by name.
    pub profiles: &'a BTreeMap<String, ResourceProfile>,
    /// Bytes of memory that the largest node has for pods; none while no node is known.
    pub largest_node: Option<i64>,
    /// A Command for this job. It is deleted once the plan was carried out, and the job is not stepped before it is gone.
    pub command: Option<&'a Action>,
}

/// Decides what to do about a job now.
///
/// Never panics, whatever the objects hold. Cost: `O(pods + missing pods)`; allocates in proportion to the plan.
pub fn step(view: &JobView<'_>, now: Timestamp) -> Plan {
    if view.job.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let phase = view.job.status.state.phase.clone().unwrap_or(JobPhase::Pending);
    if let JobPhase::Other(word) = &phase {
        return Plan::only(vec![Effect::warning(
            "JobStatusError",
            format!("phase {word:?} is unknown to this version; the job is left alone"),
        )]);
    }
    let pod_counts = PodCounts::take(view.job, view.pods);
    let (ended, no_room) = match ended::look(view, &pod_counts) {
        Ok(ended) => (ended, None),
        Err(known) => (known, Some(ended::no_room())),
    };
    let pod_counts = pod_counts.with_ended(&ended);
    let mut signals = match phase {
        JobPhase::Pending | JobPhase::Running | JobPhase::Restarting => Signal::gather(view, &pod_counts, now),
        _ => Vec::new(),
    };
    let oom = memory::decide(view, &pod_counts, &phase);
    let retries = retries::decide(view, &pod_counts, &phase, &oom);
    signals.retain(|signal| !oom.answers(signal) && !retries.answers(signal));
    let changed_at = view.job.status.state.last_transition_time.as_ref().map_or(now, |time| time.0);
    let Judgement { due, wake_at, waiting } = policy::judge(&view.job.spec, &signals, changed_at, now);
    let refusals = Remembered::read(view.job, names::REFUSED_INDICES, None);
    let context =
        StepContext { view, pod_counts, phase, signals, due, memory: oom, retries, refusals, changed_at, now };
    let judged = matches!(context.phase, JobPhase::Pending | JobPhase::Running) && view.command.is_none();
    let order = match view.command {
        Some(action) => Some(Order::command(action.clone())),
        None if judged => context.due.first().cloned(),
        None => None,
    };
    let mut plan = context.act(order.as_ref());
    learning::teach(view, &context.pod_counts, &context.phase, &mut plan);
    let rest_ends = context.rest_ends().into_iter().chain(context.pause_ends());
    let deadline = active_deadline::due(view.job).filter(|due| *due > now);
    plan.prepend_records(no_room.into_iter().chain(context.memory.refused).collect());
    if judged {
        plan.prepend_records(waiting);
        plan.wake_at = plan.wake_at.into_iter().chain(wake_at).chain(rest_ends).min();
    }
    if matches!(context.phase, JobPhase::Pending | JobPhase::Running | JobPhase::Restarting) {
        plan.wake_at = plan.wake_at.into_iter().chain(deadline).min();
    }
    plan
}

/// One step's inputs, digested.
struct StepContext<'a> {
    view: &'a JobView<'a>,
    pod_counts: PodCounts<'a>,
    phase: JobPhase,
    signals: Vec<Signal>,
    /// Actions that policies ask for now, the one to take first.
    due: Vec<Order>,
    /// What is done about pods killed for want of memory, before anything else.
    memory: memory::Decision,
    /// What is done about pods that failed and have retries left, after that.
    retries: retries::Decision,
    /// What the job remembers of pods that nodes refused.
    refusals: Remembered,
    /// When the status last changed: since when what has happened at an unknown time counts.
    changed_at: Timestamp,
    now: Timestamp,
}

impl StepContext<'_> {
    fn act(&self, order: Option<&Order>) -> Plan {
        if let Some(plan) = self.end_overdue() {
            return Plan { command_waits: self.view.command.is_some(), ..plan };
        }
        if let Some(plan) = self.finish_restart().or_else(|| self.raise_memory()).or_else(|| self.retry_pods()) {
            return Plan { command_waits: self.view.command.is_some(), ..plan };
        }
        if self.view.command.is_none()
            && let Some(plan) = self.suspend_or_resume()
        {
            return plan;
        }
        let action = order.map_or(&Action::SyncJob, |order| &order.action);
        let wanted = transition(&self.phase, action);
        if let (Some(order), true) = (order, self.view.command.is_some())
            && wanted == transition(&self.phase, &Action::SyncJob)
        {
            // Maybe it was carried out before. Until it is gone the job must not go on, or it would act once more.
            return Plan::only(vec![Effect::normal("CommandIssued", order.command_message())]);
        }
        let mut plan = match wanted {
            Transition::Sync => self.sync(),
            Transition::RestartJob => self.restart_job(order),
            Transition::RestartTarget => match order {
                Some(order) => self.restart_target(order),
                None => self.sync(),
            },
            Transition::Kill(to) => self.begin_kill(to, order),
            Transition::Resume => self.resume(),
            Transition::Release => self.release(),
            Transition::Settle => self.settle(),
        };
        if let (Some(order), true) = (order, self.view.command.is_some()) {
            plan.prepend_records(vec![Effect::normal("CommandIssued", order.command_message())]);
        }
        plan
    }

    /// A status that differs from the job's only in what is set on it.
    fn draft(&self) -> Draft<'_> {
        Draft::new(self.view.job, &self.pod_counts)
    }

    /// The same with the pods that `goes` picks, which are deleted next, as terminating: whoever reads of the phase reads of
    /// them, however soon they are gone.
    fn draft_releasing(&self, goes: impl Fn(&PodFacts) -> bool) -> Draft<'_> {
        let mut draft = self.draft();
        draft.count(&self.pod_counts.clone().releasing(goes));
        draft
    }

    /// Moves to the phase of a verdict. The end of a job takes away what is unfinished.
    fn conclude(&self, draft: &mut Draft<'_>, verdict: &Verdict) {
        if verdict.phase.is_finished() {
            draft.count(&self.pod_counts.clone().releasing(is_unfinished));
        }
        draft.goto(verdict, self.now);
        active_deadline::note(self.view.job, &mut draft.next, self.now);
    }

    /// The same once `marks` are on the pods of `targets`.
    fn draft_after(&self, marks: &[Effect], targets: &Targets) -> Draft<'_> {
        let mut pods = self.view.pods.clone();
        for effect in marks {
            if let Effect::MarkPod { pod, mark } = effect
                && let Some(facts) = pods.get_mut(&pod.name)
            {
                facts.mark = Some(mark.clone());
            }
        }
        let pod_counts = PodCounts::take(self.view.job, &pods).with_ended(&self.ended_beside(targets));
        Draft::new(self.view.job, &pod_counts)
    }
}

#[cfg(test)]
mod tests;
