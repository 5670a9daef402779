//! One job with its tasks, attempts and waits.

use pumice_api::history::{JobRecord, WaitRecord};

use super::{QueryError, Question, columns, decode, jobs};
use crate::database::Database;
use crate::facts::PLACED;
use crate::rows::{Cell, Kind, Table};
use crate::statements::Statement;

/// Attempts that are shown of one job.
const ATTEMPTS_MAX: i64 = 1_000;
/// Waits and tasks that are shown of one job.
const PARTS_MAX: i64 = 1_000;

/// The last job of that name, or the one of that uid among them.
///
/// # Errors
/// When there was none, or the database does not answer in time.
pub async fn job(database: &Database, namespace: &str, name: &str, uid: Option<&str>) -> Result<JobRecord, QueryError> {
    // A name is a name here, and none has a star.
    if name.contains(['*', '?']) {
        return Err(QueryError::NoJob { name: name.to_owned() });
    }
    let question = Question {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        limit: super::ROWS_MAX,
        ..Question::default()
    };
    let (found, _) = jobs(database, &question).await?;
    let mut found = found.into_iter();
    let mut record = match uid {
        Some(uid) => found.find(|job| job.metadata.uid == uid),
        None => found.next(),
    }
    .ok_or_else(|| QueryError::NoJob { name: name.to_owned() })?;
    let of_job =
        |sql: String, limit: i64| Statement::new(sql, vec![Cell::text(&record.metadata.uid), Cell::Int(Some(limit))]);

    let sql = format!("SELECT {} FROM task t WHERE t.job_uid = $1 ORDER BY t.name LIMIT $2", columns(Table::Task, "t"));
    let tasks = database.ask(&of_job(sql, PARTS_MAX), &decode::kinds(Table::Task)).await?;

    let sql = format!(
        "SELECT {}, ROW_NUMBER() OVER (PARTITION BY a.task, a.task_index ORDER BY a.created, a.uid), {} \
         FROM attempt a LEFT JOIN used u ON u.uid = a.uid WHERE a.job_uid = $1 \
         ORDER BY a.created, a.task, a.task_index, a.uid LIMIT $2",
        columns(Table::Attempt, "a"),
        columns(Table::Used, "u"),
    );
    let kinds: Vec<Kind> = [decode::kinds(Table::Attempt), vec![Kind::Int], decode::kinds(Table::Used)].concat();
    let mut attempts = database.ask(&of_job(sql, ATTEMPTS_MAX + 1), &kinds).await?;

    let sql = "SELECT group_uid, since, class, summary FROM waits WHERE job_uid = $1 ORDER BY since, version LIMIT $2";
    let waits =
        database.ask(&of_job(sql.to_owned(), PARTS_MAX), &[Kind::Text, Kind::Int, Kind::Text, Kind::Text]).await?;

    record.more_attempts = attempts.len() as i64 > ATTEMPTS_MAX;
    attempts.truncate(ATTEMPTS_MAX as usize);
    record.tasks = tasks.into_iter().map(decode::task).collect();
    record.attempts = attempts.into_iter().map(decode::attempt).collect();
    record.waits = stretches(&waits, &record);
    Ok(record)
}

/// Changes of class as stretches of time: each lasts until the next of its group, the last until the job ran, or was over.
fn stretches(changes: &[Vec<Cell>], job: &JobRecord) -> Vec<WaitRecord> {
    let text = |cell: &Cell| match cell {
        Cell::Text(Some(text)) => text.clone(),
        _ => String::new(),
    };
    let since = |change: &Vec<Cell>| change.get(1).and_then(decode::int).and_then(decode::time);
    let mut waits = Vec::new();
    for (place, change) in changes.iter().enumerate() {
        let class = text(&change[2]);
        if class == PLACED {
            continue;
        }
        let from = since(change);
        let next = changes[place + 1..].iter().find(|next| next[0] == change[0]).and_then(since);
        let over = [job.started, job.ended, job.unseen_from, job.gone].into_iter().flatten();
        let to = next.or_else(|| over.filter(|over| from.is_none_or(|from| *over >= from)).min());
        waits.push(WaitRecord { class, summary: text(&change[3]), from, to });
    }
    waits
}
