//! The log of a simulation as rows of comma-separated values.

use std::fmt::Write as _;

use pumice_ledger::{Entry, Event, JobId, RunId};

use super::run::EPOCH_MS;

/// Names of the columns, without an end of line.
pub const HEADER: &str = "seconds,event,queue,job_set,job,attempt,pool,cluster,node";

/// What an event says of a job, or of one of its runs.
struct EventRow<'e> {
    name: &'static str,
    job: JobId,
    run: Option<RunId>,
    /// Pool, cluster and node, as far as it says them.
    on: [&'e str; 3],
}

/// A row for each event of an entry that is about a job, each with an end of line.
#[allow(clippy::cast_precision_loss, reason = "seconds as people read them")]
pub fn rows(entry: &Entry) -> String {
    let mut text = String::new();
    let seconds = (entry.at.0 - EPOCH_MS) as f64 / 1_000.0;
    for event in &entry.events {
        let Some(EventRow { name, job, run, on }) = event_row(event) else { continue };
        let attempt = run.map(|run| run.attempt.to_string()).unwrap_or_default();
        let [pool, cluster, node] = on.map(cell);
        let (queue, set) = (cell(&entry.queue), cell(&entry.job_set));
        // A string takes all that is written.
        let _ = writeln!(text, "{seconds},{name},{queue},{set},{job},{attempt},{pool},{cluster},{node}");
    }
    text
}

fn event_row(event: &Event) -> Option<EventRow<'_>> {
    let of_job = |name, job: JobId| Some(EventRow { name, job, run: None, on: [""; 3] });
    let at = |name, run: &RunId, on| Some(EventRow { name, job: run.job, run: Some(*run), on });
    let of_run = |name, run: &RunId| at(name, run, [""; 3]);
    match event {
        Event::Submitted(submitted) => of_job("submitted", submitted.job),
        Event::Leased { run, at: node, pool, .. } => at("leased", run, [pool, &node.cluster, &node.node]),
        Event::Running { run, node, .. } => at("running", run, ["", "", node]),
        Event::RunPreempted { run, .. } => of_run("preempted", run),
        Event::RunGone { run } => of_run("gone", run),
        Event::Returned { run, .. } => of_run("returned", run),
        Event::RunFailed { run, .. } => of_run("run-failed", run),
        Event::RunLost { run } => of_run("lost", run),
        Event::Succeeded { run } => of_run("succeeded", run),
        Event::Failed { job, .. } => of_job("failed", *job),
        Event::Rejected { job, .. } => of_job("rejected", *job),
        Event::Cancelled { job, .. } => of_job("cancelled", *job),
        _ => None,
    }
}

/// Text in quotes where it has to be.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use pumice_ledger::{NodeRef, TimeMs};

    use super::*;

    #[test]
    fn events_of_jobs_are_rows() {
        let run = RunId { job: JobId(1), attempt: 2 };
        let at = NodeRef { cluster: "east".to_owned(), node: "n".to_owned() };
        let leased = Event::Leased { run, at, pool: "p".to_owned(), away: None, places: Vec::new() };
        let events = vec![Event::QueueRemoved, leased, Event::Succeeded { run }];
        let entry = Entry { events, ..Entry::new(TimeMs(EPOCH_MS + 1_500), "a,\"b\"", "s") };
        assert_eq!(
            rows(&entry),
            "1.5,leased,\"a,\"\"b\"\"\",s,00000000000000000000000001,2,p,east,n\n\
             1.5,succeeded,\"a,\"\"b\"\"\",s,00000000000000000000000001,2,,,\n"
        );
        assert_eq!(HEADER.split(',').count(), 9);
    }
}
