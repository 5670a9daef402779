//! Questions: what was asked for, as statements, and their rows as records.
//!
//! Invariant: a question sees one namespace unless it was asked of all; every answer has a limit and says how it goes on.
//! Called by the API's side of the component, and through the handle.

mod decode;
mod groups;
mod job;
mod parse;
mod runs;

use pumice_api::history::{JobRecord, PageMeta};

use crate::database::{Database, DatabaseError};
use crate::rows::{Cell, Table};
use crate::statements::Statement;

pub use groups::{GroupBy, groups};
pub use job::job;
pub use parse::parse;
pub use runs::{LastRuns, last_runs};

/// Rows of an answer, unless said otherwise.
pub const ROWS: i64 = 100;
/// Most rows of an answer.
pub const ROWS_MAX: i64 = 1_000;

/// Why a question got no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// A parameter makes no sense.
    #[error("invalid value {value:?} for query parameter {name}: want {wanted}")]
    Parameter {
        name: &'static str,
        value: String,
        /// What it could be.
        wanted: &'static str,
    },
    /// There was no such job.
    #[error("jobs.history.pumice.sh {name:?} not found")]
    NoJob { name: String },
    /// The database did not answer.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Which jobs are asked for, and how many at a time. A job must meet all that is given; by default nothing is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    pub namespace: Option<String>,
    /// With this name; `*` stands for anything, `?` for any letter.
    pub name: Option<String>,
    /// By this user.
    pub user: Option<String>,
    pub queue: Option<String>,
    /// Runs of this kind.
    pub profile: Option<String>,
    /// In one of these phases.
    pub phases: Vec<String>,
    /// With a pod on this node.
    pub node: Option<String>,
    /// Not over before this moment, in milliseconds since 1970.
    pub since: Option<i64>,
    /// Submitted before this moment.
    pub until: Option<i64>,
    /// At most so many rows; 0 = [`ROWS`].
    pub limit: i64,
    /// After this one, as an earlier answer named it.
    pub after: Option<(i64, String)>,
    /// Sums over groups in place of jobs.
    pub group: Option<GroupBy>,
}

/// Conditions on `job j` and their arguments.
#[derive(Debug, Default)]
struct Conditions {
    sql: Vec<String>,
    arguments: Vec<Cell>,
}

impl Conditions {
    /// The place of an argument.
    fn bind(&mut self, cell: Cell) -> String {
        self.arguments.push(cell);
        format!("${}", self.arguments.len())
    }

    fn add(&mut self, condition: &str, cell: Cell) {
        let place = self.bind(cell);
        self.sql.push(condition.replace("{}", &place));
    }

    fn text(&self) -> String {
        if self.sql.is_empty() { "TRUE".to_owned() } else { self.sql.join(" AND ") }
    }
}

impl Question {
    fn limit(&self) -> i64 {
        if self.limit <= 0 { ROWS } else { self.limit.min(ROWS_MAX) }
    }

    fn conditions(&self) -> Conditions {
        let mut all = Conditions::default();
        let equal = [
            ("j.namespace = {}", &self.namespace),
            ("j.submitter = {}", &self.user),
            ("j.queue = {}", &self.queue),
            ("j.profile = {}", &self.profile),
            ("EXISTS (SELECT 1 FROM attempt n WHERE n.job_uid = j.uid AND n.node = {})", &self.node),
        ];
        for (condition, value) in equal {
            if let Some(value) = value {
                all.add(condition, Cell::text(value));
            }
        }
        match &self.name {
            Some(name) if name.contains(['*', '?']) => {
                all.add("j.name LIKE {} ESCAPE '\\'", Cell::text(&pattern(name)))
            }
            Some(name) => all.add("j.name = {}", Cell::text(name)),
            None => {}
        }
        if !self.phases.is_empty() {
            let places: Vec<String> =
                self.phases.iter().map(|phase| all.bind(Cell::text(&phase.to_lowercase()))).collect();
            all.sql.push(format!("LOWER(j.phase) IN ({})", places.join(", ")));
        }
        if let Some(since) = self.since {
            // What has not ended is not over.
            all.add(
                "(j.gone IS NULL AND j.ended IS NULL OR COALESCE(j.ended, j.unseen_from, j.gone) >= {})",
                Cell::Int(Some(since)),
            );
        }
        if let Some(until) = self.until {
            all.add("j.submitted < {}", Cell::Int(Some(until)));
        }
        all
    }
}

/// A pattern with `*` and `?` as SQL has it.
fn pattern(name: &str) -> String {
    let escaped = name.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    escaped.replace('*', "%").replace('?', "_")
}

fn columns(table: Table, alias: &str) -> String {
    table.columns().iter().map(|column| format!("{alias}.{}", column.name)).collect::<Vec<_>>().join(", ")
}

/// Jobs, the last submitted first.
///
/// # Errors
/// When the database does not answer in time.
pub async fn jobs(database: &Database, question: &Question) -> Result<(Vec<JobRecord>, PageMeta), QueryError> {
    let limit = question.limit();
    let mut conditions = question.conditions();
    if let Some((submitted, uid)) = &question.after {
        let (submitted, uid) = (conditions.bind(Cell::Int(Some(*submitted))), conditions.bind(Cell::text(uid)));
        conditions.sql.push(format!("(j.submitted, j.uid) < ({submitted}, {uid})"));
    }
    let more = conditions.bind(Cell::Int(Some(limit + 1)));
    let sql = format!(
        "SELECT {} FROM job j WHERE {} ORDER BY j.submitted DESC, j.uid DESC LIMIT {more}",
        columns(Table::Job, "j"),
        conditions.text(),
    );
    let rows = database.ask(&Statement::new(sql, conditions.arguments), &decode::kinds(Table::Job)).await?;
    let mut records: Vec<JobRecord> = rows.into_iter().map(decode::job).collect();
    let mut page = PageMeta::default();
    if records.len() > usize::try_from(limit).unwrap_or(usize::MAX) {
        records.pop();
        page.next = records.last().map(parse::token).unwrap_or_default();
    }
    Ok((records, page))
}
