//! Results of jobs of many records through `jobctl`, on real processes: recorded once, named when missing, only the rest run again.
//!
//! `PUMICE_KILLED_PODS` says of how many pods a twentieth is killed (`make crash` takes 5,000).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_jobs::bundle::{Folder, Location, Slice, Status, StoreAddress, history};
use pumice_jobs::shards::Plan;
use pumice_testkit::{Platform, binary};
use serde_json::Value;

/// The value of a variable of a job's pods.
fn variable(job: &Value, name: &str) -> String {
    let container = &job["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap();
    let found = variables.iter().find(|variable| variable["name"] == name).unwrap();
    found["value"].as_str().unwrap().to_owned()
}

/// Where a job's results are.
fn location(job: &Value) -> (PathBuf, Location) {
    let location: Location = variable(job, "PUMICE_BUNDLE").parse().unwrap();
    let StoreAddress::Folder(folder) = location.address.clone() else { panic!("{location}") };
    (folder, location)
}

/// By record, how often its log says that it succeeded.
fn successes(job: &Value) -> BTreeMap<u64, usize> {
    let (folder, location) = location(job);
    let (store, plan) =
        (Arc::new(Folder::open(&folder).unwrap()), Plan::parse(&variable(job, "PUMICE_SHARDS")).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut counts = BTreeMap::new();
    for shard in 0..plan.pods() {
        let records = plan.slice(shard).unwrap();
        let records = records.start.into()..records.end.into();
        let slice = Slice { run: location.run.clone().unwrap(), shard, records };
        for outcome in runtime.block_on(history(&*store, &slice)).unwrap() {
            *counts.entry(outcome.record).or_default() += usize::from(outcome.status == Status::Succeeded);
        }
    }
    counts
}

/// How often each line stands in a file.
fn counted(path: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// A table with one space between its columns, and the name of the machine's node replaced.
fn normal(platform: &Platform, text: &str) -> String {
    let node = platform.list("nodes")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.replace(&node, "NODE").lines().map(|text| line(text) + "\n").collect()
}

#[test]
fn what_failed_is_named_and_only_that_runs_again() {
    let platform = Platform::new();
    let script = "echo $1 >> ran; echo $PUMICE_ATTEMPT$(cat $PUMICE_CHECKPOINT/* 2>/dev/null) >> steps.$1; \
        echo kept > $PUMICE_CHECKPOINT/x; test $(($1 % 5)) != 3 || test $PUMICE_ATTEMPT -gt 1 || exit 7; \
        rm $PUMICE_CHECKPOINT/x; echo \"$1, squared: $(($1 * $1))\" > $PUMICE_RESULT";
    let run = ["run", "--no-logs", "--name", "squares", "--array", "0-19", "--", "sh", "-c", script, "sh", "{key}"];
    let output = platform.jobctl(run);
    assert_eq!(output.code, 7, "{output:?}");
    let sentence = "job squares: 16 of 20 records succeeded; failed: 3, 8, 13, 18\n";
    assert!(output.stderr.contains(sentence), "{output:?}");
    assert!(platform.jobctl(["get", "squares"]).ok().contains(sentence));
    let waited = platform.jobctl(["wait", "squares"]);
    assert!(waited.code == 9 && waited.stderr.contains(sentence), "{waited:?}");
    let table = platform.jobctl(["results", "squares"]);
    assert_eq!(table.stderr, "16 of 20 records succeeded; failed: 3, 8, 13, 18\n");
    insta::assert_snapshot!("table", normal(&platform, &table.ok()));
    assert_eq!(platform.jobctl(["results", "squares", "--failed", "-o", "keys"]).ok(), "3\n8\n13\n18\n");
    assert_eq!(platform.jobctl(["results", "squares", "--missing", "-o", "keys"]).ok(), "");

    assert_eq!(platform.jobctl(["retry", "squares"]).ok(), "job/squares-r2\n");
    platform.jobctl(["wait", "squares-r2", "--timeout", "120s"]).ok();
    let wanted = (0..20).map(|n| (n.to_string(), if n % 5 == 3 { 2 } else { 1 })).collect();
    assert_eq!(counted(&platform.scratch().join("ran")), wanted, "only what failed ran again");
    let job = platform.get("jobs.batch.volcano.sh", "squares-r2").unwrap();
    assert_eq!(successes(&job), (0..20).map(|n| (n, 1)).collect(), "each is recorded once");
    let steps = std::fs::read_to_string(platform.scratch().join("steps.8")).unwrap();
    assert_eq!(steps, "1\n2kept\n", "the second attempt finds the checkpoint of the first");
    let (folder, location) = location(&job);
    let checkpoints = folder.join(format!("runs/{}/checkpoints", location.run.unwrap()));
    assert_eq!(std::fs::read_dir(checkpoints).unwrap().count(), 0, "empty ones are removed");

    let csv = platform.jobctl(["results", "squares-r2", "-o", "csv"]).ok();
    insta::assert_snapshot!("csv", normal(&platform, &csv));
    assert_eq!(platform.jobctl(["results", "squares", "-o", "csv"]).ok(), csv, "both jobs have the run");
    let json = platform.jobctl(["results", "squares-r2", "-o", "json"]).ok();
    insta::assert_snapshot!("json", normal(&platform, json.lines().nth(8).unwrap()));
    assert!(json.lines().all(|line| serde_json::from_str::<Value>(line).unwrap()["status"] == "succeeded"));
    let saved = platform.jobctl(["results", "squares-r2", "--save", "saved"]);
    assert!(saved.stderr.contains("20 results saved in saved\n"), "{saved:?}");
    assert_eq!(std::fs::read_to_string(platform.scratch().join("saved/13")).unwrap(), "13, squared: 169\n");
}

#[test]
fn enough_successes_and_what_is_missing_even_so() {
    let platform = Platform::new();
    // The others wait until the failure is on disk, so that what is missing is the one that hangs.
    let script = "case $1 in 2024-01-03) exit 7;; 2024-01-09) exec sleep 1000;; \
        *) until ls bundles/runs/*/0/2.0; do sleep 0.05; done;; esac";
    let days = ["run", "--no-logs", "--name", "days", "--days", "2024-01-01:2024-01-12", "--min-success", "80%"];
    let command = ["--bundle-dir", "bundles", "--", "sh", "-c", script, "sh", "{key}"];
    let output = platform.jobctl(days.iter().chain(&command));
    assert_eq!(output.code, 0, "{output:?}");
    let sentence = "job days: 8 of 10 records succeeded; failed: 2024-01-03; missing: 2024-01-09\n";
    assert!(output.stderr.contains(sentence), "{output:?}");
    assert!(platform.jobctl(["get", "days"]).ok().contains(sentence));
    assert!(platform.jobctl(["wait", "days"]).stderr.contains(sentence));
    let keys = |flag: &str| platform.jobctl(["results", "days", flag, "-o", "keys"]).ok();
    assert_eq!((keys("--missing"), keys("--failed")), ("2024-01-09\n".to_owned(), "2024-01-03\n".to_owned()));
}

#[test]
fn jobs_without_results_say_so_and_a_key_gives_one_job_whatever_its_run() {
    let platform = Platform::new();
    platform.jobctl(["run", "--name", "plain", "--", "true"]).ok();
    let output = platform.jobctl(["results", "plain"]);
    assert_eq!(output.code, 3, "{output:?}");
    insta::assert_snapshot!("without_results", output.stderr);
    let submit = || platform.jobctl(["submit", "--idempotency-key", "nightly", "--array", "0-1", "--", "true"]).ok();
    let name = submit();
    assert_eq!(submit(), name, "the run is no part of what is asked for");
    platform.jobctl(["wait", name.trim(), "--timeout", "60s"]).ok();
    let table = platform.jobctl(["results", name.trim(), "-o", "keys"]).ok();
    assert_eq!(table, "0\n1\n");
}

#[test]
fn a_record_that_ran_out_of_memory_runs_again_with_more() {
    let platform = Platform::new();
    let script =
        "test $1 = 0 || dd if=/dev/zero of=/dev/null bs=300M count=1 || exit $?; echo $PUMICE_ATTEMPT > $PUMICE_RESULT";
    let flags = ["run", "--name", "hungry", "--array", "0-1", "--memory", "100Mi", "--on-oom", "factor=4,max=1Gi"];
    let output = platform.jobctl(flags.iter().chain(&["--", "sh", "-c", script, "sh", "{key}"]));
    assert_eq!(output.code, 0, "{output:?}");
    let csv = platform.jobctl(["results", "hungry", "-o", "csv"]).ok();
    let told: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()).collect();
    let told: Vec<_> = told.iter().map(|cells| [cells[0], cells[1], cells[2], cells[8]]).collect();
    assert_eq!(told, [["0", "succeeded", "1", "1"], ["1", "succeeded", "2", "2"]]);
}

/// The processes that run records of this platform, by what their command line names.
fn recorders(mark: &str) -> Vec<Pid> {
    let program = binary("jobctl");
    let program = program.to_str().unwrap();
    let runs_records = |pid: i32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        words.first().is_some_and(|word| word == program)
            && words.get(2).is_some_and(|word| word == "exec")
            && words.iter().any(|word| word == mark)
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| runs_records(*pid)).map(Pid::from_raw).collect()
}

#[test]
fn every_row_is_recorded_once_though_pods_are_killed() {
    let pods: usize = std::env::var_os("PUMICE_KILLED_PODS")
        .map_or(60, |text| text.to_str().and_then(|text| text.parse().ok()).expect("PUMICE_KILLED_PODS is a number"));
    let platform = Platform::new();
    let rows: String = (0..pods).map(|row| format!("row-{row},{}\n", row % 7)).collect();
    platform.file("rows.csv", format!("name,seed\n{rows}"));
    let mark = platform.scratch().to_str().unwrap().to_owned();
    let script =
        "sleep 0.$PUMICE_PARAM_SEED; echo $PUMICE_SHARD_KEY >> ran; echo $PUMICE_SHARD_KEY > $PUMICE_RESULT; sleep 0.1";
    let flags = ["--params", "rows.csv", "--key", "name", "--retries", "10", "--max-parallel", "16"];
    let submit = ["submit", "--name", "rows"].iter().chain(&flags).copied();
    platform.jobctl(submit.chain(["--", "sh", "-c", script, mark.as_str()])).ok();

    let (wanted, ended) = (pods.div_ceil(20), AtomicBool::new(false));
    let start = Instant::now();
    let (mut killed, mut seed) = (0, 0x5eed_u64);
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let output = platform.jobctl(["wait", "rows", "--timeout", "7200s"]);
            ended.store(true, Ordering::SeqCst);
            output
        });
        while killed < wanted && !ended.load(Ordering::SeqCst) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let running = recorders(&mark);
            if let Some(pid) = running.get((seed >> 33) as usize % running.len().max(1)) {
                killed += usize::from(kill(*pid, Signal::SIGKILL).is_ok());
            }
            std::thread::sleep(Duration::from_millis(20 + (seed >> 40) % 100));
        }
        waiting.join().unwrap()
    });
    let job = platform.get("jobs.batch.volcano.sh", "rows").unwrap();
    assert_eq!(waited.code, 0, "{waited:?}: {}", job["status"]);
    assert!(killed >= wanted, "{killed} of {wanted} were killed before the job ended");

    assert_eq!(successes(&job), (0..pods as u64).map(|row| (row, 1)).collect(), "each row succeeded once");
    let csv = platform.jobctl(["results", "rows", "-o", "csv"]).ok();
    let told: Vec<_> = csv.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()).collect();
    assert_eq!(told.len(), pods);
    for (row, cells) in told.iter().enumerate() {
        let key = format!("row-{row}");
        assert_eq!((cells[0], cells[1], cells[8]), (key.as_str(), "succeeded", key.as_str()), "{cells:?}");
    }
    let runs: usize = counted(&platform.scratch().join("ran")).values().sum();
    println!(
        "{pods} pods, {killed} killed, {runs} runs of {pods} rows, each recorded once, in {:.0?}",
        start.elapsed()
    );
}
