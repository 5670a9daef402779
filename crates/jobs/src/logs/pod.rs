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

use crate::call::{self, CallError, FailureClass};
use crate::connection::Connection;

/// A longer line is cut into pieces of this size.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Attempts to get at a log in a row, where the lines still to come matter.
const ATTEMPTS_FOLLOWING_MAX: u32 = 60;
/// The same where somebody waits for what there is.
const ATTEMPTS_MAX: u32 = 3;
/// The pause between attempts grows to this.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// One run of one container; a restarted container is another run with its own log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerRun {
    /// The namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The pod's uid: a pod made again has the same name.
    pub uid: String,
    /// The container.
    pub container: String,
    /// Which run of it, from 0.
    pub restart: i32,
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The pod that wrote it.
    pub pod: String,
    /// The container that wrote it.
    pub container: String,
    /// The bytes without the line's end; any bytes at all.
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
    follow: bool,
    tail_lines: Option<u32>,
    reader: Option<Reader>,
    /// Bytes given so far, line ends included.
    given: u64,
    /// Bytes to skip on this connection.
    skip: u64,
    attempts: u32,
    line: Vec<u8>,
    ended: bool,
}

/// The lines of one run. Ends when the container ended, or at the log's end if not followed.
pub(super) fn lines(
    connection: Connection,
    run: ContainerRun,
    follow: bool,
    tail_lines: Option<u32>,
) -> BoxStream<'static, Result<LogLine, CallError>> {
    let reader = LogReader {
        connection,
        run,
        follow,
        tail_lines,
        reader: None,
        given: 0,
        skip: 0,
        attempts: 0,
        line: Vec::new(),
        ended: false,
    };
    stream::unfold(reader, |mut reader| async move {
        let line = reader.next().await?;
        Some((line, reader))
    })
    .boxed()
}

impl LogReader {
    async fn next(&mut self) -> Option<Result<LogLine, CallError>> {
        while !self.ended {
            let step = match self.reader.take() {
                None => self.connect().await.map(|()| None),
                Some(reader) => self.read(reader).await,
            };
            match step {
                Ok(Some(text)) => {
                    let (pod, container) = (self.run.pod.clone(), self.run.container.clone());
                    return Some(Ok(LogLine { pod, container, text }));
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
        let ContainerRun { namespace, pod, container, .. } = &self.run;
        let doing = format!("read the log of pod {pod}");
        let url = self.connection.url().to_owned();
        let mut path = format!(
            "/api/v1/namespaces/{namespace}/pods/{}/log?container={}&follow={}",
            call::query_value(pod),
            call::query_value(container),
            self.follow,
        );
        match self.tail_lines {
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
        Ok(())
    }

    /// Reads up to one line; `None` if there is none yet or the log ended.
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
            let room = LINE_BYTES_MAX - self.line.len();
            let (taken, complete) = match bytes.iter().take(room).position(|byte| *byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (bytes.len().min(room), bytes.len() >= room),
            };
            self.line.extend_from_slice(&bytes[..taken]);
            reader.as_mut().consume_unpin(taken);
            if complete {
                self.reader = Some(reader);
                self.attempts = 0;
                self.given += self.line.len() as u64;
                let mut line = std::mem::take(&mut self.line);
                if line.last() == Some(&b'\n') {
                    line.pop();
                }
                return Ok(Some(line));
            }
        }
    }

    /// A vanished pod ends its log silently; an outage, or a log not there yet, is waited out.
    async fn judge(&mut self, error: CallError) -> Result<(), CallError> {
        let attempts_max = if self.follow { ATTEMPTS_FOLLOWING_MAX } else { ATTEMPTS_MAX };
        match error.class() {
            FailureClass::NotFound | FailureClass::Expired => {
                self.ended = true;
                Ok(())
            }
            FailureClass::Unreachable | FailureClass::Invalid if self.attempts < attempts_max => {
                let pause = Duration::from_millis(50).saturating_mul(1 << self.attempts.min(7)).min(PAUSE_MAX);
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

#[cfg(test)]
mod tests {
    use super::*;

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
