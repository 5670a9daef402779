//! Jobs as rows of a table.
//!
//! Invariant: one row per job in the order given; cells never hold line breaks or what a terminal would obey. Pure; `now` is
//! an argument. Called by `jobctl list` and `get`.

use jiff::Timestamp;

use crate::job::JobRow;
use crate::output::age;
use crate::output::table::{Table, Tint};

/// A column of a table of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Name,
    Namespace,
    State,
    Queue,
    /// Pods succeeded, failed, running and waiting.
    Progress,
    Total,
    Ok,
    Fail,
    Run,
    Wait,
    /// How long ago it was made.
    Age,
    /// How long it has run.
    Runtime,
    /// When it was made.
    Created,
    /// Pods that must be able to run together.
    Min,
    Retries,
    Priority,
    Uid,
    User,
}

/// All columns and their words, which in capitals are their heads.
const WORDS: &[(&str, Column)] = &[
    ("name", Column::Name),
    ("namespace", Column::Namespace),
    ("state", Column::State),
    ("queue", Column::Queue),
    ("progress", Column::Progress),
    ("total", Column::Total),
    ("ok", Column::Ok),
    ("fail", Column::Fail),
    ("run", Column::Run),
    ("wait", Column::Wait),
    ("age", Column::Age),
    ("runtime", Column::Runtime),
    ("created", Column::Created),
    ("min", Column::Min),
    ("retries", Column::Retries),
    ("priority", Column::Priority),
    ("uid", Column::Uid),
    ("user", Column::User),
];

/// What the cells of [`Column::Progress`] are.
const PROGRESS_HEAD: &str = "OK/FAIL/RUN/WAIT";

/// The words of all columns, as the help of `--columns` and the error name them: `name, namespace, ...`.
pub fn known() -> String {
    WORDS.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
}

/// A word that names no column.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such column; known are {}", known())]
pub struct UnknownColumn;

impl std::str::FromStr for Column {
    type Err = UnknownColumn;

    fn from_str(text: &str) -> Result<Self, UnknownColumn> {
        WORDS.iter().find(|(word, _)| *word == text).map(|(_, column)| *column).ok_or(UnknownColumn)
    }
}

impl Column {
    /// The columns of the table where `--columns` names none.
    pub const SHOWN: &'static [Column] =
        &[Column::Name, Column::State, Column::Queue, Column::Progress, Column::Age, Column::Runtime];
    /// What is added for wide screens.
    pub const WIDE: &'static [Column] = &[Column::Min, Column::Retries, Column::Priority, Column::Uid];
    /// The columns of CSV where `--columns` names none.
    pub const CSV: &'static [Column] = &[
        Column::Namespace,
        Column::Name,
        Column::State,
        Column::Queue,
        Column::Total,
        Column::Ok,
        Column::Fail,
        Column::Run,
        Column::Wait,
        Column::Created,
        Column::Runtime,
    ];

    fn word(self) -> &'static str {
        WORDS.iter().find(|(_, column)| *column == self).map_or("", |(word, _)| word)
    }

    fn cell(self, job: &JobRow, now: Timestamp, spans: fn(i64) -> String) -> String {
        let counts = job.counts();
        match self {
            Column::Name => job.metadata.name.clone(),
            Column::Namespace => job.metadata.namespace.clone(),
            Column::State => job.state().to_owned(),
            Column::Queue => job.queue().to_owned(),
            Column::Progress => {
                format!("{}/{}/{}/{}", counts.succeeded, counts.failed, counts.running, counts.waiting)
            }
            Column::Total => counts.total.to_string(),
            Column::Ok => counts.succeeded.to_string(),
            Column::Fail => counts.failed.to_string(),
            Column::Run => counts.running.to_string(),
            Column::Wait => counts.waiting.to_string(),
            Column::Age => job.age_s(now).map_or_else(|| "?".to_owned(), spans),
            Column::Runtime => job.runtime_s(now).map_or_else(String::new, spans),
            Column::Created => job.metadata.creation_timestamp.as_ref().map_or_else(String::new, |t| t.0.to_string()),
            Column::Min => job.spec.min_available.to_string(),
            Column::Retries => job.status.retry_count.to_string(),
            Column::Priority => job.spec.priority_class_name.clone(),
            Column::Uid => job.metadata.uid.clone(),
            Column::User => job.metadata.user.clone(),
        }
    }
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Oldest first.
    Age,
    /// By name.
    Name,
    /// By state.
    State,
    /// By queue.
    Queue,
    /// Furthest first.
    Progress,
    /// Longest first.
    Runtime,
}

impl Order {
    /// All orders and their words.
    pub const WORDS: [(&'static str, Order); 6] = [
        ("age", Order::Age),
        ("name", Order::Name),
        ("state", Order::State),
        ("queue", Order::Queue),
        ("progress", Order::Progress),
        ("runtime", Order::Runtime),
    ];
}

/// A word that names no order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such order; known are {}", Order::WORDS.map(|(word, _)| word).join(", "))]
pub struct UnknownOrder;

impl std::str::FromStr for Order {
    type Err = UnknownOrder;

    fn from_str(text: &str) -> Result<Self, UnknownOrder> {
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, order)| *order).ok_or(UnknownOrder)
    }
}

/// Puts jobs in order; where it says nothing they stay as they are.
pub fn sort(jobs: &mut [JobRow], order: Order, now: Timestamp) {
    let done_ppm = |job: &JobRow| {
        let counts = job.counts();
        ((counts.succeeded + counts.failed) * 1_000_000).checked_div(counts.total).unwrap_or(0)
    };
    match order {
        Order::Age => jobs.sort_by(|a, b| a.birth().cmp(&b.birth())),
        Order::Name => jobs.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name)),
        Order::State => jobs.sort_by(|a, b| a.state().cmp(b.state())),
        Order::Queue => jobs.sort_by(|a, b| a.queue().cmp(b.queue())),
        Order::Progress => jobs.sort_by_key(|job| std::cmp::Reverse(done_ppm(job))),
        Order::Runtime => jobs.sort_by_key(|job| std::cmp::Reverse(job.runtime_s(now))),
    }
}

/// The table of jobs for people.
pub fn table(jobs: &[JobRow], columns: &[Column], now: Timestamp) -> Table {
    let head = |column: &Column| match column {
        Column::Progress => PROGRESS_HEAD.to_owned(),
        other => other.word().to_uppercase(),
    };
    let mut table = Table::new(columns.iter().map(head));
    if let Some(place) = columns.iter().position(|column| *column == Column::State) {
        table.tint(place, tint_of_state);
    }
    for job in jobs {
        table.push(columns.iter().map(|column| column.cell(job, now, age::short)));
    }
    table
}

/// The same for programs: heads are words, spans of time seconds.
pub fn csv(jobs: &[JobRow], columns: &[Column], now: Timestamp) -> String {
    let mut table = Table::new(columns.iter().map(|column| column.word().to_owned()));
    for job in jobs {
        table.push(columns.iter().map(|column| column.cell(job, now, |seconds| seconds.max(0).to_string())));
    }
    table.csv()
}

/// What tells states apart at a glance.
pub fn tint_of_state(state: &str) -> Tint {
    match state {
        "Completed" => Tint::Good,
        "Failed" => Tint::Bad,
        "Running" => Tint::Busy,
        "Terminated" | "Aborted" | "Terminating" | "Aborting" => Tint::Faint,
        _ => Tint::Waits,
    }
}
