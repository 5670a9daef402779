//! What was accepted is there, once, in order.

use std::time::Duration;

use futures::future::join_all;
use pumice_ledger::{Digest, Event, Filter, JobId, Queue};
use tokio::task::JoinSet;

use super::homes::{Home, execute};
use super::*;
use crate::database::{Database, Error, JOB_SET_BYTES_MAX, JobState, NAME_BYTES_MAX, SetName};

laws!(
    a_submission_is_there_in_order_after_a_restart,
    a_client_id_gives_one_job,
    many_submit_at_the_same_time,
    events_are_resumed_after_any_place,
    a_request_that_is_refused_changes_nothing,
    a_newer_format_is_refused,
    settings_of_executors_take_effect_with_their_request,
    what_cannot_be_written_takes_no_others_with_it,
    two_servers_write_one_sequence,
    nothing_is_accepted_when_closed,
    job_sets_are_listed_newest_first_and_counted,
    names_as_long_as_they_may_be_are_found_again,
);

/// A name of so many bytes that no index makes shorter.
fn long_name(bytes: usize, mut seed: u64) -> String {
    let letter = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + u8::try_from((seed >> 33) % 94).unwrap_or_default())
    };
    std::iter::repeat_with(letter).take(bytes).collect()
}

async fn names_as_long_as_they_may_be_are_found_again(home: Home) {
    let database = home.open().await;
    let (queue, set) = (long_name(NAME_BYTES_MAX, 1), long_name(JOB_SET_BYTES_MAX, 2));
    let (client_id, uri) = (long_name(NAME_BYTES_MAX, 3), long_name(NAME_BYTES_MAX, 4));
    let of = |set: &str| {
        let job = NewJob { external_uri: Some(uri.clone()), ..job(1, Some(&client_id)) };
        Submission { queue: queue.clone(), ..submission(set, vec![job]) }
    };
    assert_eq!(database.submit(vec![of(&set)]).await.unwrap()[0].jobs, [JobId(1)]);
    assert_eq!(database.submit(vec![of(&set)]).await.unwrap()[0].jobs, [JobId(1)], "its client id is found");
    assert_eq!(database.events(&queue, &set, Seq(0), 10).await.unwrap().len(), 1);
    assert_eq!(database.jobs_by_uri(&queue, &set, &uri).await.unwrap().len(), 1);
    let name = SetName { queue: queue.clone(), job_set: set.clone() };
    assert_eq!(database.job_counts(&[name]).await.unwrap()[0].jobs, 1);
    for (longer, bytes) in [(set.clone() + "x", 1_024), ("\0".repeat(342), 1_026)] {
        let refused = database.submit(vec![of(&longer)]).await;
        let Err(Error::TooLong { what: "job set", bytes: told, max: 1_023 }) = refused else { panic!("{refused:?}") };
        assert_eq!(told, bytes);
    }
    let marks = "\0".repeat(341);
    database.submit(vec![submission(&marks, vec![job(2, None)])]).await.unwrap();
    database.close().await;
}

async fn a_submission_is_there_in_order_after_a_restart(home: Home) {
    let database = home.open().await;
    let batch = vec![submission("a", vec![job(3, None), job(1, None)]), submission("b", vec![job(2, None)])];
    let answers = database.submit(batch).await.unwrap();
    assert_eq!(answers.iter().map(|answer| answer.seq).collect::<Vec<_>>(), [Some(Seq(1)), Some(Seq(2))]);
    assert_eq!(answers[0].jobs, [JobId(3), JobId(1)]);
    assert_eq!(*database.head().borrow(), Seq(2));
    // Without a word of good-bye.
    drop(database);
    let database = home.open().await;
    assert_eq!(*database.head().borrow(), Seq(2));
    assert_eq!(submitted(&database).await, [3, 1, 2]);
    let third = submission("a", vec![NewJob { external_uri: Some("at://home".to_owned()), ..job(4, None) }]);
    assert_eq!(database.submit(vec![third]).await.unwrap()[0].seq, Some(Seq(3)));
    let mut jobs = database.jobs(&[JobId(4), JobId(3), JobId(3), JobId(99)]).await.unwrap();
    jobs.sort_by_key(|job| job.job);
    assert_eq!(jobs.iter().map(|job| (job.job.0, job.seq.0)).collect::<Vec<_>>(), [(3, 1), (4, 3)]);
    let (row, wanted) = (&jobs[0], job(3, None).submitted);
    assert_eq!((row.state, row.spec, row.shape, row.ended), (JobState::Queued, wanted.spec, wanted.shape, None));
    assert_eq!((row.owner.as_str(), row.namespace.as_str(), row.submitted), ("ada", "people", TimeMs(1_000)));
    let by_uri = database.jobs_by_uri("q", "a", "at://home").await.unwrap();
    assert_eq!(by_uri, jobs[1..]);
    let mut specs = database.specs(&[Digest(0), Digest(1), Digest(7)]).await.unwrap();
    specs.sort();
    assert_eq!(specs, [(Digest(0), spec(0)), (Digest(1), spec(1))]);
    database.close().await;
}

async fn a_client_id_gives_one_job(home: Home) {
    let database = home.open().await;
    let twice = submission("s", vec![job(1, Some("x")), job(2, Some("y")), job(3, Some("x")), job(4, None)]);
    let answers = database.submit(vec![twice]).await.unwrap();
    assert_eq!(answers[0].jobs, [1, 2, 1, 4].map(JobId));
    let elsewhere = Submission { queue: "other".to_owned(), ..submission("s", vec![job(5, Some("x"))]) };
    let again = submission("t", vec![job(6, Some("y"))]);
    let answers = database.submit(vec![again.clone(), elsewhere]).await.unwrap();
    assert_eq!((answers[0].seq, &answers[0].jobs), (None, &vec![JobId(2)]));
    assert_eq!((answers[1].seq, &answers[1].jobs), (Some(Seq(2)), &vec![JobId(5)]));
    let tries = (10..40).map(|id| {
        let database = database.clone();
        async move { database.submit(vec![submission("s", vec![job(id, Some("race"))])]).await.unwrap()[0].jobs[0] }
    });
    let given = join_all(tries).await;
    assert!(given.iter().all(|id| *id == given[0]), "{given:?}");
    database.close().await;
    let database = home.open().await;
    assert_eq!(database.submit(vec![again]).await.unwrap()[0].jobs, [JobId(2)]);
    assert_eq!(submitted(&database).await, [1, 2, 4, 5, given[0].0]);
}

async fn many_submit_at_the_same_time(home: Home) {
    let database = home.open().await;
    let mut head = database.head();
    let mut tries = JoinSet::new();
    for who in 0..100_u128 {
        let database = database.clone();
        tries.spawn(async move {
            let jobs = (0..5).map(|place| job(1_000 + who * 10 + place, None)).collect();
            let mine = submission(&format!("s{}", who % 7), jobs);
            database.submit(vec![mine]).await.unwrap()[0].seq.unwrap().0
        });
    }
    let mut seqs = tries.join_all().await;
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=100).collect::<Vec<_>>());
    let mut all = submitted(&database).await;
    all.sort_unstable();
    assert_eq!(all.len(), 500);
    // Who publishes a head waits while somebody looks at it.
    let known = *head.borrow_and_update();
    assert_eq!((known, database.load().await.unwrap().head), (Seq(100), Seq(100)));
}

async fn events_are_resumed_after_any_place(home: Home) {
    let database = home.open().await;
    for id in 0..9 {
        let set = if id % 3 == 0 { "even" } else { "odd" };
        database.submit(vec![submission(set, vec![job(id, None)])]).await.unwrap();
    }
    let all = database.events("q", "odd", Seq(0), 100).await.unwrap();
    assert_eq!(all.len(), 6);
    for after in 0..10 {
        let expected: Vec<_> = all.iter().filter(|(seq, _)| seq.0 > after).cloned().collect();
        let (mut read, mut place) = (Vec::new(), Seq(after));
        loop {
            let some = database.events("q", "odd", place, 2).await.unwrap();
            let Some((last, _)) = some.last() else { break };
            place = *last;
            read.extend(some);
        }
        assert_eq!(read, expected);
    }
    assert_eq!(database.events("q", "nobody", Seq(0), 9).await.unwrap(), []);
}

async fn a_request_that_is_refused_changes_nothing(home: Home) {
    let database = home.open().await;
    let define = || queue_set(Queue { priority_factor: 2.0, ..Queue::default() });
    let remove = || entry("", Event::QueueRemoved);
    let refused = database.request(define(), Expect::QueuePresent { policies: vec![] }).await;
    assert!(matches!(refused, Err(Error::NoQueue(_))), "{refused:?}");
    assert_eq!(database.request(define(), Expect::QueueAbsent { policies: vec![] }).await.unwrap(), Seq(1));
    let refused = database.request(define(), Expect::QueueAbsent { policies: vec![] }).await;
    assert!(matches!(refused, Err(Error::QueueExists(_))), "{refused:?}");
    assert_eq!(database.queues().await.unwrap()["q"].priority_factor, 2.0);
    // In one transaction, most likely: the removal sees the job.
    let (submitted, removed) = tokio::join!(
        database.submit(vec![submission("s", vec![job(1, None)])]),
        database.request(remove(), Expect::QueuePresent { policies: vec![] })
    );
    assert_eq!(submitted.unwrap()[0].seq, Some(Seq(2)));
    assert!(matches!(removed, Err(Error::QueueInUse(_))), "{removed:?}");
    let mistaken = entry("s", Event::Succeeded { run: pumice_ledger::RunId { job: JobId(1), attempt: 1 } });
    assert!(matches!(database.request(mistaken, Expect::Any).await, Err(Error::NoRequest)));
    let ask = Event::CancelAsked { jobs: vec![], filter: Filter::Active, reason: "a\0b".to_owned() };
    assert_eq!(database.request(entry("s", ask), Expect::Any).await.unwrap(), Seq(3));
    let long = Submission { queue: "q".repeat(1_000), ..submission("s", vec![job(2, None)]) };
    assert!(matches!(database.submit(vec![long]).await, Err(Error::TooLong { what: "queue", bytes: 1_000, .. })));
    assert_eq!(whole(&database).await.len(), 3);
}

async fn settings_of_executors_take_effect_with_their_request(home: Home) {
    let database = home.open().await;
    let set = |cordoned, reason: &str| {
        let executor = "east".to_owned();
        let event = Event::ExecutorSet { executor, cordoned, reason: reason.to_owned() };
        Entry { queue: String::new(), ..entry("", event) }
    };
    database.request(set(true, "repair"), Expect::Any).await.unwrap();
    let known = database.load().await.unwrap().executors;
    assert_eq!((known["east"].cordoned, known["east"].set_by.as_str(), known["east"].set_at.0), (true, "ada", 2_000));
    database.request(set(false, ""), Expect::Any).await.unwrap();
    database.close().await;
    let database = home.open().await;
    assert!(!database.load().await.unwrap().executors["east"].cordoned);
    let unset = |executor: &str| entry("", Event::ExecutorUnset { executor: executor.to_owned() });
    database.request(unset("west"), Expect::Any).await.unwrap();
    assert_eq!(database.load().await.unwrap().executors.len(), 1);
    database.request(unset("east"), Expect::Any).await.unwrap();
    assert!(database.load().await.unwrap().executors.is_empty());
    let long = database.request(unset(&"e".repeat(1_000)), Expect::Any).await;
    assert!(matches!(long, Err(Error::TooLong { what: "executor", .. })), "{long:?}");
}

async fn a_newer_format_is_refused(home: Home) {
    let database = home.open().await;
    execute(&database, "UPDATE meta SET value = 999 WHERE key = 'format'", vec![]).await;
    database.close().await;
    let refused = Database::open(&home.place).await.unwrap_err();
    assert!(matches!(refused, Error::Newer { found: 999, .. }), "{refused}");
}

async fn what_cannot_be_written_takes_no_others_with_it(home: Home) {
    let database = home.open().await;
    database.submit(vec![submission("s", vec![job(1, None)])]).await.unwrap();
    let tries = (0..20_u128).map(|place| {
        let database = database.clone();
        // Each fourth has an id that was given before.
        let id = if place % 4 == 0 { 1 } else { 100 + place };
        async move { (id, database.submit(vec![submission("s", vec![job(id, None), job(id + 1_000, None)])]).await) }
    });
    for (id, answer) in join_all(tries).await {
        assert_eq!(answer.is_err(), id == 1, "{answer:?}");
    }
    assert_eq!(submitted(&database).await.len(), 1 + 15 * 2);
    assert_eq!(whole(&database).await.len(), 16);
}

async fn two_servers_write_one_sequence(home: Home) {
    let one = home.open().await;
    // A file has one process, whose parts share one database.
    let two = if home.is_shared() { home.open().await } else { one.clone() };
    let mut head = two.head();
    let write = |database: Database, from: u128| async move {
        for id in from..from + 40 {
            let client_id = format!("job {}", id % 100);
            database.submit(vec![submission("s", vec![job(id, Some(&client_id))])]).await.unwrap();
        }
    };
    tokio::join!(write(one.clone(), 1_000), write(two.clone(), 1_020), write(one.clone(), 1_200));
    assert_eq!(submitted(&one).await.len(), 60);
    let seen = async {
        while *head.borrow_and_update() < Seq(60) {
            head.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("the other server's head is told");
    one.submit(vec![submission("s", vec![job(1, None)])]).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(20), head.changed()).await;
    told.expect("the other server's head is told").unwrap();
    assert_eq!(*head.borrow(), Seq(61));
}

async fn nothing_is_accepted_when_closed(home: Home) {
    let database = home.open().await;
    let mut tries = JoinSet::new();
    for id in 0..50 {
        let database = database.clone();
        tries.spawn(async move { database.submit(vec![submission("s", vec![job(id, None)])]).await });
    }
    tokio::task::yield_now().await;
    database.close().await;
    let accepted = tries.join_all().await.iter().filter(|answer| answer.is_ok()).count();
    let refused = database.submit(vec![submission("s", vec![job(99, None)])]).await;
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    assert_eq!(submitted(&home.open().await).await.len(), accepted);
}

async fn job_sets_are_listed_newest_first_and_counted(home: Home) {
    let database = home.open().await;
    let batch = vec![submission("a", vec![job(9, None), job(4, None)]), submission("b", vec![job(5, None)])];
    database.submit(batch).await.unwrap();
    let set = |name: &str| SetName { queue: "q".to_owned(), job_set: name.to_owned() };
    for (since, limit, wanted) in
        [(0, 10, vec!["b", "a"]), (0, 1, vec!["b"]), (6, 10, vec!["b", "a"]), (99, 10, vec!["b", "a"])]
    {
        let recent = database.recent_sets(JobId(since), limit).await.unwrap();
        assert_eq!(recent, wanted.into_iter().map(set).collect::<Vec<_>>(), "since {since}");
    }
    let mut standing = database.job_counts(&[set("a"), set("b"), set("nothing")]).await.unwrap();
    standing.sort_by(|one, other| one.job_set.cmp(&other.job_set));
    let told: Vec<_> = standing.iter().map(|one| (one.job_set.as_str(), one.state, one.jobs, one.first)).collect();
    assert_eq!(told, [("a", JobState::Queued, 2, JobId(4)), ("b", JobState::Queued, 1, JobId(5))]);
    // What has ended is listed by its age alone.
    execute(&database, "UPDATE jobs SET state = 'succeeded', ended = 1 WHERE job_set = 'b'", vec![]).await;
    assert_eq!(database.recent_sets(JobId(6), 10).await.unwrap(), [set("a")]);
    assert_eq!(database.job_counts(&[set("b")]).await.unwrap()[0].state, JobState::Succeeded);
    assert_eq!(database.job_counts(&[]).await.unwrap(), []);
    database.close().await;
}
