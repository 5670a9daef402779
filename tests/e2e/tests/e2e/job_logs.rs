//! What pods write, through the real binaries: as it comes, after the pod is gone, and what is said where there is nothing.

use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use pumice_testkit::{Platform, Setup, binary, eventually};

fn logs(platform: &Platform, words: &[&str]) -> String {
    platform.jobctl([&["logs"][..], words].concat()).ok()
}

#[test]
fn progress_without_the_end_of_a_line_is_shown_as_it_is_written() {
    let platform = Platform::start(Setup::default());
    // It goes on only when it is told: what is read before that was not held back.
    let go = platform.file("go", "");
    std::fs::remove_file(&go).unwrap();
    let script = format!(r"printf '\r 10%%'; until [ -e {} ]; do sleep 0.05; done; printf '\r100%%\n'", go.display());
    let mut command = platform.command(&binary("jobctl"));
    command.args(["run", "--name", "bar", "--", "sh", "-c", &script]).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 5];
    stdout.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"\r 10%");
    std::fs::write(&go, "").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "\r100%\n");
    assert!(child.wait().unwrap().success());
    assert_eq!(logs(&platform, &["bar"]), "\r 10%\r100%\n");
}

#[test]
fn the_log_of_a_cancelled_job_and_of_earlier_attempts_is_there() {
    let platform = Platform::start(Setup::default());
    platform.jobctl(["submit", "--name", "ca1", "--", "sh", "-c", "echo ready; exec sleep 1000"]).ok();
    eventually("it has written", || match logs(&platform, &["ca1"]) {
        said if said == "ready\n" => Ok(()),
        said => Err(said),
    });
    platform.jobctl(["cancel", "ca1"]).ok();
    eventually("its log is retained", || {
        let output = platform.jobctl(["logs", "ca1"]);
        let told =
            output.stderr.starts_with("pod ca1-main-0 is gone since ") && output.stderr.ends_with(" has its log\n");
        if output.stdout == "ready\n" && told { Ok(()) } else { Err(format!("{output:?}")) }
    });
    let follow = platform.jobctl(["logs", "-f", "ca1"]);
    assert_eq!((follow.code, follow.stdout.as_str()), (0, "ready\n"), "{follow:?}");

    let script = r"echo attempt $PUMICE_ATTEMPT; echo warning >&2; [ $PUMICE_ATTEMPT = 3 ]";
    platform.jobctl(["submit", "--name", "again", "--retries", "2", "--", "sh", "-c", script]).ok();
    platform.wait_for_phase("again", "Completed");
    assert_eq!(logs(&platform, &["again", "--stream", "stdout"]), "attempt 3\n");
    assert_eq!(logs(&platform, &["again", "--stream", "stderr"]), "warning\n");
    for (words, said) in [
        (&["again", "--previous", "--stream", "stdout"][..], "attempt 2\n"),
        (&["again", "--attempt", "1", "--stream", "stdout"], "attempt 1\n"),
        (&["again", "--attempt", "3", "--stream", "stdout"], "attempt 3\n"),
    ] {
        assert_eq!(logs(&platform, words), said, "{words:?}");
    }
    let none = platform.jobctl(["logs", "again", "--attempt", "9"]);
    assert!(none.stderr.starts_with("there is no log of attempt 9 of job again"), "{none:?}");

    // Who takes the name of a job does not get its logs.
    platform.jobctl(["delete", "ca1"]).ok();
    platform.jobctl(["submit", "--name", "ca1", "--cpu", "1000", "--", "true"]);
    let other = platform.jobctl(["logs", "ca1"]);
    assert!(!other.stdout.contains("ready"), "{other:?}");
}

#[test]
fn long_lines_come_whole_and_are_not_cut() {
    let platform = Platform::start(Setup::default());
    let script = "import sys, threading\n\
        def warn():\n  for i in range(200): sys.stderr.write('warning\\n'); sys.stderr.flush()\n\
        thread = threading.Thread(target=warn); thread.start()\n\
        sys.stdout.write('x' * 3_000_000 + '\\n'); sys.stdout.flush(); thread.join()\n";
    let path = platform.file("long.py", script);
    let run = platform.jobctl(["run", "--name", "long", "--", "python3", &path.display().to_string()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let lengths = |text: &str| text.lines().map(str::len).filter(|length| *length > 1000).collect::<Vec<_>>();
    assert_eq!(lengths(&run.stdout), [3_000_000]);
    assert_eq!(lengths(&logs(&platform, &["long", "--prefix", "true"])), [3_000_009], "and with a prefix");
}

#[test]
fn why_a_job_ended_is_said_where_it_is_asked() {
    let platform = Platform::start(Setup::default());
    platform.jobctl(["submit", "--name", "dd1", "--", "false"]).ok();
    let because = "waited for job dd1 to succeed, which is Failed";
    let run = platform.jobctl(["run", "--name", "dd2", "--after", "ok:dd1", "--", "true"]);
    assert!(run.stderr.contains(&format!("job dd2: {because}")), "{run:?}");
    assert!(platform.jobctl(["get", "dd2"]).ok().contains(because));
    assert_eq!(platform.jobctl(["why", "dd2"]).ok(), format!("the job failed: {because}\n"));
    let log = platform.jobctl(["logs", "dd2"]);
    assert_eq!(log.stderr, format!("job dd2 failed before a pod of it ran: {because}\nnext:  jobctl get dd2\n"));

    let hungry = "x = []\nwhile True: x.append(bytearray(1 << 20))\n";
    let path = platform.file("hungry.py", hungry).display().to_string();
    let began = Instant::now();
    let run = platform.jobctl(["run", "--name", "oom", "--memory", "64Mi", "--", "python3", &path]);
    assert!(began.elapsed() < Duration::from_secs(120));
    assert_eq!(run.code, 137, "{run:?}");
    let sentence = "pod oom-main-0 was killed for memory: it had 64 MiB";
    assert!(run.stderr.contains(sentence), "{run:?}");
    assert!(platform.jobctl(["get", "oom"]).ok().contains(sentence));
    assert!(platform.jobctl(["why", "oom"]).ok().contains(sentence));
}
