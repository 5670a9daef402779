//! What flags and scripts make of a job, as `--dry-run` prints it, without a platform.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;
use std::process::Command;

/// What a call of `jobctl` came to, with this machine's paths and made-up digits replaced.
struct Outcome {
    stdout: String,
    stderr: String,
    code: i32,
}

fn jobctl(home: &Path, args: &[&str]) -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_jobctl"))
        .args(args)
        .current_dir(home)
        .env_clear()
        .env("HOME", home)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).unwrap();
        let text: String = text.split_inclusive('\n').map(without_hash).collect();
        let text =
            text.replace(home.to_str().unwrap(), "/home/ann").replace(env!("CARGO_BIN_EXE_jobctl"), "/usr/bin/jobctl");
        let told = |name: &str| format!("name: {name}\n              value: ");
        let host = told("SLURM_SUBMIT_HOST");
        let user = told("SLURM_JOB_USER");
        text.replace(&format!("{host}{}\n", said_by("hostname", &[])), &format!("{host}login1\n"))
            .replace(&format!("{user}{}\n", said_by("id", &["-un"])), &format!("{user}ann\n"))
    };
    Outcome { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code().unwrap() }
}

fn said_by(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The hash is of all that was asked for, with this machine's paths; a run is made up.
fn without_hash(line: &str) -> String {
    if let Some((front, run)) = line.split_once("folder:").and_then(|_| line.rsplit_once('/')) {
        return format!("{front}/{} digits\n", run.trim().len());
    }
    match line.split_once("idempotency-spec: ") {
        Some((front, hash)) => format!("{front}idempotency-spec: {} digits\n", hash.trim().trim_matches('"').len()),
        None => line.to_owned(),
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn flags_and_the_jobs_they_make() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("open.txt"), "2024-01-02\n2024-01-03\n2024-01-08\n").unwrap();
    let mut text = String::new();
    for line in [
        "submit --dry-run --array 0-9 -- echo {key}",
        "submit --dry-run --array 0-99:5%4 --min-success 90% --retries 2 --memory 1Gi --on-oom factor=1.5,max=64Gi -- ./run.sh {index}",
        "submit --dry-run --days 2024-01-01:2024-12-31 --image python:3.13 -- python day.py {day}",
        "submit --dry-run --days 2024-01-01:2024-12-31 --calendar XNYS --days-per-task 20 --max-parallel 3 -- ./run.sh",
        "submit --dry-run --days 2024-01-01:2024-12-31 --calendar all --group month --gang -- ./run.sh",
        "submit --dry-run --days 2024-01-01:2024-01-31 --calendar open.txt -- ./run.sh",
        "submit --dry-run --replicas 10 --max-parallel 3 -- true",
        "submit --dry-run --replicas 10 --gang 4 --min-success 8 --max-retry 3 -- true",
        "submit --dry-run --gpu 2 --cpu 4 --zone eu-1 --queue research --priority high --after ok:a,any:b --after failed:c -- true",
        "submit --dry-run --timeout 1h30m --signal TERM@120 --requeue --label team=a --label pumice.example/x=y -- true",
        "submit --dry-run --volume /data:/data:ro --volume ./out:/out --volume claim:scratch:/scratch --workdir sub -- true",
        "submit --dry-run --idempotency-key nightly --name-stem night -- true",
        "shell --dry-run --cpu 2 --memory 4Gi --queue research -- python",
        "shell --dry-run --name desk --timeout 2h --image python:3.13",
        "notebook --dry-run --gpu 1 --image quay.io/jupyter/base-notebook",
    ] {
        let Outcome { stdout, stderr, code } = jobctl(home.path(), &words(line));
        assert_eq!((code, stderr.as_str()), (0, ""), "{line}");
        text.push_str(&format!("$ jobctl {line}\n{stdout}\n"));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn scripts_and_the_jobs_they_make() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(home.path().join(name), text).unwrap();
    file(
        "train.sh",
        "#!/usr/bin/env bash\n#PUMICE --cpu 2 --memory 4Gi --array 0-3%2\n#PUMICE --env 'GREETING=hello you'\necho $1\n",
    );
    file(
        "slurm.sh",
        "#!/bin/sh\n#SBATCH -J Backtest -c 2 --mem-per-cpu=1G\n#SBATCH -t 10 -p research -o out.txt\necho\n",
    );
    file(
        "array.sh",
        "#!/bin/bash\n#SBATCH --job-name=My_Sweep --array=1-9:2%2\n#SBATCH -n 2 -c 4 --mem=8G --gres=gpu:a100:1 --export=HOME,NIX\n\
         cd $SLURM_SUBMIT_DIR\nsrun ./x $SLURM_ARRAY_TASK_ID $SLURM_JOB_ID $SLURM_JOB_QOS ${SLURM_RESTART_COUNT:-0}\n",
    );
    // Options of Slurm may be on the command line instead.
    file("bare.sh", "#!/bin/sh\necho $SLURM_JOB_ID $SLURM_ARRAY_TASK_ID\n");
    let mut text = String::new();
    for line in [
        "submit --dry-run --idempotency-key k array.sh",
        "submit --dry-run --idempotency-key k --image python:3.13 --mem 4000 --env PYTHONUNBUFFERED=0 --env SLURM_JOB_ID=7 bare.sh",
        "submit --dry-run --idempotency-key k train.sh --epochs 3 -- {key}",
        "submit --dry-run --idempotency-key k --cpu 8 --replicas 2 --env GREETING=bye train.sh",
        "run --dry-run --idempotency-key k slurm.sh",
    ] {
        let Outcome { stdout, stderr, code } = jobctl(home.path(), &words(line));
        assert_eq!(code, 0, "{line}: {stderr}");
        text.push_str(&format!("$ jobctl {line}\n{stderr}{stdout}\n"));
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_dry_run_speaks_json_and_names_what_it_makes_up() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("a.sh"), "#!/bin/sh\necho\n").unwrap();
    let names = [(); 2].map(|()| {
        let Outcome { stdout, code, .. } = jobctl(home.path(), &["submit", "--dry-run", "-o", "json", "a.sh"]);
        assert_eq!(code, 0);
        let list: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        let [job, map] = list["items"].as_array().unwrap().as_slice() else { panic!("{list}") };
        assert_eq!(
            job["spec"]["tasks"][0]["template"]["spec"]["volumes"][1]["configMap"]["name"],
            map["metadata"]["name"]
        );
        map["metadata"]["name"].as_str().unwrap().to_owned()
    });
    assert_ne!(names[0], names[1], "two runs of a script don't share its copy");
}

#[test]
fn wrong_flags_are_named_with_a_next_command() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| std::fs::write(home.path().join(name), text).unwrap();
    file("plain.txt", b"echo\n");
    file("program", b"\x7fELF\xff");
    file("bad.sh", b"#!/bin/sh\n#PUMICE --cpu 2\n#PUMICE --frobnicate\n");
    file("quote.sh", b"#!/bin/sh\n#PUMICE --env 'A\n");
    file("calendar.txt", b"2024-01-02\nsomeday\n");
    file("big.sh", &[b'x'; (512 << 10) + 1]);
    file("zone.sh", b"#!/bin/sh\n#PUMICE --cpu 2\n#PUMICE --zone EU\n");
    file("memory.sh", b"#!/bin/sh\n#PUMICE --memory 4000\n");
    file("variable.sh", b"#!/bin/sh\n\n#PUMICE --env NOT_SET_HERE\n");
    file("array.sh", b"#!/bin/sh\n#SBATCH --array=9-0\n");
    file("dos.sh", b"#!/bin/sh\r\n#SBATCH -c 2\r\n");
    let mut text = String::new();
    for line in [
        "submit --array 9-0 -- true",
        "submit --array 0-9%0 -- true",
        "submit --array 0-9%2 --max-parallel 3 -- true",
        "submit --array 0-9 --days 2024-01-01:2024-01-31 -- true",
        "submit --array 0-9 --replicas 3 -- true",
        "submit --array 0-9 -- echo {day}",
        "submit --days 2024-01-31:2024-01-01 -- true",
        "submit --days today -- true",
        "submit --days 2024-01-06:2024-01-07 -- true",
        "submit --days 2024-01-01:2024-01-31 --calendar Mars -- true",
        "submit --days 2024-01-01:2024-01-31 --calendar calendar.txt -- true",
        "submit --days 2024-01-01:2024-01-31 --group decade -- true",
        "submit --days 2024-01-01:2024-01-31 --days-per-task 0 -- true",
        "submit --group month -- true",
        "submit --min-success 11 --replicas 10 -- true",
        "submit --max-parallel 2 --gang --array 0-9 -- true",
        "submit --gang 3 --replicas 2 -- true",
        "submit --retries 2 --max-retry 2 -- true",
        "submit --on-oom factor=1.5 -- true",
        "submit --signal KILL@9 -- true",
        "submit --after yesterday -- true",
        "submit --label team -- true",
        "submit --label te/am/x=y -- true",
        "submit --volume /data -- true",
        "submit --gpu 0 -- true",
        "submit --zone EU -- true",
        "submit --name x --idempotency-key y -- true",
        "submit true",
        "submit --frobnicate -- true",
        "shell --array 0-3",
        "notebook --replicas 2",
        "submit plain.txt",
        "submit program",
        "submit bad.sh",
        "submit quote.sh",
        "submit big.sh",
        "submit zone.sh",
        "run memory.sh",
        "submit variable.sh",
        "submit array.sh",
        "submit dos.sh",
        "run --memory 4000 -- true",
        "run --memory 100m -- true",
        "run --memory lots -- true",
        "run --memory 1Gi --on-oom max=64 -- true",
        "run --name My_Job -- true",
        "run --name 123 -- true",
        "shell --name a.b",
        "notebook --name last",
        "shard list",
    ] {
        let Outcome { stdout, stderr, code } = jobctl(home.path(), &words(line));
        assert_eq!((code, stdout.as_str()), (2, ""), "{line}: {stderr}");
        let next = stderr.lines().filter(|line| line.starts_with("next:  ")).count();
        assert_eq!(next, 1, "{line}: one next command: {stderr}");
        text.push_str(&format!("$ jobctl {line}\n{stderr}\n"));
    }
    insta::assert_snapshot!(text);
}
