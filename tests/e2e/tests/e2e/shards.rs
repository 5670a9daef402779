//! Jobs of many records through `jobctl`, on real processes: days, arrays with failures, scripts, one job for one key.

use pumice_testkit::Platform;
use serde_json::Value;

/// The sorted lines of a job's output.
fn lines(text: &str) -> Vec<String> {
    // Lines of many pods begin with the pod's name.
    let mut lines: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn each_weekday_of_a_month_runs_once() {
    let platform = Platform::new();
    let output = platform.jobctl([
        "run",
        "--name",
        "days",
        "--days",
        "2024-02-01:2024-02-29",
        "--days-per-task",
        "4",
        "--max-parallel",
        "3",
        "--",
        "sh",
        "-c",
        "echo $PUMICE_DAY > $PUMICE_SHARD_KEY.done; echo $0",
        "{day}",
    ]);
    assert_eq!(output.code, 0, "{output:?}");
    let written = std::fs::read_dir(platform.scratch()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut days: Vec<_> = written.filter_map(|name| name.to_str()?.strip_suffix(".done").map(str::to_owned)).collect();
    days.sort();
    assert_eq!(days.len(), 21, "February 2024 has 21 weekdays: {days:?}");
    assert_eq!((days[0].as_str(), days[20].as_str()), ("2024-02-01", "2024-02-29"));
    assert_eq!(lines(&output.stdout), days, "each was told of once");
    let job = platform.get("jobs.batch.volcano.sh", "days").unwrap();
    assert_eq!((&job["status"]["succeeded"], &job["spec"]["minAvailable"]), (&6.into(), &1.into()), "{job}");
}

#[test]
fn a_failing_index_fails_the_array_unless_enough_succeed() {
    let platform = Platform::new();
    let array = |name: &str, more: &[&str]| {
        let front = ["run", "--name", name, "--array", "0-4"];
        let command = ["--", "sh", "-c", "test $0 -ne 3 || exit 7", "{key}"];
        platform.jobctl(front.iter().chain(more).chain(&command))
    };
    let strict = array("strict", &[]);
    assert_eq!(strict.code, 7, "{strict:?}");
    let job = platform.wait_for_phase("strict", "Failed");
    assert_eq!(
        (&job["status"]["succeeded"], &job["status"]["failed"]),
        (&4.into(), &1.into()),
        "the others ran on: {job}"
    );
    assert_eq!(platform.jobctl(["wait", "strict"]).code, 9, "partly succeeded");
    let enough = array("enough", &["--min-success", "80%"]);
    assert_eq!(enough.code, 0, "{enough:?}");
}

#[test]
fn a_script_written_for_slurm_runs_as_an_array() {
    let platform = Platform::new();
    let script = "#!/bin/sh\n#SBATCH --job-name=Back_Test\n#SBATCH --array=0-2 --mem=64 -o out.txt\n\
        test \"$SLURM_JOB_NODELIST\" = \"$(hostname)\" && cd \"$SLURM_SUBMIT_DIR\" && test -f backtest.sh || exit 9\n\
        echo \"$SLURM_ARRAY_TASK_ID:$1:$((SLURM_JOB_ID - SLURM_ARRAY_JOB_ID)):$SLURM_ARRAY_TASK_COUNT:$SLURM_JOB_NAME\"\n\
        : \"$SLURM_JOB_QOS\"\n";
    platform.file("backtest.sh", script);
    let output = platform.jobctl(["run", "backtest.sh", "--alpha"]);
    assert_eq!(output.code, 0, "{output:?}");
    let of_each = ["0:--alpha:0:3:Back_Test", "1:--alpha:1:3:Back_Test", "2:--alpha:2:3:Back_Test"];
    assert_eq!(lines(&output.stdout), of_each);
    assert!(output.stderr.contains("warning: backtest.sh:3: #SBATCH -o is not used"), "{output:?}");
    assert!(output.stderr.contains("warning: backtest.sh:6: $SLURM_JOB_QOS is not set here"), "{output:?}");
    let job = platform.list("jobs.batch.volcano.sh").remove(0);
    let name = job["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("back-test-"), "{name}");
    assert_eq!(job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"], "64Mi");
    let copy = platform.list("configmaps").into_iter().find(|map| map["data"]["backtest.sh"] == script).unwrap();
    assert_eq!(copy["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"], "it goes with its job");
}

#[test]
fn of_two_that_submit_the_same_at_once_there_is_one_job() {
    let platform = Platform::new();
    platform.file("a.sh", "#!/bin/sh\necho once\n");
    let submit = |text: &str| platform.jobctl(["submit", "--idempotency-key", "nightly", "--env", text, "a.sh"]);
    let names: Vec<String> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..6).map(|_| scope.spawn(|| submit("A=1").ok())).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    let jobs: Vec<Value> = platform.list("jobs.batch.volcano.sh");
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    let name = names[0].trim().trim_start_matches("job/");
    platform.jobctl(["wait", name, "--timeout", "60s"]).ok();
    assert_eq!(submit("A=1").ok(), names[0], "also after its end");
    let other = submit("A=2");
    assert_eq!(other.code, 6, "{other:?}");
    assert!(other.stderr.contains(name) && other.stderr.contains("next:  jobctl get"), "{other:?}");
    assert!(platform.jobctl(["logs", name]).ok().contains("once"));
}

#[test]
fn flaky_runs_of_an_array_are_tried_again_a_few_at_a_time_before_the_job_after_it() {
    let platform = Platform::new();
    let script = "echo + >> running; echo $PUMICE_ATTEMPT >> $1.tries; echo - >> running; \
        test $1 != 2 || test $PUMICE_ATTEMPT = 2";
    let first = ["submit", "--name", "first", "--array", "0-5%2", "--retries", "1", "--", "sh", "-c", script];
    platform.jobctl(first.iter().chain(&["sh", "{key}"])).ok();
    let then = ["run", "--name", "then", "--after", "ok:first", "--", "cat", "2.tries", "5.tries"];
    let then = platform.jobctl(then);
    assert_eq!((then.code, lines(&then.stdout)), (0, vec!["1".to_owned(), "1".to_owned(), "2".to_owned()]), "{then:?}");
    let job = platform.get("jobs.batch.volcano.sh", "first").unwrap();
    assert_eq!((&job["status"]["state"]["phase"], &job["status"]["succeeded"]), (&"Completed".into(), &6.into()));
    let running = std::fs::read_to_string(platform.scratch().join("running")).unwrap();
    let counts = running.lines().scan(0, |now, sign| {
        *now += if sign == "+" { 1 } else { -1 };
        Some(*now)
    });
    assert!(counts.max().unwrap() <= 2, "{running}");
}

#[test]
fn each_row_of_a_table_runs_with_its_parameters() {
    let platform = Platform::new();
    let rows: String = (0..40).map(|row| format!("r{row},\"a, {row}\"\n")).collect();
    platform.file("grid.csv", format!("name,text\n{rows}"));
    let table = ["run", "--params", "grid.csv", "--key", "name", "--rows-per-task", "7", "--bundle-dir", "bundles"];
    let command = ["--", "sh", "-c", "echo \"$PUMICE_PARAM_TEXT\" > $PUMICE_SHARD_KEY.row; echo $0", "{name}"];
    let output = platform.jobctl(table.iter().chain(&command));
    assert_eq!(output.code, 0, "{output:?}");
    let names: Vec<_> = (0..40).map(|row| format!("r{row}")).collect();
    for (row, name) in names.iter().enumerate() {
        let written = std::fs::read_to_string(platform.scratch().join(format!("{name}.row"))).unwrap();
        assert_eq!(written, format!("a, {row}\n"));
    }
    let (mut told, mut names) = (lines(&output.stdout), names);
    told.sort();
    names.sort();
    assert_eq!(told, names, "each once");
    let job = platform.list("jobs.batch.volcano.sh").remove(0);
    assert_eq!(job["status"]["succeeded"], 6, "six pods for 40 rows: {}", job["status"]);

    platform.file("bad.csv", "name,text\nr0,a\nr1\n");
    let bad = platform.jobctl(["run", "--params", "bad.csv", "--bundle-dir", "bundles", "--", "true"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    assert!(bad.stderr.contains("bad.csv:3: fields in the row: 1, columns: 2"), "{bad:?}");
}
