//! All ways a verb can fail, and the exit code of each.
//!
//! Invariant: no failure has exit code 0; the codes are those of `jobctl`. Called by the binary.

use pumice_jobs::Exit;
use pumice_jobs::error::sentence;

/// Any failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The platform can't be reached, or refuses.
    #[error(transparent)]
    Jobs(Box<pumice_jobs::Error>),
    /// The flags make no sense.
    #[error("{message}")]
    Usage {
        /// What is wrong, and what to type instead.
        message: String,
    },
    /// Some documents of a file; each failure was told when it happened.
    #[error("{failed} of {all} documents failed")]
    Documents {
        failed: usize,
        all: usize,
        /// The code of the first one.
        code: u8,
    },
    /// A link to the program can't be made.
    #[error("cannot make the link {path}")]
    Link {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// Nobody takes what is printed.
    #[error("cannot write to standard output")]
    Output(#[source] std::io::Error),
    /// An object could not be written in the form asked for.
    #[error("cannot write {what} as {form}: {detail}")]
    Written {
        what: String,
        /// JSON or YAML.
        form: &'static str,
        detail: String,
    },
}

impl<E: Into<pumice_jobs::Error>> From<E> for Error {
    fn from(error: E) -> Self {
        Error::Jobs(Box::new(error.into()))
    }
}

impl Error {
    /// Flags that make no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Error::Usage { message: message.into() }
    }

    /// Whether whoever reads the output has what it wanted (`| head`).
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Error::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// The process's exit code.
    pub fn code(&self) -> u8 {
        match self {
            Error::Jobs(error) => error.exit().code(),
            Error::Usage { .. } => Exit::Usage.code(),
            Error::Documents { code, .. } => *code,
            Error::Link { .. } | Error::Output(_) | Error::Written { .. } => Exit::JobFailed.code(),
        }
    }

    /// The failure and its causes in one sentence.
    pub fn sentence(&self) -> String {
        match self {
            Error::Jobs(error) => sentence(error.as_ref()),
            other => sentence(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_jobs::platform::target::TargetError;

    #[test]
    fn no_failure_is_a_success() {
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        for (error, code) in [
            (Error::from(TargetError::NotRunning { data_dir: "/d".into(), start: "pumice up".into() }), 5),
            (Error::usage("queue name must be specified"), 2),
            (Error::Documents { failed: 1, all: 2, code: 6 }, 6),
            (Error::Link { path: "/x".into(), source: broken() }, 1),
            (Error::Output(broken()), 1),
        ] {
            assert_eq!(error.code(), code, "{error}");
            assert_eq!(error.is_closed_pipe(), matches!(error, Error::Output(_)));
        }
        let link = Error::Link { path: "/x/vsub".into(), source: std::io::Error::other("no room") };
        assert_eq!(link.sentence(), "cannot make the link /x/vsub: no room");
    }
}
