//! Columns of JobFlows and JobTemplates.

use crate::table::{Column, Width, age, number, text};

const WIDTH: Width = Width::Longest(4);

/// The columns in which JobFlows are listed and shown.
pub const FLOWS: &[Column] = &[
    Column::name(WIDTH),
    Column::new("Namespace", WIDTH, |flow, _| text(flow, "/metadata/namespace")),
    Column::new("Phase", WIDTH, |flow, _| text(flow, "/status/state/phase")),
    Column::new("Age", WIDTH, |flow, now| age(flow, "/metadata/creationTimestamp", now)),
    Column::wide("Jobs", |flow, _| count(flow, "/spec/flows")),
    Column::wide("Pending", |flow, _| count(flow, "/status/pendingJobs")),
    Column::wide("Running", |flow, _| count(flow, "/status/runningJobs")),
    Column::wide("Completed", |flow, _| count(flow, "/status/completedJobs")),
    Column::wide("Failed", |flow, _| count(flow, "/status/failedJobs")),
    Column::wide("Terminated", |flow, _| count(flow, "/status/terminatedJobs")),
];

/// The columns in which JobTemplates are listed and shown.
pub const TEMPLATES: &[Column] = &[
    Column::name(WIDTH),
    Column::new("Namespace", WIDTH, |template, _| text(template, "/metadata/namespace")),
    Column::wide("Queue", |template, _| text(template, "/spec/queue")),
    Column::wide("Min", |template, _| number(template, "/spec/minAvailable")),
    Column::wide("Jobs", |template, _| count(template, "/status/jobDependsOnList")),
    Column::wide("Age", |template, now| age(template, "/metadata/creationTimestamp", now)),
];

/// How many things are in the list at a JSON pointer.
fn count(object: &serde_json::Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(serde_json::Value::as_array).map_or(0, Vec::len).to_string()
}
