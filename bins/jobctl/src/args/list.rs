//! Flags of `list`.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use pumice_jobs::job::Selector;
use pumice_jobs::job::list_columns::{self, Column, Order};
use pumice_jobs::job::state::State;
use pumice_jobs::lookup::JobFilter;

use super::completion;
use super::duration;

/// Flags of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only these: names, patterns such as 'sweep-*', or `last`
    #[arg(value_name = "JOB", add = completion::jobs())]
    pub jobs: Vec<Selector>,
    /// Jobs of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only jobs with these labels, such as team=a,stage!=test
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Only jobs of this queue
    #[arg(long, value_name = "NAME", add = completion::queues())]
    pub queue: Option<String>,
    /// Only jobs that I submitted
    #[arg(long, conflicts_with = "user")]
    pub me: bool,
    /// Only jobs that this user submitted, as the platform writes it: see --columns user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only jobs in these states, such as running or failed,terminated; also active and ended
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub state: Vec<State>,
    /// Only jobs submitted so long ago or later, such as 2h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub since: Option<Duration>,
    /// Order: oldest, furthest and longest first
    #[arg(long, value_name = "BY", value_parser = order(), default_value = "age")]
    pub sort: Order,
    /// At most so many, the last ones of the order by age, else the first ones
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', help = format!("Columns: {}", list_columns::known()))]
    pub columns: Vec<Column>,
    /// Form of what is printed
    #[arg(short, long, value_enum, default_value_t = ListForm::Table)]
    pub output: ListForm,
}

impl ListArgs {
    /// The jobs that the flags leave; how long ago is counted in seconds.
    pub fn filter(&self) -> JobFilter {
        JobFilter {
            selectors: self.jobs.clone(),
            states: self.state.clone(),
            queue: self.queue.clone(),
            user: self.user.clone(),
            since_s: self.since.map(|since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
            labels: self.selector.clone(),
        }
    }
}

fn order() -> impl TypedValueParser<Value = Order> {
    PossibleValuesParser::new(Order::WORDS.map(|(word, _)| word)).try_map(|word| word.parse::<Order>())
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListForm {
    /// For people
    Table,
    /// For people with wide screens
    Wide,
    /// Comma-separated values; spans of time in seconds
    Csv,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// job/NAME
    Name,
}
