//! Writers of results into a folder are killed at any point, over and over, also two at once: nothing is torn, nothing
//! that was told is lost, and no record is recorded twice. The test binary starts itself as the writer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use pumice_jobs::bundle::{ChunkId, Folder, Recorder, Row, RunId, Slice, Status, collect, history};

/// Rounds, of which every second one kills two writers; `PUMICE_KILL_ROUNDS` says how many instead.
const ROUNDS: u32 = 20;
/// Starts this binary as a writer; the folder and the attempt follow.
const WRITER_ARGS: [&str; 3] = ["--exact", "kills::writer_entry", "--nocapture"];
/// The signal's number on Linux.
const SIGKILL: i32 = 9;
/// Records of a shard.
const SHARD_RECORDS: u64 = 8;
/// Most records that a writer tells before it is killed.
const TOLD_MAX: u64 = 12;

/// Not a test of its own: the program of the writers.
#[tokio::test]
async fn writer_entry() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, harness @ .., folder, attempt] = arguments.as_slice()
        && harness == WRITER_ARGS
    {
        write(Path::new(folder), attempt.parse().unwrap()).await;
    }
}

fn slice(shard: u32) -> Slice {
    let first = u64::from(shard) * SHARD_RECORDS;
    Slice { run: RunId::new("kills").unwrap(), shard, records: first..first + SHARD_RECORDS }
}

/// What an attempt has to say of a record: now and then so much that it gets chunks of its own.
fn value(record: u64, attempt: u32) -> Bytes {
    let length = (record * 7919 + u64::from(attempt) * 104_729) % 45_000;
    format!("{record} by {attempt} ").bytes().cycle().take(length as usize).collect()
}

/// Records whatever is left, from the first shard on, and tells each record that is in the log, on stderr, which the
/// harness leaves alone.
async fn write(folder: &Path, attempt: u32) {
    let store = Arc::new(Folder::open(folder).unwrap());
    for shard in 0.. {
        let mut recorder = Recorder::open(store.clone(), slice(shard), attempt).await.unwrap();
        for record in recorder.left().collect::<Vec<_>>() {
            recorder.record(record, &record.to_string(), Status::Succeeded, value(record, attempt)).await.unwrap();
            for record in recorder.flush().await.unwrap().recorded {
                eprintln!("{record}");
            }
        }
    }
}

/// A writer and what it tells.
struct Writer {
    attempt: u32,
    child: Child,
    lines: BufReader<ChildStderr>,
}

impl Writer {
    fn start(folder: &Path, attempt: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(WRITER_ARGS)
            .args([folder.to_str().unwrap(), &attempt.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Writer { attempt, child, lines }
    }

    /// The next record it tells; `None` if it was killed in the middle of that.
    fn told(&mut self) -> Option<u64> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.strip_suffix('\n').map(|record| record.parse().unwrap())
    }
}

// INV-46
#[tokio::test]
async fn killed_writers_tear_lose_and_double_nothing() {
    #[allow(clippy::disallowed_methods, reason = "how long the test may take is up to whoever runs it")]
    let rounds = std::env::var("PUMICE_KILL_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Folder::make(dir.path()).unwrap());
    let mut told: BTreeMap<u64, u32> = BTreeMap::new();
    let mut random = 42_u64;
    let mut below = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % most
    };
    let (mut attempts, mut kills) = (0, 0);
    for round in 0..rounds {
        let writers: Vec<Writer> =
            (0..=round % 2).map(|_| (attempts += 1, Writer::start(dir.path(), attempts)).1).collect();
        for mut writer in writers {
            let attempt = writer.attempt;
            let mut hear = |record: u64| {
                let before = told.insert(record, attempt);
                assert_eq!(before, None, "record {record} was told by two attempts");
            };
            for _ in 0..below(TOLD_MAX) {
                hear(writer.told().expect("it works on until it is killed"));
            }
            // Into the middle of whatever comes next.
            for _ in 0..below(300_000) {
                std::hint::spin_loop();
            }
            writer.child.kill().unwrap();
            let status = writer.child.wait().unwrap();
            assert_eq!(status.signal(), Some(SIGKILL), "it worked on until it was killed: {status}");
            kills += 1;
            while let Some(record) = writer.told() {
                hear(record);
            }
        }
    }

    let last = told.keys().next_back().copied().unwrap_or_default();
    let shards = u32::try_from(last / SHARD_RECORDS).unwrap() + 2;
    let mut successes = 0;
    for shard in 0..shards {
        // Reading it checks every entry.
        let mut recorded: Vec<u64> =
            history(&*store, &slice(shard)).await.unwrap().into_iter().map(|outcome| outcome.record).collect();
        successes += recorded.len();
        recorded.sort_unstable();
        assert!(recorded.windows(2).all(|pair| pair[0] != pair[1]), "shard {shard} has a record twice: {recorded:?}");
    }
    let slices = (0..shards).map(|shard| slice(shard).records);
    let rows: Vec<Row> = collect(store, RunId::new("kills").unwrap(), slices).try_collect().await.unwrap();
    let outcomes = rows.into_iter().filter_map(|row| row.outcome);
    let mut kept = 0;
    for outcome in outcomes {
        assert_eq!(outcome.value, value(outcome.record, outcome.attempt), "record {} is whole", outcome.record);
        if let Some(attempt) = told.remove(&outcome.record) {
            assert_eq!(outcome.attempt, attempt, "record {} is by who told it", outcome.record);
        }
        kept += 1;
    }
    assert_eq!(told, BTreeMap::new(), "told and not there");
    assert_eq!(kept, successes);
    let chunks = files(&dir.path().join("chunks"));
    for chunk in &chunks {
        let id = ChunkId::of(&std::fs::read(chunk).unwrap()).to_string();
        assert_eq!(chunk.file_name().unwrap().to_str(), Some(id.as_str()), "a chunk is whole");
    }
    let left = files(&dir.path().join("tmp")).len();
    println!("{kills} kills, {kept} records, {} chunks, {left} files left in tmp", chunks.len());
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] })
        .collect()
}
