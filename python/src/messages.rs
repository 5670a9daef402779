//! What streams say, as JSON with a `kind`: the one place that knows these words (`_core.pyi` types them).

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use pumice_jobs::Error;
use pumice_jobs::job::pod::{PodDocument, place_in};
use pumice_jobs::job::{JobDocument, exit_of_end};
use pumice_jobs::logs::{JobLogs, LogPiece};
use pumice_jobs::monitor::{RunEnd, RunEvent, RunMonitor};
use pumice_jobs::platform::call::CallError;
use pumice_jobs::platform::watch::Update;
use serde_json::{Value, json};

/// A stream of JSON objects for Python, each with its `kind`; it ends after an error.
pub type Messages = BoxStream<'static, Result<Value, Error>>;

/// How a job ended: its last summary, in which end and exit code are never empty, and what failed.
pub fn of_ending(ending: &RunEnd) -> Value {
    let mut value = json!(JobDocument::of(&ending.job));
    value["end"] = json!(ending.end.word());
    value["exit_code"] = json!(exit_of_end(&ending.job, ending.end).code());
    value["failures"] = json!(ending.failures);
    value
}

/// A line of a log. Bytes that are no UTF-8 are replaced.
fn of_line(job: &str, line: &LogPiece) -> Value {
    let (task, index) = place_in(job, &line.pod).unzip();
    let text = String::from_utf8_lossy(&line.text);
    json!({"kind": "line", "pod": line.pod, "task": task, "index": index, "container": line.container, "text": text})
}

fn of_happening(job: &str, event: &RunEvent) -> Value {
    match event {
        RunEvent::State(state) => json!({"kind": "state", "job": JobDocument::of(state)}),
        RunEvent::Log(line) => of_line(job, line),
        RunEvent::Waits(why) => json!({"kind": "waits", "why": why}),
        RunEvent::LogsLost(error) => json!({"kind": "logs_lost", "detail": error.to_string()}),
        RunEvent::Lost(detail) => json!({"kind": "lost", "detail": detail}),
        RunEvent::Back => json!({"kind": "back"}),
        RunEvent::Ended(ending) => json!({"kind": "ended", "job": of_ending(ending)}),
    }
}

/// All that happens to a job, up to its end.
pub fn of_attendance(attendance: RunMonitor, job: String) -> Messages {
    stream::unfold(Some((attendance, job)), |open| async move {
        let (mut attendance, job) = open?;
        let event = attendance.next().await;
        let goes_on = !matches!(event, Ok(RunEvent::Ended(_)) | Err(_));
        let message = event.map(|event| of_happening(&job, &event));
        Some((message, goes_on.then_some((attendance, job))))
    })
    .boxed()
}

/// Only the lines of that.
pub fn lines_of_attendance(attendance: RunMonitor, job: String) -> Messages {
    let wanted = |message: &Result<Value, Error>| message.as_ref().map_or(true, |message| message["kind"] == "line");
    of_attendance(attendance, job).filter(move |message| std::future::ready(wanted(message))).boxed()
}

/// The lines written up to now.
pub fn of_logs(logs: JobLogs, job: String) -> Messages {
    stream::unfold((logs, job), |(mut logs, job)| async move {
        let line = logs.next().await?;
        Some((line.map(|line| of_line(&job, &line)), (logs, job)))
    })
    .boxed()
}

/// What a watch of pods says, as messages for Python.
pub fn of_pods(update: BoxStream<'static, Result<Update<PodDocument>, CallError>>) -> Messages {
    update
        .map(|update| {
            Ok(match update? {
                Update::Snapshot(pods) => json!({"kind": "snapshot", "pods": pods}),
                Update::Changed(pod) => json!({"kind": "changed", "pod": pod}),
                Update::Gone(pod) => json!({"kind": "gone", "pod": pod}),
                Update::Lost(detail) => json!({"kind": "lost", "detail": detail}),
                Update::Back => json!({"kind": "back"}),
            })
        })
        .boxed()
}
