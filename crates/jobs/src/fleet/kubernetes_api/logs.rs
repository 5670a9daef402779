//! What a job's pod has written, part by part: the server gives no more than a part at a time, and follows nothing.
//!
//! Invariant: each line is told once, in order. A log that is followed is asked for again, with longer pauses while nothing comes,
//! until its container has ended or its pod is gone.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use jiff::{SignedDuration, Timestamp};
use pumice_wire::binoculars::{LogLine, LogRequest};
use pumice_wire::kubernetes::PodLogOptions;

use super::super::calls::LogPart;
use super::*;

/// Between two questions for what is new, while something is.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// The same, when nothing has come for a while: less than what whoever follows a job waits for its last lines.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often in a row a log that is followed is asked for where nobody answers: its server may start anew.
const AWAY_TRIES: u32 = 120;
/// The code where nobody answers.
const AWAY: u16 = 503;
/// How often a cluster that has too many such questions is asked again.
const BUSY_TRIES: u32 = 20;
/// What it is to be too busy.
const BUSY: u16 = 429;

impl KubernetesApi {
    pub(super) async fn log(self: Arc<Self>, namespace: &str, name: &str, query: Query) -> Result<Lines, Refusal> {
        let PodView { id, view, .. } =
            self.view_of_pod(namespace, name).ok_or_else(|| Refusal::missing("pod", name))?;
        // None of what there is, but from when on: that says the last line.
        let from_now = query.tail == Some(0);
        let mut reading = Reading {
            front: self,
            job: id,
            namespace: namespace.to_owned(),
            container: query.container,
            pod: None,
            follow: query.follow,
            position: Position::default(),
            ahead: None,
            pause: PAUSE_FIRST,
            away: 0,
            is_over: false,
        };
        let tail = if from_now { Some(1) } else { query.tail };
        let mut first = reading.ask(tail).await.map_err(|refusal| match refusal.code {
            405 => elsewhere(namespace, &view, &refusal.message),
            _ => refusal,
        })?;
        reading.pod = first.pod;
        if from_now {
            reading.position.new_lines(std::mem::take(&mut first.lines));
        }
        reading.ahead = Some(first);
        Ok(stream::try_unfold(reading, Reading::step).boxed())
    }
}

/// A log between two of its parts.
struct Reading {
    front: Arc<KubernetesApi>,
    job: String,
    namespace: String,
    container: String,
    /// The pod that is read, once it is known: a later one of the same job is another log.
    pod: Option<i32>,
    follow: bool,
    position: Position,
    /// A part that is not told.
    ahead: Option<LogPart>,
    pause: Duration,
    /// Questions in a row that nobody answered.
    away: u32,
    is_over: bool,
}

impl Reading {
    /// What is new; nothing at the end.
    async fn step(mut self) -> Result<Option<(Bytes, Self)>, Refusal> {
        loop {
            let part = match self.ahead.take() {
                Some(part) => part,
                None if self.is_over => return Ok(None),
                None => {
                    tokio::time::sleep(self.pause).await;
                    match self.ask(None).await {
                        Ok(part) => part,
                        Err(refusal) if refusal.code == AWAY && self.follow && self.away < AWAY_TRIES => {
                            (self.away, self.pause) = (self.away + 1, PAUSE_MAX);
                            continue;
                        }
                        // The pod is gone, and with it what else it may have written.
                        Err(refusal) if refusal.code == 404 => return Ok(None),
                        Err(refusal) => return Err(refusal),
                    }
                }
            };
            let LogPart { lines, more, ended, .. } = part;
            self.away = 0;
            let new_lines = self.position.new_lines(lines);
            self.is_over = !more && (ended || !self.follow) || more && new_lines.is_empty() && !self.position.pass();
            self.pause = match (more, new_lines.is_empty()) {
                (true, _) => Duration::ZERO,
                (false, false) => PAUSE_FIRST,
                (false, true) => (self.pause * 2).clamp(PAUSE_FIRST, PAUSE_MAX),
            };
            if !new_lines.is_empty() {
                let text: String = new_lines.into_iter().map(|line| line.line + "\n").collect();
                return Ok(Some((Bytes::from(text), self)));
            }
        }
    }

    /// A part, from where this log was read to.
    async fn ask(&self, tail: Option<i64>) -> Result<LogPart, Refusal> {
        let mut options = json!({"container": self.container});
        if let Some(tail) = tail {
            options["tailLines"] = json!(tail);
        }
        let options = PodLogOptions::from_json(&options).map_err(|error| Refusal::invalid(error.to_string()))?;
        let request = LogRequest {
            job_id: self.job.clone(),
            pod_number: self.pod.unwrap_or(0),
            pod_namespace: self.namespace.clone(),
            since_time: self.position.time.clone(),
            log_options: Some(options),
        };
        let mut tries = 0;
        loop {
            match self.front.calls.log(request.clone(), self.pod).await {
                Err(refusal) if refusal.code == BUSY && tries < BUSY_TRIES => {
                    tries += 1;
                    tokio::time::sleep(PAUSE_FIRST).await;
                }
                answer => return answer,
            }
        }
    }
}

/// How far a log was read.
#[derive(Debug, Default, PartialEq)]
struct Position {
    /// When the last line was written; empty before there is one.
    time: String,
    /// Lines that have this time, and were told.
    lines: usize,
}

impl Position {
    /// What is new in lines that were asked for from this time on: those that have it come again.
    fn new_lines(&mut self, mut lines: Vec<LogLine>) -> Vec<LogLine> {
        let again = lines.iter().take(self.lines).take_while(|line| line.timestamp == self.time).count();
        lines.drain(..again);
        if let Some(last) = lines.last() {
            let with_its_time = lines.iter().rev().take_while(|line| line.timestamp == last.timestamp).count();
            let before = if last.timestamp == self.time { self.lines } else { 0 };
            *self = Self { time: last.timestamp.clone(), lines: before + with_its_time };
        }
        lines
    }

    /// Goes past the time of the last line: what else has it is more than an answer holds. False where that is not possible.
    fn pass(&mut self) -> bool {
        let Ok(time) = self.time.parse::<Timestamp>() else { return false };
        let Ok(next) = time.checked_add(SignedDuration::from_nanos(1)) else { return false };
        *self = Self { time: next.to_string(), lines: 0 };
        true
    }
}

/// Where the log can be read, when this fleet has no answer.
fn elsewhere(namespace: &str, view: &JobView, why: &str) -> Refusal {
    let JobView { pod, cluster, .. } = view;
    Refusal::not_here(format!(
        "{why}; the pod ran in cluster {cluster}, where kubectl logs -n {namespace} {pod} shows what it wrote"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(view: &[(&str, &str)]) -> Vec<LogLine> {
        let line = |(time, line): &(&str, &str)| LogLine { timestamp: (*time).to_owned(), line: (*line).to_owned() };
        view.iter().map(line).collect()
    }

    #[test]
    fn lines_that_come_again_are_told_once() {
        let mut position = Position::default();
        for (came, new_lines, time, view) in [
            (&[][..], &[][..], "", 0),
            (&[("1", "a"), ("2", "b")], &[("1", "a"), ("2", "b")], "2", 1),
            (&[("2", "b")], &[], "2", 1),
            // Several may have one time, and come one after another.
            (&[("2", "b"), ("2", "b")], &[("2", "b")], "2", 2),
            (&[("2", "b"), ("2", "b"), ("2", "c"), ("3", "d")], &[("2", "c"), ("3", "d")], "3", 1),
            // The log was rotated: what was told is gone.
            (&[("4", "e"), ("4", "f")], &[("4", "e"), ("4", "f")], "4", 2),
            (&[("4", "e"), ("4", "f")], &[], "4", 2),
        ] {
            assert_eq!(position.new_lines(lines(came)), lines(new_lines), "{came:?}");
            assert_eq!(position, Position { time: time.to_owned(), lines: view }, "{came:?}");
        }
    }

    #[test]
    fn a_time_with_more_lines_than_an_answer_holds_is_passed() {
        let mut position = Position { time: "2026-01-01T00:00:00.999999999Z".to_owned(), lines: 5 };
        assert!(position.pass());
        assert_eq!(position, Position { time: "2026-01-01T00:00:01Z".to_owned(), lines: 0 });
        assert!(!Position::default().pass());
    }
}
