//! Queues: made, opened, closed, weighed, listed and deleted.
//!
//! Invariant: the numbers of a table are those of the queues' statuses where the controllers fill them in. Where all are
//! zero, as Volcano's controllers leave them, the PodGroups are counted: page by page, a row of each. Called by the binary.

use std::collections::BTreeMap;

use pumice_api::bus::Action;
use pumice_api::names;
use pumice_api::scheduling::Queue;
use pumice_jobs::json::text_at;
use pumice_jobs::platform::call::{self, Pages};
use serde_json::{Value, json};

use crate::error::Error;
use crate::job;
use crate::kinds::{POD_GROUP, QUEUE};
use crate::list::Form;
use crate::list::print_one;
use crate::objects::{self, columns_of, print_table};
use crate::pod::places;
use crate::session::{Scope, Session};
use crate::table::{Column, Table, Width, number, text};

/// Namespace of Commands for queues, which have none themselves.
const COMMANDS_IN: &str = "default";

/// Columns of `queue list` and `queue get`.
pub const COLUMNS: &[Column] = &[
    Column::name(Width::Fixed(25)),
    WEIGHT,
    STATE,
    Column::new("Parent", Width::Fixed(8), |queue, _| text(queue, "/spec/parent")),
    INQUEUE,
    PENDING,
    RUNNING,
    UNKNOWN,
    Column::new("Completed", Width::Fixed(8), |queue, _| number(queue, "/status/completed")),
    Column::wide("Priority", |queue, _| number(queue, "/spec/priority")),
    Column::wide("Reclaimable", |queue, _| {
        (queue.pointer("/spec/reclaimable") != Some(&Value::Bool(false))).to_string()
    }),
    Column::wide("Deserved", |queue, _| amounts(&queue["spec"]["deserved"])),
    Column::wide("Capability", |queue, _| amounts(&queue["spec"]["capability"])),
    Column::wide("Allocated", |queue, _| amounts(&queue["status"]["allocated"])),
];

/// Columns of `vqueues`, fewer than those of `vcctl queue list`.
pub const SHORT: &[Column] = &[Column::name(Width::Fixed(25)), WEIGHT, STATE, INQUEUE, PENDING, RUNNING, UNKNOWN];

const WEIGHT: Column = Column::new("Weight", Width::Fixed(8), |queue, _| number(queue, "/spec/weight"));
const STATE: Column = Column::new("State", Width::Fixed(8), |queue, _| text(queue, "/status/state"));
const INQUEUE: Column = Column::new("Inqueue", Width::Fixed(8), |queue, _| number(queue, "/status/inqueue"));
const PENDING: Column = Column::new("Pending", Width::Fixed(8), |queue, _| number(queue, "/status/pending"));
const RUNNING: Column = Column::new("Running", Width::Fixed(8), |queue, _| number(queue, "/status/running"));
const UNKNOWN: Column = Column::new("Unknown", Width::Fixed(8), |queue, _| number(queue, "/status/unknown"));

/// Fields of a queue's status, and the phase of PodGroups that each counts.
const COUNTS: [(&str, &str); 5] = [
    ("inqueue", "Inqueue"),
    ("pending", "Pending"),
    ("running", "Running"),
    ("unknown", "Unknown"),
    ("completed", "Completed"),
];

/// Amounts by name as one cell, such as `cpu=2,memory=4Gi`; `<none>` without any.
fn amounts(amounts: &Value) -> String {
    let amounts = amounts.as_object().into_iter().flatten();
    let texts: Vec<String> = amounts
        .map(|(name, amount)| format!("{name}={}", amount.as_str().map_or_else(|| amount.to_string(), str::to_owned)))
        .collect();
    if texts.is_empty() { "<none>".to_owned() } else { texts.join(",") }
}

/// What is done to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Open,
    /// It takes none any more.
    Close,
    /// It gets this weight.
    Update(i32),
}

/// Makes a queue. One that shall not be open is closed by a Command at once.
pub async fn create(
    session: &mut Session<'_>,
    name: &str,
    weight: i32,
    open: bool,
    form: Option<Form>,
) -> Result<(), Error> {
    let queue = json!({
        "apiVersion": QUEUE.api_version(), "kind": QUEUE.title,
        "metadata": {"name": name},
        "spec": {"weight": weight},
    });
    let made = session.create(QUEUE, "", &queue).await?;
    if !open {
        job::ask_for::<Queue>(session, &made, Action::CloseQueue, COMMANDS_IN).await?;
    }
    match form {
        None => Ok(()),
        Some(form) => session.done(QUEUE, made, Some(form), &format!("create queue {name} successfully")),
    }
}

/// Opens, closes or weighs a queue.
pub async fn operate(
    session: &mut Session<'_>,
    name: &str,
    operation: Operation,
    form: Option<Form>,
) -> Result<(), Error> {
    let action = match operation {
        Operation::Open => Action::OpenQueue,
        Operation::Close => Action::CloseQueue,
        Operation::Update(weight) => {
            let changed = session.merge(QUEUE, "", name, &json!({"spec": {"weight": weight}})).await?;
            return match form {
                None => Ok(()),
                Some(form) => session.done(QUEUE, changed, Some(form), &format!("update queue {name} successfully")),
            };
        }
    };
    let queue = session.get(QUEUE, "", name).await?;
    job::ask_for::<Queue>(session, &queue, action, COMMANDS_IN).await?;
    match form {
        None => Ok(()),
        Some(form) => session.done(QUEUE, queue, Some(form), &format!("{} was asked for", QUEUE.reference(name))),
    }
}

/// Deletes a queue. Without a form nothing is printed, as with Volcano.
pub async fn delete(session: &mut Session<'_>, name: &str, form: Option<Form>) -> Result<(), Error> {
    let deleted = session.delete(QUEUE, "", name, form).await?;
    match form {
        None => Ok(()),
        Some(form) => session.done(QUEUE, deleted, Some(form), &format!("delete queue {name} successfully")),
    }
}

/// Lists queues in these columns.
pub async fn list(session: &mut Session<'_>, columns: &[Column], form: Form) -> Result<(), Error> {
    if matches!(form, Form::Json | Form::Yaml | Form::Name) {
        let listing = objects::Listing { kind: QUEUE, columns, scope: &Scope::All, keep: &|_| true };
        return objects::list(session, listing, form).await;
    }
    let queues = counted(session).await?;
    print(session, &queues, columns, form)
}

/// Shows one queue in these columns.
pub async fn get(session: &mut Session<'_>, name: &str, columns: &[Column], form: Form) -> Result<(), Error> {
    let queue = session.get(QUEUE, "", name).await?;
    if matches!(form, Form::Json | Form::Yaml | Form::Name) {
        return print_one(QUEUE, queue, form, session.out);
    }
    let mut queues = counted(session).await?;
    queues.retain(|queue| text_at(queue, "/metadata/name") == name);
    print(session, &queues, columns, form)
}

fn print(session: &mut Session<'_>, queues: &[Value], columns: &[Column], form: Form) -> Result<(), Error> {
    let columns = columns_of(columns, form, false);
    let mut table = Table::new(columns.iter().map(|column| (column.head, column.width)).collect());
    for queue in queues {
        table.push(columns.iter().map(|column| (column.cell)(queue, session.now)));
    }
    print_table(session, &table, 0)
}

/// All queues with their numbers.
async fn counted(session: &Session<'_>) -> Result<Vec<Value>, Error> {
    let path = QUEUE.collection(None)?;
    let (mut queues, _) = call::list(&session.connection, &path, "", "list queues").await?;
    if queues.iter().any(has_counts) {
        return Ok(queues);
    }
    let counts = count_groups(session).await?;
    for queue in &mut queues {
        let name = text_at(queue, "/metadata/name").to_owned();
        for (index, (field, _)) in COUNTS.iter().enumerate() {
            queue["status"][*field] = counts.get(&name).map_or(0, |counts| counts[index]).into();
        }
    }
    Ok(queues)
}

fn has_counts(queue: &Value) -> bool {
    COUNTS.iter().any(|(field, _)| queue["status"][*field].as_i64().is_some_and(|count| count > 0))
}

/// PodGroups by queue and phase.
async fn count_groups(session: &Session<'_>) -> Result<BTreeMap<String, [u64; 5]>, Error> {
    let path = POD_GROUP.collection(None)?;
    let query = "&includeObject=None";
    let mut pages = Pages::new(&session.connection, &path, query, "count podgroups").as_tables();
    let mut counts = BTreeMap::new();
    while let Some(page) = pages.next().await? {
        let places = places(&page, &["STATUS", "QUEUE"])
            .ok_or_else(|| session.unreadable("count podgroups", "it has no columns STATUS and QUEUE"))?;
        for row in page["rows"].as_array().into_iter().flatten() {
            let [phase, queue] = [places[0], places[1]].map(|place| row["cells"][place].as_str().unwrap_or_default());
            count(&mut counts, queue, phase);
        }
    }
    Ok(counts)
}

fn count(counts: &mut BTreeMap<String, [u64; 5]>, queue: &str, phase: &str) {
    // What nobody has filled in yet is in the default queue, and Pending.
    let queue = if queue.is_empty() { names::DEFAULT_QUEUE } else { queue };
    let phase = if phase.is_empty() { "Pending" } else { phase };
    let Some(index) = COUNTS.iter().position(|(_, known)| *known == phase) else { return };
    counts.entry(queue.to_owned()).or_default()[index] += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_counted_by_queue_and_phase() {
        let mut counts = BTreeMap::new();
        for (queue, phase) in
            [("a", "Running"), ("a", "Running"), ("a", "Completed"), ("", ""), ("default", "Inqueue"), ("a", "New")]
        {
            count(&mut counts, queue, phase);
        }
        assert_eq!(counts["a"], [0, 0, 2, 0, 1]);
        assert_eq!(counts["default"], [1, 1, 0, 0, 0]);
        assert!(has_counts(&json!({"status": {"unknown": 1}})));
        assert!(!has_counts(&json!({"status": {"unknown": 0, "state": "Open"}})));
    }

    #[test]
    fn rows_have_volcanos_columns() {
        let queue = json!({
            "metadata": {"name": "a-queue-with-a-rather-long-name"},
            "spec": {"weight": 4, "parent": "root", "reclaimable": false, "capability": {"cpu": "4", "memory": "1Gi"}},
            "status": {"state": "Closing", "inqueue": 1, "pending": 2, "running": 3, "unknown": 4, "completed": 5},
        });
        let other = json!({"metadata": {"name": "b"}, "spec": {}, "status": {}});
        let mut text = String::new();
        for (columns, form) in [(COLUMNS, Form::Table), (SHORT, Form::Table), (COLUMNS, Form::Wide)] {
            let columns = columns_of(columns, form, false);
            let mut table = Table::new(columns.iter().map(|column| (column.head, column.width)).collect());
            for queue in [&queue, &other] {
                table.push(columns.iter().map(|column| (column.cell)(queue, jiff::Timestamp::UNIX_EPOCH)));
            }
            let mut out = Vec::new();
            table.write(0, &mut out).unwrap();
            text.push_str(&String::from_utf8(out).unwrap());
        }
        insta::assert_snapshot!(text);
    }
}
