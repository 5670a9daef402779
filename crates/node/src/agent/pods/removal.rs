//! Taking away what a pod leaves on this host.
//!
//! Invariant: a directory goes last, after its processes and groups, so that a removal cut short is
//! found and finished after the next start. What takes long is queued, so that nobody waits for it.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::agent::leftovers::{Folders, Leftover, Owner};
use crate::cgroup::CgroupSpec;
use crate::logs::retained::RetainedLogs;
use crate::shim::control::{self, ShimProcess, Stop};
use crate::shim_watch::ProcessHandle;

/// How long a shim that was told to stop at once may take, in steps.
const STEPS: u32 = 2000;
const STEP: Duration = Duration::from_millis(5);

/// Ends the shim of `dir` and all its processes; blocks until they are gone or can't be killed.
pub(crate) fn end_shim(dir: &Path, group: Option<&CgroupSpec>) {
    for step in 0..STEPS {
        if !control::is_alive(dir) {
            break;
        }
        if step == 0
            && let Err(error) = control::request_stop(dir, Stop { grace_seconds: 0 })
        {
            tracing::warn!(dir = %dir.display(), error = %error, "can't ask a shim to stop");
        }
        // A shim that does not answer is killed; the kernel kills its containers with it.
        if step == STEPS / 2
            && let Ok(process) = ShimProcess::read(dir)
        {
            let _ = ProcessHandle::kill(process);
        }
        thread::sleep(STEP);
    }
    if let Some(group) = group {
        group.remove();
    }
}

/// Removes everything of a pod but its logs; blocks until its processes are gone.
pub(crate) fn remove_pod(dir: &Path, owner: Owner, group: Option<&CgroupSpec>, logs: &RetainedLogs) -> Leftover {
    end_shim(dir, group);
    logs.take(dir);
    Folders::around_pod(dir).remove(dir, || owner)
}

/// Removes the throw-away layers of a pod that has ended; logs and volumes stay.
pub(crate) fn trim_pod(dir: &Path) -> Leftover {
    Folders::around_pod(dir).remove(&dir.join("c"), || Owner::of_pod_dir(dir))
}
