//! A wait for a job that does not go well: the platform dies, the user presses Ctrl-C, the job can't begin.

use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_testkit::{Platform, Process, binary, eventually};

/// `jobctl run` of a program that ends well once there is a file `go`.
fn run_until_go(platform: &Platform, name: &str) -> Process {
    let scratch = platform.scratch();
    let script = format!("until [ -e {}/go ]; do sleep 0.05; done; echo gone", scratch.display());
    let mut command = Command::new(binary("jobctl"));
    command.args(["run", "--name", name, "--", "sh", "-c", &script]);
    // Pods share the directory that it is started in.
    command.current_dir(scratch).env("PUMICE_DATA_DIR", platform.data_dir()).env("HOME", scratch);
    Process::start(name, &mut command, scratch)
}

fn says(process: &Process, words: &str) {
    eventually(&format!("{words:?} of {}", process.name()), || {
        let log = process.log();
        if log.contains(words) { Ok(()) } else { Err(log) }
    });
}

fn code(process: &mut Process) -> i32 {
    eventually("its end", || process.ended().ok_or_else(|| process.log()))
}

#[test]
fn a_wait_outlives_a_crash_of_the_platform() {
    let mut platform = Platform::new();
    let mut run = run_until_go(&platform, "patient");
    platform.wait_for_phase("patient", "Running");
    platform.crash();
    says(&run, "no answer, trying again");
    platform.up();
    says(&run, "the server answers again");
    platform.file("go", "");
    assert_eq!(code(&mut run), 0, "{}", run.tail());
    says(&run, "gone");
}

#[test]
fn ctrl_c_once_or_twice_ends_the_wait_and_not_the_job() {
    let platform = Platform::new();
    for (name, times) in [("once", 1), ("twice", 2)] {
        let mut run = run_until_go(&platform, name);
        platform.wait_for_phase(name, "Running");
        for _ in 0..times {
            // The second one may find it gone.
            let _ = kill(Pid::from_raw(run.pid()), Signal::SIGINT);
        }
        assert_eq!(code(&mut run), 130, "{}", run.tail());
        says(&run, &format!("job {name} goes on; jobctl wait {name} waits for it again"));
        says(&run, &format!("next:  jobctl cancel {name}, if it shall end"));
    }
    platform.file("go", "");
    platform.jobctl(["wait", "once", "twice", "--timeout", "60s"]).ok();
}

#[test]
fn what_can_never_begin_says_so_and_can_be_cancelled() {
    let platform = Platform::new();
    for (name, flag, amount, resource) in [("wide", "--cpu", "1000", "cpu"), ("large", "--memory", "900Ti", "memory")] {
        platform.jobctl(["submit", "--name", name, flag, amount, "--", "true"]).ok();
        let mut command = Command::new(binary("jobctl"));
        command.args(["wait", name]).env("PUMICE_DATA_DIR", platform.data_dir()).env("HOME", platform.scratch());
        let mut wait = Process::start(name, &mut command, platform.scratch());
        says(&wait, &format!("{name}: waits: does not fit the cluster even when it is empty"));
        says(&wait, &format!("insufficient {resource}"));
        platform.jobctl(["cancel", name]).ok();
        assert_eq!(code(&mut wait), 7, "{}", wait.tail());
    }
    // The time counts from before the program begins, and only a program that has begun has a code to end with.
    let late = platform.jobctl(["run", "--timeout", "5s", "--", "sleep", "60"]);
    assert_eq!(late.code, 143, "{late:?}");
    assert!(late.stderr.contains("was ended: it ran longer than it may (--timeout)"), "{late:?}");
}
