//! Gangs: how they are submitted and leased, and what holds of them. Their first runs begin in one decision, and one that has
//! to make room leaves with all of its gang. Nobody of a class that makes no room has to.

use super::*;

/// Members of a gang.
const GANG: u32 = 3;
/// How the ledger begins the reason of a run that leaves since its gang starts anew, whatever its class.
const ANEW: &str = "its gang starts anew";

/// What is known of gangs and classes beside the ledger.
#[derive(Default)]
pub(super) struct Gangs {
    /// The gang of each member.
    members: BTreeMap<JobId, Vec<JobId>>,
    /// Jobs of a class that makes no room.
    firm: BTreeSet<JobId>,
    /// Gangs that began, and those that left for others or because somebody asked.
    began: usize,
    left: usize,
}

impl Gangs {
    /// A gang as it is submitted.
    pub(super) fn submit(&mut self, first: u128, urgent: bool) -> Vec<Event> {
        let jobs: Vec<JobId> = (first..first + u128::from(GANG)).map(JobId).collect();
        for job in &jobs {
            self.members.insert(*job, jobs.clone());
            self.note_class(*job, urgent);
        }
        let gang = Gang { id: format!("g{first}"), cardinality: GANG, uniformity: String::new() };
        let member = |job: &JobId| {
            let (job, spec, shape) = (*job, Digest(1), Digest(u128::from(urgent)));
            Event::Submitted(Submitted { job, spec, shape, priority: 0, gang: Some(gang.clone()), fail_fast: false })
        };
        jobs.iter().map(member).collect()
    }

    pub(super) fn note_class(&mut self, job: JobId, urgent: bool) {
        if urgent {
            self.firm.insert(job);
        }
    }

    /// How many jobs `submit` makes.
    pub(super) fn size() -> u128 {
        GANG.into()
    }

    /// What a round finds for the gang of a job, if it has one: nodes for all of it that waits, unless it lacks somebody, or
    /// somebody has to leave first.
    pub(super) fn proposal(&self, rng: &mut StdRng, ledger: &Ledger, id: JobId) -> Option<Vec<Proposal>> {
        let members = self.members.get(&id)?;
        let waits = |job: &&JobId| ledger.job(**job).is_some_and(|job| job.phase == Phase::Queued);
        let waiting: Vec<JobId> = members.iter().filter(waits).copied().collect();
        let leaves = members.iter().any(|job| ledger.job(*job).is_some_and(|job| job.phase == Phase::Leaving));
        // Of those that wait the first speaks for all.
        if leaves || self.lacks(ledger, id) || waiting.first() != Some(&id) {
            return Some(Vec::new());
        }
        let mut at =
            || NodeRef { cluster: CLUSTERS[rng.gen_range(0..CLUSTERS.len())].to_owned(), node: "n".to_owned() };
        let jobs = waiting.into_iter().map(|job| (job, at())).collect();
        Some(vec![Proposal::Lease { jobs, pool: "p".to_owned(), away: None }])
    }

    /// Whether the gang of a job has not begun and can't any more.
    fn lacks(&self, ledger: &Ledger, id: JobId) -> bool {
        let Some(job) = ledger.job(id).filter(|job| job.attempts == 0) else { return false };
        ledger.gang(job).is_some_and(|gang| gang.members.len() < gang.cardinality as usize)
    }

    /// Jobs whose gangs wait for members that will not come: somebody has to cancel them.
    pub(super) fn stranded(&self, ledger: &Ledger) -> Vec<JobId> {
        self.members.keys().copied().filter(|job| self.lacks(ledger, *job)).collect()
    }

    /// Proposals that make a run leave, and all of its gang with it.
    pub(super) fn preemptions(&self, ledger: &Ledger, run: RunId) -> Vec<Proposal> {
        let of_gang = self.members.get(&run.job).into_iter().flatten().filter_map(|job| ledger.current(*job));
        let runs: BTreeSet<RunId> = of_gang.chain([run]).collect();
        let preempt = |run| Proposal::Preempt { run, preemption: pumice_ledger::Preemption::default() };
        runs.into_iter().map(preempt).collect()
    }

    /// Runs of members that count.
    pub(super) fn running(&self, ledger: &Ledger) -> BTreeSet<RunId> {
        self.members.keys().filter_map(|job| ledger.current(*job)).collect()
    }

    /// What holds of a decision, before which these runs of members counted.
    pub(super) fn check(&mut self, ledger: &Ledger, decided: &[Entry], before: &BTreeSet<RunId>) {
        let mut first: BTreeMap<JobId, usize> = BTreeMap::new();
        for event in decided.iter().flat_map(|entry| &entry.events) {
            match event {
                Event::Leased { run, .. } if run.attempt == 1 => {
                    if let Some(members) = self.members.get(&run.job) {
                        *first.entry(members[0]).or_default() += 1;
                    }
                }
                Event::RunPreempted { run, preemption, .. } => {
                    let anew = preemption.reason.starts_with(ANEW);
                    assert!(anew || !self.firm.contains(&run.job), "{run} makes no room, and was preempted");
                    let members = self.members.get(&run.job).into_iter().flatten();
                    let stays = members.filter_map(|job| ledger.current(*job)).find(|run| before.contains(run));
                    assert_eq!(stays, None, "{run} left without its gang");
                    self.left += usize::from(self.members.contains_key(&run.job));
                }
                _ => {}
            }
        }
        for (gang, began) in first {
            assert_eq!(began, GANG as usize, "the gang of job {gang} began in part");
            self.began += 1;
        }
    }

    /// How many began, and how many runs left with their gangs.
    pub(super) fn seen(&self) -> (usize, usize) {
        (self.began, self.left)
    }
}
