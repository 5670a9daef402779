//! Rows of the kinds that make pods.

use jiff::Timestamp;
use pumice_objects::meta;
use pumice_objects::selector::LabelSelector;
use pumice_objects::table::{Column, ColumnType, Table, age};
use serde_json::{Value, json};

use super::{age_of, or_none, text};

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn count(name: &str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column::builtin(name, ColumnType::Integer, cell)
}

/// A field of all containers, with commas between them.
fn of_containers(spec: &Value, field: &str) -> String {
    let all = spec["template"]["spec"]["containers"].as_array().into_iter().flatten();
    all.map(|container| container[field].as_str().unwrap_or_default()).collect::<Vec<_>>().join(",")
}

fn selector(spec: &Value) -> String {
    match LabelSelector::from_json(&spec["selector"]) {
        Ok(selector) if !selector.requirements().is_empty() => selector.to_string(),
        _ => "<none>".to_owned(),
    }
}

/// The columns that `-o wide` adds, for objects whose template is below `spec`.
fn wide() -> [Column; 3] {
    [
        text("Containers", |object, _| json!(of_containers(&object["spec"], "name"))).wide(),
        text("Images", |object, _| json!(of_containers(&object["spec"], "image"))).wide(),
        text("Selector", |object, _| json!(selector(&object["spec"]))).wide(),
    ]
}

fn ready(object: &Value) -> String {
    format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"]))
}

pub(crate) fn deployment() -> Table {
    let mut columns = vec![
        Column::name(),
        text("Ready", |object, _| json!(ready(object))),
        text("Up-to-date", |object, _| json!(number(&object["status"]["updatedReplicas"]))),
        text("Available", |object, _| json!(number(&object["status"]["availableReplicas"]))),
        Column::age(),
    ];
    columns.extend(wide());
    Table::new(columns)
}

pub(crate) fn replica_set() -> Table {
    let mut columns = vec![
        Column::name(),
        count("Desired", |object, _| json!(number(&object["spec"]["replicas"]))),
        count("Current", |object, _| json!(number(&object["status"]["replicas"]))),
        count("Ready", |object, _| json!(number(&object["status"]["readyReplicas"]))),
        Column::age(),
    ];
    columns.extend(wide());
    Table::new(columns)
}

/// Columns of ReplicationControllers: those of ReplicaSets, but the selector is nothing but labels.
pub(crate) fn replication_controller() -> Table {
    let [containers, images, _] = wide();
    Table::new(vec![
        Column::name(),
        count("Desired", |object, _| json!(number(&object["spec"]["replicas"]))),
        count("Current", |object, _| json!(number(&object["status"]["replicas"]))),
        count("Ready", |object, _| json!(number(&object["status"]["readyReplicas"]))),
        Column::age(),
        containers,
        images,
        text("Selector", |object, _| json!(labels(&object["spec"]["selector"]))).wide(),
    ])
}

fn labels(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let pairs: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

pub(crate) fn stateful_set() -> Table {
    let [containers, images, _] = wide();
    Table::new(vec![Column::name(), text("Ready", |object, _| json!(ready(object))), Column::age(), containers, images])
}

pub(crate) fn controller_revision() -> Table {
    Table::new(vec![
        Column::name(),
        text("Controller", |object, _| json!(controller(object))),
        text("Revision", |object, _| json!(number(&object["revision"]))),
        Column::age(),
    ])
}

/// As kubectl names a resource.
fn controller(object: &Value) -> String {
    let Some(owner) = meta::controller(object) else { return "<none>".to_owned() };
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    format!("{}.{group}/{}", owner.kind.to_lowercase(), owner.name)
}

pub(crate) fn job() -> Table {
    let mut columns = vec![
        Column::name(),
        text("Status", |object, _| json!(job_status(object))),
        text("Completions", |object, _| json!(completions(object))),
        text("Duration", |object, now| json!(duration(object, now))),
        Column::age(),
    ];
    columns.extend(wide());
    Table::new(columns)
}

fn holds(object: &Value, condition: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == condition && one["status"] == "True")
}

fn job_status(job: &Value) -> &'static str {
    let first = |names: &[&'static str]| names.iter().find(|name| holds(job, name)).copied();
    if let Some(ended) = first(&["Complete", "Failed"]) {
        return ended;
    }
    if job["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating";
    }
    first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running")
}

fn completions(job: &Value) -> String {
    let succeeded = number(&job["status"]["succeeded"]);
    match (job["spec"]["completions"].as_i64(), number(&job["spec"]["parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, pods) if pods > 1 => format!("{succeeded}/1 of {pods}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let time = |field: &str| job["status"][field].as_str().and_then(meta::parse_time);
    match (time("startTime"), time("completionTime")) {
        (None, _) => String::new(),
        (started, ended) => age(started, ended.unwrap_or(now)),
    }
}

pub(crate) fn cron_job() -> Table {
    Table::new(vec![
        Column::name(),
        text("Schedule", |object, _| or_none(&object["spec"]["schedule"])),
        text("Timezone", |object, _| or_none(&object["spec"]["timeZone"])),
        Column::builtin("Suspend", ColumnType::Boolean, |object, _| json!(printed(object["spec"]["suspend"] == true))),
        count("Active", |object, _| json!(object["status"]["active"].as_array().map_or(0, Vec::len))),
        text("Last Schedule", |object, now| match object["status"]["lastScheduleTime"].as_str() {
            Some(time) => json!(age_of(time, now)),
            None => json!("<none>"),
        }),
        Column::age(),
        text("Containers", |object, _| json!(of_containers(&object["spec"]["jobTemplate"]["spec"], "name"))).wide(),
        text("Images", |object, _| json!(of_containers(&object["spec"]["jobTemplate"]["spec"], "image"))).wide(),
        text("Selector", |object, _| json!(selector(&object["spec"]["jobTemplate"]["spec"]))).wide(),
    ])
}

/// As Go prints a boolean in a table.
fn printed(yes: bool) -> &'static str {
    if yes { "True" } else { "False" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_says_how_it_stands() {
        let now = "2026-01-01T00:10:00Z".parse().expect("a time");
        let condition = |name: &str| json!([{"type": name, "status": "True"}]);
        for (job, status, done, took) in [
            (json!({"spec": {"completions": 3}}), "Running", "0/3", ""),
            (json!({"spec": {"parallelism": 4}, "status": {"succeeded": 1}}), "Running", "1/1 of 4", ""),
            (
                json!({"spec": {"completions": 1}, "status": {"succeeded": 1, "conditions": condition("Complete"),
                    "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:05Z"}}),
                "Complete",
                "1/1",
                "5s",
            ),
            (
                json!({"spec": {"completions": 1}, "status": {"conditions": condition("Suspended"),
                    "startTime": "2026-01-01T00:00:00Z"}}),
                "Suspended",
                "0/1",
                "10m",
            ),
        ] {
            assert_eq!(
                (job_status(&job), completions(&job).as_str(), duration(&job, now).as_str()),
                (status, done, took)
            );
        }
    }

    #[test]
    fn what_is_wide_names_containers_and_selector() {
        let spec = json!({"selector": {"matchLabels": {"b": "2", "a": "1"}},
            "template": {"spec": {"containers": [{"name": "x", "image": "i"}, {"name": "y", "image": "j"}]}}});
        assert_eq!((of_containers(&spec, "name").as_str(), selector(&spec).as_str()), ("x,y", "a=1,b=2"));
        assert_eq!(selector(&json!({})), "<none>");
    }
}
