//! Measures a bundle in a folder: `bundle FOLDER [MEGABYTES [RECORDS]]` packs so much, by default 100 MB in 100,000
//! records, reads single records as pods do, records a result for each 100, and collects them.

#![allow(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::TryStreamExt;
use pumice_jobs::bundle::{Bundle, BundleWriter, Folder, Recorder, RunId, Slice, Status, Store, collect};

/// Records of one shard.
const SHARD_RECORDS: u64 = 100;
/// Single records that are read.
const READS: u64 = 1000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let folder = arguments.get(1).context("usage: bundle FOLDER [MEGABYTES [RECORDS]]")?;
    let (megabytes, records) = (number(2, 100)?, number(3, 100_000)?);
    let store: Arc<dyn Store> = Arc::new(Folder::make(Path::new(folder))?);

    let start = Instant::now();
    let mut writer = BundleWriter::new(Arc::clone(&store));
    let length = usize::try_from(megabytes * 1_000_000 / records)?;
    for record in 0..records {
        writer.record(&record.to_string(), parameters(record, length)).await?;
    }
    let packed = writer.finish().await?;
    println!(
        "packed {} records, {} bytes in {} chunks ({} bytes were there): {:.2?}, peak {}",
        packed.records,
        packed.bytes,
        packed.chunks,
        packed.reused_bytes,
        start.elapsed(),
        peak()?
    );

    let start = Instant::now();
    for read in 0..READS {
        let record = read * 7919 % records;
        let bundle = Bundle::open(Arc::clone(&store), packed.root).await?;
        ensure!(bundle.record(record).await?.value == parameters(record, length), "record {record} is another");
    }
    println!("opened it and read one record: {:.2?}", start.elapsed() / u32::try_from(READS)?);

    let start = Instant::now();
    let run = RunId::new("measure")?;
    let slices = || (0..records).step_by(SHARD_RECORDS as usize).map(|first| first..records.min(first + SHARD_RECORDS));
    for (shard, records) in (0..).zip(slices()) {
        let slice = Slice { run: run.clone(), shard, records: records.clone() };
        let mut recorder = Recorder::open(Arc::clone(&store), slice, 1).await?;
        for record in records {
            recorder.record(record, &record.to_string(), Status::Succeeded, Bytes::from_static(b"0.5")).await?;
        }
        recorder.flush().await?;
    }
    println!("recorded {} shards: {:.2?}", slices().count(), start.elapsed());

    let start = Instant::now();
    let mut rows = std::pin::pin!(collect(store, run, slices()));
    let mut count = 0;
    while let Some(row) = rows.try_next().await? {
        ensure!(row.outcome.is_some(), "record {} is missing", row.record);
        count += 1;
    }
    println!("collected {count} results: {:.2?}, peak {}", start.elapsed(), peak()?);
    Ok(())
}

/// A row of parameters that is like no other.
fn parameters(record: u64, length: usize) -> Bytes {
    format!("{{\"alpha\":{},\"day\":{record}}} ", record.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .bytes()
        .cycle()
        .take(length)
        .collect()
}

/// The most memory this process had at a time.
fn peak() -> anyhow::Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in /proc/self/status")?;
    Ok(line.trim().to_owned())
}
