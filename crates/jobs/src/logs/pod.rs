//! The log of one run of one container, reconnecting where it was cut.
//!
//! Invariant: bytes already given are not given again: after a cut the log is read anew and as many
//! bytes skipped. Called by `logs`.

use std::pin::Pin;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt};
use http::Request;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use pumice_units::Backoff;

use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::connection::Connection;

/// A longer line is cut into pieces of this size, where lines are wanted.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// Attempts to get at a log in a row, where the lines still to come matter.
const ATTEMPTS_FOLLOWING_MAX: u32 = 60;
/// The same where somebody waits for what there is.
const ATTEMPTS_MAX: u32 = 3;
/// The pauses between attempts.
const PAUSES: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) };

/// One run of one container; a restarted container is another run with its own log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerRun {
    pub namespace: String,
    pub pod: String,
    /// The pod's uid: a pod made again has the same name.
    pub uid: String,
    pub container: String,
    /// Which run of it, from 0.
    pub restart: i32,
    /// Where its log is.
    pub source: LogSource,
}

impl ContainerRun {
    /// The run before this one, of a container that was started again in its pod.
    pub(super) fn before(&self) -> Option<ContainerRun> {
        let restart = self.restart.checked_sub(1).filter(|restart| *restart >= 0)?;
        Some(ContainerRun { restart, source: LogSource::Previous, ..self.clone() })
    }
}

/// Where the log of a run is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum LogSource {
    /// With its pod, whose run of now it is.
    #[default]
    Current,
    /// With its pod, whose run before this one it is.
    Previous,
    /// Its pod is gone; a node retains it for this job.
    Retained { job: String, node: String },
}

/// How logs are given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pieces {
    /// Line by line, without their ends, so that those of several pods can be told apart. A carriage return ends a line, too:
    /// that is how progress is shown.
    #[default]
    Lines,
    /// Bytes as they come, whether a line ends or not.
    Bytes,
}

/// A stream of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
}

impl LogStream {
    /// As Kubernetes spells it.
    fn parameter(self) -> &'static str {
        match self {
            LogStream::Stdout => "Stdout",
            LogStream::Stderr => "Stderr",
        }
    }
}

/// Of which part of a log what is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// Goes on until the container ends.
    pub follow: bool,
    /// Only the last lines.
    pub tail_lines: Option<u32>,
    /// Only this stream.
    pub stream: Option<LogStream>,
    /// How it is given.
    pub pieces: Pieces,
}

/// A piece of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPiece {
    /// The pod that wrote it.
    pub pod: String,
    /// The container that wrote it.
    pub container: String,
    /// The bytes, any bytes at all; a line is without its end.
    pub text: Vec<u8>,
}

/// The runs of a pod's containers that have started, init containers first.
pub fn started_runs(pod: &Pod, namespace: &str) -> Vec<ContainerRun> {
    let Some(status) = &pod.status else { return Vec::new() };
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
        .filter(|container| has_started(container))
        .map(|container| ContainerRun {
            namespace: pod.metadata.namespace.clone().unwrap_or_else(|| namespace.to_owned()),
            pod: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            container: container.name.clone(),
            restart: container.restart_count,
            source: LogSource::Current,
        })
        .collect()
}

fn has_started(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| {
        state.running.is_some()
            // A container that was never made (its pod was evicted, say) has no log.
            || state.terminated.as_ref().is_some_and(|ended| ended.reason.as_deref() != Some("ContainerStatusUnknown"))
    })
}

type Reader = Pin<Box<dyn AsyncBufRead + Send>>;

struct LogReader {
    connection: Connection,
    run: ContainerRun,
    reading: Reading,
    reader: Option<Reader>,
    /// Bytes given so far, line ends included.
    given: u64,
    /// Bytes to skip on this connection.
    skip: u64,
    attempts: u32,
    /// The line that is read, without its end.
    line: Vec<u8>,
    /// Bytes of it that were taken.
    open: u64,
    /// What the last byte was a carriage return of.
    returned: Returned,
    ended: bool,
}

/// Whether a carriage return was just read: a line feed after it belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Returned {
    No,
    /// It ended a line, which was given.
    Given,
    /// There was no text before it, so nothing was given.
    Empty,
}

/// The pieces of one run's log. Ends when the container ended, or at the log's end if not followed.
pub(super) fn read(
    connection: Connection,
    run: ContainerRun,
    reading: Reading,
) -> BoxStream<'static, Result<LogPiece, CallError>> {
    let reader = LogReader {
        connection,
        run,
        reading,
        reader: None,
        given: 0,
        skip: 0,
        attempts: 0,
        line: Vec::new(),
        open: 0,
        returned: Returned::No,
        ended: false,
    };
    stream::unfold(reader, |mut reader| async move {
        let piece = reader.next().await?;
        Some((piece, reader))
    })
    .boxed()
}

impl LogReader {
    async fn next(&mut self) -> Option<Result<LogPiece, CallError>> {
        while !self.ended {
            let step = match self.reader.take() {
                None => self.connect().await.map(|()| None),
                Some(reader) => self.read(reader).await,
            };
            match step {
                Ok(Some(text)) => {
                    let (pod, container) = (self.run.pod.clone(), self.run.container.clone());
                    return Some(Ok(LogPiece { pod, container, text }));
                }
                Ok(None) => {}
                Err(error) => {
                    if let Err(error) = self.judge(error).await {
                        self.ended = true;
                        return Some(Err(error));
                    }
                }
            }
        }
        None
    }

    async fn connect(&mut self) -> Result<(), CallError> {
        let doing = format!("read the log of pod {}", self.run.pod);
        let url = self.connection.url().to_owned();
        let mut path = path(&self.run, self.reading);
        match self.reading.tail_lines {
            Some(lines) if self.given == 0 => path.push_str(&format!("&tailLines={lines}")),
            // Where the tail began is not known, so only what comes from now on is new for sure.
            Some(_) => path.push_str("&tailLines=0"),
            None => self.skip = self.given,
        }
        let request = Request::get(&path).body(Vec::new()).map_err(|e| CallError::unreadable(&doing, &url, e))?;
        let opened = self.connection.client().request_stream(request);
        let reader = tokio::time::timeout(call::CALL_TIMEOUT, opened)
            .await
            .map_err(|_| CallError::timed_out(&doing, &url, call::CALL_TIMEOUT))?
            .map_err(|error| CallError::new(&doing, &url, &error))?;
        self.reader = Some(Box::pin(reader));
        self.line.clear();
        (self.open, self.returned) = (0, Returned::No);
        Ok(())
    }

    /// Reads up to one piece; `None` if there is none yet or the log ended.
    async fn read(&mut self, mut reader: Reader) -> Result<Option<Vec<u8>>, CallError> {
        loop {
            let bytes = reader.fill_buf().await.map_err(|error| {
                let doing = format!("read the log of pod {}", self.run.pod);
                CallError::unreachable(doing, self.connection.url(), error.to_string())
            })?;
            if bytes.is_empty() {
                self.ended = true;
                let rest = std::mem::take(&mut self.line);
                return Ok((!rest.is_empty()).then_some(rest));
            }
            if self.skip > 0 {
                let skipped = bytes.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
                reader.as_mut().consume_unpin(skipped);
                self.skip -= skipped as u64;
                continue;
            }
            let (taken, piece) = match self.reading.pieces {
                Pieces::Bytes => (bytes.len(), Some(bytes.to_vec())),
                Pieces::Lines => take_line(bytes, &mut self.line, &mut self.returned),
            };
            reader.as_mut().consume_unpin(taken);
            if self.line.is_empty() {
                // Whatever comes next, this much needs no second reading.
                self.given += std::mem::take(&mut self.open) + taken as u64;
            } else {
                self.open += taken as u64;
            }
            if let Some(piece) = piece {
                self.reader = Some(reader);
                self.attempts = 0;
                return Ok(Some(piece));
            }
        }
    }

    /// A vanished pod ends its log silently; an outage, or a log not there yet, is waited out.
    async fn judge(&mut self, error: CallError) -> Result<(), CallError> {
        let attempts_max = if self.reading.follow { ATTEMPTS_FOLLOWING_MAX } else { ATTEMPTS_MAX };
        match error.class() {
            FailureClass::NotFound | FailureClass::Expired => {
                self.ended = true;
                Ok(())
            }
            FailureClass::Unreachable | FailureClass::Invalid if self.attempts < attempts_max => {
                let pause = PAUSES.pause(self.attempts);
                self.attempts += 1;
                tokio::time::sleep(pause).await;
                if error.class() == FailureClass::Unreachable
                    && let Ok(connection) = self.connection.reopen().await
                {
                    self.connection = connection;
                }
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Takes bytes into a line; how many, and the line if it is complete.
fn take_line(bytes: &[u8], line: &mut Vec<u8>, returned: &mut Returned) -> (usize, Option<Vec<u8>>) {
    if *returned != Returned::No && bytes.first() == Some(&b'\n') {
        let was = std::mem::replace(returned, Returned::No);
        return (1, (was == Returned::Empty).then(Vec::new));
    }
    *returned = Returned::No;
    let room = LINE_BYTES_MAX - line.len();
    let part = &bytes[..bytes.len().min(room)];
    let Some(end) = part.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
        line.extend_from_slice(part);
        let complete = if line.len() >= LINE_BYTES_MAX { Some(std::mem::take(line)) } else { None };
        return (part.len(), complete);
    };
    line.extend_from_slice(&part[..end]);
    if part[end] == b'\r' {
        *returned = if line.is_empty() { Returned::Empty } else { Returned::Given };
    }
    let complete = if *returned == Returned::Empty { None } else { Some(std::mem::take(line)) };
    (end + 1, complete)
}

/// Where a log is asked for; without what it is to begin with.
fn path(run: &ContainerRun, reading: Reading) -> String {
    let ContainerRun { namespace, pod, uid, container, restart, source } = run;
    let [pod, uid, container] = [pod, uid, container].map(|text| call::query_value(text));
    let mut path = match source {
        LogSource::Current | LogSource::Previous => {
            format!("/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&follow={}", reading.follow)
        }
        LogSource::Retained { job, node } => {
            let (job, node) = (call::query_value(job), call::query_value(node));
            let of_job = format!("/apis/logs.pumice.sh/v1alpha1/namespaces/{namespace}/jobs/{job}/log");
            format!("{of_job}?node={node}&uid={uid}&container={container}&restart={restart}")
        }
    };
    if *source == LogSource::Previous {
        path.push_str("&previous=true");
    }
    if let Some(stream) = reading.stream {
        path.push_str(&format!("&stream={}", stream.parameter()));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a text that comes in pieces.
    fn lines(pieces: &[&str]) -> Vec<String> {
        let (mut line, mut returned, mut lines) = (Vec::new(), Returned::No, Vec::new());
        for piece in pieces {
            let mut rest = piece.as_bytes();
            while !rest.is_empty() {
                let (taken, found) = take_line(rest, &mut line, &mut returned);
                lines.extend(found.map(|line| String::from_utf8(line).unwrap()));
                rest = &rest[taken..];
            }
        }
        lines
    }

    #[test]
    fn lines_end_with_line_feeds_and_carriage_returns() {
        for (text, expected) in [
            ("one\ntwo\n", vec!["one", "two"]),
            ("one\r\ntwo\r\n", vec!["one", "two"]),
            ("\r 10%\r100%\n", vec![" 10%", "100%"]),
            ("\r 10%\r100%", vec![" 10%"]),
            ("\n\na\n", vec!["", "", "a"]),
            ("\r\n\r\n", vec!["", ""]),
            ("a\r\r\nb\n", vec!["a", "", "b"]),
            ("a\n\rb\n", vec!["a", "b"]),
        ] {
            assert_eq!(lines(&[text]), expected, "{text:?}");
            let pieces: Vec<&str> = (0..text.len()).map(|at| &text[at..=at]).collect();
            assert_eq!(lines(&pieces), expected, "{text:?} byte by byte");
        }
    }

    #[test]
    fn a_line_is_cut_at_the_limit_only() {
        let long = "x".repeat(LINE_BYTES_MAX);
        assert_eq!(lines(&[&long, "y\n"]).iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX, 1]);
        assert_eq!(lines(&[&long[1..], "\n"]).iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX - 1]);
    }

    #[test]
    fn only_started_containers_have_logs() {
        let pod = |status: serde_json::Value| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "p", "uid": "u"},
                "status": {"containerStatuses": [status]},
            }))
            .unwrap()
        };
        let status = |state: serde_json::Value| serde_json::json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 2, "state": state});
        for (state, count) in [
            (serde_json::json!({"waiting": {}}), 0),
            (serde_json::json!({"running": {}}), 1),
            (serde_json::json!({"terminated": {"exitCode": 0}}), 1),
            (serde_json::json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}), 0),
        ] {
            let runs = started_runs(&pod(status(state.clone())), "default");
            assert_eq!(runs.len(), count, "{state}");
            assert!(runs.iter().all(|run| run.restart == 2 && run.namespace == "default"));
        }
    }
}
