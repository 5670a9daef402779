//! One leader at a time, and what it wrote.

use std::time::Duration;

use pumice_ledger::{Cause, Failure, Filter, Inbox, JobId, Ledger, PodRef, Report, ReportKind, Retries, RunId};

use super::homes::{Home, execute};
use super::*;
use crate::database::{Changed, Database, Epoch, Error, JobState, RunState};

laws!(
    a_deposed_leader_changes_nothing,
    the_lead_ends_by_itself,
    the_tables_say_what_became_of_jobs,
    what_comes_while_a_leader_is_away_is_folded_once,
);

/// A leader that folds and decides.
pub(crate) struct Leader {
    pub(crate) epoch: Epoch,
    pub(crate) ledger: Ledger,
    pub(crate) position: Seq,
}

impl Leader {
    pub(crate) async fn new(database: &Database) -> Leader {
        execute(database, "UPDATE head SET until = 0", vec![]).await;
        let epoch = database.lead("me").await.unwrap().unwrap();
        let loaded = database.load().await.unwrap();
        let position = loaded.position;
        Leader { epoch, ledger: loaded.restore(classes()).unwrap(), position }
    }

    pub(crate) async fn commit(&mut self, database: &Database, now: i64, inbox: Inbox) -> Result<(), Error> {
        let ledger = &mut self.ledger;
        let decide = move |rows: Vec<(Seq, Entry)>| {
            for (_, entry) in &rows {
                ledger.fold(entry);
            }
            let decided = ledger.decide(TimeMs(now), inbox, Retries::default());
            Changed::of(ledger, decided)
        };
        self.position = database.commit(self.epoch, self.position, decide).await?.head;
        Ok(())
    }
}

pub(crate) fn proposals(proposals: Vec<Proposal>) -> Inbox {
    Inbox { proposals, ..Inbox::default() }
}

pub(crate) fn report(job: u128, attempt: u32, kind: ReportKind) -> Report {
    Report { cluster: "one".to_owned(), run: RunId { job: JobId(job), attempt }, kind }
}

pub(crate) fn reports(reports: Vec<Report>) -> Inbox {
    Inbox { reports, ..Inbox::default() }
}

async fn a_deposed_leader_changes_nothing(home: Home) {
    let database = home.open().await;
    define_queue(&database).await;
    database.submit(vec![submission("s", vec![job(1, None)])]).await.unwrap();
    let mut first = Leader::new(&database).await;
    assert_eq!(database.lead("other").await.unwrap(), None);
    database.renew(first.epoch).await.unwrap();
    first.commit(&database, 3_000, Inbox::default()).await.unwrap();
    let mut second = Leader::new(&database).await;
    assert_eq!(second.ledger.digest(), first.ledger.digest());
    let deposed = first.commit(&database, 4_000, proposals(vec![lease(1, "one")])).await;
    assert!(matches!(deposed, Err(Error::Deposed)), "{deposed:?}");
    assert!(matches!(database.renew(first.epoch).await, Err(Error::Deposed)));
    assert_eq!((whole(&database).await.len(), database.runs_of(&[JobId(1)]).await.unwrap()), (2, vec![]));
    second.commit(&database, 5_000, proposals(vec![lease(1, "two")])).await.unwrap();
    // A leader that does not know of what was decided may not decide either.
    let behind = database.commit(second.epoch, Seq(1), |_| Changed::default()).await;
    assert!(matches!(behind, Err(Error::Behind { after: Seq(1), folded: Seq(3) })), "{behind:?}");
    database.resign(first.epoch).await.unwrap();
    assert_eq!(database.lead("other").await.unwrap(), None, "nobody resigns for another");
    database.resign(second.epoch).await.unwrap();
    assert!(database.lead("other").await.unwrap() > Some(second.epoch));
}

async fn the_lead_ends_by_itself(home: Home) {
    let database = home.open().await;
    let first = database.lead("one").await.unwrap().unwrap();
    let next = async {
        loop {
            if let Some(epoch) = database.lead("two").await.unwrap() {
                return epoch;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let second = tokio::time::timeout(Duration::from_secs(20), next).await.expect("a lease ends");
    assert!(second > first);
    assert!(matches!(database.renew(first).await, Err(Error::Deposed)));
}

async fn the_tables_say_what_became_of_jobs(home: Home) {
    let database = home.open().await;
    define_queue(&database).await;
    let jobs = (1..=5).map(|id| job(id, None)).collect();
    database.submit(vec![submission("s", jobs)]).await.unwrap();
    let mut leader = Leader::new(&database).await;
    let leases = (1..=4).map(|id| lease(id, "one")).collect();
    leader.commit(&database, 3_000, proposals(leases)).await.unwrap();
    let pod = || PodRef { name: "pod".to_owned(), ..PodRef::default() };
    let running = |id| report(id, 1, ReportKind::Running(pod(), "n".to_owned()));
    let ingress = ReportKind::Ingress([(80, "n:3000".to_owned())].into());
    let said = vec![running(1), running(2), report(1, 1, ingress), report(3, 1, ReportKind::Pending(pod()))];
    leader.commit(&database, 4_000, reports(said)).await.unwrap();
    let active = database.active_queues().await.unwrap();
    assert_eq!(active, [("p".to_owned(), vec!["q".to_owned()])].into());
    let oom = Failure { cause: Cause::Oom, message: "too \0 much".to_owned(), ..Failure::default() };
    let said = vec![
        report(1, 1, ReportKind::Succeeded),
        report(2, 1, ReportKind::Failed(oom.clone())),
        report(3, 1, ReportKind::Returned("no image".to_owned(), true)),
    ];
    let ask = Event::CancelAsked { jobs: vec![JobId(4)], filter: Filter::Active, reason: "enough\0".to_owned() };
    database.request(entry("s", ask), Expect::Any).await.unwrap();
    let reject = Proposal::Reject { job: JobId(5), reason: "too big".to_owned() };
    leader.commit(&database, 5_000, Inbox { proposals: vec![reject], ..reports(said) }).await.unwrap();

    let mut rows = database.jobs(&[1, 2, 3, 4, 5].map(JobId)).await.unwrap();
    rows.sort_by_key(|row| row.job);
    let states: Vec<_> = rows.iter().map(|row| (row.state, row.attempts, row.ended.map(|at| at.0))).collect();
    let expected = [
        (JobState::Succeeded, 1, Some(5_000)),
        (JobState::Failed, 1, Some(5_000)),
        (JobState::Queued, 1, None),
        (JobState::Cancelled, 1, Some(5_000)),
        (JobState::Rejected, 0, Some(5_000)),
    ];
    assert_eq!(states, expected);
    assert_eq!(rows[1].error, Some(oom.clone()));
    assert_eq!((rows[2].returned, rows[2].avoid.len(), rows[2].last_transition), (1, 1, TimeMs(5_000)));
    assert_eq!(
        (rows[3].cancel_user.as_deref(), rows[3].cancel_reason.as_deref()),
        (Some("ada"), Some("enough\u{fffd}"))
    );
    assert_eq!(rows[4].error.as_ref().map(|error| error.message.as_str()), Some("too big"));

    let runs = database.runs_of(&[1, 2, 3, 4, 5].map(JobId)).await.unwrap();
    let states: Vec<_> = runs.iter().map(|run| (run.run.job.0, run.state, run.holds, run.finished.is_some())).collect();
    let expected = [
        (1, RunState::Succeeded, false, true),
        (2, RunState::Failed, false, true),
        (3, RunState::Returned, false, true),
        (4, RunState::Cancelled, true, true),
    ];
    assert_eq!(states, expected);
    let active = database.active_queues().await.unwrap();
    assert!(active.is_empty(), "a run that is to leave makes no queue active: {active:?}");
    let times = |run: &crate::database::RunRow| [Some(run.leased), run.pending, run.started, run.finished];
    assert_eq!(times(&runs[0]).map(|time| time.map(|at| at.0)), [Some(3_000), Some(4_000), Some(4_000), Some(5_000)]);
    assert_eq!((runs[0].ingress.len(), runs[0].pod.clone(), runs[0].at.cluster.as_str()), (1, Some(pod()), "one"));
    assert_eq!(runs[1].error, Some(oom));

    // The cancelled run leaves; then the cluster is given up, which changes nothing of how it ended.
    leader.commit(&database, 6_000, reports(vec![report(4, 1, ReportKind::Gone)])).await.unwrap();
    let run = RunId { job: JobId(4), attempt: 1 };
    let rows = database.runs(&[run]).await.unwrap();
    assert_eq!((rows[0].state, rows[0].holds, rows[0].finished), (RunState::Cancelled, false, Some(TimeMs(5_000))));
    let loaded = database.load().await.unwrap();
    assert_eq!((loaded.jobs.len(), loaded.runs.len(), loaded.shapes.len(), loaded.queues.len()), (1, 0, 1, 1));
    assert_eq!(loaded.restore(classes()).unwrap().digest(), leader.ledger.digest());
}

async fn what_comes_while_a_leader_is_away_is_folded_once(home: Home) {
    let database = home.open().await;
    define_queue(&database).await;
    let mut leader = Leader::new(&database).await;
    leader.commit(&database, 3_000, Inbox::default()).await.unwrap();
    database.submit(vec![submission("s", vec![job(1, None)])]).await.unwrap();
    let ask = Event::CancelAsked { jobs: vec![], filter: Filter::Active, reason: String::new() };
    database.request(entry("s", ask), Expect::Any).await.unwrap();
    // Of the same set, but it came after all of the set were cancelled.
    database.submit(vec![submission("s", vec![job(2, None)])]).await.unwrap();
    let mut next = Leader::new(&database).await;
    assert_eq!((next.position, next.ledger.jobs().count()), (Seq(1), 0));
    next.commit(&database, 4_000, Inbox::default()).await.unwrap();
    let mut rows = database.jobs(&[JobId(1), JobId(2)]).await.unwrap();
    rows.sort_by_key(|row| row.job);
    assert_eq!(rows.iter().map(|row| row.state).collect::<Vec<_>>(), [JobState::Cancelled, JobState::Queued]);
    database.request(entry("", Event::QueueRemoved), Expect::Any).await.unwrap_err();
}
