//! The program that attempts are made by: this test binary again, in a container.
//!
//! Invariant: each attempt has a process of its own, and mounts of its own where it may have them, so that none finds what
//! another one left. How it ended is that process's exit code: 0 for success, else the number of the error.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::exit;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, alarm, fork, setpgid};
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::fixture::OTHER_POD;
use crate::table::{Outcome, Row, not_held_yet, rows};

/// The variable that has an [`Order`], and makes this binary the program that follows it.
pub const ORDER: &str = "PUMICE_WAYS_OUT";
/// The variable that makes this binary say by its exit code whether it has what the variable names.
pub const GAINED: &str = "PUMICE_WAYS_OUT_GAINED";
/// The variable that has a secret, and makes this binary another pod's program, which keeps it.
pub const NEIGHBOR: &str = "PUMICE_WAYS_OUT_NEIGHBOR";
/// Where that program listens, in a network of its own.
pub const NEIGHBOR_PORT: u16 = 7000;
/// Arguments that start this binary as the program.
pub const PROBE_ARGS: [&str; 3] = ["--exact", "probe_entry", "--nocapture"];
/// The name in the scratch folder of what was written, where nobody reads the log.
pub const REPORT: &str = "report";
/// What begins a line that tells of an attempt.
const LINE: &str = "attempt: ";
/// Seconds that an attempt may take.
const ATTEMPT_SECONDS: u32 = 10;
/// The exit code for an error that is none of the kernel's.
const OTHER: i32 = 255;

/// What to try, by the rows' names.
#[derive(Serialize, Deserialize)]
pub struct Order {
    pub rows: Vec<String>,
    pub facts: Facts,
    /// Whether it is started beside the pod's program, where nobody reads what it writes to its streams.
    pub is_hook: bool,
}

/// Makes the attempts and ends the process, when it was started for them.
pub fn probe_entry() {
    if let Some(wanted) = std::env::var_os(GAINED) {
        exit(i32::from(!has_gained(&wanted)));
    }
    if let Some(secret) = std::env::var_os(NEIGHBOR) {
        stay(&secret);
    }
    let Some(order) = std::env::var_os(ORDER) else { return };
    let order: Order = serde_json::from_str(&order.to_string_lossy()).expect("an order of the suite");
    let mut report = "\n".to_owned();
    for name in &order.rows {
        let row = rows().chain(not_held_yet()).find(|row| row.name == name).expect("a row of the table");
        let outcome = make(row, &order.facts);
        report.push_str(&format!("{LINE}{name}: {outcome}\n"));
    }
    if order.is_hook {
        let path = order.facts.scratch().join(REPORT);
        fs::write(path.with_extension("part"), report).expect("it is this pod's");
        fs::rename(path.with_extension("part"), path).expect("it is this pod's");
    } else {
        io::stdout().write_all(report.as_bytes()).expect("the log takes it");
    }
    exit(0);
}

/// Keeps a secret in files and listens, until the pod is stopped.
fn stay(secret: &OsStr) -> ! {
    let service = TcpListener::bind((Ipv4Addr::UNSPECIFIED, NEIGHBOR_PORT)).expect("the network is its own");
    for path in ["/dev/shm/secret", "/volume/secret"] {
        fs::write(path, secret.as_encoded_bytes()).expect("the container's own files");
    }
    loop {
        let _ = service.accept();
    }
}

/// What a log tells of the attempt of a row.
pub fn outcome_in(log: &str, row: &Row) -> Option<Outcome> {
    let mut lines = log.lines().filter_map(|line| line.strip_prefix(LINE)?.strip_prefix(row.name)?.strip_prefix(": "));
    lines.next().and_then(Outcome::parse)
}

/// Whether a program that was to gain something has it.
fn has_gained(wanted: &OsStr) -> bool {
    match wanted.to_string_lossy().as_ref() {
        "user" => nix::unistd::geteuid().is_root(),
        "group" => nix::unistd::getegid().as_raw() == 0,
        "other" => nix::unistd::geteuid().as_raw() == OTHER_POD,
        "right" => {
            let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
            let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
            rights.is_some_and(|rights| rights.trim().chars().any(|digit| digit != '0'))
        }
        _ => false,
    }
}

#[allow(unsafe_code)]
fn make(row: &Row, facts: &Facts) -> Outcome {
    // SAFETY: the child runs the attempt and ends without returning. The harness's other thread waits for this one and holds no
    // lock that an attempt takes.
    match unsafe { fork() }.expect("a process for the attempt") {
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None).expect("it is our child");
            // What it may have left running.
            let _ = kill(Pid::from_raw(-child.as_raw()), Signal::SIGKILL);
            match ended {
                WaitStatus::Exited(_, 0) => Outcome::Out,
                WaitStatus::Exited(_, libc::ENOSYS) => Outcome::Absent,
                WaitStatus::Exited(_, OTHER) => Outcome::Refused("by what it found".to_owned()),
                WaitStatus::Exited(_, code) => Outcome::Refused(format!("{:?}", nix::errno::Errno::from_raw(code))),
                WaitStatus::Signaled(_, signal, _) => Outcome::Refused(signal.to_string()),
                other => Outcome::Refused(format!("{other:?}")),
            }
        }
        ForkResult::Child => {
            let code = attempt(row, facts);
            // SAFETY: ends this copy of the harness without its exit handlers.
            unsafe { libc::_exit(code) }
        }
    }
}

fn attempt(row: &Row, facts: &Facts) -> i32 {
    const NONE: Option<&str> = None;
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    alarm::set(ATTEMPT_SECONDS);
    if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
        let _ = mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE);
    }
    match (row.attempt)(facts) {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(OTHER),
    }
}
