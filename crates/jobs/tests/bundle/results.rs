//! Results: each record once, whoever races, fails or is told nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::TryStreamExt;
use futures::future::{BoxFuture, FutureExt};
use pumice_jobs::bundle::{
    Bundle, Flushed, Made, Memory, Missing, Name, Recorder, Row, Slice, Status, Store, StoreError, collect, collect_if,
    collect_shard, history, missing, statuses,
};

use crate::support::{memory, pack, race, rows, run, slice, told};

async fn record(recorder: &mut Recorder, record: u64, status: Status, value: &'static str) {
    recorder.record(record, &format!("day-{record}"), status, Bytes::from_static(value.as_bytes())).await.unwrap();
}

fn short(rows: &[Row]) -> Vec<String> {
    let line = |row: &Row| match &row.outcome {
        None => format!("{} missing", row.record),
        Some(outcome) => {
            let value = String::from_utf8_lossy(&outcome.value);
            format!("{} {} {:?} {} {value}", row.record, outcome.key, outcome.status, outcome.attempt)
        }
    };
    rows.iter().map(line).collect()
}

#[tokio::test]
async fn a_second_attempt_does_only_what_is_left() {
    let store = memory();
    let mut first = Recorder::open(store.clone(), slice(4), 1).await.unwrap();
    record(&mut first, 0, Status::Succeeded, "a").await;
    record(&mut first, 1, Status::Failed, "first error").await;
    assert_eq!(first.flush().await.unwrap(), Flushed { recorded: vec![0, 1], done_before: vec![] });
    // Told and never flushed: lost with the attempt.
    record(&mut first, 2, Status::Succeeded, "lost").await;
    drop(first);

    let mut second = Recorder::open(store.clone(), slice(4), 2).await.unwrap();
    assert_eq!(second.left().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(second.logged(1).unwrap().attempt, 1);
    record(&mut second, 0, Status::Failed, "too late").await;
    record(&mut second, 1, Status::Failed, "second error").await;
    record(&mut second, 2, Status::Failed, "within an attempt the last word counts").await;
    record(&mut second, 2, Status::Succeeded, "c").await;
    assert_eq!(second.flush().await.unwrap(), Flushed { recorded: vec![1, 2], done_before: vec![0] });
    assert_eq!(second.flush().await.unwrap(), Flushed::default());
    assert_eq!(
        short(&rows(store.clone(), 4).await),
        ["0 day-0 Succeeded 1 a", "1 day-1 Failed 2 second error", "2 day-2 Succeeded 2 c", "3 missing"]
    );
    let statuses: Vec<_> =
        statuses(store.clone(), run(), std::iter::once(0..4)).map_ok(|row| row.status()).try_collect().await.unwrap();
    use Status::{Failed, Succeeded};
    assert_eq!(statuses, [Some(Succeeded), Some(Failed), Some(Succeeded), None]);
    let failed = collect_if(store.clone(), run(), std::iter::once(0..4), |status| status == Some(Failed));
    assert_eq!(short(&failed.try_collect::<Vec<_>>().await.unwrap()), ["1 day-1 Failed 2 second error"]);
    // A job that was submitted anew goes on with the run, and its pods begin with attempt 1.
    let again = Recorder::open(store.clone(), slice(4), 1).await.unwrap().counting_on();
    let later = Recorder::open(store.clone(), slice(4), 7).await.unwrap().counting_on();
    assert_eq!((again.attempt(), later.attempt()), (3, 7));
    // One shard of several is read by its own log alone.
    let other = Slice { shard: 1, ..slice(4) };
    let mut recorder = Recorder::open(store.clone(), other.clone(), 1).await.unwrap();
    recorder.record(3, "day-3", Status::Succeeded, Bytes::from_static(b"d")).await.unwrap();
    recorder.flush().await.unwrap();
    let of_other = collect_shard(store.clone(), Slice { records: 2..4, ..other }, None);
    assert_eq!(short(&of_other.try_collect::<Vec<_>>().await.unwrap()), ["2 missing", "3 day-3 Succeeded 1 d"]);
    let all = history(&*store, &slice(4)).await.unwrap();
    let all: Vec<_> = all.iter().map(|outcome| (outcome.record, outcome.attempt, outcome.status)).collect();
    assert_eq!(all, [(0, 1, Succeeded), (1, 1, Failed), (1, 2, Failed), (2, 2, Succeeded)]);
}

#[tokio::test]
async fn rows_come_in_order_over_all_shards_and_what_is_missing_is_named() {
    let store = memory();
    let packed = pack(store.clone(), (0..100).map(|_| Bytes::new()), &[]).await.unwrap();
    let bundle = Bundle::open(store.clone(), packed.root).await.unwrap();
    let slices = || (0..25).map(|shard| 4 * shard..4 * (shard + 1));
    // Shard 7 is never run, shard 20 stops in the middle, and the last are told first.
    for (shard, records) in (0..).zip(slices()).collect::<Vec<_>>().into_iter().rev().filter(|(shard, _)| *shard != 7) {
        let slice = Slice { run: run(), shard, records: records.clone() };
        let mut recorder = Recorder::open(store.clone(), slice, 1).await.unwrap();
        for number in records.take(if shard == 20 { 3 } else { 4 }) {
            let value = Bytes::from(vec![1; number as usize * 1000]);
            recorder.record(number, &number.to_string(), Status::Succeeded, value).await.unwrap();
        }
        recorder.flush().await.unwrap();
    }
    let rows: Vec<Row> = collect(store, run(), slices()).try_collect().await.unwrap();
    for (number, row) in (0..).zip(&rows) {
        assert_eq!((row.record, u64::from(row.shard)), (number, number / 4));
        let length = row.outcome.as_ref().map(|outcome| outcome.value.len() as u64);
        assert_eq!(length, (!matches!(number, 28..32 | 83)).then_some(number * 1000));
    }
    assert_eq!(rows.len(), 100);
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(
        missing(&bundle, run(), slices(), 10).await.unwrap(),
        Missing { count: 5, keys: keys(&["28", "29", "30", "31", "83"]) }
    );
    assert_eq!(missing(&bundle, run(), slices(), 2).await.unwrap(), Missing { count: 5, keys: keys(&["28", "29"]) });
}

// INV-46
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_racing_attempts_one_records() {
    for _ in 0..20 {
        race(memory(), 4, 50).await;
    }
}

/// Fails once, and may have done what it was told even so.
#[derive(Debug)]
struct BadLine {
    store: Arc<Memory>,
    fail: AtomicBool,
    /// Whether what fails is done.
    done: bool,
}

impl BadLine {
    fn new(done: bool) -> Arc<Self> {
        Arc::new(BadLine { store: memory(), fail: AtomicBool::new(true), done })
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory behind a bad line")
    }
}

impl Store for BadLine {
    fn get(&self, name: Name) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        self.store.get(name)
    }

    fn create(&self, name: Name, bytes: Bytes) -> BoxFuture<'_, Result<Made, StoreError>> {
        async move {
            let fails = self.fail.swap(false, Ordering::SeqCst);
            if fails && !self.done {
                return Err(StoreError::Stopped);
            }
            let made = self.store.create(name, bytes).await?;
            if fails { Err(StoreError::Stopped) } else { Ok(made) }
        }
        .boxed()
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_records_nothing_twice() {
    let store = BadLine::new(true);
    let mut recorder = Recorder::open(store.clone(), slice(2), 1).await.unwrap();
    record(&mut recorder, 0, Status::Succeeded, "a").await;
    recorder.flush().await.unwrap_err();
    assert_eq!(recorder.flush().await.unwrap(), Flushed { recorded: vec![0], done_before: vec![] });
    record(&mut recorder, 1, Status::Succeeded, "b").await;
    recorder.flush().await.unwrap();
    assert_eq!(store.store.objects().len(), 2);
    assert_eq!(short(&rows(store, 2).await), ["0 day-0 Succeeded 1 a", "1 day-1 Succeeded 1 b"]);
}

#[tokio::test]
async fn a_large_result_is_stored_before_it_is_recorded() {
    let store = BadLine::new(false);
    let mut recorder = Recorder::open(store.clone(), slice(1), 1).await.unwrap();
    let value = Bytes::from(vec![7; 100_000]);
    recorder.record(0, "0", Status::Succeeded, value.clone()).await.unwrap();
    // Its chunk fails, so there must be no entry that speaks of it.
    recorder.flush().await.unwrap_err();
    assert_eq!(store.store.objects().len(), 0);
    assert_eq!(recorder.flush().await.unwrap().recorded, [0]);
    assert_eq!(rows(store, 1).await[0].outcome.as_ref().unwrap().value, value);
}

#[tokio::test]
async fn much_is_recorded_before_it_is_asked_for() {
    let store = memory();
    let mut recorder = Recorder::open(store.clone(), slice(10_000), 1).await.unwrap();
    for number in 0..10_000 {
        record(&mut recorder, number, Status::Succeeded, "x").await;
    }
    assert_eq!(store.objects().len(), 2, "entries of 4,096");
    assert_eq!(recorder.flush().await.unwrap().recorded.len(), 10_000);
    assert_eq!(recorder.left().count(), 0);
    assert_eq!(rows(store, 10_000).await.len(), 10_000);
}

#[tokio::test]
async fn what_there_is_no_room_for_is_not_taken() {
    let store = BadLine::new(false);
    let mut recorder = Recorder::open(store.clone(), slice(5000), 1).await.unwrap();
    for number in 0..4096 {
        record(&mut recorder, number, Status::Succeeded, "x").await;
    }
    recorder.record(4096, "4096", Status::Failed, Bytes::new()).await.unwrap_err();
    for number in 4096..5000 {
        record(&mut recorder, number, Status::Succeeded, "x").await;
    }
    assert_eq!(recorder.flush().await.unwrap().recorded.len(), 5000);
    assert!(rows(store, 5000).await.iter().all(|row| row.outcome.as_ref().unwrap().status == Status::Succeeded));
}

#[tokio::test]
async fn a_record_of_another_shard_is_refused() {
    let store = memory();
    let other = Slice { records: 5..8, ..slice(0) };
    let mut recorder = Recorder::open(store.clone(), other, 1).await.unwrap();
    let error = recorder.record(8, "8", Status::Succeeded, Bytes::new()).await.unwrap_err();
    assert_eq!(told(error), "record 8 is none of shard 0, which has 5 to 7");
    record(&mut recorder, 7, Status::Succeeded, "x").await;
    recorder.flush().await.unwrap();
    // The same log read with another rule of sharding.
    let text = told(Recorder::open(store, slice(3), 2).await.unwrap_err());
    assert!(text.contains("the records of an entry and of its shard don't add up"), "{text}");
}
