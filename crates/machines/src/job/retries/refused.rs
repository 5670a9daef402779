//! Pods that a node refused: each is made again after a pause, which grows while nodes go on refusing.
//!
//! Invariant: the pause follows from when the refused pod was made and from what the job remembers of those before it at its
//! index. That is written before the pod goes, counts each pod once, and is forgotten when a successor has started. Where a
//! restart takes such pods away they don't pause: it has a wait of its own. Used by `sync` and `restart`.

use jiff::{SignedDuration, Timestamp};
use pumice_api::batch::JobPhase;
use pumice_api::names;

use crate::job::StepContext;
use crate::job::facts::{PodFacts, PodPhase};
use crate::job::plan::Plan;
use crate::job::pod_counts::TaskCensus;
use crate::job::remembered::Remembered;

/// From when a pod was made until the next one is, if it was the first that was refused. Each further one takes twice as long.
const FIRST: SignedDuration = SignedDuration::from_secs(1);
/// No pause is longer.
const LONGEST: SignedDuration = SignedDuration::from_mins(1);
/// Refusals in a row that are counted; by then the pause is the longest.
const COUNT_MAX: i64 = 7;

/// What a job remembers of one index, as a number: it is the same for pods that were made and refused together.
#[derive(Clone, Copy)]
struct Refusals {
    /// The second in which the last refused pod was made.
    made: i64,
    /// Refusals in a row, that one among them.
    count: i64,
}

impl Refusals {
    fn read(number: i64) -> Self {
        Self { made: number.div_euclid(COUNT_MAX + 1), count: number.rem_euclid(COUNT_MAX + 1) }
    }

    fn number(self) -> i64 {
        self.made.saturating_mul(COUNT_MAX + 1).saturating_add(self.count.clamp(0, COUNT_MAX))
    }
}

impl StepContext<'_> {
    /// Refusals at the pod's index before its own.
    fn refused_before(&self, pod: &PodFacts, made: i64) -> i64 {
        match self.refusals.get(&pod.task, pod.index).map(Refusals::read) {
            Some(known) if known.made == made => known.count - 1,
            Some(known) => known.count,
            None => 0,
        }
    }

    /// Until when a refused pod keeps its place; none if that is over.
    fn rests_until(&self, pod: &PodFacts) -> Option<Timestamp> {
        if pod.refused.is_none() || !matches!(self.phase, JobPhase::Pending | JobPhase::Running) {
            return None;
        }
        let made = pod.created_at?;
        let doublings = u32::try_from(self.refused_before(pod, made.as_second())).unwrap_or(0);
        let pause = FIRST.saturating_mul(1 << doublings.min(30)).min(LONGEST);
        let due = made.checked_add(pause).ok().filter(|due| *due > self.now)?;
        // A pod of the future was made by a clock that goes wrong.
        (due.duration_since(self.now) <= LONGEST.saturating_mul(2)).then_some(due)
    }

    /// Whether a refused pod is not to be replaced yet.
    pub(in crate::job) fn rests(&self, pod: &PodFacts) -> bool {
        self.rests_until(pod).is_some()
    }

    /// When the first of those that rest is to be replaced.
    pub(in crate::job) fn rest_ends(&self) -> Option<Timestamp> {
        self.pod_counts.slots().filter_map(|pod| self.rests_until(pod)).min()
    }

    /// Lets the job count the refused pods that go now, and forget those before pods that have started, before anything else.
    pub(in crate::job) fn with_refusals(&self, mut plan: Plan) -> Plan {
        let mut left = Remembered::default();
        for task in &self.pod_counts.tasks {
            let name = &task.spec.name;
            for (index, number) in self.refusals.of_task(name).filter(|(index, _)| awaits_start(task, *index)) {
                left.set(name, index, number);
            }
            let refused = task.slots.values().filter(|pod| pod.refused.is_some() && pod.terminating_since.is_none());
            for pod in refused.filter(|pod| !self.rests(pod)) {
                let made = pod.created_at.map_or(0, Timestamp::as_second);
                let count = self.refused_before(pod, made).saturating_add(1);
                left.set(name, pod.index, Refusals { made, count }.number());
            }
        }
        // Should there be no room, the pauses grow no more.
        if let Ok(Some(annotate)) = left.change(self.view.job, names::REFUSED_INDICES, None) {
            plan.stages.insert(0, vec![annotate]);
        }
        plan
    }
}

/// Whether no pod of this index has started since.
fn awaits_start(task: &TaskCensus<'_>, index: i32) -> bool {
    let waits = |pod: &&PodFacts| pod.phase == PodPhase::Pending || pod.is_leaving();
    task.is_free(index) || task.slots.get(&index).is_some_and(waits)
}
