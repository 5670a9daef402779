//! Holds the events of jobs against those that every one of them has to see.
//!
//! Invariant: for each job only the next expected event counts; others may lie between. The first event of its kind is the
//! one that is meant, so where a field of it differs the job has failed to see it. Jobs are known by their events as well as
//! by their submission, whichever comes first; only submitted ones count in the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use pumice_wire::api::EventMessage;
use pumice_wire::api::event_message::Events;
use thiserror::Error;

use super::events::{Kind, is_last, job_of, place_of};
use super::expected::{Difference, Expected};

/// What all jobs saw.
#[derive(Debug)]
pub struct Matcher {
    expected: Vec<Expected>,
    jobs: HashMap<String, Seen>,
    /// Submitted jobs that still have to see something.
    open: usize,
}

/// What a job saw.
#[derive(Debug, Default)]
struct Seen {
    is_submitted: bool,
    /// How many of the expected events.
    matched: usize,
    kinds: u32,
    last: Option<Kind>,
    assigned: Option<(String, String)>,
}

/// A job saw what it should not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// An expected event with a field that differs.
    #[error("job {job}, {kind}: {difference}")]
    Field { job: String, kind: Kind, difference: Difference },
    #[error("job {job} ended with {end}{} before it saw {missing}", because(why))]
    Ended {
        job: String,
        end: Kind,
        /// What the event says of the cause; may be empty.
        why: String,
        /// The next expected event.
        missing: Kind,
    },
}

/// What jobs wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub total: usize,
    /// How many of them wait for an event, and which they saw last.
    pub jobs: BTreeMap<(Kind, Option<Kind>), usize>,
}

impl Matcher {
    /// Expects these events, in this order, of every job.
    pub fn new(expected: Vec<Expected>) -> Self {
        Self { expected, jobs: HashMap::new(), open: 0 }
    }

    /// A job was submitted. Once more is no other job.
    pub fn submitted(&mut self, job: String) {
        let seen = self.jobs.entry(job).or_default();
        if !seen.is_submitted {
            seen.is_submitted = true;
            self.open += usize::from(seen.matched < self.expected.len());
        }
    }

    /// An event came.
    ///
    /// # Errors
    /// It is not what its job had to see.
    pub fn see(&mut self, message: &EventMessage) -> Result<(), Mismatch> {
        let Some(event) = &message.events else { return Ok(()) };
        let (kind, job) = (Kind::of(event), job_of(event));
        let seen = self.jobs.entry(job.to_owned()).or_default();
        seen.kinds |= kind.bit();
        seen.last = Some(kind);
        if let Some((executor, node)) = place_of(event) {
            seen.assigned = Some((executor.to_owned(), node.to_owned()));
        }
        let Some(next) = self.expected.get(seen.matched) else { return Ok(()) };
        if next.kind() == kind {
            let field = |difference| Mismatch::Field { job: job.to_owned(), kind, difference };
            next.compare(message).map_err(field)?;
            seen.matched += 1;
        }
        match self.expected.get(seen.matched) {
            None => self.open -= usize::from(seen.is_submitted),
            Some(next) if is_last(event) => {
                let missing = next.kind();
                return Err(Mismatch::Ended { job: job.to_owned(), end: kind, why: why(event).to_owned(), missing });
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Whether every submitted job saw everything.
    pub fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// Submitted jobs that saw everything.
    pub fn complete(&self) -> usize {
        self.submissions().filter(|(_, seen)| seen.matched == self.expected.len()).count()
    }

    /// The ids of submitted jobs, in order.
    pub fn ids(&self) -> Vec<String> {
        let ids: BTreeSet<&String> = self.submissions().map(|(id, _)| id).collect();
        ids.into_iter().cloned().collect()
    }

    /// How many submitted jobs saw an event of that kind, and how many there are.
    pub fn saw(&self, kind: Kind) -> (usize, usize) {
        let saw = self.submissions().filter(|(_, seen)| seen.kinds & kind.bit() != 0).count();
        (saw, self.submissions().count())
    }

    /// Executors and nodes of the submitted jobs; nothing while one is on none.
    pub fn places(&self) -> Option<BTreeSet<(String, String)>> {
        self.submissions().map(|(_, seen)| seen.assigned.clone()).collect()
    }

    /// What submitted jobs still wait for.
    pub fn waiting(&self) -> Waiting {
        let mut jobs = BTreeMap::new();
        for (_, seen) in self.submissions() {
            if let Some(next) = self.expected.get(seen.matched) {
                *jobs.entry((next.kind(), seen.last)).or_default() += 1;
            }
        }
        Waiting { total: self.submissions().count(), jobs }
    }

    fn submissions(&self) -> impl Iterator<Item = (&String, &Seen)> {
        self.jobs.iter().filter(|(_, seen)| seen.is_submitted)
    }
}

fn why(event: &Events) -> &str {
    match event {
        Events::Failed(failed) => &failed.reason,
        Events::Cancelled(cancelled) => &cancelled.reason,
        _ => "",
    }
}

fn because(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({why})") }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.jobs.is_empty() {
            return write!(f, "all of {} jobs saw everything", self.total);
        }
        for (index, ((next, last), count)) in self.jobs.iter().enumerate() {
            let before = if index == 0 { "" } else { ", " };
            write!(f, "{before}{count} of {} jobs wait for {next}", self.total)?;
            match last {
                Some(last) => write!(f, " (last seen: {last})")?,
                None => f.write_str(" (nothing seen)")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn matcher(expected: &Value) -> Matcher {
        let read = |event: &Value| {
            let (kind, fields) = event.as_object().expect("an event").iter().next().expect("a kind");
            Expected::read(kind, fields.as_object().expect("fields")).expect("it can be")
        };
        Matcher::new(expected.as_array().expect("a list").iter().map(read).collect())
    }

    fn event(job: &str, kind: &str, mut fields: Value) -> EventMessage {
        fields["jobId"] = json!(job);
        serde_json::from_value(json!({ kind: fields })).expect("an event")
    }

    /// What becomes of one job that sees these events.
    fn told(expected: &Value, events: &[(&str, Value)]) -> String {
        let mut matcher = matcher(expected);
        matcher.submitted("a".to_owned());
        for (kind, fields) in events {
            if let Err(mismatch) = matcher.see(&event("a", kind, fields.clone())) {
                return mismatch.to_string();
            }
        }
        if matcher.is_complete() { "complete".to_owned() } else { matcher.waiting().to_string() }
    }

    #[test]
    fn events_come_in_order_with_others_between() {
        let succeeds = json!([{ "submitted": {} }, { "running": {} }, { "succeeded": {} }]);
        let fails = json!([{ "submitted": {} }, { "failed": { "failureCategory": "oom" } }]);
        let none = || json!({});
        let retried = || json!({ "retryable": true });
        for (expected, events, outcome) in [
            (&succeeds, vec![("submitted", none()), ("running", none()), ("succeeded", none())], "complete"),
            (
                &succeeds,
                vec![
                    ("submitted", none()),
                    ("queued", none()),
                    ("running", none()),
                    ("pending", none()),
                    ("succeeded", none()),
                ],
                "complete",
            ),
            (&succeeds, vec![], "1 of 1 jobs wait for submitted (nothing seen)"),
            (
                &succeeds,
                vec![("submitted", none()), ("queued", none()), ("leased", none())],
                "1 of 1 jobs wait for running (last seen: leased)",
            ),
            // What came too early does not count.
            (
                &succeeds,
                vec![("running", none()), ("submitted", none()), ("succeeded", none())],
                "job a ended with succeeded before it saw running",
            ),
            (
                &succeeds,
                vec![("submitted", none()), ("failed", json!({ "reason": "no image" }))],
                "job a ended with failed (no image) before it saw running",
            ),
            // Only a run is over.
            (
                &succeeds,
                vec![("submitted", none()), ("failed", retried()), ("running", none()), ("succeeded", none())],
                "complete",
            ),
            (&fails, vec![("submitted", none()), ("failed", json!({ "failureCategory": "oom" }))], "complete"),
            (
                &fails,
                vec![("submitted", none()), ("failed", json!({ "failureCategory": "error" }))],
                "job a, failed: failureCategory is \"error\" instead of \"oom\"",
            ),
            (
                &fails,
                vec![("submitted", none()), ("failed", json!({ "failureCategory": "oom", "retryable": true }))],
                "job a, failed: retryable is true instead of unset",
            ),
            (
                &fails,
                vec![("submitted", none()), ("succeeded", none())],
                "job a ended with succeeded before it saw failed",
            ),
            (&json!([]), vec![], "complete"),
            (&json!([{ "submitted": {} }]), vec![("submitted", none()), ("failed", none())], "complete"),
            (
                &json!([{ "submitted": {} }, { "submitted": {} }]),
                vec![("submitted", none())],
                "1 of 1 jobs wait for submitted (last seen: submitted)",
            ),
        ] {
            assert_eq!(told(expected, &events), outcome, "{expected} {events:?}");
        }
    }

    #[test]
    fn every_submitted_job_counts_once_whatever_is_heard_first() {
        let mut matcher = matcher(&json!([{ "submitted": {} }, { "running": {} }]));
        let see = |matcher: &mut Matcher, job: &str, kind: &str| {
            let fields = json!({ "clusterId": "c", "nodeName": format!("n{job}") });
            matcher.see(&event(job, kind, if kind == "running" { fields } else { json!({}) })).expect("as expected");
        };
        see(&mut matcher, "1", "submitted");
        see(&mut matcher, "1", "running");
        see(&mut matcher, "2", "submitted");
        // Somebody else's.
        see(&mut matcher, "9", "submitted");
        for job in ["1", "2", "2"] {
            matcher.submitted(job.to_owned());
        }
        assert_eq!(
            (matcher.is_complete(), matcher.complete(), matcher.ids()),
            (false, 1, vec!["1".to_owned(), "2".to_owned()])
        );
        assert_eq!(
            (matcher.saw(Kind::Submitted), matcher.saw(Kind::Running), matcher.places()),
            ((2, 2), (1, 2), None)
        );
        let waiting = matcher.waiting();
        assert_eq!(waiting.to_string(), "1 of 2 jobs wait for running (last seen: submitted)");
        see(&mut matcher, "2", "running");
        see(&mut matcher, "2", "running");
        assert!(matcher.is_complete());
        let places = ["n1", "n2"].map(|node| ("c".to_owned(), node.to_owned()));
        assert_eq!(matcher.places(), Some(places.into()));
        assert_eq!(matcher.waiting().to_string(), "all of 2 jobs saw everything");
    }
}
