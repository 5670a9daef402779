//! What is told of a job's records: each in its row, and the first of those that are missing by name.

use bytes::Bytes;
use futures::TryStreamExt;
use pumice_jobs::bundle::{Recorder, Slice, Status};
use pumice_jobs::results::{Results, Row};
use pumice_jobs::shards::report::Report;
use pumice_jobs::shards::{Plan, Shards};

use crate::support::{memory, pack, run};

#[tokio::test]
async fn rows_that_nobody_told_of_have_their_keys_from_the_bundle() {
    let store = memory();
    let packed = pack(store.clone(), (0..1000).map(|_| Bytes::new()), &[]).await.unwrap();
    let plan = Plan::new(Shards::params(1000, vec![]), 10).unwrap();
    // Of pods 0 and 1 everything is told, of pod 5 that its first record failed.
    for (shard, told, status) in [(0, 10, Status::Succeeded), (1, 10, Status::Succeeded), (5, 1, Status::Failed)] {
        let records = shard * 10..(shard + 1) * 10;
        let slice = Slice { run: run(), shard: shard as u32, records: records.clone() };
        let mut recorder = Recorder::open(store.clone(), slice, 2).await.unwrap();
        let report = Report { code: Some(status as u8), result: Some(Bytes::from_static(b"x\n")), ..Report::default() };
        for record in records.take(told) {
            recorder.record(record, &record.to_string(), status, report.to_bytes().unwrap()).await.unwrap();
        }
        recorder.flush().await.unwrap();
    }
    let results = Results::at(store.clone(), plan, packed.root, run()).await.unwrap();
    let rows: Vec<Row> = results.rows(|_| true).try_collect().await.unwrap();
    for (number, row) in rows.iter().enumerate() {
        let (word, attempts, text) = match number {
            0..20 => ("succeeded", 2, Some("x")),
            50 => ("failed", 2, Some("x")),
            _ => ("missing", 0, None),
        };
        assert_eq!((row.key.clone(), row.word()), (number.to_string(), word));
        assert_eq!((row.attempts, row.report.text()), (attempts, text));
    }
    let failed: Vec<Row> = results.rows(|status| status == Some(Status::Failed)).try_collect().await.unwrap();
    assert_eq!(failed, [rows[50].clone()]);
    // What is told from now on is not in the numbers of rows that were read before.
    let slice = Slice { run: run(), shard: 2, records: 20..30 };
    let mut recorder = Recorder::open(store.clone(), slice, 1).await.unwrap();
    let report = Report::default().to_bytes().unwrap();
    recorder.record(25, "25", Status::Succeeded, report).await.unwrap();
    recorder.flush().await.unwrap();
    let counts = results.counts().await.unwrap();
    assert_eq!(
        counts.to_string(),
        "20 of 1000 records succeeded; failed: 50; missing: 20, 21, 22, 23, 24 and 974 more"
    );
    assert!(!counts.is_whole() && !counts.is_blank());
    assert_eq!(results.counts().await.unwrap().succeeded, 21, "and then it is read anew");
}
