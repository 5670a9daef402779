//! What has to hold in the end, and what came about on the way.

use super::*;

/// Counts of what happened in a run, so that a test can say that it met what it is for.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Runs that were given up, and those of Volcano jobs among them.
    pub lost: usize,
    pub whole_lost: usize,
    /// Volcano jobs that ended well, and runs of those that never came to run.
    pub whole_succeeded: usize,
    pub stuck: usize,
    /// Failures that were tried again, and those with more memory.
    pub tried: usize,
    pub raised: usize,
    /// Gangs that began, and runs that left with all of theirs.
    pub gangs_began: usize,
    pub gangs_left: usize,
}

impl Seen {
    pub fn add(&mut self, other: &Seen) {
        self.lost += other.lost;
        self.whole_lost += other.whole_lost;
        self.whole_succeeded += other.whole_succeeded;
        self.stuck += other.stuck;
        self.tried += other.tried;
        self.raised += other.raised;
        self.gangs_began += other.gangs_began;
        self.gangs_left += other.gangs_left;
    }
}

impl World {
    /// Every job has ended exactly once, as its runs did, nothing is left, and no queue has a share of anything any more.
    pub(super) fn check(&self) -> Seen {
        let mut ends: BTreeMap<JobId, usize> = BTreeMap::new();
        let (gangs_began, gangs_left) = self.gangs.seen();
        let mut seen = Seen { gangs_began, gangs_left, ..Seen::default() };
        let mut tried: BTreeMap<(JobId, bool), usize> = BTreeMap::new();
        for event in self.log.iter().flat_map(|entry| &entry.events) {
            if let Some(job) = event.ends() {
                *ends.entry(job).or_default() += 1;
            }
            match event {
                Event::Succeeded { run } => {
                    assert!(self.succeeded.contains(run), "{run} did not end well");
                    seen.whole_succeeded += usize::from(self.whole.contains(&run.job));
                }
                Event::RunLost { run } => {
                    assert!(self.rerun.contains(&run.job), "{run} was given up");
                    seen.lost += 1;
                    seen.whole_lost += usize::from(self.whole.contains(&run.job));
                }
                Event::RunFailed { run, retried: true, grows, .. } => {
                    assert!(self.urgent.contains(&run.job), "{run} was tried again");
                    let raised = grows.is_some();
                    let times = tried.entry((run.job, raised)).or_default();
                    *times += 1;
                    let most = if raised { RAISES.len() } else { TRIES as usize };
                    assert!(*times <= most, "{run} was tried again {times} times");
                    seen.tried += 1;
                    seen.raised += usize::from(raised);
                }
                Event::Returned { run, reason, .. } if reason.contains("did not come to run") => {
                    assert!(self.whole.contains(&run.job), "{run} is no Job");
                    seen.stuck += 1;
                }
                _ => {}
            }
        }
        assert_eq!(ends.len() as u128, self.jobs, "some have not ended");
        assert!(ends.values().all(|count| *count == 1), "{ends:?}");
        let ledger = &self.leader.as_ref().expect("a leader").ledger;
        assert_eq!((ledger.jobs().count(), ledger.runs().count()), (0, 0));
        for queue in ledger.queues() {
            let name = queue.name;
            assert_eq!((queue.waiting, queue.active, queue.queued.len(), queue.usage.len()), (0, 0, 0, 0), "{name}");
        }
        seen
    }
}
