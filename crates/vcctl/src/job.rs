//! Jobs: made, listed, shown, suspended, resumed and deleted.
//!
//! Invariant: a list reads Jobs alone, never their pods; the counts are those of their status. Called by the binary.

pub mod new;
pub mod view;

use pumice_api::CustomResource;
use pumice_api::batch::Job;
use pumice_api::bus::Action;
use pumice_api::names::JOB_TYPE;
use pumice_jobs::json::text_at;
use pumice_jobs::lifecycle::command::{self, Reason, Subject};
use pumice_jobs::{manifest, names, submit};
use serde_json::Value;

use crate::documents::ManifestFile;
use crate::error::Error;
use crate::kinds::{COMMAND, JOB};
use crate::list::Form;
use crate::objects::{self, Listing};
use crate::session::{NamespacedName, Scope, Session};
use crate::table::{Column, Width, age, number, text};

/// The columns in which Jobs are listed, which are Volcano's.
pub const COLUMNS: &[Column] = &[
    Column::namespace(Width::Longest(3)),
    Column::name(Width::Longest(3)),
    Column::new("Creation", Width::Fixed(15), |job, _| {
        text(job, "/metadata/creationTimestamp").split('T').next().unwrap_or_default().to_owned()
    }),
    Column::new("Phase", Width::Fixed(12), |job, _| text(job, "/status/state/phase")),
    Column::new("JobType", Width::Fixed(12), |job, _| {
        let word = job["metadata"]["labels"][JOB_TYPE].as_str();
        word.filter(|word| !word.is_empty()).unwrap_or("Batch").to_owned()
    }),
    Column::new("Replicas", Width::Fixed(12), |job, _| {
        let tasks = job["spec"]["tasks"].as_array().into_iter().flatten();
        tasks.filter_map(|task| task["replicas"].as_i64()).fold(0_i64, i64::saturating_add).to_string()
    }),
    Column::new("Min", Width::Fixed(6), |job, _| number(job, "/status/minAvailable")),
    Column::new("Pending", Width::Fixed(10), |job, _| number(job, "/status/pending")),
    Column::new("Running", Width::Fixed(10), |job, _| number(job, "/status/running")),
    Column::new("Succeeded", Width::Fixed(12), |job, _| number(job, "/status/succeeded")),
    Column::new("Failed", Width::Fixed(10), |job, _| number(job, "/status/failed")),
    Column::new("Unknown", Width::Fixed(12), |job, _| number(job, "/status/unknown")),
    Column::new("RetryCount", Width::Fixed(10), |job, _| number(job, "/status/retryCount")),
    Column::wide("Queue", |job, _| text(job, "/spec/queue")),
    Column::wide("Scheduler", |job, _| text(job, "/spec/schedulerName")),
    Column::wide("Priority", |job, _| text(job, "/spec/priorityClassName")),
    Column::wide("Age", |job, now| age(job, "/metadata/creationTimestamp", now)),
];

/// Which Jobs are listed. Empty texts leave none out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those of this queue.
    pub queue: String,
    /// Only those of this scheduler.
    pub scheduler: String,
    /// Only those with this in their name.
    pub part_of_name: String,
}

impl Filter {
    fn keeps(&self, job: &Value) -> bool {
        let is = |wanted: &str, pointer: &str| wanted.is_empty() || text_at(job, pointer) == wanted;
        is(&self.queue, "/spec/queue")
            && is(&self.scheduler, "/spec/schedulerName")
            && text_at(job, "/metadata/name").contains(&self.part_of_name)
    }
}

/// Lists the Jobs of a scope that a filter keeps.
pub async fn list(session: &mut Session<'_>, scope: &Scope, filter: &Filter, form: Form) -> Result<(), Error> {
    let listing = Listing { kind: JOB, columns: COLUMNS, scope, keep: &|job| filter.keeps(job) };
    objects::list(session, listing, form).await
}

/// Makes the Job of a file, which has to hold exactly one. `namespace` is the one that was asked for; else the file's own
/// counts, else `default`.
pub async fn run_file(
    session: &mut Session<'_>,
    file: ManifestFile<'_>,
    namespace: Option<&str>,
    form: Option<Form>,
) -> Result<(), Error> {
    let ManifestFile { path, stdin } = file;
    let mut objects = manifest::read(path, stdin)?;
    let object = match (objects.pop(), objects.len()) {
        (Some(object), 0) => object,
        (_, more) => {
            return Err(Error::usage(format!("{} holds {} objects; a Job goes here", path.display(), more + 1)));
        }
    };
    if !submit::is_job(&object.body) {
        let kind = text_at(&object.body, "/kind");
        return Err(Error::usage(format!(
            "{} holds a {kind}; a Job of {} goes here",
            object.origin,
            JOB.api_version()
        )));
    }
    let own = text_at(&object.body, "/metadata/namespace");
    let namespace = namespace.or(Some(own).filter(|own| !own.is_empty())).unwrap_or("default").to_owned();
    make(session, object.body, &namespace, form).await
}

/// Makes a Job of flags.
pub async fn run_new(
    session: &mut Session<'_>,
    job: &new::NewJob,
    namespace: &str,
    form: Option<Form>,
) -> Result<(), Error> {
    let job = new::render(job)?;
    let failed = |error: serde_json::Error| session.unreadable("write a job", &error.to_string());
    let body = serde_json::to_value(&job).map_err(failed)?;
    make(session, body, namespace, form).await
}

async fn make(session: &mut Session<'_>, mut job: Value, namespace: &str, form: Option<Form>) -> Result<(), Error> {
    job["metadata"]["namespace"] = namespace.into();
    let made = session.create(JOB, namespace, &job).await?;
    let text = format!("run job {} successfully", text_at(&made, "/metadata/name"));
    session.done(JOB, made, form, &text)
}

/// Shows a Job: Volcano's long text, or the form that was asked for.
pub async fn view(session: &mut Session<'_>, job: NamespacedName<'_>, form: Option<Form>) -> Result<(), Error> {
    let job = session.get(JOB, job.namespace, job.name).await?;
    if let Some(form) = form {
        return objects::show(session, JOB, COLUMNS, job, form);
    }
    let events = view::events(session, &job).await?;
    let mut text = view::job(&job);
    text.push_str(&view::event_lines(&events, session.now));
    session.out.write_all(text.as_bytes()).map_err(Error::Output)
}

/// Deletes a Job; `verb` is the one of the text.
pub async fn delete(
    session: &mut Session<'_>,
    job: NamespacedName<'_>,
    verb: &str,
    form: Option<Form>,
) -> Result<(), Error> {
    let NamespacedName { namespace, name } = job;
    let deleted = session.delete(JOB, namespace, name, form).await?;
    session.done(JOB, deleted, form, &format!("{verb} job {name} successfully"))
}

/// Asks for an action on a Job by a Command. Without a form nothing is printed, as with Volcano.
pub async fn ask(
    session: &mut Session<'_>,
    job: NamespacedName<'_>,
    action: Action,
    form: Option<Form>,
) -> Result<(), Error> {
    let NamespacedName { namespace, name } = job;
    let job = session.get(JOB, namespace, name).await?;
    let made = ask_for::<Job>(session, &job, action, namespace).await?;
    match form {
        None => Ok(()),
        Some(form) => session.done(COMMAND, made, Some(form), &format!("{} was asked for", JOB.reference(name))),
    }
}

/// Gives the Command that asks for an action on an object of kind `K`, in `namespace`.
pub(crate) async fn ask_for<K: CustomResource>(
    session: &Session<'_>,
    object: &Value,
    action: Action,
    namespace: &str,
) -> Result<Value, Error> {
    let [name, uid] = ["/metadata/name", "/metadata/uid"].map(|pointer| text_at(object, pointer));
    names::check("namespace", namespace, 63)?;
    let command = command::command::<K>(Subject { namespace, name, uid }, action, Reason::default());
    let doing = format!("create {} {}", COMMAND.word, command.metadata.generate_name.as_deref().unwrap_or_default());
    Ok(command::give(&session.connection, &command, &doing).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::columns_of;
    use crate::table::Table;
    use serde_json::json;

    #[test]
    fn a_row_has_volcanos_columns() {
        let now = "2026-11-21T10:00:00Z".parse().unwrap();
        let job = json!({
            "metadata": {"name": "train", "namespace": "team", "creationTimestamp": "2026-11-20T10:00:00Z"},
            "spec": {"queue": "q", "schedulerName": "volcano", "tasks": [{"replicas": 2}, {"replicas": 3}, {}]},
            "status": {"state": {"phase": "Terminating"}, "minAvailable": 4, "pending": 1, "running": 2, "succeeded": 3,
                "failed": 5, "unknown": 6, "retryCount": 7},
        });
        let bare = json!({"metadata": {"name": "x", "labels": {"volcano.sh/job-type": "MPI"}}});
        let mut text = String::new();
        for (form, all) in [(Form::Table, false), (Form::Table, true), (Form::Wide, true)] {
            let columns = columns_of(COLUMNS, form, all);
            let mut table = Table::new(columns.iter().map(|column| (column.head, column.width)).collect());
            for job in [&job, &bare] {
                table.push(columns.iter().map(|column| (column.cell)(job, now)));
            }
            let mut out = Vec::new();
            table.write(0, &mut out).unwrap();
            text.push_str(&String::from_utf8(out).unwrap());
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn filters_leave_out_what_does_not_match() {
        let job = json!({"metadata": {"name": "train-7"}, "spec": {"queue": "q", "schedulerName": "volcano"}});
        let filter = |queue: &str, scheduler: &str, part: &str| Filter {
            queue: queue.to_owned(),
            scheduler: scheduler.to_owned(),
            part_of_name: part.to_owned(),
        };
        for (filter, kept) in [
            (filter("", "", ""), true),
            (filter("q", "volcano", "ain"), true),
            (filter("p", "", ""), false),
            (filter("", "other", ""), false),
            (filter("", "", "train-8"), false),
        ] {
            assert_eq!(filter.keeps(&job), kept, "{filter:?}");
        }
    }
}
