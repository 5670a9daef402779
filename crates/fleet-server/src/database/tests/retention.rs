//! What is over goes, and nothing else does.

use pumice_ledger::{Inbox, JobId, PodRef, ReportKind};

use super::homes::{Home, execute};
use super::leading::{Leader, proposals, report, reports};
use super::*;
use crate::database::{ClientIdKey, Database, Error, SetName};

laws!(
    a_job_set_that_is_over_goes_as_a_whole,
    what_is_active_or_newer_stays,
    client_ids_count_for_their_time,
    specifications_go_with_their_last_job,
    a_deposed_leader_removes_nothing,
);

const LATER: TimeMs = TimeMs(10_000);

fn set(name: &str) -> SetName {
    SetName { queue: "q".to_owned(), job_set: name.to_owned() }
}

/// Jobs 1 to 3 of set `old` have ended, job 4 of set `live` runs.
async fn told(home: &Home) -> (Database, Leader) {
    let database = home.open().await;
    define_queue(&database).await;
    let ids = |ids: std::ops::RangeInclusive<u128>| ids.map(|id| job(id, Some(&format!("c{id}")))).collect();
    database.submit(vec![submission("old", ids(1..=3)), submission("live", ids(4..=4))]).await.unwrap();
    let mut leader = Leader::new(&database).await;
    let leases = (1..=4).map(|id| lease(id, "one")).collect();
    leader.commit(&database, 3_000, proposals(leases)).await.unwrap();
    let running = |id| report(id, 1, ReportKind::Running(PodRef::default(), "n".to_owned()));
    leader.commit(&database, 4_000, reports((1..=4).map(running).collect())).await.unwrap();
    let ended = (1..=3).map(|id| report(id, 1, ReportKind::Succeeded)).collect();
    leader.commit(&database, 5_000, reports(ended)).await.unwrap();
    (database, leader)
}

/// Prunes until there is no more; how many jobs and entries went.
async fn prune(database: &Database, leader: &Leader, name: &str, before: TimeMs) -> (usize, usize) {
    let (mut jobs, mut entries) = (0, 0);
    loop {
        let pruned = database.prune(leader.epoch, &set(name), before, 2).await.unwrap();
        jobs += pruned.jobs;
        entries += pruned.entries;
        assert!(pruned.jobs <= 2 && pruned.entries <= 2, "small steps");
        if pruned.done {
            return (jobs, entries);
        }
    }
}

async fn a_job_set_that_is_over_goes_as_a_whole(home: Home) {
    let (database, leader) = told(&home).await;
    let stale = database.stale(Seq(0), LATER, 100).await.unwrap();
    assert_eq!((stale.sets, stale.next), (vec![set("live"), set("old")], None));
    let page = database.stale(Seq(0), LATER, 2).await.unwrap();
    assert_eq!((page.sets, page.next), (vec![set("old")], Some(Seq(2))), "it goes on from there");
    assert_eq!(database.stale(Seq(0), TimeMs(1_000), 100).await.unwrap().sets, []);

    let (jobs, entries) = prune(&database, &leader, "old", LATER).await;
    assert_eq!(jobs, 3);
    assert!(entries >= 4, "the submission, and what was decided: {entries}");
    assert_eq!(database.events("q", "old", Seq(0), 100).await.unwrap(), []);
    assert_eq!(database.jobs(&[JobId(1), JobId(2), JobId(3)]).await.unwrap(), []);
    assert_eq!(database.runs_of(&[JobId(1)]).await.unwrap(), []);
    // Whoever comes next finds what there was before of everything else.
    let next = Leader::new(&database).await;
    assert_eq!(next.ledger.digest(), leader.ledger.digest());
    assert_eq!(database.jobs(&[JobId(4)]).await.unwrap().len(), 1);
    assert!(!database.events("q", "live", Seq(0), 100).await.unwrap().is_empty());
    assert_eq!(prune(&database, &next, "old", LATER).await, (0, 0), "there is nothing left");
    // The place after the last is still the next, and the set may be used anew.
    let head = *database.head().borrow();
    let again = database.submit(vec![submission("old", vec![job(9, None)])]).await.unwrap();
    assert_eq!(again[0].seq, Some(Seq(head.0 + 1)));
    let events = database.events("q", "old", Seq(2), 100).await.unwrap();
    assert_eq!(events.len(), 1, "who goes on from what is gone is told what is there");
    database.close().await;
}

async fn what_is_active_or_newer_stays(home: Home) {
    let (database, mut leader) = told(&home).await;
    let before = database.events("q", "live", Seq(0), 100).await.unwrap();
    assert_eq!(prune(&database, &leader, "live", LATER).await, (0, 0), "a job of it runs");
    assert_eq!(prune(&database, &leader, "old", TimeMs(5_000)).await, (0, 0), "it ended then");
    assert_eq!(database.events("q", "live", Seq(0), 100).await.unwrap(), before);
    // A new job in an old set keeps all of it, also before the leader has heard of it.
    let newer = Submission { at: TimeMs(20_000), ..submission("old", vec![job(7, None)]) };
    database.submit(vec![newer]).await.unwrap();
    assert_eq!(prune(&database, &leader, "old", LATER).await, (0, 0));
    let late = submission("old", vec![job(8, None)]);
    database.submit(vec![late]).await.unwrap();
    assert_eq!(prune(&database, &leader, "old", LATER).await, (0, 0), "what is not folded is new, whatever its time");
    leader.commit(&database, 21_000, Inbox::default()).await.unwrap();
    assert!(leader.ledger.has_set("q", "old"), "its jobs wait, and the leader knows it");
    assert_eq!(database.jobs(&[JobId(1), JobId(8)]).await.unwrap().len(), 2);
    database.close().await;
}

async fn client_ids_count_for_their_time(home: Home) {
    let (database, leader) = told(&home).await;
    let again = |id, client: &str| submission("again", vec![job(id, Some(client))]);
    let active = |ledger: &pumice_ledger::Ledger, id| ledger.job(id).is_some();
    let mut removed = 0;
    let mut after = ClientIdKey::default();
    loop {
        let keeps = |id| active(&leader.ledger, id);
        let forgotten = database.forget(leader.epoch, &after, TimeMs(1_000), 2, keeps).await.unwrap();
        removed += forgotten.removed;
        match forgotten.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(removed, 0, "they are of that time");
    assert_eq!(database.submit(vec![again(20, "c1")]).await.unwrap()[0].jobs, [JobId(1)]);
    let keeps = |id| active(&leader.ledger, id);
    let forgotten = database.forget(leader.epoch, &ClientIdKey::default(), LATER, 100, keeps).await.unwrap();
    assert_eq!((forgotten.removed, forgotten.next), (3, None));
    assert_eq!(database.submit(vec![again(21, "c1")]).await.unwrap()[0].jobs, [JobId(21)], "it is free again");
    assert_eq!(database.submit(vec![again(22, "c4")]).await.unwrap()[0].jobs, [JobId(4)], "its job runs");
    database.close().await;
}

async fn specifications_go_with_their_last_job(home: Home) {
    let (database, leader) = told(&home).await;
    // Jobs 1 to 4 have the specifications 1, 2, 0 and 1.
    assert_eq!(database.sweep(leader.epoch, LATER, 100).await.unwrap(), 0);
    prune(&database, &leader, "old", LATER).await;
    assert_eq!(database.sweep(leader.epoch, TimeMs(1_000), 100).await.unwrap(), 0, "they were used since");
    assert_eq!(database.sweep(leader.epoch, LATER, 1).await.unwrap(), 1);
    assert_eq!(database.sweep(leader.epoch, LATER, 100).await.unwrap(), 1);
    let digests = [Digest(0), Digest(1), Digest(2)];
    let left: Vec<Digest> = database.specs(&digests).await.unwrap().into_iter().map(|(digest, _)| digest).collect();
    assert_eq!(left, [Digest(1)], "job 4 has it");
    database.close().await;
}

async fn a_deposed_leader_removes_nothing(home: Home) {
    let (database, leader) = told(&home).await;
    execute(&database, "UPDATE head SET until = 0", vec![]).await;
    database.lead("other").await.unwrap().unwrap();
    let pruned = database.prune(leader.epoch, &set("old"), LATER, 100).await;
    assert!(matches!(pruned, Err(Error::Deposed)), "{pruned:?}");
    let forgotten = database.forget(leader.epoch, &ClientIdKey::default(), LATER, 100, |_| false).await;
    assert!(matches!(forgotten, Err(Error::Deposed)), "{forgotten:?}");
    assert_eq!(database.jobs(&[JobId(1), JobId(2), JobId(3)]).await.unwrap().len(), 3);
    database.close().await;
}
