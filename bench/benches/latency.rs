//! How long a user waits for `jobctl run -- true`, beside what the disk takes for one sync in the same run.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pumice_bench::figures::Figures;
use pumice_bench::machine::sync_times;
use pumice_testkit::{Platform, binary};

const RUNS: usize = 100;

#[allow(clippy::disallowed_methods)] // a benchmark's own clock
fn main() {
    // `cargo test --benches` runs this too, to see that it works: once is enough then.
    let runs = if std::env::args().any(|arg| arg == "--bench") { RUNS } else { 1 };
    let platform = Platform::new();
    let mut started = Vec::new();
    let mut completed = Vec::new();
    for run in 0..runs + 1 {
        let begin = Instant::now();
        let submitted = SystemTime::now();
        let output = platform.jobctl(["run", "--name", &format!("bench-{run}"), "--", "date", "+%s%N"]).ok();
        let end = begin.elapsed();
        let nanos: u64 = output.trim().parse().expect("date prints nanoseconds");
        let process = UNIX_EPOCH + Duration::from_nanos(nanos);
        if run > 0 {
            // The first one warms up page caches.
            started.push(process.duration_since(submitted).expect("a process starts after its submission"));
            completed.push(end);
        }
    }
    let syncs = sync_times(platform.scratch(), runs);
    let idle = client_times(runs);

    let mut figures = Figures::open("latency");
    figures.times("submit_to_process_started", &started);
    figures.times("submit_to_job_completed", &completed);
    figures.times("baseline_sync_4k", &syncs);
    figures.times("baseline_jobctl_version", &idle);
    figures.finish();
}

/// How long the client takes to start and end without doing anything.
#[allow(clippy::disallowed_methods)]
fn client_times(runs: usize) -> Vec<Duration> {
    (0..runs)
        .map(|_| {
            let begin = Instant::now();
            let output = std::process::Command::new(binary("jobctl")).arg("--version").output().expect("run jobctl");
            assert!(output.status.success());
            begin.elapsed()
        })
        .collect()
}
