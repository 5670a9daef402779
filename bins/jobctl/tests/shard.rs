//! `jobctl shard` as a pod runs it: its slice from two variables, a command for each record, signals, exit codes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use pumice_jobs::shards::{Array, Calendar, Days, Plan, Shards};

fn array(text: &str, chunk: u32) -> String {
    Plan::new(Shards::Numbers(text.parse::<Array>().unwrap().numbers), chunk).unwrap().rule().unwrap()
}

fn days(range: &str, chunk: u32) -> String {
    let (from, to) = Days::parse_range(range).unwrap();
    let days = Days::new(from, to, Calendar::named("weekdays").unwrap(), None).unwrap();
    Plan::new(Shards::Days(days), chunk).unwrap().rule().unwrap()
}

fn command(rule: &str, index: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobctl"));
    command.arg("shard").args(args).env_clear().env("PATH", "/usr/bin:/bin");
    command.env("PUMICE_SHARDS", rule).env("VC_TASK_INDEX", index);
    command
}

/// What a call of `jobctl shard` came to; the code is -1 where a signal ended it.
struct Outcome {
    stdout: String,
    stderr: String,
    code: i32,
}

fn run(rule: &str, index: &str, args: &[&str]) -> Outcome {
    let output = command(rule, index, args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code().unwrap_or(-1) }
}

/// The code of a shell for how a program ended.
fn shell_code(status: std::process::ExitStatus) -> i32 {
    status.code().or(status.signal().map(|signal| 128 + signal)).unwrap()
}

fn sh<'a>(script: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    ["exec", "--", "sh", "-c", script].into_iter().chain(more.iter().copied()).collect()
}

#[test]
fn each_record_runs_once_in_order_with_its_variables() {
    let echo = [
        "exec",
        "--",
        "sh",
        "-c",
        "echo $0 $PUMICE_SHARD_KEY $PUMICE_SHARD_INDEX/$PUMICE_SHARD_COUNT $SLURM_ARRAY_TASK_ID",
        "{key}",
    ];
    let all: String = (0..4).map(|pod| run(&array("1,4,7-9,20-22", 2), &pod.to_string(), &echo).stdout).collect();
    assert_eq!(
        all,
        "1 1 0/8 1\n4 4 1/8 4\n7 7 2/8 7\n8 8 3/8 8\n9 9 4/8 9\n20 20 5/8 20\n21 21 6/8 21\n22 22 7/8 22\n"
    );
    let day = ["exec", "--", "sh", "-c", "echo $0 $PUMICE_DAY", "{day}"];
    assert_eq!(
        run(&days("2024-01-04:2024-01-09", 3), "0", &day).stdout,
        "2024-01-04 2024-01-04\n2024-01-05 2024-01-05\n2024-01-08 2024-01-08\n"
    );
}

#[test]
fn a_run_of_an_array_of_slurm_has_a_number_of_its_own() {
    let words = sh("echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID $SLURM_JOBID", &[]);
    let mut command = command(&array("5-9:2", 3), "0", &words);
    let output = command.env("SLURM_ARRAY_JOB_ID", "100000007").env("SLURM_JOB_ID", "100000007").output().unwrap();
    let numbers = "100000007 5 100000007 100000007\n100000007 7 100000008 100000008\n100000007 9 100000009 100000009\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), numbers);
}

#[test]
fn a_record_that_fails_stops_no_other_and_the_first_code_counts() {
    let Outcome { stdout, stderr, code } =
        run(&array("0-4", 5), "0", &sh("echo $0; test $0 -ne 1 || exit 7; test $0 -ne 3 || kill -KILL $$", &["{key}"]));
    assert_eq!((stdout.as_str(), code), ("0\n1\n2\n3\n4\n", 7));
    assert_eq!(stderr, "2 of 5 records failed: 1 (exit code 7), 3 (exit code 137)\n");
}

#[test]
fn a_program_that_is_not_there_is_said_for_one_record_and_for_many() {
    for chunk in [1, 2] {
        let Outcome { stderr, code, .. } = run(&array("0-1", chunk), "0", &["exec", "--", "/no/such/program"]);
        assert_eq!(code, 127, "{stderr}");
        assert!(stderr.contains("cannot start /no/such/program"), "{stderr}");
    }
    assert_eq!(run(&array("0-1", 2), "0", &["exec", "--", "/etc"]).code, 126);
}

#[test]
fn a_pod_of_one_record_becomes_its_command() {
    let mut child = command(&array("0-1", 1), "1", &sh("echo $$", &[])).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), child.id().to_string());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_signal_reaches_the_command_and_ends_the_slice() {
    for (script, wanted) in [
        ("trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done", ("saved", 143)),
        ("trap 'echo saved; exit 3' TERM; echo up; while :; do sleep 0.05; done", ("saved", 3)),
        ("echo up; exec sleep 1000", ("", 143)),
    ] {
        let mut child = command(&array("0-9", 10), "0", &sh(script, &[]))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        let rest: Vec<_> = lines.map(Result::unwrap).collect();
        let output = child.wait_with_output().unwrap();
        assert_eq!((rest.concat().as_str(), shell_code(output.status)), wanted, "{script}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("ended by SIGTERM; 9 records of this pod did not begin"), "{told}");
    }
}

/// Counts its signals, and takes a while after the first one to say how many there were.
const SAVES: &str = "n=0; trap 'n=$((n+1))' TERM; echo up; while [ $n = 0 ]; do sleep 0.02; done
for step in 1 2 3 4 5 6; do sleep 0.03; done; echo saved after $n";

#[test]
fn a_signal_to_the_whole_group_reaches_each_process_once_and_gives_it_its_time() {
    for script in
        [SAVES.to_owned(), "sh -c \"$SAVES\"; echo not reached".to_owned(), "(sh -c \"$SAVES\"; true); true".to_owned()]
    {
        // As the first process of a pod: in a group of its own, which is signalled as one.
        let mut child = command(&array("0-9", 10), "0", &sh(&script, &[]))
            .env("SAVES", SAVES)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        killpg(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
        let rest: Vec<_> = lines.map(Result::unwrap).collect();
        assert_eq!((rest.concat().as_str(), shell_code(child.wait().unwrap())), ("saved after 1", 143), "{script}");
    }
}

#[test]
fn a_command_is_in_a_group_of_its_own() {
    let Outcome { stdout, .. } =
        run(&array("0-1", 2), "0", &sh("read -r _ _ _ _ group _ </proc/$$/stat; echo $group; echo $$", &[]));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!((lines[0], lines[2]), (lines[1], lines[3]), "{stdout}");
}

#[test]
fn scripts_ask_for_their_records() {
    let rule = days("2024-01-04:2024-01-09", 3);
    assert_eq!(run(&rule, "0", &["list"]).stdout, "2024-01-04\n2024-01-05\n2024-01-08\n");
    assert_eq!(run(&rule, "1", &["key"]).stdout, "2024-01-09\n");
    assert_eq!(run(&rule, "0", &["key", "2"]).stdout, "2024-01-08\n");
    let stdout = run(&rule, "0", &["env", "1"]).stdout;
    assert!(stdout.contains("export PUMICE_DAY='2024-01-05'\n"), "{stdout}");
    assert!(stdout.contains("export PUMICE_SHARD_INDEX='1'\n"), "{stdout}");
}

#[test]
fn what_is_no_pod_of_a_job_with_shards_is_told_so() {
    let rule = array("0-3", 2);
    let mut table = String::new();
    for (rule, index, args) in [
        (rule.as_str(), "2", &["list"][..]),
        (&rule, "-1", &["list"]),
        (&rule, "", &["list"]),
        ("", "0", &["list"]),
        ("nonsense", "0", &["list"]),
        (&rule, "0", &["key", "2"]),
        (&rule, "0", &["exec", "--", "echo", "{day}"]),
    ] {
        let Outcome { stdout, stderr, code } = run(rule, index, args);
        assert_eq!((stdout.as_str(), code), ("", 2), "{stderr}");
        table.push_str(&format!("{rule:?} {index:?} {args:?}\n{stderr}\n"));
    }
    insta::assert_snapshot!(table);
}
