//! Short ways to pack, to read, and to look at what is stored.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use pumice_jobs::bundle::{
    BundleError, BundleWriter, EntryName, Memory, Name, Packed, Recorder, Row, RunId, Slice, Status, Store, collect,
};
use pumice_jobs::error::sentence;

pub fn memory() -> Arc<Memory> {
    Arc::new(Memory::default())
}

pub fn run() -> RunId {
    RunId::new("train-x7-main").unwrap()
}

/// The shard with the first `records` of all.
pub fn slice(records: u64) -> Slice {
    Slice { run: run(), shard: 0, records: 0..records }
}

pub fn entry(number: u32) -> Name {
    Name::Entry(EntryName { run: run(), shard: 0, number })
}

/// Records whose key is their number and whose value is given by it.
pub async fn pack(
    store: Arc<dyn Store>,
    records: impl IntoIterator<Item = Bytes>,
    attachments: &[(&str, &[u8])],
) -> Result<Packed, BundleError> {
    let mut writer = BundleWriter::new(store);
    for (name, mut content) in attachments.iter().copied() {
        writer.attach(name, &mut content).await?;
    }
    for (number, value) in records.into_iter().enumerate() {
        writer.record(&number.to_string(), value).await?;
    }
    writer.finish().await
}

/// The rows of the only shard.
pub async fn rows(store: Arc<dyn Store>, records: u64) -> Vec<Row> {
    use futures::TryStreamExt;
    collect(store, run(), std::iter::once(0..records)).try_collect().await.unwrap()
}

pub fn told(error: BundleError) -> String {
    sentence(&error)
}

/// Several attempts record the same shard at once, each in portions of its own; every record must be recorded by exactly one.
pub async fn race(store: Arc<dyn Store>, attempts: u32, records: u64) {
    let attempt = |attempt: u32| {
        let store = Arc::clone(&store);
        async move {
            let mut recorder = Recorder::open(store, slice(records), attempt).await.unwrap();
            let mut recorded = Vec::new();
            for record in 0..records {
                let value = Bytes::from(format!("{record} by {attempt}"));
                recorder.record(record, &record.to_string(), Status::Succeeded, value).await.unwrap();
                if record % u64::from(attempt) == 0 {
                    recorded.extend(recorder.flush().await.unwrap().recorded);
                }
            }
            recorded.extend(recorder.flush().await.unwrap().recorded);
            (attempt, recorded)
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=attempts {
        tasks.spawn(attempt(number));
    }
    let mut recorders = BTreeMap::new();
    while let Some(done) = tasks.join_next().await {
        let (attempt, recorded) = done.unwrap();
        for record in recorded {
            assert_eq!(recorders.insert(record, attempt), None, "record {record} was recorded twice");
        }
    }
    assert_eq!(recorders.len() as u64, records);
    for row in rows(store, records).await {
        let outcome = row.outcome.unwrap();
        assert_eq!(outcome.attempt, recorders[&row.record], "who was told to have recorded it has");
        assert_eq!(outcome.value, format!("{} by {}", row.record, outcome.attempt));
    }
}

/// What is stored, in hexadecimal, by name.
pub fn dump(store: &Memory) -> String {
    let mut text = String::new();
    for (name, bytes) in store.objects() {
        let _ = writeln!(text, "{name}");
        for line in bytes.chunks(32) {
            let hex: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(text, "  {}", hex.join(" "));
        }
    }
    text
}
