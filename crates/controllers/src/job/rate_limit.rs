//! How often a job is looked at, and how often its status is written.
//!
//! Invariant: of three writes of a status the last begins a second or more after the first was answered, so that the API
//! server sees two within any second at most, whatever happens to the job. A new phase waits for none of that, so that
//! whoever watches sees each, unless there were many of late. A write of mere counts waits for company, and a look at very
//! many pods for more news of them. One for each job, asked before each plan.

use std::collections::VecDeque;
use std::time::Duration;

use pumice_machines::job::{Effect, Plan, StatusChange};
use tokio::time::Instant;

/// The time in which a status is written twice at most.
const WINDOW: Duration = Duration::from_secs(1);
/// The time in which so many new phases are written at once; further ones are written as all else.
const PHASES_WINDOW: Duration = Duration::from_secs(10);
const PHASES_MAX: usize = 8;
/// How long a status in which only counts moved waits for more of them, or for a write that is due anyway.
const COUNTS_WAIT: Duration = Duration::from_millis(100);
/// How long the counts of a job that has not started wait for its start, which saves a write where it starts soon.
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// The same while many jobs wait for their turn: most start soon, also on a server that needs a second for the way there, and
/// one without a status is read as pending.
const FIRST_WAIT_BUSY: Duration = Duration::from_secs(3);
/// How long until it is looked again whether many still wait.
const BUSY_AGAIN: Duration = Duration::from_secs(1);
/// So many jobs that wait for their turn, or have it, are many.
const MANY_QUEUED: usize = 8;
/// Shortest time from a write of a job's status to one in which only counts moved.
const COUNTS_APART: Duration = WINDOW;
/// Rest after a look, for each pod: a look costs some half of a microsecond for each, so that the looks of a job whose pods all
/// start or end take a hundredth of a core.
const REST_OF_A_POD: Duration = Duration::from_micros(50);
/// Longest rest by that measure: nobody notices it.
const REST_UNNOTICED: Duration = Duration::from_millis(50);
/// Rest for each pod of a job with so many that this is longer: half a second at 100,000.
const REST_OF_ONE_OF_VERY_MANY: Duration = Duration::from_micros(5);
/// Shorter rests are none: a job of few pods is looked at whenever something happens.
const REST_MIN: Duration = Duration::from_millis(1);

/// When a job was looked at, and when its status was written.
#[derive(Default)]
pub(super) struct RateLimit {
    /// When the last write was answered; while it is under way, when it began.
    last: Option<Instant>,
    /// The same of the one before.
    before: Option<Instant>,
    is_writing: bool,
    /// When new phases were written of late, at most so many as are written at once.
    phases: VecDeque<Instant>,
    /// Since when the status has counts that are not written.
    counts_since: Option<Instant>,
    /// Not looked at before.
    rested_at: Option<Instant>,
}

impl RateLimit {
    /// When the job may be looked at, if not now.
    pub fn rests_until(&self, now: Instant) -> Option<Instant> {
        self.rested_at.filter(|at| *at > now)
    }

    /// The job, which has so many pods, is looked at now.
    pub fn looked(&mut self, pods: usize, now: Instant) {
        let pods = u32::try_from(pods).unwrap_or(u32::MAX);
        let rest = (REST_OF_A_POD * pods).min(REST_UNNOTICED).max(REST_OF_ONE_OF_VERY_MANY * pods);
        self.rested_at = (rest >= REST_MIN).then(|| now + rest);
    }

    /// When a plan with a write that can't be left out may begin, if not now.
    pub fn waits_until(&self, plan: &Plan, now: Instant) -> Option<Instant> {
        let may_wait = match greatest_change(plan)? {
            StatusChange::Counts => false,
            StatusChange::Decision => true,
            StatusChange::Phase => {
                self.phases.len() == PHASES_MAX && self.phases.front().is_some_and(|at| *at + PHASES_WINDOW > now)
            }
        };
        self.is_free_at().filter(|at| may_wait && *at > now)
    }

    /// Takes a write of mere counts out of a plan until it has waited long enough; tells when that is, or is looked at again.
    /// `queued` jobs wait for their turn or have it.
    pub fn hold_back(&mut self, plan: &mut Plan, is_pending: bool, queued: usize, now: Instant) -> Option<Instant> {
        let is_counts =
            |effect: &mut Effect| matches!(effect, Effect::WriteStatus { change: StatusChange::Counts, .. });
        let since = self.counts_since.unwrap_or(now);
        let waited = match (is_pending && self.last.is_none(), queued > MANY_QUEUED) {
            (false, _) => since + COUNTS_WAIT,
            (true, false) => since + FIRST_WAIT,
            (true, true) => (since + FIRST_WAIT_BUSY).min(now.max(since + FIRST_WAIT) + BUSY_AGAIN),
        };
        let apart = self.last.map(|at| at + COUNTS_APART);
        let due = [apart, self.is_free_at()].into_iter().flatten().fold(waited, Instant::max);
        let mut held = false;
        if due > now {
            for stage in &mut plan.stages {
                held |= stage.extract_if(.., is_counts).count() > 0;
            }
        }
        self.counts_since = held.then_some(since);
        let change = greatest_change(plan);
        if change.is_some() {
            self.before = self.last;
            self.last = Some(now);
            self.is_writing = true;
        }
        if change == Some(StatusChange::Phase) {
            if self.phases.len() == PHASES_MAX {
                self.phases.pop_front();
            }
            self.phases.push_back(now);
        }
        held.then_some(due)
    }

    /// The plan that was under way is over.
    pub fn answered(&mut self, now: Instant) {
        if std::mem::take(&mut self.is_writing) {
            self.last = Some(now);
        }
    }

    fn is_free_at(&self) -> Option<Instant> {
        self.before.map(|at| at + WINDOW)
    }
}

/// What the plan writes into the status that matters most.
fn greatest_change(plan: &Plan) -> Option<StatusChange> {
    let writes = plan.stages.iter().flatten().filter_map(|effect| match effect {
        Effect::WriteStatus { change, .. } => Some(*change),
        _ => None,
    });
    writes.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    use StatusChange::{Counts, Decision, Phase};

    fn write(change: StatusChange) -> Plan {
        Plan::only(vec![Effect::WriteStatus { status: Box::default(), change }])
    }

    /// What becomes of a plan: when it is due in place of now, in milliseconds. What goes through is answered 10 ms later.
    struct Clock {
        start: Instant,
        pace: RateLimit,
    }

    impl Clock {
        fn new() -> Self {
            Self { start: Instant::now(), pace: RateLimit::default() }
        }

        fn at(&mut self, millis: u64, change: StatusChange, is_pending: bool) -> Option<u128> {
            self.among(0, millis, change, is_pending)
        }

        fn among(&mut self, queued: usize, millis: u64, change: StatusChange, is_pending: bool) -> Option<u128> {
            let now = self.start + Duration::from_millis(millis);
            let mut plan = write(change);
            let due = self.pace.waits_until(&plan, now).or_else(|| {
                let held = self.pace.hold_back(&mut plan, is_pending, queued, now);
                assert_eq!(held.is_some(), plan.is_settled());
                held
            });
            self.pace.answered(now + Duration::from_millis(10));
            due.map(|at| at.duration_since(self.start).as_millis())
        }
    }

    #[tokio::test]
    async fn counts_wait_for_company() {
        let mut clock = Clock::new();
        assert_eq!(clock.at(0, Counts, false), Some(100), "more may come with it");
        assert_eq!(clock.at(60, Counts, false), Some(100));
        assert_eq!(clock.at(100, Counts, false), None);
        assert_eq!(clock.at(150, Counts, false), Some(1_110));
        assert_eq!(clock.at(200, Decision, false), None, "a decision waits for nothing");
        assert_eq!(clock.at(220, Counts, false), Some(1_210));
        assert_eq!(clock.at(1_210, Counts, false), None);
    }

    #[tokio::test]
    async fn the_counts_of_a_job_that_has_not_started_wait_for_its_start() {
        let mut clock = Clock::new();
        assert_eq!(clock.at(0, Counts, true), Some(300));
        assert_eq!(clock.at(100, Counts, true), Some(300), "the first counts come with it");
        assert_eq!(clock.at(300, Counts, true), None);
        assert_eq!(clock.at(400, Decision, true), None);
        let mut soon = Clock::new();
        assert_eq!(soon.at(0, Counts, true), Some(300));
        assert_eq!((soon.at(200, Decision, false), soon.at(400, Decision, false)), (None, None), "started, and ended");
    }

    #[tokio::test]
    async fn where_many_jobs_wait_for_their_turn_the_first_counts_wait_longer() {
        let mut clock = Clock::new();
        assert_eq!(clock.among(1_000, 0, Counts, true), Some(1_300));
        assert_eq!(clock.among(1_000, 1_300, Counts, true), Some(2_300));
        assert_eq!(clock.among(1_000, 2_300, Counts, true), Some(3_000));
        assert_eq!(clock.among(1_000, 3_000, Counts, true), None);
        let mut meanwhile = Clock::new();
        assert_eq!(meanwhile.among(1_000, 0, Counts, true), Some(1_300));
        assert_eq!(meanwhile.among(8, 1_300, Counts, true), None, "most have had their turn");
    }

    #[tokio::test]
    async fn a_third_write_within_a_second_waits_however_urgent() {
        let mut clock = Clock::new();
        assert_eq!(clock.at(0, Decision, false), None);
        assert_eq!(clock.at(300, Decision, false), None);
        assert_eq!(clock.at(600, Decision, false), Some(1_010), "a second after the first was answered");
        assert_eq!(clock.at(1_010, Decision, false), None);
        assert_eq!(clock.at(1_020, Decision, false), Some(1_310));
        assert_eq!(clock.at(5_000, Decision, false), None);
        assert_eq!(clock.at(5_001, Decision, false), None);
    }

    #[tokio::test]
    async fn a_new_phase_waits_for_nothing_unless_there_were_many() {
        let mut clock = Clock::new();
        assert_eq!((clock.at(0, Decision, false), clock.at(10, Decision, false)), (None, None));
        for write in 0..8 {
            assert_eq!(clock.at(20 + write, Phase, false), None);
        }
        assert_eq!(clock.at(30, Decision, false), Some(1_036), "all else keeps its distance from them");
        assert_eq!(clock.at(30, Phase, false), Some(1_036));
        assert_eq!(clock.at(1_036, Phase, false), None, "as all else");
        assert_eq!(clock.at(10_021, Phase, false), None);
    }

    #[tokio::test]
    async fn a_plan_without_a_write_never_waits() {
        let mut clock = Clock::new();
        assert_eq!((clock.at(0, Decision, false), clock.at(1, Decision, false)), (None, None));
        let now = clock.start + Duration::from_millis(2);
        let mut plan = Plan::only(vec![Effect::DeleteJob]);
        assert_eq!(clock.pace.waits_until(&plan, now), None);
        assert_eq!(clock.pace.hold_back(&mut plan, false, 0, now), None);
        assert_eq!(plan, Plan::only(vec![Effect::DeleteJob]));
    }

    #[tokio::test]
    async fn the_rest_after_a_look_grows_with_the_pods() {
        let (now, mut pace) = (Instant::now(), RateLimit::default());
        let cases = [
            (0, None),
            (19, None),
            (20, Some(1)),
            (1_000, Some(50)),
            (10_000, Some(50)),
            (100_000, Some(500)),
            (10, None),
        ];
        for (pods, expected) in cases {
            pace.looked(pods, now);
            let rest = pace.rests_until(now).map(|at| at.duration_since(now).as_millis());
            assert_eq!(rest, expected, "{pods} pods");
            assert_eq!(pace.rests_until(now + Duration::from_millis(500)), None);
        }
    }
}
