//! Sums over jobs that have something in common.

use pumice_api::history::GroupRecord;

use super::{QueryError, Question, decode};
use crate::database::Database;
use crate::rows::{Cell, Kind};
use crate::statements::{Dialect, Statement};

/// What jobs are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// Who submitted them.
    User,
    /// Their queue.
    Queue,
    /// Their kind of run.
    Profile,
    /// The day of their submission, UTC.
    Day,
    /// The nodes of their pods: a job counts on each of them, a pod on its own.
    Node,
    /// Their namespace.
    Namespace,
    /// Their name.
    Name,
    /// Their phase.
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
        Some(node) => format!("AND a.node = {}", conditions.place(Cell::text(node))),
        None => String::new(),
    };
    let now = conditions.place(Cell::Int(Some(now)));
    let limit = conditions.place(Cell::Int(Some(question.limit())));
    let key = by.sql(database.dialect());
    // Seconds from the moment at which a pod took its place; MiB, so that no sum can overflow.
    let held = format!(
        "CASE WHEN COALESCE(a.scheduled, a.started) IS NULL THEN 0 ELSE \
         (COALESCE(a.ended, a.unseen_from, a.gone, {now}) - COALESCE(a.scheduled, a.started)) / 1000 END"
    );
    let order = if by == GroupBy::Day { "k" } else { "4 DESC, 2 DESC, k" };
    let sql = format!(
        "WITH j AS (SELECT * FROM job j WHERE {which}), \
         p AS (SELECT j.uid AS uid, {key} AS k, MAX(CASE WHEN j.phase = 'Failed' THEN 1 ELSE 0 END) AS lost, \
           COUNT(a.uid) AS pods, SUM(a.cpu_milli * ({held})) AS cores, \
           SUM((a.memory_bytes / 1048576) * ({held})) AS memory, MAX(j.started - j.submitted) AS waited \
           FROM j LEFT JOIN attempt a ON a.job_uid = j.uid {on_node} GROUP BY 1, 2), \
         r AS (SELECT p.*, ROW_NUMBER() OVER (PARTITION BY k ORDER BY CASE WHEN waited IS NULL THEN 1 ELSE 0 END, waited) AS n, \
           COUNT(waited) OVER (PARTITION BY k) AS c FROM p) \
         SELECT k, COUNT(*), CAST(SUM(lost) AS BIGINT), CAST(COALESCE(SUM(cores), 0) AS BIGINT), \
           CAST(COALESCE(SUM(memory), 0) AS BIGINT), CAST(SUM(pods) AS BIGINT), \
           MIN(CASE WHEN n * 100 >= c * 50 THEN waited END), MIN(CASE WHEN n * 100 >= c * 90 THEN waited END) \
         FROM r GROUP BY k ORDER BY {order} LIMIT {limit}"
    );
    let kinds = [&[Kind::Text][..], &[Kind::Int; 7]].concat();
    let rows = database.ask(&Statement::new(sql, conditions.arguments), &kinds).await?;
    Ok(rows.iter().map(|row| record(row)).collect())
}

fn record(row: &[Cell]) -> GroupRecord {
    let number = |place: usize| row.get(place).and_then(decode::int);
    let count = |place: usize| number(place).unwrap_or_default();
    // Two digits after the point say enough, and the same on every machine.
    let hours = |amount: i64, unit: f64| (amount as f64 / unit / 36.0).round() / 100.0;
    GroupRecord {
        key: match row.first() {
            Some(Cell::Text(Some(key))) => key.clone(),
            _ => String::new(),
        },
        jobs: count(1),
        failed: count(2),
        core_hours: hours(count(3), 1_000.0),
        memory_gib_hours: hours(count(4), 1_024.0),
        pods: count(5),
        waited_p50_ms: number(6),
        waited_p90_ms: number(7),
    }
}
