//! Logs of pods that are gone from the API server, kept for a time: why a job was cancelled, or what an earlier attempt
//! printed, is usually in there.
//!
//! Invariant: they take at most [`BYTES_MAX`], of at most [`PODS_MAX`] pods, and none is older than [`AGE_MAX`]; the oldest go
//! first. A log is given only to who names the uid of the object that owned its pod: who may ask for that object is the API
//! server's to decide. Files alone tell what there is, so nothing is lost by a restart.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use pumice_clock as clock;
use serde::{Deserialize, Serialize};

use pumice_linux::files::{self, Durability, private_dir, read_bounded, write_atomic};
use pumice_shim::spec::ShimSpec;

/// Bytes of all logs that are retained.
pub const BYTES_MAX: u64 = 1 << 30;
/// Pods whose logs are retained.
pub const PODS_MAX: usize = 10_000;
/// How long a log is retained.
pub const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Between two looks for logs that have become too old.
const LOOK_EVERY: Duration = Duration::from_secs(60 * 60);
/// The file that says whose a log was.
const POD_FILE: &str = "pod.json";
/// Its largest size, in bytes.
const POD_FILE_BYTES_MAX: u64 = 1 << 20;
/// The variable with the number of a pod's attempt, from 1; the job plugin `env` sets it.
const ATTEMPT: &str = "PUMICE_ATTEMPT";

/// A pod that is gone, and what there is of its logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RetainedPod {
    pub namespace: String,
    pub pod: String,
    pub uid: String,
    /// The uid of the object that owned it.
    pub owner: String,
    /// Which attempt of its index it was, from 1, where its environment says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// When its log was set aside.
    pub removed_at: Timestamp,
    pub runs: Vec<RetainedRun>,
}

/// A container whose logs may be here, as those who ask name it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetainedContainer<'a> {
    pub namespace: &'a str,
    /// The uid of the object that owned the pod.
    pub owner: &'a str,
    pub uid: &'a str,
    pub container: &'a str,
}

/// The log of one run of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetainedRun {
    pub container: String,
    /// Which run of it, from 0.
    pub restart: u32,
    /// Bytes on disk.
    pub bytes: u64,
}

impl RetainedPod {
    fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.bytes).sum()
    }
}

/// The retained logs of a node.
#[derive(Debug)]
pub(crate) struct RetainedLogs {
    dir: PathBuf,
    /// The oldest first.
    pods: Mutex<VecDeque<RetainedPod>>,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    bytes: u64,
    pods: usize,
    age: SignedDuration,
}

impl RetainedLogs {
    /// Those in a node's folder; blocks. What is there and can't be read is removed.
    pub(crate) fn open(node_dir: &Path) -> Self {
        let age = SignedDuration::try_from(AGE_MAX).unwrap_or(SignedDuration::MAX);
        Self::with_limits(node_dir, Limits { bytes: BYTES_MAX, pods: PODS_MAX, age })
    }

    fn with_limits(node_dir: &Path, limits: Limits) -> Self {
        let dir = node_dir.join("retained-logs");
        let mut pods = Vec::new();
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let bytes = read_bounded(&entry.path().join(POD_FILE), POD_FILE_BYTES_MAX);
            match bytes.ok().and_then(|bytes| serde_json::from_slice::<RetainedPod>(&bytes).ok()) {
                Some(pod) if entry.file_name().to_str() == Some(&pod.uid) => pods.push(pod),
                _ => remove(&entry.path()),
            }
        }
        pods.sort_by_key(|pod| pod.removed_at);
        RetainedLogs { dir, pods: Mutex::new(pods.into()), limits }
    }

    fn locked(&self) -> MutexGuard<'_, VecDeque<RetainedPod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the logs out of the directory of a pod that has ended and is about to be removed; blocks. A pod that nobody owned, or
    /// that wrote nothing, leaves none.
    pub(crate) fn take(&self, pod_dir: &Path) {
        let Ok(spec) = ShimSpec::read(pod_dir) else { return };
        let Some(owner) = spec.owner.clone() else { return };
        let logs = pod_dir.join("logs");
        let runs = runs_in(&logs);
        if runs.iter().all(|run| run.bytes == 0) {
            return;
        }
        let pod = RetainedPod {
            owner,
            attempt: attempt(&spec),
            removed_at: clock::now(),
            runs,
            namespace: spec.namespace,
            pod: spec.name,
            uid: spec.uid,
        };
        match self.store(&logs, &pod) {
            Ok(()) => self.locked().push_back(pod),
            Err(error) => {
                tracing::warn!(namespace = pod.namespace, pod = pod.pod, %error, "the log of a pod that is gone is not retained");
                remove(&self.dir.join(&pod.uid));
            }
        }
        self.prune(clock::now());
    }

    fn store(&self, logs: &Path, pod: &RetainedPod) -> io::Result<()> {
        let own = self.dir.join(&pod.uid);
        // What a removal that was cut short has left.
        files::remove(&own)?;
        private_dir(&own)?;
        write_atomic(&own.join(POD_FILE), &serde_json::to_vec(pod)?, Durability::Process)?;
        fs::rename(logs, own.join("logs"))
    }

    /// Removes what is over the limits; blocks.
    fn prune(&self, now: Timestamp) {
        let mut over = Vec::new();
        {
            let mut pods = self.locked();
            let mut bytes: u64 = pods.iter().map(RetainedPod::bytes).sum();
            while let Some(oldest) = pods.front() {
                let old = now.duration_since(oldest.removed_at) >= self.limits.age;
                if !old && bytes <= self.limits.bytes && pods.len() <= self.limits.pods {
                    break;
                }
                bytes -= oldest.bytes();
                over.extend(pods.pop_front());
            }
        }
        over.iter().for_each(|pod| remove(&self.dir.join(&pod.uid)));
    }

    /// Removes logs when they have become too old, until it is dropped.
    pub(crate) async fn expire(self: std::sync::Arc<Self>) {
        loop {
            let logs = std::sync::Arc::clone(&self);
            if let Err(error) = tokio::task::spawn_blocking(move || logs.prune(clock::now())).await {
                tracing::error!(%error, "retained logs were not looked at");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The pods of an owner, the oldest first.
    pub(crate) fn of(&self, namespace: &str, owner: &str) -> Vec<RetainedPod> {
        let pods = self.locked();
        pods.iter().filter(|pod| pod.namespace == namespace && pod.owner == owner).cloned().collect()
    }

    /// The directory that holds the log of one run, as that of a pod does.
    pub(crate) fn find(&self, of: RetainedContainer<'_>, restart: u32) -> Option<PathBuf> {
        let RetainedContainer { namespace, owner, uid, container } = of;
        let pods = self.locked();
        let pod = pods.iter().find(|pod| pod.uid == uid && pod.namespace == namespace && pod.owner == owner)?;
        let known = pod.runs.iter().any(|run| run.container == container && run.restart == restart);
        known.then(|| self.dir.join(&pod.uid))
    }
}

fn remove(path: &Path) {
    if let Err(error) = files::remove(path) {
        tracing::warn!(path = %path.display(), %error, "a retained log was not removed");
    }
}

/// The runs that a pod's folder of logs has files of. What was moved aside of a log counts with it.
fn runs_in(logs: &Path) -> Vec<RetainedRun> {
    let mut runs: Vec<RetainedRun> = Vec::new();
    for folder in fs::read_dir(logs).into_iter().flatten().flatten() {
        let Ok(container) = folder.file_name().into_string() else { continue };
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let Ok(name) = file.file_name().into_string() else { continue };
            let Some(restart) = name.split_once('.').and_then(|(restart, _)| restart.parse().ok()) else { continue };
            let bytes = file.metadata().map_or(0, |metadata| metadata.len());
            match runs.iter_mut().find(|run| run.container == container && run.restart == restart) {
                Some(run) => run.bytes += bytes,
                None => runs.push(RetainedRun { container: container.clone(), restart, bytes }),
            }
        }
    }
    runs.sort_by(|a, b| (&a.container, a.restart).cmp(&(&b.container, b.restart)));
    runs
}

fn attempt(spec: &ShimSpec) -> Option<u32> {
    let variables = &spec.containers.first()?.env;
    variables.iter().find(|(name, _)| name == ATTEMPT)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::pod_network::tests::spec;
    use pumice_shim::logs::log_path;
    use pumice_shim::spec::{ContainerSpec, Network, SPEC_FILE};

    const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

    fn limits() -> Limits {
        Limits { bytes: 1000, pods: 3, age: WEEK }
    }

    /// The directory of a pod that has written so many bytes.
    fn pod(dir: &Path, uid: &str, owner: Option<&str>, bytes: usize) -> PathBuf {
        let own = dir.join("pods").join(uid);
        let env = vec![("PUMICE_ATTEMPT".to_owned(), "2".to_owned())];
        let spec = ShimSpec {
            uid: uid.to_owned(),
            owner: owner.map(str::to_owned),
            containers: vec![ContainerSpec { name: "c".into(), env, ..ContainerSpec::default() }],
            ..spec(Network::Host)
        };
        let path = log_path(&own, "c", 0);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(own.join(SPEC_FILE), serde_json::to_vec(&spec).unwrap()).unwrap();
        fs::write(path, "x".repeat(bytes)).unwrap();
        own
    }

    fn uids(logs: &RetainedLogs) -> Vec<String> {
        logs.of("ns", "job").into_iter().map(|pod| pod.uid).collect()
    }

    #[test]
    fn a_log_outlives_its_pod_and_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let logs = RetainedLogs::with_limits(dir.path(), limits());
        let own = pod(dir.path(), "u1", Some("job"), 10);
        logs.take(&own);
        fs::remove_dir_all(&own).unwrap();
        for logs in [logs, RetainedLogs::with_limits(dir.path(), limits())] {
            let found = logs.of("ns", "job");
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].pod.as_str(), found[0].attempt), ("p", Some(2)));
            assert_eq!(found[0].runs, [RetainedRun { container: "c".into(), restart: 0, bytes: 10 }]);
            let kept =
                logs.find(RetainedContainer { namespace: "ns", owner: "job", uid: "u1", container: "c" }, 0).unwrap();
            assert_eq!(fs::read_to_string(log_path(&kept, "c", 0)).unwrap(), "x".repeat(10));
        }
    }

    // INV-53
    #[test]
    fn only_who_names_its_owner_gets_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let logs = RetainedLogs::with_limits(dir.path(), limits());
        logs.take(&pod(dir.path(), "u1", Some("job"), 10));
        let own = RetainedContainer { namespace: "ns", owner: "job", uid: "u1", container: "c" };
        for (asked, restart, found) in [
            (own, 0, true),
            (RetainedContainer { namespace: "other", ..own }, 0, false),
            (RetainedContainer { owner: "other", ..own }, 0, false),
            (RetainedContainer { uid: "u2", ..own }, 0, false),
            (RetainedContainer { container: "../c", ..own }, 0, false),
            (own, 1, false),
        ] {
            assert_eq!(logs.find(asked, restart).is_some(), found, "{asked:?} {restart}");
        }
        assert!(logs.of("ns", "").is_empty() && logs.of("other", "job").is_empty());
    }

    #[test]
    fn what_nobody_owned_and_what_is_empty_is_not_retained() {
        let dir = tempfile::tempdir().unwrap();
        let logs = RetainedLogs::with_limits(dir.path(), limits());
        logs.take(&pod(dir.path(), "u1", None, 10));
        logs.take(&pod(dir.path(), "u2", Some("job"), 0));
        logs.take(&dir.path().join("pods/none"));
        assert!(uids(&logs).is_empty());
        assert!(!dir.path().join("retained-logs").exists());
    }

    // INV-53
    #[test]
    fn the_oldest_go_first_by_bytes_by_number_and_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let logs = RetainedLogs::with_limits(dir.path(), limits());
        let take = |uid: &str, bytes: usize| logs.take(&pod(dir.path(), uid, Some("job"), bytes));
        for uid in ["u1", "u2", "u3", "u4"] {
            take(uid, 10);
        }
        assert_eq!(uids(&logs), ["u2", "u3", "u4"], "three are kept");
        take("u5", 985);
        assert_eq!(uids(&logs), ["u4", "u5"], "a thousand bytes are kept");
        take("u6", 2000);
        assert_eq!(uids(&logs), [""; 0], "one that is larger than all may be is not kept either");
        take("u7", 10);
        logs.prune(clock::now() + WEEK - SignedDuration::from_secs(60));
        assert_eq!(uids(&logs), ["u7"]);
        logs.prune(clock::now() + WEEK);
        assert_eq!(uids(&logs), [""; 0]);
        assert_eq!(fs::read_dir(dir.path().join("retained-logs")).unwrap().count(), 0, "nothing stays on disk");
    }

    #[test]
    fn what_can_not_be_read_is_removed_when_the_agent_starts() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("retained-logs");
        for (uid, text) in [("u1", Some("torn")), ("u2", None)] {
            fs::create_dir_all(folder.join(uid).join("logs")).unwrap();
            text.iter().for_each(|text| fs::write(folder.join(uid).join(POD_FILE), text).unwrap());
        }
        assert!(uids(&RetainedLogs::with_limits(dir.path(), limits())).is_empty());
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    }
}
