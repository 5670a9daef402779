//! Flags of recordings: how much is kept, and what is done with them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use pumice_recording::{Range, Stretch, TimeMs};
use pumice_scheduler::recorder::RecordOptions;
use pumice_units::Quantity;

/// How much is kept.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub struct KeepArgs {
    /// Most bytes that the recording of the scheduler takes
    #[arg(long, value_name = "BYTES", default_value = "10G", value_parser = bytes)]
    pub record_max_bytes: u64,
    /// Days that it reaches back at most
    #[arg(long, value_name = "DAYS", default_value_t = RecordOptions::DAYS, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub record_days: u32,
}

/// Least that is worth keeping.
const BYTES_MIN: i64 = 1 << 20;

fn bytes(text: &str) -> Result<u64, String> {
    let quantity: Quantity = text.parse().map_err(|_| format!("{text:?} is no amount of bytes; try 10G"))?;
    match quantity.value() {
        amount if amount < BYTES_MIN => Err(format!("{text:?} is too little to record anything; try 10G")),
        amount => Ok(amount.unsigned_abs()),
    }
}

fn weight(text: &str) -> Result<(String, i32), String> {
    let wrong = || format!("{text:?} is no queue with a weight of 1 or more; try research=3");
    let (queue, weight) = text.split_once('=').ok_or_else(wrong)?;
    let weight = weight.parse().ok().filter(|weight| *weight >= 1).ok_or_else(wrong)?;
    if queue.is_empty() { Err(wrong()) } else { Ok((queue.to_owned(), weight)) }
}

impl KeepArgs {
    /// Recording into `folder`.
    pub fn options(&self, folder: PathBuf) -> RecordOptions {
        let age_max = Duration::from_secs(86_400) * self.record_days;
        RecordOptions { folder, bytes_max: self.record_max_bytes, age_max }
    }
}

/// From when to when.
#[derive(Debug, Args)]
pub struct RangeArgs {
    /// From this time on, such as 2026-11-24T08:00:00Z
    #[arg(long, value_name = "TIME")]
    from: Option<jiff::Timestamp>,
    /// Before this time
    #[arg(long, value_name = "TIME")]
    to: Option<jiff::Timestamp>,
}

impl RangeArgs {
    /// As the engine's times.
    pub fn range(&self) -> Range {
        let time = |at: Option<jiff::Timestamp>| at.map(|at| TimeMs(at.as_millisecond()));
        Range { from: time(self.from), to: time(self.to) }
    }
}

/// How something is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// `pumice scheduler replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The folder of the recording
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub range: RangeArgs,
    /// What if: run its jobs under this configuration instead, on a virtual cluster, and say what would have been; exits
    /// 0 whatever that is. --from and --to bound when jobs were submitted
    #[arg(long, value_name = "FILE")]
    pub conf: Option<PathBuf>,
    /// What if: let this queue weigh so much; repeatable, by itself or together with --conf
    #[arg(long, value_name = "QUEUE=WEIGHT", value_parser = weight)]
    pub weight: Vec<(String, i32)>,
    /// How the outcome is told
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
}

/// What is done with recordings.
#[derive(Debug, Subcommand)]
pub enum RecordCommand {
    /// Cut a stretch out of a recording: one file that `pumice scheduler check` runs
    Cut(CutArgs),
}

/// `pumice scheduler record cut`.
#[derive(Debug, Args)]
pub struct CutArgs {
    /// The folder of the recording
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Only from the submission of this job to its last start
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pumice_recording::job)]
    pub job: Option<(String, String)>,
    /// Put pseudonyms in the place of all names
    #[arg(long)]
    pub redact: bool,
    /// The file to write
    #[arg(long = "output", short = 'o', value_name = "FILE")]
    pub file: PathBuf,
}

impl CutArgs {
    /// What is to be cut.
    pub fn stretch(&self) -> Stretch {
        Stretch { range: self.range.range(), job: self.job.clone(), redact: self.redact }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_quantities_that_hold_something() {
        assert_eq!(bytes("10G"), Ok(RecordOptions::BYTES));
        assert_eq!(bytes("2Mi"), Ok(2 << 20));
        for text in ["", "many", "-1G", "0", "1k"] {
            assert!(bytes(text).unwrap_err().contains("try 10G"), "{text}");
        }
    }
    #[test]
    fn weights_are_of_queues() {
        assert_eq!(weight("research=3"), Ok(("research".to_owned(), 3)));
        for text in
            ["", "research", "=3", "research=", "research=0", "research=-1", "research=1.5", "research=9999999999"]
        {
            assert!(weight(text).unwrap_err().contains("try research=3"), "{text}");
        }
    }
}
