//! `jobctl shard exec` with a place for results, as a pod runs it: what is recorded, what is run again, what is left open.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use futures::TryStreamExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_jobs::bundle::{BundleWriter, Folder, RunId, collect};
use pumice_jobs::results::word;
use pumice_jobs::shards::report::Report;
use tempfile::TempDir;

const JOBCTL: &str = env!("CARGO_BIN_EXE_jobctl");

/// A job over the numbers of an array, all in one pod.
struct Job {
    directory: TempDir,
    rule: String,
    bundle: String,
    records: Range<u64>,
}

impl Job {
    fn new(records: u64) -> Job {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("bundles");
        let writer = BundleWriter::new(Arc::new(Folder::make(&path).unwrap()));
        let root = waited(writer.finish()).unwrap().root;
        let numbers = if records == 1 { "0".to_owned() } else { format!("0-{}", records - 1) };
        let rule = format!("v1 chunk={records} array={numbers}");
        Job { rule, bundle: format!("folder:{}#{root}/run", path.display()), records: 0..records, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A script for each record.
    fn command(&self, attempt: u32, script: &str) -> Command {
        self.in_pod(attempt, JOBCTL, &["shard", "exec", "--", "sh", "-c", script, "{key}"])
    }

    /// A program as the pod's own.
    fn in_pod(&self, attempt: u32, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.directory.path()).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("TMPDIR", self.directory.path()).env("VC_TASK_INDEX", "0");
        command.env("PUMICE_SHARDS", &self.rule).env("PUMICE_BUNDLE", &self.bundle).env("PUMICE_NODE", "n1");
        command.env("PUMICE_ATTEMPT", attempt.to_string());
        command
    }

    /// Runs an attempt: exit code and standard error.
    fn run(&self, attempt: u32, script: &str) -> (i32, String) {
        let output = self.command(attempt, script).output().unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8(output.stderr).unwrap())
    }

    /// What is recorded: key, status, attempt, code and result of each record.
    fn told(&self) -> Vec<String> {
        let place = Arc::new(Folder::open(&self.path("bundles")).unwrap());
        let rows = collect(place, RunId::new("run").unwrap(), [self.records.clone()]);
        let rows: Vec<_> = waited(rows.try_collect()).unwrap();
        let line = |row: pumice_jobs::bundle::Row| {
            let status = word(row.status());
            let Some(outcome) = row.outcome else { return format!("{} {status}", row.record) };
            let report = Report::read(outcome.value);
            assert_eq!(report.node, "n1");
            let code = report.code.unwrap();
            format!("{} {status} {} {code} {}", outcome.key, outcome.attempt, report.text().unwrap_or("-"))
        };
        rows.into_iter().map(line).collect()
    }

    /// Files that `shard exec` left beside the folder of bundles.
    fn litter(&self) -> usize {
        let entries = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        entries.filter(|name| name.to_str().unwrap().starts_with("pumice-")).count()
    }
}

fn waited<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn what_failed_is_run_again_and_nothing_else() {
    let job = Job::new(4);
    let script = "echo $0 >> ran; echo $PUMICE_ATTEMPT$(cat $PUMICE_CHECKPOINT/*) >> steps.$0; echo kept > $PUMICE_CHECKPOINT/x; \
        test $0 != 2 || test $PUMICE_ATTEMPT != 1 || exit 7; test $0 = 3 || echo $(($0 * $0)) > $PUMICE_RESULT; \
        rm $PUMICE_CHECKPOINT/x 2>/dev/null";
    let (code, stderr) = job.run(1, script);
    assert_eq!(code, 7, "{stderr}");
    assert!(stderr.ends_with("1 of 4 records failed: 2 (exit code 7)\n"), "{stderr}");
    assert_eq!(job.told(), ["0 succeeded 1 0 0", "1 succeeded 1 0 1", "2 failed 1 7 -", "3 succeeded 1 0 -"]);
    // Submitted anew, a job's pods begin with attempt 1 again.
    let (code, stderr) = job.run(1, script);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(job.told()[2], "2 succeeded 2 0 4");
    assert_eq!(fs::read_to_string(job.path("steps.2")).unwrap(), "1\n2kept\n", "the checkpoint is kept");
    assert_eq!(fs::read_to_string(job.path("ran")).unwrap(), "0\n1\n2\n3\n2\n");
    assert_eq!(job.run(9, script), (0, "nothing is left to do: all records of this pod are done\n".to_owned()));
    let checkpoints = fs::read_dir(job.path("bundles/runs/run/checkpoints")).unwrap();
    assert_eq!((checkpoints.count(), job.litter()), (0, 0), "what is empty is removed");
}

#[test]
fn results_that_can_not_be_taken_are_failures() {
    let job = Job::new(4);
    let script = "case $0 in 0) truncate -s 65M $PUMICE_RESULT;; 1) mkdir $PUMICE_RESULT;; 2) echo fine > $PUMICE_RESULT;; \
        3) echo why > $PUMICE_RESULT; exit 3;; esac";
    let (code, stderr) = job.run(1, script);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("the result of 0 can't be taken: PUMICE_RESULT: it has more than 63 MiB"), "{stderr}");
    assert!(stderr.contains("the result of 1 can't be taken: PUMICE_RESULT: it is no file"), "{stderr}");
    assert_eq!(job.told(), ["0 failed 1 1 -", "1 failed 1 1 -", "2 succeeded 1 0 fine", "3 failed 1 3 why"]);
}

#[test]
fn what_does_not_start_and_what_is_killed_is_recorded() {
    let job = Job::new(1);
    let absent = job.in_pod(1, JOBCTL, &["shard", "exec", "--", "/no/such/program"]).output().unwrap();
    assert_eq!(absent.status.code(), Some(127));
    assert_eq!(job.told(), ["0 failed 1 127 -"]);
    assert_eq!(job.run(2, "kill -KILL $$").0, 137);
    assert_eq!(job.told(), ["0 failed 2 137 -"]);
}

#[test]
fn who_is_asked_to_end_leaves_the_record_open_unless_there_is_a_result() {
    for (script, code, told) in [
        ("echo up; exec sleep 1000", 143, "1 missing"),
        ("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", 143, "1 missing"),
        ("trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done", 3, "1 missing"),
        (
            "trap 'echo 42 > $PUMICE_RESULT; exit 0' TERM; echo up; while :; do sleep 0.05; done",
            143,
            "1 succeeded 1 0 42",
        ),
    ] {
        let job = Job::new(3);
        let script = format!("test $0 = 1 || exit 0; {script}");
        let mut child = job.command(1, &script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code().or(output.status.signal().map(|signal| 128 + signal)), Some(code), "{script}");
        assert_eq!(job.told(), ["0 succeeded 1 0 -", told, "2 missing"], "{script}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr.contains("1 is left open"), told == "1 missing", "{stderr}");
        assert_eq!(job.litter(), 0);
    }
}

#[test]
fn killed_in_the_middle_it_goes_on_where_it_stopped() {
    let job = Job::new(3);
    let script = "echo $0 >> ran; test $0 != 1 || test $PUMICE_ATTEMPT = 2 || { echo up; exec sleep 1000; }";
    let mut child = job.command(1, script).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let program = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // Nobody is left to end it; in a pod it goes with its first process.
    kill(Pid::from_raw(program.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(job.told(), ["0 succeeded 1 0 -", "1 missing", "2 missing"]);
    assert_eq!(job.run(2, script).0, 0);
    assert_eq!(job.told(), ["0 succeeded 1 0 -", "1 succeeded 2 0 -", "2 succeeded 2 0 -"]);
    assert_eq!(fs::read_to_string(job.path("ran")).unwrap(), "0\n1\n1\n2\n");
}

#[test]
fn a_folder_that_is_gone_is_an_error_and_nothing_counts_as_done() {
    let job = Job::new(2);
    let (code, stderr) = job.run(1, "test $0 = 0 || rm -r bundles");
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("error: cannot write") && stderr.contains("bundles/tmp"), "{stderr}");
    let (code, stderr) = job.run(2, "touch ran");
    assert!(code == 2 && stderr.contains("holds no bundles: is the volume mounted here"), "{code}: {stderr}");
    assert!(!job.path("ran").exists(), "nothing is run whose outcome would be lost");
}

#[test]
fn where_nothing_can_be_written_nothing_counts_as_done() {
    let job = Job::new(1);
    // No file may grow, as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" shard exec -- touch ran";
    let output = job.in_pod(1, "sh", &["-c", script, JOBCTL]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("error: cannot write") && stderr.contains("bundles/tmp"), "{stderr}");
    assert!(job.path("ran").exists());
    assert_eq!(job.told(), ["0 missing"]);
    assert_eq!(job.run(2, "true").0, 0);
    assert_eq!(job.told(), ["0 succeeded 2 0 -"]);
}
