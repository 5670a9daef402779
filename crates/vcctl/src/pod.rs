//! Pods of Jobs and queues, as rows.
//!
//! Invariant: for a table the server makes the rows (its own columns, so that a status reads as kubectl has it), and of a
//! pod only the row and the metadata travel. Called by the binary.

use pumice_api::names;
use pumice_jobs::json::text_at;
use pumice_jobs::platform::call::{self, Pages};
use serde_json::Value;

use crate::error::Error;
use crate::kinds::{JOB, POD};
use crate::list::Form;
use crate::list::{ListWriter, print_one};
use crate::objects;
use crate::session::{NamespacedName, Scope, Session};
use crate::table::{Table, Width};

/// Volcano's headings and the server's, and whether they are of the wide form only.
const COLUMNS: &[(&str, &str, bool)] = &[
    ("Name", "Name", false),
    ("Ready", "Ready", false),
    ("Status", "Status", false),
    ("Restart", "Restarts", false),
    ("Age", "Age", false),
    ("IP", "IP", true),
    ("Node", "Node", true),
];

/// Which pods are listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those of this Job.
    pub job: Option<String>,
    /// Only those of this queue.
    pub queue: Option<String>,
}

/// Lists pods of Jobs: of all, of one, or of a queue.
pub async fn list(session: &mut Session<'_>, scope: &Scope, filter: &Filter, form: Form) -> Result<(), Error> {
    if let (Some(job), Some(queue), Some(namespace)) = (&filter.job, &filter.queue, scope.namespace()) {
        let object = session.get(JOB, namespace, job).await?;
        if text_at(&object, "/spec/queue") != queue {
            return Err(Error::usage(format!("the input vcjob {job} does not match the queue {queue}")));
        }
    }
    let mut writer = Writer::new(form, *scope == Scope::All);
    let path = POD.collection(scope.namespace())?;
    let connection = session.connection.clone();
    for selector in selectors(filter) {
        let query = format!("&labelSelector={}", call::query_value(&selector.labels));
        let mut pages = Pages::new(&connection, &path, &query, "list pods");
        if writer.is_table() {
            pages = pages.as_tables();
        }
        while let Some(page) = pages.next().await? {
            writer.page(session, page, |metadata| selector.keeps(metadata))?;
        }
    }
    writer.end(session)
}

/// Shows one pod: as the row that the server makes of it, or as a whole.
pub async fn get(session: &mut Session<'_>, pod: NamespacedName<'_>, form: Form) -> Result<(), Error> {
    let NamespacedName { namespace, name } = pod;
    if matches!(form, Form::Json | Form::Yaml | Form::Name) {
        let pod = session.get(POD, namespace, name).await?;
        return print_one(POD, pod, form, session.out);
    }
    let path = POD.object(namespace, name)?;
    let row = call::get_row(&session.connection, &path, &format!("get pod {name}")).await?;
    let mut writer = Writer::new(form, false);
    writer.page(session, row, |_| true)?;
    writer.end(session)
}

/// Deletes a pod; of a Job that goes on it is made again.
pub async fn delete(session: &mut Session<'_>, pod: NamespacedName<'_>, form: Option<Form>) -> Result<(), Error> {
    let NamespacedName { namespace, name } = pod;
    let deleted = session.delete(POD, namespace, name, form).await?;
    session.done(POD, deleted, form, &format!("delete pod {name} successfully"))
}

/// Labels that are asked for, and an annotation to look at in what comes.
#[derive(Debug, PartialEq, Eq)]
struct Selector {
    labels: String,
    queue_annotation: Option<String>,
}

impl Selector {
    fn keeps(&self, metadata: &Value) -> bool {
        let annotation = metadata["annotations"][names::SCHEDULING_QUEUE_NAME].as_str();
        self.queue_annotation.as_deref().is_none_or(|queue| annotation == Some(queue))
    }
}

/// What to ask for. Pods of Jobs carry their queue as a label; others may as an annotation.
fn selectors(filter: &Filter) -> Vec<Selector> {
    let labels = |labels: String| Selector { labels, queue_annotation: None };
    match (&filter.job, &filter.queue) {
        (None, None) => vec![labels(names::JOB_NAME.to_owned())],
        (Some(job), None) => vec![labels(format!("{}={job}", names::JOB_NAME))],
        (Some(job), Some(queue)) => {
            vec![labels(format!("{}={job},{}={queue}", names::JOB_NAME, names::QUEUE_NAME))]
        }
        (None, Some(queue)) => vec![
            labels(format!("{}={queue}", names::QUEUE_NAME)),
            Selector { labels: format!("!{}", names::QUEUE_NAME), queue_annotation: Some(queue.clone()) },
        ],
    }
}

/// Takes pages in, as tables or objects.
enum Writer {
    Table { table: Table, columns: Vec<&'static str>, all_namespaces: bool },
    Whole(ListWriter),
}

impl Writer {
    fn new(form: Form, all_namespaces: bool) -> Self {
        if matches!(form, Form::Json | Form::Yaml | Form::Name) {
            return Writer::Whole(ListWriter::new(POD, form));
        }
        let shown: Vec<_> = COLUMNS.iter().filter(|(_, _, wide)| !wide || form == Form::Wide).collect();
        let namespace = all_namespaces.then_some("Namespace");
        let heads = namespace.into_iter().chain(shown.iter().map(|(head, ..)| *head));
        let table = Table::new(heads.map(|head| (head, Width::Cells(8))).collect());
        Writer::Table { table, columns: shown.iter().map(|(_, column, _)| *column).collect(), all_namespaces }
    }

    fn is_table(&self) -> bool {
        matches!(self, Writer::Table { .. })
    }

    /// Takes a page in; `keep` looks at a pod's metadata.
    fn page(&mut self, session: &mut Session<'_>, mut page: Value, keep: impl Fn(&Value) -> bool) -> Result<(), Error> {
        match self {
            Writer::Whole(list) => {
                for pod in objects::items(&mut page).filter(|pod| keep(&pod["metadata"])) {
                    list.item(pod, session.out)?;
                }
            }
            Writer::Table { table, columns, all_namespaces } => {
                let rows = page["rows"].as_array().ok_or_else(|| no_table(session))?;
                let places = places(&page, columns).ok_or_else(|| no_table(session))?;
                for row in rows.iter().filter(|row| keep(&row["object"]["metadata"])) {
                    let namespace = all_namespaces.then(|| text_at(row, "/object/metadata/namespace").to_owned());
                    let cells =
                        places.iter().zip(columns.iter()).map(|(place, column)| cell(&row["cells"][*place], column));
                    table.push(namespace.into_iter().chain(cells));
                }
            }
        }
        Ok(())
    }

    fn end(self, session: &mut Session<'_>) -> Result<(), Error> {
        match self {
            Writer::Whole(list) => list.end(session.out),
            Writer::Table { table, all_namespaces, .. } => {
                objects::print_table(session, &table, if all_namespaces { 2 } else { 1 })
            }
        }
    }
}

fn no_table(session: &Session<'_>) -> Error {
    session.unreadable("list pods", "it is no table")
}

/// Where in a row the server has these columns.
pub(crate) fn places(page: &Value, columns: &[&str]) -> Option<Vec<usize>> {
    let definitions = page["columnDefinitions"].as_array()?;
    let place = |wanted: &&str| {
        definitions.iter().position(|one| one["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case(wanted)))
    };
    columns.iter().map(place).collect()
}

/// A cell's text. Of restarts only the number: Volcano says no time.
fn cell(value: &Value, column: &str) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if column == "Restarts" { text.split(' ').next().unwrap_or_default().to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn as_little_as_possible_is_asked_for() {
        let asked = |job: Option<&str>, queue: Option<&str>| -> Vec<String> {
            let filter = Filter { job: job.map(str::to_owned), queue: queue.map(str::to_owned) };
            selectors(&filter).into_iter().map(|selector| selector.labels).collect()
        };
        assert_eq!(asked(None, None), ["volcano.sh/job-name"]);
        assert_eq!(asked(Some("j"), None), ["volcano.sh/job-name=j"]);
        assert_eq!(asked(Some("j"), Some("q")), ["volcano.sh/job-name=j,volcano.sh/queue-name=q"]);
        assert_eq!(asked(None, Some("q")), ["volcano.sh/queue-name=q", "!volcano.sh/queue-name"]);
        let by_annotation = &selectors(&Filter { job: None, queue: Some("q".into()) })[1];
        assert!(by_annotation.keeps(&json!({"annotations": {"scheduling.volcano.sh/queue-name": "q"}})));
        assert!(!by_annotation.keeps(&json!({"annotations": {"scheduling.volcano.sh/queue-name": "p"}})));
        assert!(!by_annotation.keeps(&json!({})));
    }

    #[test]
    fn columns_are_found_by_name_and_cells_are_texts() {
        let page = json!({"columnDefinitions": [{"name": "NAME"}, {"name": "Age"}, {"name": "Restarts"}]});
        assert_eq!(places(&page, &["Name", "Restarts"]), Some(vec![0, 2]));
        assert_eq!(places(&page, &["Node"]), None);
        assert_eq!(cell(&json!("3 (5m ago)"), "Restarts"), "3");
        assert_eq!(cell(&json!(3), "Restarts"), "3");
        assert_eq!(cell(&json!("<none>"), "Node"), "<none>");
    }
}
