//! A program that runs beside a test.
//!
//! Invariant: it ends when its [`Process`] is dropped, also when the test has panicked; then the end of what it said is shown.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clients::code;

/// How long a program may take to end by itself before it is killed.
const END_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Lines of a log that are shown.
const TAIL_LINES: usize = 60;

/// A running program whose output goes to a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `command`; what it says is appended to `NAME.log` in `directory`.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start(name: &str, command: &mut Command, directory: &Path) -> Process {
        let path = directory.join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(&path).expect("open a program's log");
        let errors = log.try_clone().expect("use the log twice");
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().unwrap_or_else(|error| panic!("start {name}: {error}"));
        Process { name: name.to_owned(), log: path, child }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Everything it has said.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines of what it has said, under its name.
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        format!("--- {} said ---\n{}\n---", self.name, lines[from..].join("\n"))
    }

    /// Its exit code, if it has ended by itself.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().ok().flatten().map(code)
    }

    /// Kills it as a crash would.
    pub fn crash(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end and gives its exit code; 137 when it had to be killed.
    #[allow(clippy::disallowed_methods)] // a test's own clock
    pub fn stop(&mut self) -> i32 {
        if let Some(code) = self.ended() {
            return code;
        }
        let _ = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
        let asked = Instant::now();
        while asked.elapsed() < END_WITHIN {
            if let Some(code) = self.ended() {
                return code;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.crash();
        137
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        }
        self.stop();
    }
}
