//! The log of a simulation as rows of comma-separated values.

use std::fmt::Write as _;

use pumice_ledger::{Entry, Event, JobId, RunId};

use super::run::EPOCH_MS;

/// The first row.
pub const HEADER: &str = "seconds,event,queue,job_set,job,attempt,pool,cluster,node";

/// What an event says: its name, the job, its attempt, and the pool, cluster and node.
type EventRow<'e> = (&'static str, JobId, Option<RunId>, [&'e str; 3]);

/// A row for each event of an entry that is about a job, each with an end of line.
#[allow(clippy::cast_precision_loss, reason = "seconds as people read them")]
pub fn rows(entry: &Entry) -> String {
    let mut text = String::new();
    let seconds = (entry.at.0 - EPOCH_MS) as f64 / 1_000.0;
    for event in &entry.events {
        let Some((name, job, run, place)) = event_row(event) else { continue };
        let attempt = run.map(|run| run.attempt.to_string()).unwrap_or_default();
        let [pool, cluster, node] = place.map(cell);
        let (queue, set) = (cell(&entry.queue), cell(&entry.job_set));
        // A string takes all that is written.
        let _ = writeln!(text, "{seconds},{name},{queue},{set},{job},{attempt},{pool},{cluster},{node}");
    }
    text
}

fn event_row(event: &Event) -> Option<EventRow<'_>> {
    let of_run = |name, run: &RunId| Some((name, run.job, Some(*run), [""; 3]));
    match event {
        Event::Submitted(submitted) => Some(("submitted", submitted.job, None, [""; 3])),
        Event::Leased { run, at, pool, .. } => Some(("leased", run.job, Some(*run), [pool, &at.cluster, &at.node])),
        Event::Running { run, node, .. } => Some(("running", run.job, Some(*run), ["", "", node])),
        Event::RunPreempted { run, .. } => of_run("preempted", run),
        Event::RunGone { run } => of_run("gone", run),
        Event::Returned { run, .. } => of_run("returned", run),
        Event::RunFailed { run, .. } => of_run("run-failed", run),
        Event::RunLost { run } => of_run("lost", run),
        Event::Succeeded { run } => of_run("succeeded", run),
        Event::Failed { job, .. } => Some(("failed", *job, None, [""; 3])),
        Event::Rejected { job, .. } => Some(("rejected", *job, None, [""; 3])),
        Event::Cancelled { job, .. } => Some(("cancelled", *job, None, [""; 3])),
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
