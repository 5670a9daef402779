//! Jobs as rows of a table.
//!
//! Invariant: one row per job, oldest first within a namespace; cells never hold line breaks.
//! Pure but for [`fetch`]; `now` is an argument. Called by `jobctl list` and `get`.

use jiff::Timestamp;
use pumice_api::batch::Job;
use serde_json::Value;

use crate::age;
use crate::call;
use crate::connection::Connection;
use crate::error::Error;
use crate::progress::Counts;
use crate::select::jobs_path;

/// The jobs of the connection's namespace, or of all, as the server has them.
pub async fn fetch(
    connection: &Connection,
    all_namespaces: bool,
    label_selector: Option<&str>,
) -> Result<Vec<Value>, Error> {
    let path = jobs_path((!all_namespaces).then(|| connection.namespace()));
    let query =
        label_selector.map(|selector| format!("&labelSelector={}", call::query_value(selector))).unwrap_or_default();
    let (mut jobs, _) = call::list(connection, &path, &query, "list jobs").await?;
    jobs.sort_by_cached_key(|job| {
        ["/metadata/namespace", "/metadata/creationTimestamp", "/metadata/uid"]
            .map(|pointer| call::text_at(job, pointer).to_owned())
    });
    Ok(jobs)
}

/// Which columns to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Columns {
    /// The namespace, for lists over all.
    pub namespace: bool,
    /// Everything.
    pub wide: bool,
}

/// A table: a head and rows as wide as it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Names of the columns.
    pub head: Vec<&'static str>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

/// The table of jobs.
pub fn table(jobs: &[Job], columns: Columns, now: Timestamp) -> Table {
    let mut head = vec!["NAME", "QUEUE", "STATUS", "OK", "RUN", "FAIL", "AGE"];
    if columns.namespace {
        head.insert(0, "NAMESPACE");
    }
    if columns.wide {
        head.extend(["MIN", "RETRIES", "UID"]);
    }
    let rows = jobs.iter().map(|job| row(job, columns, now)).collect();
    Table { head, rows }
}

fn row(job: &Job, columns: Columns, now: Timestamp) -> Vec<String> {
    let counts = Counts::of(job);
    let metadata = &job.metadata;
    let created = metadata.creation_timestamp.as_ref();
    let phase = job.status.state.phase.as_ref().map_or_else(|| "New".to_owned(), ToString::to_string);
    let mut cells = vec![
        metadata.name.clone().unwrap_or_default(),
        if job.spec.queue.is_empty() { "default".to_owned() } else { job.spec.queue.clone() },
        phase,
        format!("{}/{}", counts.succeeded, counts.total),
        counts.running.to_string(),
        counts.failed.to_string(),
        created.map_or_else(|| "?".to_owned(), |at| age::short(now.as_second() - at.0.as_second())),
    ];
    if columns.namespace {
        cells.insert(0, metadata.namespace.clone().unwrap_or_default());
    }
    if columns.wide {
        cells.push(job.spec.min_available.to_string());
        cells.push(job.status.retry_count.to_string());
        cells.push(metadata.uid.clone().unwrap_or_default());
    }
    // A terminal must not obey what somebody wrote into a name.
    cells.into_iter().map(|cell| cell.replace(char::is_control, " ")).collect()
}

impl Table {
    /// Columns padded to their widest cell, three spaces between, no space at a line's end.
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.head[column].len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (cell, width) in cells.zip(&widths) {
                line.push_str(&format!("{cell:<width$}   ", width = *width));
            }
            line.truncate(line.trim_end().len());
            line.push('\n');
            line
        };
        let mut text = line(&mut self.head.iter().copied());
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        text
    }
}
