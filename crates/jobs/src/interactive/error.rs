//! How a session in a pod fails, and what to do about it.

use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;
use crate::job::JobRef;
use crate::platform::call::{CallCause, CallError};

/// There is no session, or no more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InteractiveError {
    /// Nothing of the job runs.
    #[error("no pod {}of job {} runs: the job is {state}", with_space(of), job.name)]
    NotRunning {
        job: JobRef,
        /// Which pods were asked for, such as `of index 3`; may be empty.
        of: String,
        state: String,
        /// Whether it has ended.
        ended: bool,
    },
    /// A pod that was named does not run.
    #[error("pod {pod} does not run: it is {phase}")]
    PodNotRunning { job: JobRef, pod: String, phase: String },
    /// The pod has no such container.
    #[error("pod {pod} has no container {container}; it has {containers}")]
    NoContainer {
        job: JobRef,
        pod: String,
        /// What was asked for.
        container: String,
        containers: String,
    },
    /// The user may not do it.
    #[error(
        "the right `create` on `{resource}` in namespace {namespace} is missing (some clusters ask for `get`): {message}"
    )]
    Forbidden {
        /// `pods/exec` or `pods/portforward`.
        resource: &'static str,
        namespace: String,
        /// The server's sentence.
        message: String,
    },
    /// The program was not started, or nobody knows how it ended.
    #[error("{program} did not run in pod {pod}: {message}")]
    NotStarted {
        program: String,
        pod: String,
        job: JobRef,
        /// The node's sentence.
        message: String,
    },
    /// The connection broke; what runs in the pod may go on.
    #[error("the connection to pod {pod} was lost, and its job goes on: {detail}")]
    Lost {
        pod: String,
        /// The command that comes back.
        back: String,
        detail: String,
    },
    /// The pod runs no notebook, or an unfit one.
    #[error("pod {pod} has no notebook: {problem}")]
    NoNotebook {
        job: JobRef,
        pod: String,
        /// What was found instead.
        problem: String,
    },
    /// A port of this machine can't be had.
    #[error("cannot listen on 127.0.0.1:{port}: {detail}")]
    Port {
        /// The port; the first one where several were tried.
        port: u16,
        detail: String,
    },
}

impl Failure for InteractiveError {
    fn exit(&self) -> Exit {
        match self {
            InteractiveError::NotRunning { .. } | InteractiveError::PodNotRunning { .. } => Exit::Conflict,
            InteractiveError::NoContainer { .. } | InteractiveError::NoNotebook { .. } => Exit::NotFound,
            InteractiveError::Forbidden { .. } => Exit::Denied,
            InteractiveError::NotStarted { .. } => Exit::JobFailed,
            InteractiveError::Lost { .. } => Exit::Unreachable,
            InteractiveError::Port { .. } => Exit::Usage,
        }
    }

    fn remedy(&self) -> Remedy {
        let about = |verb: &str, job: &JobRef| format!("jobctl {verb} {}{}", job.name, job.namespace_flag());
        Remedy::Do(match self {
            InteractiveError::NotRunning { job, ended: false, .. } => about("why", job),
            InteractiveError::NotRunning { job, .. } | InteractiveError::PodNotRunning { job, .. } => about("get", job),
            InteractiveError::NoContainer { job, .. } => about("shell", job),
            InteractiveError::NotStarted { job, .. } | InteractiveError::NoNotebook { job, .. } => about("logs", job),
            InteractiveError::Forbidden { resource, namespace, .. } => {
                format!("kubectl auth can-i create {resource} --namespace {namespace}")
            }
            InteractiveError::Lost { back, .. } => back.clone(),
            InteractiveError::Port { .. } => "jobctl notebook --port 0".to_owned(),
        })
    }
}

impl InteractiveError {
    /// A refused request as a missing right, if it is one.
    pub(super) fn forbidden(error: &CallError, resource: &'static str, namespace: &str) -> Option<Self> {
        match &error.cause {
            CallCause::Refused { code: 403, message, .. } => Some(InteractiveError::Forbidden {
                resource,
                namespace: namespace.to_owned(),
                message: message.clone(),
            }),
            _ => None,
        }
    }
}

fn with_space(of: &str) -> String {
    if of.is_empty() { String::new() } else { format!("{of} ") }
}
