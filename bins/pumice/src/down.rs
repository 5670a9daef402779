//! `pumice down`: stops the platform of a data directory and ends its pods.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pumice_store::{DirectoryLock, LockError};

use crate::args::DownArgs;
use crate::data_dir::DataDir;
use crate::output;

/// How long a running platform may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(30);
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
    let ended = pumice_node::tear_down(data.path()).context("end the pods")?;
    finish_removals(data.path())?;
    output::line(format_args!("pumice is down; {ended} pods were ended"))
}

/// Removes what pods left, however much that is, and says what can't be removed.
fn finish_removals(data: &Path) -> Result<()> {
    let stays = pumice_node::finish_removals(data, &crate::up::shim_command()?).context("remove what pods left")?;
    stays.iter().for_each(|aside| output::note(format_args!("pumice: {}", aside.sentence())));
    Ok(())
}

/// Ends the process that holds a directory, and holds it in its place.
fn stop_holder(directory: &Path) -> Result<DirectoryLock> {
    let mut asked = false;
    let attempts = STOP_WITHIN.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..attempts {
        match DirectoryLock::acquire(directory) {
            Ok(lock) => return Ok(lock),
            Err(LockError::Held { pid, .. }) => {
                // It may not have written its number yet: the next look finds it.
                if let (false, Ok(pid)) = (asked, pid.parse()) {
                    kill(Pid::from_raw(pid), Signal::SIGTERM).with_context(|| format!("stop process {pid}"))?;
                    asked = true;
                }
                std::thread::sleep(LOOK_EVERY);
            }
            Err(error) => return Err(error).context("look whether a platform runs"),
        }
    }
    bail!("what runs in {} did not stop within {STOP_WITHIN:?}", directory.display())
}
