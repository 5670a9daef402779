//! Flags of `logs`.

use clap::{Args, ValueEnum};
use pumice_jobs::job::Selector;
use pumice_jobs::logs::{Attempt, LogStream};

use super::completion;

/// Flags of `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Name, job/NAME, a pattern that hits one, or `last` for the newest
    #[arg(add = completion::jobs())]
    pub job: Selector,
    /// Go on until the job ends
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last lines of each pod
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Only this pod
    #[arg(long)]
    pub pod: Option<String>,
    /// Only this container
    #[arg(short, long)]
    pub container: Option<String>,
    /// Only what went to this stream
    #[arg(long, value_enum, value_name = "STREAM")]
    pub stream: Option<Stream>,
    /// What each pod wrote the time before, when it was made or started again
    #[arg(short, long, conflicts_with_all = ["follow", "attempt"])]
    pub previous: bool,
    /// What each pod wrote at this attempt, from 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "follow")]
    pub attempt: Option<u32>,
    /// Begin lines with the pod's name [default: with more than one pod]
    #[arg(long)]
    pub prefix: Option<bool>,
}

/// A stream of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Stream {
    /// Standard output
    Stdout,
    /// Standard error
    Stderr,
}

impl LogsArgs {
    /// The attempt that is meant.
    pub fn attempt(&self) -> Attempt {
        match (self.attempt, self.previous) {
            (Some(number), _) => Attempt::Number(number),
            (None, true) => Attempt::Previous,
            (None, false) => Attempt::Latest,
        }
    }

    /// The stream that is meant, if not both are.
    pub fn stream(&self) -> Option<LogStream> {
        self.stream.map(|stream| match stream {
            Stream::Stdout => LogStream::Stdout,
            Stream::Stderr => LogStream::Stderr,
        })
    }
}
