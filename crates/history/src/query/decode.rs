//! Rows of the database as records. A cell that is not there reads as nothing.

use jiff::Timestamp;
use pumice_api::history::{AttemptRecord, Identity, JobRecord, TaskRecord, Used};

use crate::rows::{Cell, Kind, Table};

/// The kinds of all columns of a table.
pub(super) fn kinds(table: Table) -> Vec<Kind> {
    table.columns().iter().map(|column| column.kind).collect()
}

/// A row and the table that it is of; cells beyond the table's columns are at `rest`.
struct Of<'a> {
    table: Table,
    cells: &'a [Cell],
}

impl Of<'_> {
    fn cell(&self, name: &str) -> Option<&Cell> {
        self.cells.get(self.table.column_index(name)?)
    }

    fn text(&self, name: &str) -> String {
        match self.cell(name) {
            Some(Cell::Text(Some(text))) => text.clone(),
            _ => String::new(),
        }
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.cell(name).and_then(int)
    }

    fn count(&self, name: &str) -> i64 {
        self.number(name).unwrap_or_default()
    }

    fn time(&self, name: &str) -> Option<Timestamp> {
        self.number(name).and_then(time)
    }
}

pub(super) fn int(cell: &Cell) -> Option<i64> {
    match cell {
        Cell::Int(number) => *number,
        Cell::Text(_) => None,
    }
}

pub(super) fn time(milliseconds: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(milliseconds).ok()
}

pub(super) fn job(cells: Vec<Cell>) -> JobRecord {
    let of = Of { table: Table::Job, cells: &cells };
    let span = |from: &str, to: &str| Some((of.number(to)? - of.number(from)?).max(0));
    JobRecord {
        metadata: Identity { name: of.text("name"), namespace: of.text("namespace"), uid: of.text("uid") },
        api: of.text("api"),
        user: of.text("submitter"),
        queue: of.text("queue"),
        priority_class: of.text("priority_class"),
        profile: of.text("profile"),
        phase: of.text("phase"),
        reason: of.text("reason"),
        message: of.text("message"),
        submitted: of.time("submitted"),
        started: of.time("started"),
        ended: of.time("ended"),
        gone: of.time("gone"),
        unseen_from: of.time("unseen_from"),
        waited_ms: span("submitted", "started"),
        ran_ms: span("started", "ended"),
        replicas: of.count("replicas"),
        succeeded: of.count("succeeded"),
        failed: of.count("failed"),
        retries: of.count("retries"),
        cpu_milli: of.count("cpu_milli"),
        memory_bytes: of.count("memory_bytes"),
        ..JobRecord::default()
    }
}

pub(super) fn task(cells: Vec<Cell>) -> TaskRecord {
    let of = Of { table: Table::Task, cells: &cells };
    TaskRecord {
        name: of.text("name"),
        replicas: of.count("replicas"),
        succeeded: of.count("succeeded"),
        failed: of.count("failed"),
        cpu_milli: of.count("cpu_milli"),
        memory_bytes: of.count("memory_bytes"),
    }
}

/// An attempt's columns, its number, and those of what it used.
pub(super) fn attempt(cells: Vec<Cell>) -> AttemptRecord {
    let own = Table::Attempt.columns().len();
    let of = Of { table: Table::Attempt, cells: &cells };
    let index = of.number("task_index");
    let number = cells.get(own).and_then(int).unwrap_or_default();
    AttemptRecord {
        pod: of.text("name"),
        uid: of.text("uid"),
        task: of.text("task"),
        index,
        // Pods without an index do not replace each other.
        attempt: if index.is_some() { number } else { 1 },
        node: of.text("node"),
        phase: of.text("phase"),
        reason: of.text("reason"),
        message: of.text("message"),
        exit_code: of.number("exit_code"),
        restarts: of.count("restarts"),
        created: of.time("created"),
        scheduled: of.time("scheduled"),
        started: of.time("started"),
        ended: of.time("ended"),
        gone: of.time("gone"),
        unseen_from: of.time("unseen_from"),
        cpu_milli: of.count("cpu_milli"),
        memory_bytes: of.count("memory_bytes"),
        evicted: of.text("evicted"),
        used: used(cells.get(own + 1..).unwrap_or_default()),
    }
}

fn used(cells: &[Cell]) -> Option<Used> {
    let of = Of { table: Table::Used, cells };
    let samples = of.number("samples").filter(|samples| *samples > 0)?;
    Some(Used {
        samples,
        cpu_mean_milli: of.count("cpu_milli_sum") / samples,
        cpu_max_milli: of.count("cpu_milli_max"),
        memory_mean_bytes: of.count("memory_bytes_sum") / samples,
        memory_max_bytes: of.count("memory_bytes_max"),
    })
}
