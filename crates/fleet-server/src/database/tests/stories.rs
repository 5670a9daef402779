//! Whatever happens, and whenever a leader is replaced: the tables give the ledger that the log gives.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use pumice_ledger::{
    Failure, Filter, Gang, Inbox, JobId, Ledger, Phase, PodRef, Preemption, Report, ReportKind, Retries, RunId,
    SavedJob, Scope,
};

use super::homes::{Home, execute};
use super::*;
use crate::database::{Changed, Database, Epoch};

/// One thing that may happen. Jobs and runs are told by their place among those that there are.
#[derive(Debug, Clone)]
enum Step {
    Submit(Vec<u8>),
    Ask(u8, u8),
    Lease(u8, bool),
    Report(u8, u8),
    Preempt(u8),
    Silent,
    Takeover,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => proptest::collection::vec(0..12_u8, 1..4).prop_map(Step::Submit),
        3 => (0..7_u8, any::<u8>()).prop_map(|(kind, job)| Step::Ask(kind, job)),
        5 => (any::<u8>(), any::<bool>()).prop_map(|(job, first)| Step::Lease(job, first)),
        6 => (any::<u8>(), 0..7_u8).prop_map(|(run, kind)| Step::Report(run, kind)),
        2 => any::<u8>().prop_map(Step::Preempt),
        1 => Just(Step::Silent),
        1 => Just(Step::Takeover),
    ]
}

fn stories() -> impl Strategy<Value = (Vec<(Step, bool)>, bool)> {
    (proptest::collection::vec((step(), prop::bool::weighted(0.8)), 1..80), any::<bool>())
}

/// Jobs that one decision changes of what is asked of more.
const PART: usize = 2;

/// One of several, in order.
fn nth<T: Ord + Copy>(all: impl Iterator<Item = T>, place: u8) -> Option<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_unstable();
    let place = usize::from(place).checked_rem(all.len())?;
    Some(all[place])
}

fn scope(place: u8) -> Scope {
    let cluster = if place.is_multiple_of(2) { "one".to_owned() } else { String::new() };
    let phases = if place.is_multiple_of(3) { vec![Phase::Running] } else { vec![] };
    Scope { cluster, phases, ..Scope::default() }
}

fn asked(ledger: &Ledger, kind: u8, place: u8) -> Event {
    let jobs: Vec<JobId> = nth(ledger.jobs().map(|(id, _)| id), place).into_iter().collect();
    match kind {
        0 if !jobs.is_empty() => Event::CancelAsked { jobs, filter: Filter::Active, reason: "enough".to_owned() },
        0 | 1 if place < 40 => Event::CancelAsked { jobs: vec![], filter: Filter::Queued, reason: String::new() },
        0..=2 => Event::PreemptAsked { jobs, reason: String::new() },
        3 if place < 20 => Event::ScopeCancelAsked { scope: scope(place), reason: "enough".to_owned() },
        3 => Event::ScopePreemptAsked { scope: scope(place), reason: String::new() },
        4 if place < 100 => Event::ExecutorUnset { executor: "one".to_owned() },
        4 => Event::ExecutorSet { executor: "one".to_owned(), cordoned: place < 150, reason: "repair".to_owned() },
        _ => Event::Reprioritised { jobs: if place < 200 { jobs } else { vec![] }, priority: u32::from(place) },
    }
}

fn inbox(ledger: &Ledger, step: &Step) -> Inbox {
    let job = |place: &u8| nth(ledger.jobs().map(|(id, _)| id), *place).unwrap_or(JobId(0));
    let run = |place: &u8| {
        let run = nth(ledger.runs().map(|(id, _)| id), *place).unwrap_or(RunId { job: JobId(0), attempt: 1 });
        (run, ledger.run(run).map(|row| row.at.cluster.clone()).unwrap_or_default())
    };
    match step {
        Step::Lease(place, first) => {
            let proposals = vec![lease(job(place).0, if *first { "one" } else { "two" })];
            Inbox { proposals, ..Inbox::default() }
        }
        Step::Report(place, kind) => {
            let kind = match kind {
                0 => ReportKind::Pending(PodRef::default()),
                1 => ReportKind::Running(PodRef::default(), "n".to_owned()),
                2 => ReportKind::Succeeded,
                3 => ReportKind::Failed(Failure::default()),
                4 => ReportKind::Returned(String::new(), true),
                5 => ReportKind::Ingress([(80, "a".to_owned())].into()),
                _ => ReportKind::Gone,
            };
            let (run, cluster) = run(place);
            Inbox { reports: vec![Report { cluster, run, kind }], ..Inbox::default() }
        }
        Step::Preempt(place) => {
            let proposal = Proposal::Preempt { run: run(place).0, preemption: Preemption::default() };
            Inbox { proposals: vec![proposal], ..Inbox::default() }
        }
        Step::Silent => Inbox { silent: vec![("one".to_owned(), 10_000)], ..Inbox::default() },
        Step::Submit(_) | Step::Ask(..) | Step::Takeover => Inbox::default(),
    }
}

/// A leader, and jobs that were submitted.
struct Story {
    database: Database,
    epoch: Epoch,
    ledger: Ledger,
    position: Seq,
    next: u128,
}

impl Story {
    async fn begin(database: Database, rerun: bool) -> Story {
        let queue = Queue { rerun_after_ms: if rerun { 3 } else { 0 }, ..Queue::default() };
        database.request(queue_set(queue), Expect::QueueAbsent { policies: vec![] }).await.unwrap();
        let epoch = database.lead("a").await.unwrap().unwrap();
        Story { database, epoch, ledger: Ledger::new(classes()).in_parts_of(PART), position: Seq(0), next: 0 }
    }

    async fn step(&mut self, step: &Step, decide: bool) {
        match step {
            Step::Submit(client_ids) => {
                let jobs: Vec<NewJob> = client_ids.iter().map(|client_id| self.job(*client_id)).collect();
                let (first, second) = jobs.split_at(jobs.len() / 2);
                let batch = [first, second].into_iter().filter(|jobs| !jobs.is_empty());
                let batch = batch.map(|jobs| submission("s", jobs.to_vec())).collect();
                self.database.submit(batch).await.unwrap();
            }
            Step::Ask(kind, job) => {
                let event = asked(&self.ledger, *kind, *job);
                self.database.request(entry("s", event), Expect::Any).await.unwrap();
            }
            Step::Takeover => self.take_over().await,
            _ => {}
        }
        if decide {
            let inbox = inbox(&self.ledger, step);
            self.decide(inbox).await;
        }
    }

    fn job(&mut self, client_id: u8) -> NewJob {
        let id = self.next;
        self.next += 1;
        let mut new = job(id, Some(&format!("client {client_id}")));
        let gang = Gang { id: "g".to_owned(), cardinality: 2, uniformity: String::new() };
        new.submitted.gang = client_id.is_multiple_of(4).then_some(gang);
        new.submitted.fail_fast = client_id == 3;
        new
    }

    async fn decide(&mut self, inbox: Inbox) {
        let now = TimeMs(3_000 + self.position.0);
        let ledger = &mut self.ledger;
        let decide = move |rows: Vec<(Seq, Entry)>| {
            for (_, entry) in &rows {
                ledger.fold(entry);
            }
            let decided = ledger.decide(now, inbox, Retries::default());
            Changed::of(ledger, decided)
        };
        self.position = self.database.commit(self.epoch, self.position, decide).await.unwrap().head;
    }

    /// Another leads, from what the tables hold.
    async fn take_over(&mut self) {
        execute(&self.database, "UPDATE head SET until = 0", vec![]).await;
        self.epoch = self.database.lead("b").await.unwrap().unwrap();
        let loaded = self.database.load().await.unwrap();
        assert_eq!(loaded.position, self.position);
        let ledger = loaded.restore(classes()).unwrap().in_parts_of(PART);
        // What is defined is of the head, all else of the position: they meet where both have folded what follows.
        let mut meet = [ledger.clone(), self.ledger.clone()];
        for (_, entry) in self.database.tail(self.position, 100_000).await.unwrap() {
            meet.iter_mut().for_each(|ledger| drop(ledger.fold(&entry)));
        }
        assert_eq!(meet[0].digest(), meet[1].digest());
        self.ledger = ledger;
    }

    async fn check(mut self) {
        self.decide(Inbox::default()).await;
        let mut folded = Ledger::new(classes()).in_parts_of(PART);
        for entry in whole(&self.database).await {
            folded.fold(&entry);
        }
        assert_eq!(folded.digest(), self.ledger.digest());
        let loaded = self.database.load().await.unwrap();
        assert_eq!((loaded.position, loaded.head), (self.position, self.position));
        let mut saved: BTreeMap<JobId, SavedJob> = loaded.jobs.iter().map(|job| (job.job, job.clone())).collect();
        let restored = loaded.restore(classes()).unwrap().in_parts_of(PART);
        assert_eq!(restored.digest(), folded.digest());
        assert_eq!(restored.lint(), Vec::<String>::new());
        let ids: Vec<JobId> = (0..self.next).map(JobId).collect();
        let runs = self.database.runs_of(&ids).await.unwrap();
        for job in self.database.jobs(&ids).await.unwrap() {
            let wanted = folded.saved(job.job);
            assert_eq!(job.ended.is_none(), wanted.is_some(), "{job:?}");
            assert_eq!(saved.remove(&job.job), wanted);
            let of_job: Vec<_> = runs.iter().filter(|run| run.run.job == job.job).collect();
            assert_eq!(of_job.len(), job.attempts as usize, "{job:?} {of_job:?}");
            for run in of_job {
                assert_eq!(run.phase(), folded.run(run.run).map(|run| run.phase), "{run:?}");
                assert!(run.finished.is_some() || job.ended.is_none(), "{run:?}");
            }
        }
        assert!(saved.is_empty(), "{saved:?}");
        self.database.close().await;
    }
}

fn check(cases: u32, home: impl Fn() -> std::pin::Pin<Box<dyn Future<Output = Home>>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases, max_shrink_iters: 60, ..Config::default() });
    let told = runner.run(&stories(), |(steps, rerun)| {
        runtime.block_on(async {
            let home = home().await;
            let mut story = Story::begin(home.open().await, rerun).await;
            for (step, decide) in &steps {
                story.step(step, *decide).await;
            }
            story.check().await;
        });
        Ok(())
    });
    told.unwrap();
}

// INV-30
#[test]
fn sqlite_holds_what_the_log_says() {
    check(40, || Box::pin(async { Home::sqlite() }));
}

// INV-30
#[test]
fn postgres_holds_what_the_log_says() {
    check(10, || Box::pin(Home::postgres()));
}
