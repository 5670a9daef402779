//! How `jobctl` fails: what was wrong, why, the next command, the exit code.

use std::io::Write;

use pumice_jobs::error::sentence;
use pumice_jobs::platform::next_command;
use pumice_jobs::platform::target::Target;
use pumice_jobs::render::RenderError;
use pumice_jobs::{Error, Exit};

/// Anything that ends a command early.
#[derive(Debug)]
pub enum Failure {
    /// The job library says so.
    Jobs {
        error: Box<Error>,
        /// What was talked to, once known.
        target: Option<Target>,
    },
    /// Flags that make no job.
    Flags { message: String },
    /// A command that is taken for a script.
    Command { message: String, words: String },
    /// Wrong use, for which there is something better to type.
    Usage { message: String, next: String },
    /// Standard output can't be written.
    Output(std::io::Error),
    /// Something the machine denies.
    Machine(anyhow::Error),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Jobs { error: Box::new(error.into()), target: None }
    }
}

impl Failure {
    /// Adds what was talked to, which the advice depends on.
    pub fn about(self, talked_to: &Target) -> Self {
        match self {
            Failure::Jobs { error, .. } => Failure::Jobs { error, target: Some(talked_to.clone()) },
            other => other,
        }
    }

    /// Which exit code says it.
    pub fn exit(&self) -> Exit {
        match self {
            Failure::Jobs { error, .. } => error.exit(),
            Failure::Usage { .. } | Failure::Flags { .. } | Failure::Command { .. } => Exit::Usage,
            // Whoever closed the pipe (`| head`) has what it wanted.
            Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Success,
            Failure::Output(_) | Failure::Machine(_) => Exit::JobFailed,
        }
    }

    /// Says it on standard error, for a command line of this verb.
    pub fn print(&self, verb: &str) {
        let flags = || Some(format!("jobctl {verb} --help"));
        let (text, next) = match self {
            Failure::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return,
            Failure::Output(error) => (format!("cannot write to standard output: {error}"), None),
            Failure::Flags { message } => (message.clone(), flags()),
            Failure::Command { message, words } => (message.clone(), Some(format!("jobctl {verb} -- {words}"))),
            Failure::Jobs { error, .. } if error.downcast_ref::<RenderError>().is_some() => {
                (sentence(error.as_ref()), flags())
            }
            Failure::Usage { message, next } => (message.clone(), Some(next.clone())),
            Failure::Machine(error) => (format!("{error:#}"), None),
            Failure::Jobs { error, target } => (sentence(error.as_ref()), next_command(error, target.as_ref())),
        };
        let mut stderr = std::io::stderr().lock();
        // There is nowhere left to report a failure to.
        let _ = writeln!(stderr, "error: {text}");
        if let Some(next) = next {
            let _ = writeln!(stderr, "next:  {next}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_jobs::job::JobRef;

    #[test]
    fn failures_have_codes() {
        let missing = JobRef { namespace: "n".into(), name: "x".into() }.missing();
        let failure = Failure::from(missing);
        assert_eq!(failure.exit().code(), 3);
        let pipe = Failure::Output(std::io::ErrorKind::BrokenPipe.into());
        assert_eq!(pipe.exit().code(), 0);
    }
}
