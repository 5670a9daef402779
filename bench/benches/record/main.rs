//! Recorded days: 300,000 pods each, in jobs of a minute to four hours. What they take on disk, what recording costs the
//! loop, and how long one core takes to run them again. `PUMICE_BENCH_ONLY=week` runs a whole week, which is a quarter of
//! an hour; `PUMICE_BENCH_ONLY=crowded` a day on too few nodes, whose queues hunt for room in each cycle: that is hours.

mod day;

use std::path::Path;
use std::time::Instant;

use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;
use pumice_recording::{Range, Recording, replay};
use pumice_scheduler::plugins;
use pumice_scheduler::recorder::{RecordOptions, RecordSender, Recorder};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PODS: usize = 300_000;
/// Half full.
const NODES: usize = 200;
/// Too few for what comes by day: a backlog of thousands.
const FEW_NODES: usize = 80;
const WEEK: usize = 7;

fn main() {
    let setting = Setting::read();
    let mut figures = Figures::open("record");
    let pods = setting.size(PODS);
    let scale = PODS as f64 / pods as f64;
    if setting.wants("day") {
        day_of("day", pods, NODES, scale, &mut figures);
    }
    if setting.only.iter().any(|only| only == "crowded") {
        day_of("crowded", pods, setting.size(FEW_NODES), scale, &mut figures);
    }
    if setting.only.iter().any(|only| only == "week") {
        week(pods, scale, &mut figures);
    }
    std::process::exit(i32::from(!figures.finish()));
}

fn recorded(folder: &Path, pods: usize, nodes: usize, days: usize) -> day::Day {
    let (record, written) = Recorder::of_world(RecordOptions::new(folder.to_owned()), plugins()).expect("a recorder");
    let recorded = day::run(pods, nodes, days, record);
    written.blocking_recv().expect("all is written");
    recorded
}

fn bytes_in(folder: &Path) -> f64 {
    let files = std::fs::read_dir(folder).expect("the folder");
    files.map(|file| file.expect("a file").metadata().expect("its length").len()).sum::<u64>() as f64
}

/// Seconds that it takes to run it again, and cycles; it has to come out the same.
fn replayed(folder: &Path, binds: usize) -> (f64, usize) {
    #[allow(clippy::disallowed_methods)] // it is measured
    let started = Instant::now();
    let recording = Recording::open(folder).expect("the recording");
    let told = replay(&recording, &plugins(), Range::default()).expect("a replay");
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!((told.difference, told.breaks), (None, Vec::new()));
    assert_eq!(told.binds, binds as u64);
    (seconds, told.cycles as usize)
}

fn day_of(name: &str, pods: usize, nodes: usize, scale: f64, figures: &mut Figures) {
    let folder = tempfile::tempdir().expect("a folder");
    let bare = day::run(pods, nodes, 1, RecordSender::default());
    let recorded = recorded(folder.path(), pods, nodes, 1);
    assert_eq!(bare.binds, recorded.binds, "recording changes nothing");
    let (entries, bytes) = (recorded.entries, bytes_in(folder.path()));
    let mut add = |figure: &str, value: f64, unit: &'static str, of: usize| {
        figures.add(&format!("{name}/{figure}"), value, unit, of);
    };
    add("bytes", bytes / 1e6, "MB", entries);
    add("bytes_per_entry", bytes / entries as f64, "B", entries);
    add("cycles", recorded.cycles as f64, "cycles", recorded.cycles);
    add("recording_per_entry", recorded.taping.as_secs_f64() * 1e9 / entries as f64, "ns", entries);
    add("engine", bare.engine.as_secs_f64(), "s", entries);
    add("recording_of_engine", recorded.taping.as_secs_f64() / bare.engine.as_secs_f64(), "ratio", entries);
    let (seconds, cycles) = replayed(folder.path(), recorded.binds);
    add("replay", seconds * scale, "s", cycles);
}

fn week(pods: usize, scale: f64, figures: &mut Figures) {
    let folder = tempfile::tempdir().expect("a folder");
    let recorded = recorded(folder.path(), pods, NODES, WEEK);
    figures.add("week/bytes", bytes_in(folder.path()) * scale / 1e9, "GB", recorded.entries);
    let (seconds, cycles) = replayed(folder.path(), recorded.binds);
    figures.add("week/replay_per_day", seconds * scale / WEEK as f64, "s", cycles);
}
