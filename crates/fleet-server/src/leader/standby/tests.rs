//! Who follows has what the tables have, in each database.

use pumice_ledger::{
    Event, Filter, Gang, Inbox, JobId, PodRef, Preemption, Proposal, Queue, Report, ReportKind, RunId, Scope, TimeMs,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;
use crate::database::tests::homes::Home;
use crate::database::tests::leading::{Leader, proposals, reports};
use crate::database::tests::{classes, define_queue, entry, job, laws, lease, submission};
use crate::database::{Database, Expect, SetName};

laws!(
    who_follows_has_what_the_tables_have,
    who_missed_something_reads_everything_anew,
    what_does_not_fit_is_not_followed,
);

const STEPS: usize = 250;
/// Jobs that one decision changes of what is asked of more.
const PART: usize = 3;

async fn loaded(database: &Database) -> FollowedLedger {
    let FollowedLedger { ledger, position } = FollowedLedger::load(database, classes()).await.unwrap();
    FollowedLedger { ledger: ledger.in_parts_of(PART), position }
}

/// All that a ledger goes on from.
fn everything(ledger: &Ledger) -> String {
    let mut jobs: Vec<_> = ledger.jobs().filter_map(|(id, _)| ledger.saved(id)).collect();
    let mut runs: Vec<_> = ledger.runs().filter_map(|(id, _)| ledger.saved_run(id)).collect();
    jobs.sort_unstable_by_key(|job| job.job);
    runs.sort_unstable_by_key(|run| run.run);
    let mut changed = ledger.clone();
    let changed =
        (changed.take_changed(), changed.take_touched(), changed.take_ended(), changed.take_bulk_operations());
    format!("{}\n{jobs:?}\n{runs:?}\n{:?}\n{changed:?}", ledger.digest(), ledger.first("q", 3, 20))
}

/// What people ask for; `jobs` were submitted so far.
async fn ask(database: &Database, rng: &mut StdRng, jobs: &mut u128) {
    let set = ["s", "t"][rng.gen_range(0..2)];
    let one = vec![JobId(rng.gen_range(1..=*jobs + 1))];
    let some = if rng.gen_bool(0.2) { vec![] } else { one };
    let reason = "enough".to_owned();
    let event = match rng.gen_range(0..12) {
        0..=4 => {
            let mut new: Vec<_> = (1..=rng.gen_range(1..6)).map(|more| job(*jobs + more, None)).collect();
            *jobs += new.len() as u128;
            if rng.gen_bool(0.3) {
                let gang = Gang { id: format!("g{jobs}"), cardinality: new.len() as u32, uniformity: String::new() };
                new.iter_mut().for_each(|job| job.submitted.gang = Some(gang.clone()));
            }
            database.submit(vec![submission(set, new)]).await.unwrap();
            return;
        }
        5 => Event::CancelAsked { jobs: some, filter: Filter::Active, reason },
        6 => Event::PreemptAsked { jobs: some, reason },
        7 | 8 => Event::Reprioritised { jobs: some, priority: rng.gen_range(0..9) },
        9 => Event::ScopePreemptAsked { scope: Scope { cluster: "one".to_owned(), ..Scope::default() }, reason },
        10 => Event::ExecutorSet { executor: "two".to_owned(), cordoned: rng.gen_bool(0.5), reason },
        _ => Event::QueueSet(Box::new(Queue { rerun_after_ms: rng.gen_range(0..2), ..Queue::default() })),
    };
    let set = if matches!(event, Event::QueueSet(_)) { "" } else { set };
    database.request(entry(set, event), Expect::Any).await.unwrap();
}

/// What comes in at a leader.
fn inbox(ledger: &Ledger, rng: &mut StdRng) -> Inbox {
    let mut runs: Vec<(RunId, String)> = ledger.runs().map(|(run, row)| (run, row.at.cluster.clone())).collect();
    runs.sort_unstable();
    let mut inbox = Inbox::default();
    for id in ledger.first("q", 2, 3) {
        inbox.proposals.push(lease(id.0, ["one", "two"][rng.gen_range(0..2)]));
    }
    for (run, cluster) in runs {
        let kind = match rng.gen_range(0..12) {
            0 => ReportKind::Pending(PodRef { name: run.to_string(), ..PodRef::default() }),
            1 => ReportKind::Running(PodRef { name: run.to_string(), ..PodRef::default() }, "n".to_owned()),
            2 => ReportKind::Succeeded,
            3 => ReportKind::Failed(pumice_ledger::Failure::default()),
            4 => ReportKind::Returned("no image".to_owned(), rng.gen_bool(0.5)),
            5 => ReportKind::Gone,
            6 => {
                inbox.proposals.push(Proposal::Preempt { run, preemption: Preemption::default() });
                continue;
            }
            _ => continue,
        };
        inbox.reports.push(Report { cluster, run, kind });
    }
    if rng.gen_bool(0.05) {
        inbox.silent.push(("two".to_owned(), 10_000));
    }
    inbox
}

async fn who_follows_has_what_the_tables_have(home: Home) {
    let database = home.open().await;
    define_queue(&database).await;
    let (mut rng, mut jobs, mut compared, mut led) = (StdRng::seed_from_u64(11), 0, 0, 0);
    let mut leader = Leader::new(&database).await;
    leader.ledger = leader.ledger.in_parts_of(PART);
    let mut standing = loaded(&database).await;
    for now in (3_000..).take(STEPS) {
        if rng.gen_bool(0.6) {
            ask(&database, &mut rng, &mut jobs).await;
        }
        if rng.gen_bool(0.6) {
            let inbox = inbox(&leader.ledger, &mut rng);
            leader.commit(&database, now, inbox).await.unwrap();
        }
        if rng.gen_bool(0.4) {
            standing.follow(&database).await.unwrap();
            let tables = database.load().await.unwrap();
            assert_eq!(standing.position, tables.position);
            assert_eq!(standing.ledger.lint(), Vec::<String>::new());
            // What requests define is in the tables before it is decided of.
            if tables.head == tables.position {
                let restored = tables.restore(classes()).unwrap().in_parts_of(PART);
                assert_eq!(everything(&standing.ledger), everything(&restored));
                compared += 1;
            }
        }
        if rng.gen_bool(0.05) {
            database.resign(leader.epoch).await.unwrap();
            let epoch = database.lead("other").await.unwrap().unwrap();
            let lost = leader.commit(&database, now, Inbox::default()).await;
            assert!(matches!(lost, Err(Error::Deposed)), "{lost:?}");
            let standby = Standby { followed: Some(standing), loaded: None };
            let FollowedLedger { ledger, position } = standby.lead(&database, classes()).await.unwrap();
            leader = Leader { epoch, ledger, position };
            standing = loaded(&database).await;
            led += 1;
        }
    }
    assert!(compared > 20 && led > 3 && jobs > 100, "{compared} {led} {jobs}");
    database.close().await;
}

async fn who_missed_something_reads_everything_anew(home: Home) {
    let database = Arc::new(home.open().await);
    define_queue(&database).await;
    let mut leader = Leader::new(&database).await;
    let mut standby = Standby::default().follow(Arc::clone(&database), classes()).await;
    let jobs = vec![job(1, None), job(2, None)];
    database.submit(vec![submission("old", jobs), submission("new", vec![job(3, None)])]).await.unwrap();
    leader.commit(&database, 3_000, proposals(vec![lease(1, "one"), lease(2, "one")])).await.unwrap();
    standby = standby.follow(Arc::clone(&database), classes()).await;
    assert_eq!(standby.followed.as_ref().map(|followed| followed.ledger.digest()), Some(leader.ledger.digest()));
    let report = |job| {
        let run = RunId { job: JobId(job), attempt: 1 };
        Report { cluster: "one".to_owned(), run, kind: ReportKind::Succeeded }
    };
    leader.commit(&database, 4_000, reports(vec![report(1), report(2)])).await.unwrap();
    let set = SetName { queue: "q".to_owned(), job_set: "old".to_owned() };
    while !database.prune(leader.epoch, &set, TimeMs(9_000), 100).await.unwrap().done {}
    // What was removed was the end of the log: nothing comes after it that would show the gap.
    let standing = standby.followed.as_mut().unwrap();
    assert!(matches!(standing.follow(&database).await, Err(Astray::Gone(_))));
    database.submit(vec![submission("new", vec![job(4, None)])]).await.unwrap();
    leader.commit(&database, 5_000, Inbox::default()).await.unwrap();
    assert!(matches!(standing.follow(&database).await, Err(Astray::Gone(_))));
    let standing = standby.lead(&database, classes()).await.unwrap();
    assert_eq!(everything(&standing.ledger), everything(&loaded(&database).await.ledger));
    assert_eq!(standing.position, leader.position);
    database.close().await;
}

async fn what_does_not_fit_is_not_followed(home: Home) {
    let database = Arc::new(home.open().await);
    define_queue(&database).await;
    let mut leader = Leader::new(&database).await;
    database.submit(vec![submission("s", vec![job(1, None)])]).await.unwrap();
    leader.commit(&database, 3_000, Inbox::default()).await.unwrap();
    let position = leader.position;
    leader.commit(&database, 4_000, proposals(vec![lease(1, "one")])).await.unwrap();
    let other = || FollowedLedger { ledger: Ledger::new(classes()), position };
    let astray = other().follow(&database).await;
    assert!(matches!(astray, Err(Astray::Refused { seq, .. }) if seq == leader.position), "{astray:?}");
    let mut standby = Standby { followed: Some(other()), loaded: None };
    standby = standby.follow(Arc::clone(&database), classes()).await;
    assert!(standby.followed.is_none(), "it is dropped");
    standby = standby.follow(Arc::clone(&database), classes()).await;
    let standing = standby.followed.expect("it is loaded anew");
    assert_eq!(everything(&standing.ledger), everything(&loaded(&database).await.ledger));
    database.close().await;
}
