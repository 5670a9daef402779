//! Marked results: what others write into a run's log neither counts nor passes for the run's own.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use futures::executor::block_on;
use pumice_jobs::bundle::{
    ChunkId, EntryName, Flushed, Mark, Memory, Name, Origin, Outcome, Recorder, RunId, RunKey, Slice, Status, Store,
    collect_shard, history,
};

use crate::support::{dump, entry, memory, rows, slice, told};

fn key(of: &str) -> RunKey {
    ChunkId::of(of.as_bytes()).to_string().parse().unwrap()
}

/// Opens the log with a key, or as somebody does who has none.
async fn open(store: &Arc<Memory>, slice: Slice, attempt: u32, key: Option<&RunKey>) -> Recorder {
    Recorder::with_key(store.clone(), slice, attempt, key.cloned()).await.unwrap()
}

/// Records values, each for the record of its place, as one entry.
async fn record(recorder: &mut Recorder, records: impl IntoIterator<Item = u64>, value: &'static str) -> Flushed {
    for record in records {
        let value = Bytes::from_static(value.as_bytes());
        recorder.record(record, &record.to_string(), Status::Succeeded, value).await.unwrap();
    }
    recorder.flush().await.unwrap()
}

/// A record's value, the number of its entry, and what the mark of that is worth.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    value: String,
    number: u32,
    mark: Mark,
}

async fn collected(store: &Arc<Memory>, slice: Slice, key: Option<&RunKey>) -> Vec<Option<Found>> {
    let rows: Vec<_> = collect_shard(store.clone(), slice, key.cloned()).try_collect().await.unwrap();
    let found = |(outcome, origin): (Outcome, Origin)| Found {
        value: String::from_utf8_lossy(&outcome.value).into_owned(),
        number: origin.number,
        mark: origin.mark,
    };
    rows.into_iter().map(|row| row.outcome.zip(row.origin).map(found)).collect()
}

fn found(value: &str, number: u32, mark: Mark) -> Option<Found> {
    Some(Found { value: value.to_owned(), number, mark })
}

// INV-47
#[test]
fn what_somebody_forged_keeps_no_record_from_being_done() {
    block_on(async {
        let store = memory();
        let ours = key("ours");
        // Without a key, with another's, and twice, before the run's own pod comes.
        record(&mut open(&store, slice(3), 1, None).await, [0, 1], "forged").await;
        record(&mut open(&store, slice(3), 9, Some(&key("theirs"))).await, [0, 2], "forged").await;
        let mut pod = open(&store, slice(3), 1, Some(&ours)).await;
        assert_eq!(pod.left().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(pod.logged(0), None);
        assert_eq!(record(&mut pod, [0, 1], "own").await.recorded, [0, 1]);
        assert_eq!(
            collected(&store, slice(3), Some(&ours)).await,
            [found("own", 2, Mark::Right), found("own", 2, Mark::Right), found("forged", 1, Mark::Wrong)]
        );
        // What is forged later changes nothing.
        record(&mut open(&store, slice(3), 2, None).await, [1], "forged").await;
        assert_eq!(collected(&store, slice(3), Some(&ours)).await[1], found("own", 2, Mark::Right));
        // The next attempt of the run goes on with its own.
        let mut pod = open(&store, slice(3), 2, Some(&ours)).await;
        assert_eq!(pod.left().collect::<Vec<_>>(), [2]);
        record(&mut pod, [2], "own").await;
        assert_eq!(collected(&store, slice(3), Some(&ours)).await[2].as_ref().unwrap().mark, Mark::Right);
    });
}

#[test]
fn a_forged_entry_that_takes_the_number_first_does_not_pass_for_ones_own() {
    block_on(async {
        let store = memory();
        let ours = key("ours");
        let mut pod = open(&store, slice(1), 1, Some(&ours)).await;
        // Just what the pod is about to record, by somebody who has no key.
        record(&mut open(&store, slice(1), 1, None).await, [0], "same").await;
        assert_eq!(record(&mut pod, [0], "same").await, Flushed { recorded: vec![0], done_before: vec![] });
        assert_eq!(collected(&store, slice(1), Some(&ours)).await, [found("same", 1, Mark::Right)]);
    });
}

#[test]
fn a_marked_entry_is_worth_nothing_at_another_name() {
    block_on(async {
        let store = memory();
        let ours = key("ours");
        record(&mut open(&store, slice(4), 1, Some(&ours)).await, [0], "own").await;
        record(&mut open(&store, slice(4), 1, Some(&ours)).await, [1], "next").await;
        let [marked, other] = [0, 1].map(|number| store.objects()[&entry(number)].clone());
        store.damage(entry(1), None);
        // Replayed in another run of the same key, and at another place of the same log.
        let later = Slice { run: RunId::new("later").unwrap(), ..slice(4) };
        let elsewhere = Name::Entry(EntryName { run: later.run.clone(), shard: 0, number: 0 });
        store.create(elsewhere, marked.clone()).await.unwrap();
        assert_eq!(collected(&store, later, Some(&ours)).await[0], found("own", 0, Mark::Wrong));
        // The two swapped.
        store.damage(entry(0), Some(other));
        store.create(entry(1), marked.clone()).await.unwrap();
        assert_eq!(
            collected(&store, slice(4), Some(&ours)).await[..2],
            [found("own", 1, Mark::Wrong), found("next", 0, Mark::Wrong)]
        );
        // Cut, and with nothing else that tells of its record.
        store.damage(entry(1), None);
        store.damage(entry(0), Some(marked.slice(..marked.len() - 1)));
        let cut = collect_shard(store.clone(), slice(1), Some(ours.clone())).try_collect::<Vec<_>>().await;
        let text = told(cut.unwrap_err());
        assert!(text.starts_with("entry 0 of shard 0 of train-x7-main in memory is damaged"), "{text}");
    });
}

#[test]
fn what_nobody_can_read_keeps_no_record_from_being_done() {
    block_on(async {
        let store = memory();
        let ours = key("ours");
        record(&mut open(&store, slice(2), 1, Some(&ours)).await, [0], "own").await;
        // Rubbish, one that is cut, and one of records that are not the shard's.
        store.create(entry(1), Bytes::from_static(b"rubbish")).await.unwrap();
        store.create(entry(2), Bytes::from_static(&FORMAT_1[..40])).await.unwrap();
        let foreign = Slice { records: 5..6, ..slice(0) };
        let elsewhere = memory();
        record(&mut open(&elsewhere, foreign, 1, None).await, [5], "forged").await;
        store.create(entry(3), elsewhere.objects()[&entry(0)].clone()).await.unwrap();
        // What is missing is said to be so because of it.
        let missing = collect_shard(store.clone(), slice(2), Some(ours.clone())).try_collect::<Vec<_>>().await;
        assert!(told(missing.unwrap_err()).starts_with("entry 1 of shard 0 of train-x7-main in memory is damaged"));
        let mut pod = open(&store, slice(2), 2, Some(&ours)).await;
        assert_eq!(pod.left().collect::<Vec<_>>(), [1]);
        assert_eq!(record(&mut pod, [1], "own").await.recorded, [1]);
        assert_eq!(
            collected(&store, slice(2), Some(&ours)).await,
            [found("own", 0, Mark::Right), found("own", 4, Mark::Right)]
        );
        // A later version may hold what this program can't see: that is said at once.
        store.create(entry(5), Bytes::from_static(b"PMCB\x03\x06")).await.unwrap();
        assert!(told(Recorder::with_key(store, slice(2), 3, Some(ours)).await.unwrap_err()).contains("newer pumice"));
    });
}

/// A failure that was forged does not stand before a success, nor a success of others before the run's own failure.
#[test]
fn the_runs_own_failure_stands_before_anybodys_success() {
    block_on(async {
        let store = memory();
        let ours = key("ours");
        record(&mut open(&store, slice(1), 1, None).await, [0], "forged").await;
        let mut pod = open(&store, slice(1), 1, Some(&ours)).await;
        pod.record(0, "0", Status::Failed, Bytes::from_static(b"own error")).await.unwrap();
        pod.flush().await.unwrap();
        assert_eq!(collected(&store, slice(1), Some(&ours)).await, [found("own error", 1, Mark::Right)]);
        record(&mut open(&store, slice(1), 2, Some(&ours)).await, [0], "own").await;
        assert_eq!(collected(&store, slice(1), Some(&ours)).await, [found("own", 2, Mark::Right)]);
        // Who has no key reads the log as programs do that know no marks.
        assert_eq!(collected(&store, slice(1), None).await, [found("forged", 0, Mark::Unchecked)]);
        assert_eq!(history(&*store, &slice(1)).await.unwrap().len(), 3);
    });
}

#[test]
fn large_results_are_marked_by_their_hashes() {
    block_on(async {
        let store = memory();
        let ours = key("ours");
        let mut pod = open(&store, slice(1), 1, Some(&ours)).await;
        let value = Bytes::from(vec![7; 100_000]);
        pod.record(0, "0", Status::Succeeded, value.clone()).await.unwrap();
        pod.flush().await.unwrap();
        let rows: Vec<_> = collect_shard(store.clone(), slice(1), Some(ours.clone())).try_collect().await.unwrap();
        assert_eq!(rows[0].outcome.as_ref().unwrap().value, value);
        assert_eq!(rows[0].origin.unwrap().mark, Mark::Right);
        let chunks = store.objects().into_keys().find(|name| matches!(name, Name::Chunk(_)));
        store.damage(chunks.unwrap(), Some(Bytes::from_static(b"PMCB\x01\x01forged")));
        let changed = collect_shard(store.clone(), slice(1), Some(ours)).try_collect::<Vec<_>>().await;
        assert!(told(changed.unwrap_err()).contains("is damaged"));
    });
}

#[test]
fn format_2_is_what_it_was() {
    block_on(async {
        let store = memory();
        let mut recorder = open(&store, slice(2), 1, Some(&key("ours"))).await;
        recorder.record(0, "0", Status::Succeeded, Bytes::from_static(b"0.5")).await.unwrap();
        recorder.record(1, "1", Status::Failed, Bytes::from_static(b"ValueError")).await.unwrap();
        recorder.flush().await.unwrap();
        insta::assert_snapshot!(dump(&store));
    });
}

/// The entry of the golden of format 1, byte for byte.
const FORMAT_1: &[u8] = b"PMCB\x01\x06\x00\x02\x00\x01\x00\x010\x00\x030.5\x01\x01\x01\x011\x00\x0aValueError\
    83\xd8\xa4l$\xce\xc9X,p\x99\xa51\x03o\x1a\x81i@\xc1\xa4\xf3\xb5\x99j\x03\xb1r\x87O\xcd";

#[test]
fn entries_of_format_1_are_read_and_known_to_have_no_mark() {
    block_on(async {
        let store = memory();
        store.create(entry(0), Bytes::from_static(FORMAT_1)).await.unwrap();
        let all = rows(store.clone(), 2).await;
        assert_eq!(all[0].outcome.as_ref().unwrap().value, "0.5");
        let unmarked = collected(&store, slice(2), Some(&key("ours"))).await;
        assert_eq!(unmarked, [found("0.5", 0, Mark::Missing), found("ValueError", 0, Mark::Missing)]);
        // A job of before goes on with its log, and what it adds can be read by programs of before.
        record(&mut open(&store, slice(2), 2, None).await, [1], "1.5").await;
        assert_eq!(store.objects()[&entry(1)][4], 1);
        assert_eq!(rows(store, 2).await[1].outcome.as_ref().unwrap().value, "1.5");
    });
}
