//! Removing trees in a process of its own: `shim --remove PATH`, started by the agent, and a child of the shim for what earlier
//! runs of a container left.
//!
//! A tree that a pod shaped may take long, hang with its disk, or find a fault in what removes it. So small ones are removed
//! where that is asked for, which costs no process: [`remove_small`] gives up after some entries. Whatever takes more is
//! handed to a process whose end costs nothing but that removal. Invariant: such a process has the lowest priority, says
//! every second that it goes on, and ends with who started it.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::{ForkResult, Pid, getpid, getppid};
use pumice_clock as clock;

use super::fork;
use super::journal::journal;
use super::program::close_all_but_streams;
use pumice_linux::tree::removal::{self, Outcome, RemovalError};

/// Flag that has a tree removed; its path follows.
pub const REMOVE: &str = "--remove";
/// Word before the reason why something is left, on standard output.
pub const LEFT: &str = "left ";
/// Line on standard output that says that the removal goes on.
const GOES_ON: &str = "goes on";
/// How often it is said.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Entries of earlier runs that the shim removes itself: its containers wait meanwhile.
const RUN_ENTRIES: u32 = 200;
/// Attempts where others are at the same tree.
const ATTEMPTS: u32 = 5;
/// Entries that are removed between two looks at the clock.
const ENTRIES_PER_LOOK: u32 = 16;
/// A stretch of work is followed by a rest as long, so that those who wait for the same disk have their turn. So has the
/// platform for the same CPU, which waits for the end of others' turns, and does so some fifty times for a pod that starts.
const WORK: Duration = Duration::from_millis(1);
/// Exit code where something is left.
pub const EXIT_LEFT: u8 = 3;

/// Removes what is at `path` if that takes no more than so many steps.
pub fn remove_small(path: &Path, mut entries: u32) -> Result<Outcome, RemovalError> {
    removal::remove(path, &mut || {
        entries = entries.saturating_sub(1);
        entries > 0
    })
}

/// Removes what is at `path`, at leisure, and tells how it goes on standard output. Stops when nobody listens.
pub fn run(path: &Path) -> ExitCode {
    step_back();
    let mut output = io::stdout().lock();
    let mut pace = Pace::new();
    let mut goes_on = || match pace.step() {
        Due::Nothing => true,
        Due::Word => writeln!(output, "{GOES_ON}").and_then(|()| output.flush()).is_ok(),
    };
    let mut outcome = removal::remove(path, &mut goes_on);
    for _ in 1..ATTEMPTS {
        if !matches!(&outcome, Err(error) if error.is_of_the_moment()) {
            break;
        }
        thread::sleep(TELL_EVERY);
        outcome = removal::remove(path, &mut goes_on);
    }
    match outcome {
        Ok(Outcome::Gone) => ExitCode::SUCCESS,
        Ok(Outcome::Stopped) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(output, "{LEFT}{}", error.to_string().replace('\n', " "));
            ExitCode::from(EXIT_LEFT)
        }
    }
}

/// Removes what runs of a container before `attempt` left in its folder. What takes long is left to a child, one at a time.
pub fn remove_runs_before(folder: &Path, attempt: u32) {
    let Some(before) = attempt.checked_sub(1) else { return };
    let last = folder.join(before.to_string());
    let is_gone = match remove_small(&last, RUN_ENTRIES) {
        Ok(outcome) => outcome == Outcome::Gone,
        Err(error) => {
            stays(&error);
            true
        }
    };
    if !is_gone && let Err(error) = leave_to_child(folder, attempt) {
        stays(&error);
    }
}

fn stays(error: &impl Display) {
    journal(&format!("something of the run before stays until the pod is removed: {error}"));
}

/// The shim has one thread, so its copy may go on with anything.
fn leave_to_child(folder: &Path, attempt: u32) -> io::Result<()> {
    let shim = getpid();
    if let ForkResult::Parent { .. } = fork::fork()? {
        return Ok(());
    }
    // The lock that says that the shim lives, above all, is not for its child.
    close_all_but_streams();
    step_back();
    if let Ok(file) = File::open(folder)
        && let Ok(_only) = Flock::lock(file, FlockArg::LockExclusiveNonblock)
    {
        remove_runs(folder, attempt, shim);
    }
    fork::exit(0)
}

fn remove_runs(folder: &Path, attempt: u32, shim: Pid) {
    let runs = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    for path in runs.map(|run| run.path()).filter(|path| number(path).is_some_and(|run| run < attempt)) {
        let mut pace = Pace::new();
        let goes_on = &mut || matches!(pace.step(), Due::Nothing) || getppid() == shim;
        if let Err(error) = removal::remove(&path, goes_on) {
            stays(&error);
        }
    }
}

/// When a removal rests, and when it says that it goes on.
struct Pace {
    left: u32,
    began: Instant,
    reported: Instant,
}

/// What is due after an entry.
enum Due {
    Nothing,
    Word,
}

impl Pace {
    fn new() -> Pace {
        let now = clock::monotonic();
        Pace { left: ENTRIES_PER_LOOK, began: now, reported: now }
    }

    fn step(&mut self) -> Due {
        self.left -= 1;
        if self.left > 0 {
            return Due::Nothing;
        }
        self.left = ENTRIES_PER_LOOK;
        let now = clock::monotonic();
        let worked = now.duration_since(self.began);
        if worked >= WORK {
            thread::sleep(worked.min(TELL_EVERY));
            self.began = clock::monotonic();
        }
        if now.duration_since(self.reported) < TELL_EVERY {
            return Due::Nothing;
        }
        self.reported = now;
        Due::Word
    }
}

/// Takes the lowest share of processor and disk, and the first place where memory runs out.
#[allow(unsafe_code)]
fn step_back() {
    const NICEST: libc::c_int = 19;
    /// `IOPRIO_CLASS_IDLE` of the kernel, shifted to its place.
    const IDLE: libc::c_int = 3 << 13;
    const OF_A_PROCESS: libc::c_int = 1;
    // SAFETY: both take numbers only. Where they are refused, the removal is as urgent as others.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, NICEST);
        libc::syscall(libc::SYS_ioprio_set, OF_A_PROCESS, 0, IDLE);
    }
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
}
