//! All ways a command can fail, and the exit code of each.
//!
//! Invariant: every error has an exit code and, where one exists, the one command to run next.
//! Called by `jobctl`'s `main` and by Python's exceptions.

use crate::autostart::{MAKE_ROOM, StartError};
use crate::bundle::place::FOLDER_FLAG;
use crate::bundle::{BundleError, LocationError, PlaceError};
use crate::call::{CallCause, CallError, FailureClass};
use crate::connection::ConnectError;
use crate::context::ContextError;
use crate::fleet::{FleetError, NOT_HERE};
use crate::interactive::InteractiveError;
use crate::manifest::ManifestError;
use crate::marked::MarkedError;
use crate::names::NameError;
use crate::outcome::Exit;
use crate::render::RenderError;
use crate::results::ResultsError;
use crate::select::JobRef;
use crate::shards::params::ParamsError;
use crate::shards::record::RecordError;
use crate::submit::SubmitError;
use crate::target::{Target, TargetError};

/// What helps where the input is wrong.
const CORRECT: &str = "correct that and run the same command again";

/// What helps where there is no history to ask.
const HISTORY: &str =
    "pumice up without --history=false; on a cluster its administrator's pumice history run, see docs/history.md";

/// What helps where no platform can be used: another one.
const NAME_ONE: &str = "jobctl --kubeconfig FILE list";

/// Any failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No way to the API.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The flags or environment name no target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No platform runs, and none could be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The manifest is wrong.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The flags make no job.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// An object can't be submitted as it is.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The pods of a job can't be given the key of its results.
    #[error(transparent)]
    Marked(#[from] MarkedError),
    /// A name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A bundle or results can't be written or read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// There is no place for a bundle.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A text says no place of a bundle.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// A table of parameters is wrong.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// A record of a bundle was made of something else.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A job's results can't be told.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// There is no session in a pod, or no more.
    #[error(transparent)]
    Interactive(Box<InteractiveError>),
    /// The job does not exist.
    #[error("no job {name} in namespace {namespace}")]
    NoJob {
        /// The name looked for.
        name: String,
        /// Where.
        namespace: String,
    },
    /// The job has ended, and its object is gone since.
    #[error("job {name} in namespace {namespace} ended {ended} and has been removed")]
    Removed {
        /// The name looked for.
        name: String,
        /// Where.
        namespace: String,
        /// When it ended, for people.
        ended: String,
        /// What names the namespace again in a command, where that is needed.
        flag: String,
    },
    /// `last` was asked for and there is none.
    #[error("no job at all in namespace {namespace}")]
    NoJobs {
        /// Where.
        namespace: String,
    },
    /// Nothing is what was asked for.
    #[error("no job {wanted} in namespace {namespace}")]
    NoMatch {
        /// What was asked for.
        wanted: String,
        /// Where.
        namespace: String,
    },
    /// A pattern stands for several jobs where one is wanted.
    #[error("{pattern} means {hits} jobs, and this is for one")]
    Several {
        /// The pattern.
        pattern: String,
        /// How many jobs it hits.
        hits: usize,
    },
    /// The job still goes on.
    #[error("job {name} has not ended")]
    NotEnded {
        /// The job.
        name: String,
        /// What repeats its namespace on a command line; may be empty.
        flag: String,
    },
    /// The job is suspended, and goes on when it is resumed.
    #[error("job {name} is suspended")]
    Suspended {
        /// The job.
        name: String,
        /// What repeats its namespace on a command line; may be empty.
        flag: String,
    },
    /// The platform's controllers do not end a suspended job.
    #[error("job {name} stays suspended: the controllers of this platform do not end a suspended job")]
    StaysSuspended {
        /// The job.
        name: String,
        /// What repeats its namespace on a command line; may be empty.
        flag: String,
    },
    /// An object that is no job does not exist.
    #[error("no {what} {name}")]
    Missing {
        /// Its kind, such as `queue`.
        what: &'static str,
        /// The name looked for.
        name: String,
    },
    /// The server keeps no history, or none that it answers from.
    #[error("{url} answers no questions about its history")]
    NoHistory {
        /// The server.
        url: String,
    },
    /// The history knows of no such job.
    #[error("no job {name} of namespace {namespace} is in the history")]
    NoPast {
        /// The name looked for.
        name: String,
        /// Where.
        namespace: String,
    },
    /// Jobs don't say whose they are.
    #[error("{url} does not write down who submits a job")]
    NoUsers {
        /// The server.
        url: String,
    },
    /// The list of contexts can't be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// No pod of the job has failed, or the one asked for has not.
    #[error("no pod {}of job {job} has failed", index.map(|index| format!("of index {index} ")).unwrap_or_default())]
    NoFailure {
        /// The job.
        job: String,
        /// The pod's index.
        index: Option<u32>,
        /// What repeats its namespace on a command line; may be empty.
        flag: String,
    },
    /// A pod that was named is not one of the job's.
    #[error("job {job} has no pod {pod}")]
    NoPod {
        /// The job.
        job: String,
        /// The pod.
        pod: String,
    },
    /// An index was asked for without saying of which task.
    #[error("job {job} has several tasks: name one of {tasks}")]
    WhichTask {
        /// The job.
        job: String,
        /// Its tasks.
        tasks: String,
    },
}

impl From<InteractiveError> for Error {
    fn from(error: InteractiveError) -> Self {
        Error::Interactive(Box::new(error))
    }
}

impl Error {
    /// The exit code's meaning.
    pub fn exit(&self) -> Exit {
        match self {
            Error::Connect(ConnectError::Locate(error)) | Error::Target(error) => exit_of_target(error),
            Error::Start(_) => Exit::Unreachable,
            Error::Call(error) => exit_of_class(error.class()),
            Error::Interactive(error) => error.exit(),
            Error::Submit(SubmitError::Call { source, .. }) => exit_of_class(source.class()),
            Error::Marked(MarkedError::Rights { .. }) => Exit::Denied,
            Error::Place(PlaceError::Call(error) | PlaceError::Rights { source: error, .. })
            | Error::Bundle(BundleError::Place(PlaceError::Call(error))) => exit_of_class(error.class()),
            Error::NoJob { .. } | Error::NoJobs { .. } | Error::NoMatch { .. } | Error::NoPod { .. } => Exit::NotFound,
            Error::Removed { .. }
            | Error::Results(ResultsError::NoRun { .. })
            | Error::NoHistory { .. }
            | Error::NoPast { .. } => Exit::NotFound,
            Error::NoFailure { .. } | Error::Missing { .. } | Error::Context(ContextError::Unknown { .. }) => {
                Exit::NotFound
            }
            Error::Context(_) => Exit::Usage,
            Error::NotEnded { .. } | Error::Suspended { .. } | Error::StaysSuspended { .. } => Exit::Conflict,
            Error::Several { .. } | Error::NoUsers { .. } => Exit::Usage,
            Error::Submit(SubmitError::NotServed { .. } | SubmitError::NoQueue { .. }) => Exit::NotFound,
            Error::Bundle(BundleError::Missing { .. }) => Exit::NotFound,
            Error::Submit(SubmitError::OtherJob { .. } | SubmitError::NameTaken { .. }) => Exit::Conflict,
            Error::Connect(_) | Error::Manifest(_) | Error::Render(_) | Error::Submit(_) | Error::Name(_) => {
                Exit::Usage
            }
            Error::Bundle(_) | Error::Place(_) | Error::Location(_) | Error::Params(_) | Error::Record(_) => {
                Exit::Usage
            }
            Error::WhichTask { .. } | Error::Results(ResultsError::Rule { .. }) => Exit::Usage,
            Error::Marked(MarkedError::Key(_)) => Exit::Usage,
        }
    }

    /// What helps next, a command where there is one. `target` is what the command talked to, if it got that far.
    pub fn next_command(&self, target: Option<&Target>) -> Option<String> {
        match self {
            Error::Connect(ConnectError::Locate(TargetError::NotRunning { start, .. }))
            | Error::Target(TargetError::NotRunning { start, .. }) => Some(start.clone()),
            Error::Start(StartError::NoProgram { .. }) => Some(NAME_ONE.to_owned()),
            // Its sentence says what to do.
            Error::Start(StartError::Ended { said, .. }) if said.contains(MAKE_ROOM) => None,
            Error::Start(_) | Error::Target(_) | Error::Connect(ConnectError::Locate(_)) => {
                Some("pumice up".to_owned())
            }
            Error::Connect(ConnectError::Namespace(_)) | Error::Name(_) => Some("jobctl list".to_owned()),
            Error::Connect(ConnectError::Fleet(FleetError::Identity { .. })) => None,
            Error::Connect(ConnectError::Fleet(_)) => Some("jobctl context show".to_owned()),
            Error::Connect(_) => Some(NAME_ONE.to_owned()),
            Error::NoJob { namespace, .. } | Error::NoJobs { namespace } | Error::NoMatch { namespace, .. } => {
                Some(format!("jobctl list --namespace {namespace}"))
            }
            Error::Removed { name, flag, .. } => Some(format!("jobctl history {name}{flag}")),
            Error::NoFailure { job, flag, .. } => Some(format!("jobctl get {job}{flag}")),
            Error::NoHistory { .. } => Some(HISTORY.to_owned()),
            Error::NoPast { .. } => Some("jobctl history --all-namespaces".to_owned()),
            Error::NoUsers { .. } => Some("jobctl list".to_owned()),
            Error::Missing { what, .. } => Some(format!("jobctl {what} list")),
            Error::Context(ContextError::Unknown { .. }) => Some("jobctl context list".to_owned()),
            Error::Context(_) => Some(CORRECT.to_owned()),
            Error::NotEnded { name, flag } => Some(format!("jobctl cancel {name}{flag}")),
            Error::Suspended { name, flag } => Some(format!("jobctl resume {name}{flag}")),
            Error::StaysSuspended { name, flag } => Some(format!("jobctl delete --force {name}{flag}")),
            Error::Several { pattern, .. } => Some(format!("jobctl list '{pattern}'")),
            Error::NoPod { job, .. } | Error::WhichTask { job, .. } => Some(format!("jobctl logs {job}")),
            Error::Render(_) => Some("jobctl run --help".to_owned()),
            Error::Manifest(_) | Error::Submit(SubmitError::Check { .. } | SubmitError::NotServed { .. }) => {
                Some(CORRECT.to_owned())
            }
            Error::Submit(SubmitError::NoQueue { .. }) => Some("jobctl queue list".to_owned()),
            Error::Submit(
                SubmitError::OtherJob { name, namespace, .. } | SubmitError::NameTaken { name, namespace, .. },
            ) => {
                let job = JobRef { namespace: namespace.clone(), name: name.clone() };
                Some(format!("jobctl get {name}{}", job.namespace_flag()))
            }
            Error::Submit(SubmitError::Call { source, .. }) => next_after_call(source, target),
            Error::Call(error) => next_after_call(error, target),
            Error::Place(error) | Error::Bundle(BundleError::Place(error)) => match error {
                PlaceError::Call(error) => next_after_call(error, target),
                PlaceError::Bound { .. }
                | PlaceError::Full { .. }
                | PlaceError::NoLinks { .. }
                | PlaceError::Rights { .. } => Some(format!("jobctl run {FOLDER_FLAG} ...")),
                _ => None,
            },
            // Its sentence says what to do.
            Error::Marked(_) => None,
            Error::Bundle(_) | Error::Record(_) => None,
            Error::Results(error) => error.next_command(),
            Error::Interactive(error) => Some(error.next_command()),
            Error::Location(_) | Error::Params(_) => Some(CORRECT.to_owned()),
        }
    }
}

fn next_after_call(error: &CallError, target: Option<&Target>) -> Option<String> {
    // Its sentence says what to do.
    if matches!(&error.cause, CallCause::Refused { reason, .. } if reason == NOT_HERE) {
        return None;
    }
    match error.class() {
        FailureClass::Unreachable => {
            let answers = matches!(error.cause, CallCause::Refused { .. });
            target.map(|target| target.help_command(answers))
        }
        FailureClass::Denied if matches!(target, Some(Target::Fleet(_))) => None,
        FailureClass::Denied => Some("jobctl --kubeconfig FILE ... with a user that may do this".to_owned()),
        FailureClass::NotFound | FailureClass::Conflict => Some("jobctl list --all-namespaces".to_owned()),
        FailureClass::Invalid => Some(CORRECT.to_owned()),
        FailureClass::Expired => None,
    }
}

fn exit_of_target(error: &TargetError) -> Exit {
    match error {
        TargetError::NotRunning { .. } => Exit::Unreachable,
        _ => Exit::Usage,
    }
}

fn exit_of_class(class: FailureClass) -> Exit {
    match class {
        FailureClass::Invalid => Exit::Usage,
        FailureClass::NotFound => Exit::NotFound,
        FailureClass::Denied => Exit::Denied,
        FailureClass::Conflict => Exit::Conflict,
        FailureClass::Expired | FailureClass::Unreachable => Exit::Unreachable,
    }
}

/// The most characters of an error: a server may quote a whole object.
const TEXT_CHARACTERS_MAX: usize = 2000;

/// An error and its causes in one sentence of bounded length, for standard error.
pub fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Pictures of the place, as YAML parsers draw them, don't fit in a sentence.
        let cause_text = cause.to_string().lines().next().unwrap_or_default().to_owned();
        // Some causes repeat what wraps them.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    if text.chars().count() <= TEXT_CHARACTERS_MAX {
        return text;
    }
    let kept: String = text.chars().take(TEXT_CHARACTERS_MAX).collect();
    format!("{kept} ... (cut)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_has_the_causes_once_and_an_end() {
        let io = || std::io::Error::other("no such disk\n  ^^^^");
        let error = ManifestError::Read { origin: "job.yaml".into(), source: io() };
        assert_eq!(sentence(&error), "cannot read job.yaml: no such disk");
        let long = ManifestError::Read { origin: "é".repeat(5000), source: io() };
        assert!(sentence(&long).chars().count() < 2100 && sentence(&long).ends_with("(cut)"));
    }
}
