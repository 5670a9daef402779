//! The history as rows of plain values, for programs: CSV, Parquet, and the records of Python.
//!
//! Invariant: the columns of a kind of row are the same in each form, by name, type and order; a value that is not known is
//! nothing. Pure.

use jiff::Timestamp;
use pumice_api::history::{GroupRecord, JobRecord};
use serde_json::Value;

use crate::output::table::Table;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// A whole number.
    Int,
    Real,
    /// A moment, with milliseconds.
    Time,
}

/// What a cell holds, of its column's type, or nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Nothing,
    /// UTF-8.
    Text(String),
    /// A whole number.
    Int(i64),
    Real(f64),
    Time(Timestamp),
}

impl From<&str> for Cell {
    /// An empty text is nothing.
    fn from(text: &str) -> Cell {
        if text.is_empty() { Cell::Nothing } else { Cell::Text(text.to_owned()) }
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Cell {
        Cell::Int(number)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        Cell::Real(number)
    }
}

impl From<Timestamp> for Cell {
    fn from(time: Timestamp) -> Cell {
        Cell::Time(time)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Nothing, Into::into)
    }
}

/// A column of a sheet of records.
struct Column<R> {
    name: &'static str,
    kind: Kind,
    cell: fn(&R) -> Cell,
}

const fn column<R>(name: &'static str, kind: Kind, cell: fn(&R) -> Cell) -> Column<R> {
    Column { name, kind, cell }
}

const JOB: &[Column<JobRecord>] = &[
    column("namespace", Kind::Text, |job| job.metadata.namespace.as_str().into()),
    column("name", Kind::Text, |job| job.metadata.name.as_str().into()),
    column("uid", Kind::Text, |job| job.metadata.uid.as_str().into()),
    column("api", Kind::Text, |job| job.api.as_str().into()),
    column("user", Kind::Text, |job| job.user.as_str().into()),
    column("queue", Kind::Text, |job| job.queue.as_str().into()),
    column("priority_class", Kind::Text, |job| job.priority_class.as_str().into()),
    column("profile", Kind::Text, |job| job.profile.as_str().into()),
    column("phase", Kind::Text, |job| job.phase.as_str().into()),
    column("reason", Kind::Text, |job| job.reason.as_str().into()),
    column("message", Kind::Text, |job| job.message.as_str().into()),
    column("submitted", Kind::Time, |job| job.submitted.into()),
    column("started", Kind::Time, |job| job.started.into()),
    column("ended", Kind::Time, |job| job.ended.into()),
    column("gone", Kind::Time, |job| job.gone.into()),
    column("unseen_from", Kind::Time, |job| job.unseen_from.into()),
    column("waited_ms", Kind::Int, |job| job.waited_ms.into()),
    column("ran_ms", Kind::Int, |job| job.ran_ms.into()),
    column("replicas", Kind::Int, |job| job.replicas.into()),
    column("succeeded", Kind::Int, |job| job.succeeded.into()),
    column("failed", Kind::Int, |job| job.failed.into()),
    column("retries", Kind::Int, |job| job.retries.into()),
    column("cpu_milli", Kind::Int, |job| job.cpu_milli.into()),
    column("memory_bytes", Kind::Int, |job| job.memory_bytes.into()),
];

const GROUP: &[Column<GroupRecord>] = &[
    column("key", Kind::Text, |group| group.key.as_str().into()),
    column("jobs", Kind::Int, |group| group.jobs.into()),
    column("failed", Kind::Int, |group| group.failed.into()),
    column("pods", Kind::Int, |group| group.pods.into()),
    column("core_hours", Kind::Real, |group| group.core_hours.into()),
    column("memory_gib_hours", Kind::Real, |group| group.memory_gib_hours.into()),
    column("waited_p50_ms", Kind::Int, |group| group.waited_p50_ms.into()),
    column("waited_p90_ms", Kind::Int, |group| group.waited_p90_ms.into()),
];

/// Named and typed columns, and rows as wide as they are many.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    pub columns: Vec<(&'static str, Kind)>,
    pub rows: Vec<Vec<Cell>>,
}

impl Sheet {
    /// A row for each job.
    pub fn of_jobs(jobs: &[JobRecord]) -> Sheet {
        Sheet::of(JOB, jobs)
    }

    /// A row for each group; the first column is called by what they have in common.
    pub fn of_groups(groups: &[GroupRecord], by: &'static str) -> Sheet {
        let mut sheet = Sheet::of(GROUP, groups);
        sheet.columns[0].0 = by;
        sheet
    }

    fn of<R>(columns: &[Column<R>], records: &[R]) -> Sheet {
        let row = |record: &R| columns.iter().map(|column| (column.cell)(record)).collect();
        Sheet {
            columns: columns.iter().map(|column| (column.name, column.kind)).collect(),
            rows: records.iter().map(row).collect(),
        }
    }

    /// As RFC 4180 has it; nothing is an empty field, times are RFC 3339.
    pub fn csv(&self) -> String {
        let mut table = Table::new(self.columns.iter().map(|(name, _)| *name));
        for row in &self.rows {
            table.push(row.iter().map(|cell| match cell {
                Cell::Nothing => String::new(),
                Cell::Text(text) => text.clone(),
                Cell::Int(number) => number.to_string(),
                Cell::Real(number) => number.to_string(),
                Cell::Time(time) => time.to_string(),
            }));
        }
        table.csv()
    }

    /// An object for each row; times are RFC 3339, what is nothing is null.
    pub fn records(self) -> Vec<Value> {
        let value = |cell: Cell| match cell {
            Cell::Nothing => Value::Null,
            Cell::Text(text) => text.into(),
            Cell::Int(number) => number.into(),
            Cell::Real(number) => number.into(),
            Cell::Time(time) => time.to_string().into(),
        };
        let Sheet { columns, rows } = self;
        let object =
            |row: Vec<Cell>| columns.iter().zip(row).map(|((name, _), cell)| ((*name).to_owned(), value(cell)));
        rows.into_iter().map(|row| Value::Object(object(row).collect())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_is_of_its_columns_type() {
        let time: Timestamp = "2026-01-02T03:04:05.006Z".parse().unwrap();
        let job = JobRecord {
            message: "a \"b\", c".to_owned(),
            submitted: Some(time),
            waited_ms: Some(5),
            replicas: 3,
            ..JobRecord::default()
        };
        let group = GroupRecord { key: "ann".into(), jobs: 2, core_hours: 1.5, ..GroupRecord::default() };
        let (jobs, groups) = (Sheet::of_jobs(&[job]), Sheet::of_groups(&[group], "user"));
        for sheet in [&jobs, &groups] {
            for (cell, (name, kind)) in sheet.rows[0].iter().zip(&sheet.columns) {
                let fits = match cell {
                    Cell::Nothing => true,
                    Cell::Text(_) => *kind == Kind::Text,
                    Cell::Int(_) => *kind == Kind::Int,
                    Cell::Real(_) => *kind == Kind::Real,
                    Cell::Time(_) => *kind == Kind::Time,
                };
                assert!(fits, "{name}: {cell:?}");
            }
        }
        insta::assert_snapshot!([jobs.csv(), groups.csv()].join("\n"));
        let records = serde_json::to_value(groups.records()).unwrap();
        assert_eq!(records[0]["user"], "ann");
        assert_eq!((&records[0]["core_hours"], &records[0]["waited_p50_ms"]), (&1.5.into(), &Value::Null));
    }
}
