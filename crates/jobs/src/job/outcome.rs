//! How a job ended, which of its containers failed, and which exit code says so.
//!
//! Invariant: an end has the same code wherever it is reported: see [`Exit`]. Pure. Called by `jobctl` and Python.

use k8s_openapi::api::core::v1::Pod;
use pumice_api::batch::{Action, Job, JobPhase};
use pumice_api::kubelet;
use serde::Serialize;

use crate::exit_code::Exit;
use crate::output::amounts;

/// The reason of a container whose program could not be started.
const START_ERROR: &str = "StartError";

/// The way a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobEnd {
    Completed,
    /// It ran out of retries or of successes.
    Failed,
    /// It was stopped for good, by somebody or by its own policy.
    Terminated,
    /// It is suspended: nothing runs and nothing will, until somebody resumes it.
    Aborted,
    /// The Job object is gone.
    Deleted,
}

impl JobEnd {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            JobEnd::Completed => "completed",
            JobEnd::Failed => "failed",
            JobEnd::Terminated => "terminated",
            JobEnd::Aborted => "suspended",
            JobEnd::Deleted => "deleted",
        }
    }
}

/// The end of a job, `None` while it goes on.
pub fn end_of(job: &Job) -> Option<JobEnd> {
    match job.status.state.phase.as_ref()? {
        JobPhase::Completed => Some(JobEnd::Completed),
        JobPhase::Failed => Some(JobEnd::Failed),
        JobPhase::Terminated => Some(JobEnd::Terminated),
        JobPhase::Aborted => Some(JobEnd::Aborted),
        _ => None,
    }
}

/// A container that ended badly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodFailure {
    pub pod: String,
    pub container: String,
    /// The container's exit code.
    pub exit_code: i32,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// A word such as `OOMKilled`.
    pub reason: String,
    /// A sentence, possibly empty.
    pub message: String,
    /// The memory that the container had, as a quantity, where that is known.
    #[serde(skip)]
    pub memory: Option<String>,
    /// When it ended, as milliseconds since 1970; the last possible if unknown.
    #[serde(skip)]
    finished_ms: i64,
}

impl PodFailure {
    /// One line for people.
    pub fn sentence(&self) -> String {
        let PodFailure { pod, exit_code, reason, message, .. } = self;
        if reason == kubelet::DEADLINE_EXCEEDED {
            return format!("pod {pod} was ended: it ran longer than it may (--timeout)");
        }
        if reason == START_ERROR {
            return format!("pod {pod} did not start: {message}");
        }
        if reason == kubelet::OOM_KILLED {
            let had = self.memory.as_deref().map(|memory| format!(": it had {}", amounts::in_words(memory)));
            let note = if message.is_empty() { String::new() } else { format!(" ({message})") };
            return format!("pod {pod} was killed for memory{}{note}", had.unwrap_or_default());
        }
        let mut text = match self.signal {
            Some(signal) => format!("pod {pod} was killed by signal {signal}"),
            None => format!("pod {pod} ended with exit code {exit_code}"),
        };
        if !reason.is_empty() && reason != "Error" {
            text.push_str(&format!(" ({reason})"));
        }
        if !message.is_empty() {
            text.push_str(&format!(": {message}"));
        }
        text
    }

    /// Whether its container ran, and may have written a log.
    pub fn has_log(&self) -> bool {
        !self.container.is_empty() && self.reason != START_ERROR
    }

    /// The code a shell would give: 128 + signal when killed, 127 for a program that is not there, 126 for one that can't be run.
    pub fn shell_code(&self) -> Option<u8> {
        let code = match self.signal {
            Some(signal) if signal > 0 => signal.saturating_add(128),
            _ => self.start_code().unwrap_or(self.exit_code),
        };
        // A code a process can't have (a runtime that reports -1, say) still must not read as success.
        match u8::try_from(code) {
            Ok(0) => None,
            Ok(code) => Some(code),
            Err(_) => Some(255),
        }
    }
}

impl PodFailure {
    /// A shell's code for a program that could not be started, if that is what was wrong: runtimes have one code for all that may be.
    fn start_code(&self) -> Option<i32> {
        let message = self.message.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
        let of_program = self.reason == START_ERROR && says(&["can't run", "exec", "executable"]);
        match of_program {
            true if says(&["not found", "no such file"]) => Some(127),
            true if says(&["permission denied", "exec format error", "is a directory"]) => Some(126),
            _ => None,
        }
    }
}

/// The failed containers of failed pods, first one first.
pub fn pod_failures(pods: &[Pod]) -> Vec<PodFailure> {
    let mut failures: Vec<PodFailure> = pods.iter().flat_map(failures_of).collect();
    failures.sort_by(|a, b| (a.finished_ms, &a.pod, &a.container).cmp(&(b.finished_ms, &b.pod, &b.container)));
    failures
}

fn failures_of(pod: &Pod) -> Vec<PodFailure> {
    let Some(status) = pod.status.as_ref().filter(|s| s.phase.as_deref() == Some("Failed")) else {
        return Vec::new();
    };
    // Containers of a pod that was ended as a whole (for its time, its disk, its node) say only that they were killed.
    let whole = status.reason.as_deref().filter(|reason| !reason.is_empty());
    let memory = |container: &str| {
        let spec = pod.spec.as_ref()?;
        let found =
            spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|one| one.name == container);
        Some(found?.resources.as_ref()?.limits.as_ref()?.get("memory")?.0.clone())
    };
    let containers =
        status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten()).filter_map(
            |container| {
                let ended = container.state.as_ref()?.terminated.as_ref()?;
                if ended.exit_code == 0 && ended.signal.is_none_or(|signal| signal == 0) {
                    return None;
                }
                Some(PodFailure {
                    pod: pod.metadata.name.clone().unwrap_or_default(),
                    container: container.name.clone(),
                    memory: memory(&container.name),
                    exit_code: ended.exit_code,
                    signal: ended.signal.filter(|signal| *signal > 0),
                    reason: whole.or(ended.reason.as_deref()).unwrap_or_default().to_owned(),
                    message: whole.and(status.message.as_ref()).or(ended.message.as_ref()).cloned().unwrap_or_default(),
                    finished_ms: ended.finished_at.as_ref().map_or(i64::MAX, |t| t.0.as_millisecond()),
                })
            },
        );
    let mut found: Vec<PodFailure> = containers.collect();
    if found.is_empty() {
        // Evicted or never started: the pod says why, no container does.
        found.push(PodFailure {
            pod: pod.metadata.name.clone().unwrap_or_default(),
            container: String::new(),
            memory: None,
            exit_code: 1,
            signal: None,
            reason: status.reason.clone().unwrap_or_default(),
            message: status.message.clone().unwrap_or_default(),
            finished_ms: i64::MAX,
        });
    }
    found
}

/// What `wait` and `cancel` end with.
pub fn exit_of_end(job: &Job, end: JobEnd) -> Exit {
    match end {
        JobEnd::Completed => Exit::Success,
        JobEnd::Failed => {
            let wanted = job.spec.min_success.unwrap_or(0);
            let succeeded = job.status.succeeded;
            if wanted > 0 && succeeded > 0 && succeeded < wanted { Exit::Partly } else { Exit::JobFailed }
        }
        JobEnd::Terminated | JobEnd::Aborted => Exit::Cancelled,
        JobEnd::Deleted => Exit::Cancelled,
    }
}

/// What `run` ends with: the code of the first pod that failed, if the job failed by it.
pub fn exit_of_run(job: &Job, end: JobEnd, failures: &[PodFailure]) -> Exit {
    let by_itself = end == JobEnd::Failed || (end == JobEnd::Terminated && ends_itself(job));
    if by_itself && let Some(code) = failures.iter().find_map(PodFailure::shell_code) {
        return Exit::Own(code);
    }
    exit_of_end(job, end)
}

/// Whether a policy of the job may have terminated it; else a person did.
fn ends_itself(job: &Job) -> bool {
    let of_tasks = job.spec.tasks.iter().flat_map(|task| &task.policies);
    job.spec.policies.iter().chain(of_tasks).any(|policy| policy.action == Some(Action::TerminateJob))
}
