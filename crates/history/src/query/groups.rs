//! Sums over jobs that have something in common.

use pumice_api::history::GroupRecord;

use super::{QueryError, Question, decode};
use crate::database::Database;
use crate::rows::{Cell, Kind};
use crate::statements::{Dialect, Statement};

const HOUR_MS: i64 = 3_600_000;

/// What jobs are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    User,
    Queue,
    /// Their kind of run.
    Profile,
    /// The day of their submission, UTC.
    Day,
    /// The nodes of their pods: a job counts on each of them, a pod on its own.
    Node,
    Namespace,
    Name,
    Phase,
}

impl GroupBy {
    /// All of them and their words.
    pub const WORDS: [(&'static str, GroupBy); 8] = [
        ("user", GroupBy::User),
        ("queue", GroupBy::Queue),
        ("profile", GroupBy::Profile),
        ("day", GroupBy::Day),
        ("node", GroupBy::Node),
        ("namespace", GroupBy::Namespace),
        ("name", GroupBy::Name),
        ("phase", GroupBy::Phase),
    ];

    fn sql(self, dialect: Dialect) -> &'static str {
        match (self, dialect) {
            (GroupBy::User, _) => "COALESCE(j.submitter, '')",
            (GroupBy::Queue, _) => "COALESCE(j.queue, '')",
            (GroupBy::Profile, _) => "COALESCE(j.profile, '')",
            (GroupBy::Namespace, _) => "COALESCE(j.namespace, '')",
            (GroupBy::Name, _) => "COALESCE(j.name, '')",
            (GroupBy::Phase, _) => "COALESCE(j.phase, '')",
            (GroupBy::Node, _) => "COALESCE(a.node, '')",
            (GroupBy::Day, Dialect::Sqlite) => "COALESCE(DATE(j.submitted / 1000, 'unixepoch'), '')",
            (GroupBy::Day, Dialect::Postgres) => {
                "COALESCE(TO_CHAR(TO_TIMESTAMP(j.submitted / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), '')"
            }
        }
    }
}

/// Sums by group: days in their order, others with the most core-hours first. What holds resources still counts up to `now`,
/// in milliseconds.
///
/// # Errors
/// When the database does not answer in time.
pub async fn groups(
    database: &Database,
    question: &Question,
    by: GroupBy,
    now: i64,
) -> Result<Vec<GroupRecord>, QueryError> {
    let mut conditions = question.conditions();
    let which = conditions.text();
    let on_node = match &question.node {
        Some(node) => format!("AND a.node = {}", conditions.bind(Cell::text(node))),
        None => String::new(),
    };
    let now = conditions.bind(Cell::Int(Some(now)));
    let limit = conditions.bind(Cell::Int(Some(question.limit())));
    let key = by.sql(database.dialect());
    // Milliseconds from the moment at which a pod took its place.
    let held = format!(
        "CASE WHEN COALESCE(a.scheduled, a.started) IS NULL THEN 0 ELSE \
         COALESCE(a.ended, a.unseen_from, a.gone, {now}) - COALESCE(a.scheduled, a.started) END"
    );
    // Whole hours and the rest in sums of their own: exact, and neither can overflow.
    let [cores, memory] = ["a.cpu_milli", "(a.memory_bytes / 1048576)"].map(|amount| format!("{amount} * ({held})"));
    let of_pods = |amount: &str, of: &str| {
        format!("SUM(({amount}) / {HOUR_MS}) AS {of}_hours, SUM(({amount}) % {HOUR_MS}) AS {of}_rest")
    };
    let of_jobs =
        |of: &str| format!("CAST(COALESCE(SUM({of}_hours), 0) AS BIGINT), CAST(COALESCE(SUM({of}_rest), 0) AS BIGINT)");
    let most = format!("COALESCE(SUM(cores_hours) + SUM(cores_rest) / {HOUR_MS}, 0) DESC, 2 DESC, k");
    let order = if by == GroupBy::Day { "k" } else { &most };
    let (pods_cores, pods_memory) = (of_pods(&cores, "cores"), of_pods(&memory, "memory"));
    let (jobs_cores, jobs_memory) = (of_jobs("cores"), of_jobs("memory"));
    let sql = format!(
        "WITH j AS (SELECT * FROM job j WHERE {which}), \
         p AS (SELECT j.uid AS uid, {key} AS k, MAX(CASE WHEN j.phase = 'Failed' THEN 1 ELSE 0 END) AS lost, \
           COUNT(a.uid) AS pods, {pods_cores}, {pods_memory}, MAX(j.started - j.submitted) AS waited \
           FROM j LEFT JOIN attempt a ON a.job_uid = j.uid {on_node} GROUP BY 1, 2), \
         r AS (SELECT p.*, ROW_NUMBER() OVER (PARTITION BY k ORDER BY CASE WHEN waited IS NULL THEN 1 ELSE 0 END, waited) AS n, \
           COUNT(waited) OVER (PARTITION BY k) AS c FROM p) \
         SELECT k, COUNT(*), CAST(SUM(lost) AS BIGINT), {jobs_cores}, {jobs_memory}, CAST(SUM(pods) AS BIGINT), \
           MIN(CASE WHEN n * 100 >= c * 50 THEN waited END), MIN(CASE WHEN n * 100 >= c * 90 THEN waited END) \
         FROM r GROUP BY k ORDER BY {order} LIMIT {limit}"
    );
    let kinds = [&[Kind::Text][..], &[Kind::Int; 9]].concat();
    let rows = database.ask(&Statement::new(sql, conditions.arguments), &kinds).await?;
    Ok(rows.iter().map(|row| record(row)).collect())
}

fn record(row: &[Cell]) -> GroupRecord {
    let number = |place: usize| row.get(place).and_then(decode::int);
    let count = |place: usize| number(place).unwrap_or_default();
    let hours = |place: usize, unit: f64| (count(place) as f64 + count(place + 1) as f64 / HOUR_MS as f64) / unit;
    GroupRecord {
        key: match row.first() {
            Some(Cell::Text(Some(key))) => key.clone(),
            _ => String::new(),
        },
        jobs: count(1),
        failed: count(2),
        core_hours: hours(3, 1_000.0),
        memory_gib_hours: hours(5, 1_024.0),
        pods: count(7),
        waited_p50_ms: number(8),
        waited_p90_ms: number(9),
    }
}
