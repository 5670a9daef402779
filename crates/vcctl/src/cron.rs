//! CronJobs: their columns, and stopping and going on with their schedule.

use serde_json::{Value, json};

use crate::error::Error;
use crate::kinds::CRON_JOB;
use crate::list::Form;
use crate::session::{NamespacedName, Session};
use crate::table::{Column, Width, age, text};

const WIDTH: Width = Width::Longest(3);

/// The columns in which CronJobs are listed and shown.
pub const COLUMNS: &[Column] = &[
    Column::namespace(WIDTH),
    Column::name(WIDTH),
    Column::new("Schedule", WIDTH, |cron, _| text(cron, "/spec/schedule")),
    Column::new("Suspend", WIDTH, |cron, _| (cron.pointer("/spec/suspend") == Some(&Value::Bool(true))).to_string()),
    Column::new("Active", WIDTH, |cron, _| {
        cron.pointer("/status/active").and_then(Value::as_array).map_or(0, Vec::len).to_string()
    }),
    Column::new("LastSchedule", WIDTH, |cron, now| since(cron, "/status/lastScheduleTime", now)),
    Column::new("Age", WIDTH, |cron, now| age(cron, "/metadata/creationTimestamp", now)),
    Column::wide("TimeZone", |cron, _| or_none(text(cron, "/spec/timeZone"))),
    Column::wide("Concurrency", |cron, _| or_none(text(cron, "/spec/concurrencyPolicy"))),
    Column::wide("LastSuccess", |cron, now| since(cron, "/status/lastSuccessfulTime", now)),
];

fn since(cron: &Value, pointer: &str, now: jiff::Timestamp) -> String {
    if cron.pointer(pointer).is_none_or(Value::is_null) { "<none>".to_owned() } else { age(cron, pointer, now) }
}

fn or_none(word: String) -> String {
    if word.is_empty() { "<none>".to_owned() } else { word }
}

/// Stops a CronJob from making Jobs, or lets it go on. Jobs that exist are left alone.
pub async fn suspend(
    session: &mut Session<'_>,
    cron_job: NamespacedName<'_>,
    suspend: bool,
    form: Option<Form>,
) -> Result<(), Error> {
    let NamespacedName { namespace, name } = cron_job;
    let patch = json!({"spec": {"suspend": suspend}});
    let changed = session.merge(CRON_JOB, namespace, name, &patch).await?;
    let verb = if suspend { "suspend" } else { "resume" };
    session.done(CRON_JOB, changed, form, &format!("{verb} cronjob {name} successfully"))
}
