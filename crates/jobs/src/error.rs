//! A failure of any kind, with its exit code and what helps.
//!
//! Each module defines how it can fail, as a type that says by [`Failure`] which exit code it has and what to do next. [`Error`]
//! holds any of them, for callers that only report it.
//!
//! Invariant: every error has an exit code and, where one exists, the one command to run next. Called by all that can fail.

use std::fmt;

use crate::exit_code::Exit;

/// What helps where the input is wrong.
pub const CORRECT: &str = "correct that and run the same command again";

/// What helps after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing, or what the error's sentence says already.
    Unknown,
    /// A command, or a sentence.
    Do(String),
    /// To bring up the server that was talked to, or to look at it where it `answers`.
    Reach {
        /// Whether the server answered, and refused.
        answers: bool,
    },
    /// Another user, who may do it.
    OtherUser,
}

impl Remedy {
    /// A command, or a sentence.
    pub fn from_text(text: impl Into<String>) -> Self {
        Remedy::Do(text.into())
    }
}

/// How a module can fail.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// What a command ends with.
    fn exit(&self) -> Exit;

    /// What somebody can do about it. It names no flags of the platform: the command that failed adds those.
    fn remedy(&self) -> Remedy;
}

/// Any failure of this crate.
pub struct Error(Box<dyn Failure>);

impl<F: Failure> From<F> for Error {
    fn from(failure: F) -> Self {
        Error(Box::new(failure))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl Error {
    /// What a command ends with.
    pub fn exit(&self) -> Exit {
        self.0.exit()
    }

    /// What somebody can do about it, as the failure itself says.
    pub fn remedy(&self) -> Remedy {
        self.0.remedy()
    }

    /// The failure itself, if it is one of this kind.
    pub fn downcast_ref<F: Failure>(&self) -> Option<&F> {
        let failure: &(dyn std::error::Error + 'static) = &*self.0;
        failure.downcast_ref()
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
    use crate::manifest::ManifestError;

    #[test]
    fn a_sentence_has_the_causes_once_and_an_end() {
        let io = || std::io::Error::other("no such disk\n  ^^^^");
        let error = ManifestError::Read { origin: "job.yaml".into(), source: io() };
        assert_eq!(sentence(&error), "cannot read job.yaml: no such disk");
        let long = ManifestError::Read { origin: "é".repeat(5000), source: io() };
        assert!(sentence(&long).chars().count() < 2100 && sentence(&long).ends_with("(cut)"));
    }
}
