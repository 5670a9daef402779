//! What is wrong with flags that make no Job, each with the flag's name.

use std::path::PathBuf;

use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;
use crate::names::{JobNameError, NameError};
use crate::shards::rule::NoRule;
use crate::shards::template::TemplateError;

/// Flags that make no Job.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum RenderError {
    #[error("no command: name it after `--`, as in `jobctl run -- python train.py`")]
    NoCommand,
    /// A name that is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A name that no job can have.
    #[error("--name {0}")]
    JobName(#[from] JobNameError),
    /// A number out of range.
    #[error("{flag} {value} is not within {min} to {max}")]
    Range {
        flag: &'static str,
        /// What it was given.
        value: u32,
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// A text that is not what the flag takes.
    #[error("{flag} {value:?} {problem}")]
    Text {
        flag: &'static str,
        /// What it was given, cut to 80 characters.
        value: String,
        /// What is wrong with it, as the rest of the sentence.
        problem: String,
    },
    /// Two flags that exclude each other, or one that needs another.
    #[error("{flags}: {problem}")]
    Together {
        flags: &'static str,
        /// Why not.
        problem: &'static str,
    },
    /// Names in braces that no record has.
    #[error(transparent)]
    Template(TemplateError),
    /// Records that can't be computed from a short text.
    #[error(transparent)]
    Rule(NoRule),
    /// An environment variable's name.
    #[error("--env {name:?} is not a variable's name: no '=' and no control characters in it")]
    EnvName { name: String },
    /// Where a link leads can't be named in a Job.
    #[error(
        "a link of the working directory leads to {path:?}, whose name is not UTF-8 text: rename it, or remove the link"
    )]
    LinkTarget { path: PathBuf },
    /// A relative directory.
    #[error("--workdir {path:?} is not an absolute path")]
    Workdir { path: String },
}

impl Failure for RenderError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn remedy(&self) -> Remedy {
        Remedy::from_text("jobctl run --help")
    }
}

impl RenderError {
    /// A text that is not what `flag` takes.
    pub(super) fn text(flag: &'static str, value: &str, problem: impl Into<String>) -> Self {
        RenderError::Text { flag, value: value.chars().take(80).collect(), problem: problem.into() }
    }
}
