//! `pumice down`: stops the platform of a data directory and ends its pods, each within its grace.
//!
//! Invariant: what is said to have ended has.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_store::{DirectoryLock, LockError};

use crate::args::DownArgs;
use crate::data_dir::DataDir;
use crate::output;

/// How long a running platform may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// How long nothing is said of what is waited for.
const SHOW_AFTER: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Stops `up` if it runs, then ends every pod and removes what pods were given.
pub fn down(args: &DownArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    if !data.path().is_dir() {
        return output::line(format_args!("nothing was ever up in {}", data.path().display()));
    }
    // Holding the lock is the proof that no platform runs here, and keeps one from starting meanwhile.
    let _lock = stop_holder(data.path())?;
    // An agent by itself has a lock of its own.
    let node = data.path().join("node");
    let _node_lock = node.is_dir().then(|| stop_holder(&node)).transpose()?;
    let grace_max = if args.now { Some(Duration::ZERO) } else { args.grace };
    let mut progress = Progress::begin(args.now);
    let torn_down = pumice_node::tear_down(data.path(), grace_max, |pods, longest| progress.show(pods, longest))
        .context("end the pods")?;
    finish_removals(data.path())?;
    let ended = output::count(torn_down.ended, "pod");
    if torn_down.unended.is_empty() {
        return output::line(format_args!("pumice is down; {ended} ended"));
    }
    for unended in &torn_down.unended {
        output::note(format_args!("pod {} lives on: {}", unended.pod, unended.left));
    }
    bail!(
        "{ended} ended, {} could not be ended; the rest of the platform is down\nnext: pumice down, when they can end",
        output::count(torn_down.unended.len(), "pod")
    )
}

/// Removes what pods left, however much that is, and says what can't be removed.
fn finish_removals(data: &Path) -> Result<()> {
    let (since, mut printed) = (clock(), false);
    let on_wait = |trees| {
        if !printed && clock().duration_since(since) >= SHOW_AFTER {
            printed = true;
            let trees = output::count(trees, "folder");
            output::note(format_args!("removing {trees} that pods left; Ctrl-C leaves the rest to the next pumice up"));
        }
    };
    let stays = pumice_node::finish_removals(data, &crate::up::shim_program()?, on_wait);
    let stays = stays.context("remove what pods left")?;
    stays.iter().for_each(|aside| output::note(format_args!("pumice: {}", aside.sentence())));
    Ok(())
}

/// Says what is waited for, where that takes a while: at first, and when there is less of it.
struct Progress {
    since: Instant,
    now: bool,
    printed: Option<(usize, Instant)>,
}

impl Progress {
    fn begin(now: bool) -> Progress {
        Progress { since: clock(), now, printed: None }
    }

    fn show(&mut self, pods: usize, longest: Duration) {
        let now = clock();
        let due = match self.printed {
            None => now.duration_since(self.since) >= SHOW_AFTER,
            Some((before, at)) => pods < before && now.duration_since(at) >= SHOW_AFTER,
        };
        if !due {
            return;
        }
        self.printed = Some((pods, now));
        let seconds = longest.as_secs() + u64::from(longest.subsec_nanos() > 0);
        let faster = if self.now { "" } else { "; pumice down --now ends them at once" };
        match seconds {
            0 => output::note(format_args!("{} killed, but not gone yet", output::count(pods, "pod"))),
            _ => output::note(format_args!(
                "waiting for {} to end, {seconds} s at most{faster}",
                output::count(pods, "pod")
            )),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a command that a person waits for")]
fn clock() -> Instant {
    Instant::now()
}

/// Ends the process that holds a directory, and holds it in its place.
fn stop_holder(directory: &Path) -> Result<DirectoryLock> {
    let mut asked = None;
    let attempts = STOP_WITHIN.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..attempts {
        // It gives back the directory a little before it ends.
        if asked.is_none_or(has_ended) {
            match DirectoryLock::acquire(directory) {
                Ok(lock) => return Ok(lock),
                Err(LockError::InUse { pid, .. }) => {
                    // It may not have written its number yet: the next look finds it.
                    if let (None, Ok(pid)) = (asked, pid.parse()) {
                        kill(Pid::from_raw(pid), Signal::SIGTERM).with_context(|| format!("stop process {pid}"))?;
                        asked = Some(pid);
                    }
                }
                Err(error) => return Err(error).context("look whether a platform runs"),
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    bail!("what runs in {} did not stop within {STOP_WITHIN:?}", directory.display())
}

/// Whether a process is gone, or waits for nothing but its parent.
fn has_ended(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
}
