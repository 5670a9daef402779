//! A recorded day: 300,000 pods on 200 nodes, in jobs of a minute to four hours. What it takes on disk, what recording
//! costs the loop, and how long one core takes to run the day again.

mod day;

use std::time::Instant;

use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;
use pumice_scheduler::plugins;
use pumice_scheduler::record::{Range, RecordOptions, Recorder, Recording, Tape, replay};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PODS: usize = 300_000;
const NODES: usize = 200;

fn main() {
    let setting = Setting::read();
    let mut figures = Figures::open("record");
    let pods = setting.size(PODS);
    let folder = tempfile::tempdir().expect("a folder");

    let bare = day::run(pods, NODES, Tape::default());
    let options = RecordOptions::new(folder.path().to_owned());
    let (tape, written) = Recorder::of_world(options, plugins()).expect("a recorder");
    let recorded = day::run(pods, NODES, tape);
    written.blocking_recv().expect("all is written");
    assert_eq!(bare.binds, recorded.binds, "recording changes nothing");

    let files = std::fs::read_dir(folder.path()).expect("the folder");
    let bytes: u64 = files.map(|file| file.expect("a file").metadata().expect("its length").len()).sum();
    let week = bytes as f64 * 7.0 * (PODS as f64 / pods as f64);
    figures.add("day/bytes", bytes as f64 / 1e6, "MB", recorded.entries);
    figures.add("day/bytes_per_entry", bytes as f64 / recorded.entries as f64, "B", recorded.entries);
    figures.add("week/bytes", week / 1e9, "GB", recorded.entries);
    figures.add("day/cycles", recorded.cycles as f64, "cycles", recorded.cycles);
    figures.add(
        "loop/per_change",
        recorded.taping.as_secs_f64() * 1e9 / recorded.entries as f64,
        "ns",
        recorded.entries,
    );
    let world = bare.engine.as_secs_f64();
    figures.add("loop/engine", world, "s", bare.entries);
    figures.add("loop/of_engine", recorded.taping.as_secs_f64() / world, "ratio", recorded.entries);

    #[allow(clippy::disallowed_methods)] // it is measured
    let started = Instant::now();
    let recording = Recording::open(folder.path()).expect("the recording");
    let told = replay(&recording, &plugins(), Range::default()).expect("a replay");
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!((told.difference, told.breaks), (None, Vec::new()));
    assert_eq!(told.binds, recorded.binds as u64);
    figures.add("replay/day", seconds * (PODS as f64 / pods as f64), "s", told.cycles as usize);
    std::process::exit(i32::from(!figures.finish()));
}
