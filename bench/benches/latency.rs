//! How long a user waits for `jobctl run -- true`, beside what the disk takes for one sync in the same run.
//!
//! Writes one line a figure to `bench/results/latest.jsonl`: `{"name","value","unit","n","env"}`.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pumice_testkit::{Platform, binary};
use serde_json::json;

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

    let mut results = Results::open();
    results.add("submit_to_process_started", started);
    results.add("submit_to_job_completed", completed);
    results.add("baseline_sync_4k", syncs);
    results.add("baseline_jobctl_version", idle);
}

/// How long the disk under the data directory takes to make 4 KiB durable.
#[allow(clippy::disallowed_methods)]
fn sync_times(directory: &Path, runs: usize) -> Vec<Duration> {
    let mut file = std::fs::File::create(directory.join("sync")).expect("create a file");
    (0..runs)
        .map(|_| {
            let begin = Instant::now();
            file.write_all(&[0u8; 4096]).expect("write");
            file.sync_data().expect("sync");
            begin.elapsed()
        })
        .collect()
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

struct Results {
    file: std::fs::File,
    env: String,
}

impl Results {
    fn open() -> Results {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        std::fs::create_dir_all(&directory).expect("create bench/results");
        let file = std::fs::File::create(directory.join("latest.jsonl")).expect("create latest.jsonl");
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        Results { file, env: format!("{cores} cores, linux {}, {profile}", kernel.trim()) }
    }

    fn add(&mut self, name: &str, mut times: Vec<Duration>) {
        times.sort_unstable();
        for (quantile, percent) in [("p50", 50), ("p99", 99)] {
            let index = (times.len() * percent).div_ceil(100).saturating_sub(1);
            let value = (times[index].as_secs_f64() * 1e6).round() / 1e3;
            let line = json!({"name": format!("{name}_{quantile}"), "value": value, "unit": "ms", "n": times.len(), "env": self.env});
            println!("{line}");
            writeln!(self.file, "{line}").expect("write a result");
        }
    }
}
