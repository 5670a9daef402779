//! `status.json`: what a shim says about its pod.
//!
//! Invariant: an exit is in this file, on disk, before anything follows from it. The end of the pod may be left to an agent, which
//! syncs it with those of other pods before anybody is told. Written by the shim
//! only; read by the agent of now and by the one after the next restart.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::discarded::Discarded;
use crate::format::Format;
use pumice_linux::files::{Durability, read_bounded, write_atomic};

/// Name of the file within the pod's directory.
pub const STATUS_FILE: &str = "status.json";
/// Largest status read, in bytes.
pub const STATUS_BYTES_MAX: u64 = 4 << 20;

/// Why a run that could not begin ended.
pub const START_ERROR: &str = "StartError";
/// Why a pod was stopped that took more of its node than it may.
pub const EVICTED: &str = "Evicted";
/// Why a pod was stopped whose node was to be shut down, in a kubelet's words.
pub const TERMINATED: &str = "Terminated";
/// The message beside [`TERMINATED`].
pub const SHUTDOWN_MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// Why a pod was stopped that ran for too long.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";

/// A pod as its shim sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShimStatus {
    #[serde(default)]
    pub format: Format,
    pub sequence: u64,
    /// How far the pod is.
    pub phase: ShimPhase,
    /// Why the whole pod was stopped (`DeadlineExceeded`, `Evicted`, `Terminated`), if not because it was deleted.
    pub reason: Option<String>,
    /// A sentence to go with `reason`.
    pub message: Option<String>,
    /// When the shim started.
    pub started_at: Timestamp,
    /// In the order of the spec.
    pub init_containers: Vec<ContainerStatus>,
    /// In the order of the spec.
    pub containers: Vec<ContainerStatus>,
    /// Those that were added while it runs. None of a shim of an earlier release, which adds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral_containers: Option<Vec<ContainerStatus>>,
}

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ShimPhase {
    /// Its init containers run.
    Initializing,
    Running,
    /// It was told to stop.
    Stopping,
    /// All is over; the shim is gone or about to go.
    Done,
}

/// One container as its shim sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContainerStatus {
    pub name: String,
    /// What it does now.
    pub state: ContainerState,
    /// How its last run ended.
    pub last: Option<Exit>,
    /// How often it was started again.
    pub restart_count: u32,
}

/// What a container does now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ContainerState {
    /// Not yet, or not again yet.
    Waiting {
        /// A CamelCase word: `PodInitializing`, `CrashLoopBackOff`.
        reason: String,
        /// A sentence.
        message: Option<String>,
    },
    Running {
        /// Since when.
        started_at: Timestamp,
        /// Its process 1; none in what an earlier release wrote.
        #[serde(default)]
        pid: Option<i32>,
    },
    Terminated(Exit),
}

/// How a run of a container ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 + signal for a killed process.
    pub code: i32,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`.
    pub reason: String,
    /// Its last message, or why it could not start.
    pub message: Option<String>,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    /// What it wrote that is gone with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded: Option<Discarded>,
}

impl ShimStatus {
    /// The container called `name`, of any list.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.all().find(|container| container.name == name)
    }

    /// The containers of all lists.
    pub fn all(&self) -> impl Iterator<Item = &ContainerStatus> {
        let added = self.ephemeral_containers.iter().flatten();
        self.init_containers.iter().chain(&self.containers).chain(added)
    }

    /// The status before anything has run: all containers wait.
    pub fn new<'a>(
        init_containers: impl Iterator<Item = &'a str>,
        containers: impl Iterator<Item = &'a str>,
        started_at: Timestamp,
    ) -> Self {
        let init_containers: Vec<_> =
            init_containers.map(|name| ContainerStatus::waiting(name, "PodInitializing")).collect();
        // As a kubelet has it. So there is nothing new to tell when the shim of a pod without init containers begins.
        let reason = if init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        ShimStatus {
            format: Format,
            sequence: 0,
            phase: ShimPhase::Initializing,
            reason: None,
            message: None,
            started_at,
            init_containers,
            containers: containers.map(|name| ContainerStatus::waiting(name, reason)).collect(),
            ephemeral_containers: Some(Vec::new()),
        }
    }

    /// Whether nothing of the pod has begun.
    pub fn is_fresh(&self) -> bool {
        let is_fresh = |container: &ContainerStatus| {
            matches!(container.state, ContainerState::Waiting { message: None, .. }) && container.last.is_none()
        };
        self.phase == ShimPhase::Initializing && self.all().all(is_fresh)
    }

    /// Reads the status in a pod's directory.
    pub fn read(dir: &Path) -> std::io::Result<ShimStatus> {
        let bytes = read_bounded(&dir.join(STATUS_FILE), STATUS_BYTES_MAX)?;
        serde_json::from_slice(&bytes).map_err(std::io::Error::other)
    }

    /// Puts it in the pod's directory, with the next number.
    pub fn write(&mut self, dir: &Path, durability: Durability) -> std::io::Result<()> {
        self.sequence += 1;
        let bytes = serde_json::to_vec(self).map_err(std::io::Error::other)?;
        write_atomic(&dir.join(STATUS_FILE), &bytes, durability)
    }
}

impl ContainerStatus {
    /// One that has not begun.
    pub(crate) fn waiting(name: &str, reason: &str) -> Self {
        let state = ContainerState::Waiting { reason: reason.into(), message: None };
        ContainerStatus { name: name.to_owned(), state, last: None, restart_count: 0 }
    }

    /// How it ended, when it has.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            ContainerState::Terminated(exit) => Some(exit),
            _ => None,
        }
    }

    /// Whether a process of the container is there now; one that waits for its next run has none.
    pub fn is_running(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let at = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
        let mut status = ShimStatus::new(["i"].into_iter(), ["a", "b"].into_iter(), at);
        let exit = Exit {
            code: 137,
            signal: Some(9),
            reason: "OOMKilled".into(),
            message: Some("last \u{0}words".into()),
            started_at: at,
            finished_at: at,
            discarded: None,
        };
        status.containers[0].state = ContainerState::Terminated(exit.clone());
        status.containers[1] = ContainerStatus {
            name: "b".into(),
            state: ContainerState::Running { started_at: at, pid: Some(7) },
            last: Some(exit),
            restart_count: 3,
        };
        status.write(dir.path(), Durability::Power).unwrap();
        assert_eq!(ShimStatus::read(dir.path()).unwrap(), status);
        assert_eq!(status.sequence, 1);
        assert_eq!(status.ephemeral_containers, Some(Vec::new()));
        let mut earlier = serde_json::to_value(&status).unwrap();
        earlier.as_object_mut().unwrap().remove("ephemeral_containers");
        let earlier: ShimStatus = serde_json::from_value(earlier).unwrap();
        assert_eq!(earlier.ephemeral_containers, None, "its shim adds none");
    }

    #[test]
    fn a_torn_status_is_an_error_not_a_panic() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "{", "{\"sequence\":1}", "\u{0}\u{0}"] {
            std::fs::write(dir.path().join(STATUS_FILE), text).unwrap();
            assert!(ShimStatus::read(dir.path()).is_err(), "{text:?}");
        }
    }
}
