//! Flags of `history`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use pumice_jobs::history::{GroupBy, LIMIT};
use pumice_jobs::history::{NoMoment, moment};
use pumice_jobs::job::Selector;

use super::completion;
use crate::terminal;

/// Flags of `history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Tell everything of this job: its name, or `last`. Patterns such as 'sweep-*' list jobs
    #[arg(value_name = "JOB", add = completion::jobs())]
    pub job: Option<Selector>,
    /// Of several jobs that had this name, the one with this uid
    #[arg(long, value_name = "UID", requires = "job")]
    pub uid: Option<String>,
    #[command(flatten)]
    pub which: Which,
    /// Sums over jobs that have this in common, in place of jobs
    #[arg(long, value_name = "BY", value_parser = group(), conflicts_with = "uid")]
    pub group_by: Option<GroupBy>,
    /// At most so many jobs, the last ones that were submitted
    #[arg(long, value_name = "N", default_value_t = LIMIT)]
    pub limit: usize,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = HistoryForm::Table)]
    pub output: HistoryForm,
    /// Write it into this file, which must not be there
    #[arg(long, value_name = "FILE", required_if_eq("output", "parquet"))]
    pub file: Option<PathBuf>,
}

/// Which jobs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which jobs")]
pub struct Which {
    /// Jobs of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only jobs of this queue
    #[arg(long, value_name = "NAME", add = completion::queues())]
    pub queue: Option<String>,
    /// Only jobs that I submitted
    #[arg(long, conflicts_with = "user")]
    pub me: bool,
    /// Only jobs that this user submitted, as the platform writes it
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only jobs with a pod on this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only jobs whose last state was one of these, such as completed or failed,terminated,deleted
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub state: Vec<String>,
    /// Only jobs that were not over before: so long ago, such as 2h or 7d, a date, or a time
    #[arg(long, value_name = "WHEN", value_parser = time)]
    pub since: Option<jiff::Timestamp>,
    /// Only jobs that were submitted before: so long ago, a date, or a time
    #[arg(long, value_name = "WHEN", value_parser = time)]
    pub until: Option<jiff::Timestamp>,
}

fn time(text: &str) -> Result<jiff::Timestamp, NoMoment> {
    moment(text, terminal::now())
}

fn group() -> impl TypedValueParser<Value = GroupBy> {
    PossibleValuesParser::new(GroupBy::WORDS.map(|(word, _)| word)).try_map(|word| word.parse::<GroupBy>())
}

/// How the history is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HistoryForm {
    /// For people
    Table,
    /// For people with wide screens
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// job/NAME
    Name,
    /// Comma-separated values
    Csv,
    /// A Parquet file; needs --file
    Parquet,
}
