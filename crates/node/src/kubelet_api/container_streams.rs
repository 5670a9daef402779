//! What exec and attach have in common: the container that is meant, the streams that are asked for, and how they end.
//!
//! Invariant: whatever happens the client is told how it went, last.

use std::path::PathBuf;

use form_urlencoded::parse;
use http::{Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::kubelet_api::sessions::SessionSlot;
use crate::kubelet_api::{ContainerPath, NodeBody, empty, text};
use crate::pod_index::PodIndex;
use crate::streams::channels::{self, ChannelReceiver, ChannelSender, Opening};
use crate::streams::spdy;
use pumice_shim::status::{ContainerState, ShimStatus};

/// Numbers of the channels.
pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const RESIZE: u8 = 4;

/// Why no streams are served.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamsError {
    #[error("pod {pod:?} is not on this node")]
    NoSuchPod { pod: String },
    #[error("container {container} is not valid for pod {pod}")]
    NoSuchContainer { pod: String, container: String },
    #[error("container {container:?} in pod {pod:?} is not running")]
    NotRunning { pod: String, container: String },
    #[error("you must specify at least 1 command for the container")]
    NoCommand,
    #[error("you must specify at least 1 of stdin, stdout, stderr")]
    NoStream,
    #[error(transparent)]
    Handshake(#[from] channels::HandshakeError),
}

impl StreamsError {
    fn code(&self) -> StatusCode {
        match self {
            StreamsError::NoSuchPod { .. } => StatusCode::NOT_FOUND,
            StreamsError::Handshake(error) => error.code(),
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// The streams that a client asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    /// Whether it tells the size of its window.
    pub terminal: bool,
}

impl Wanted {
    pub(super) fn of_query(query: &str) -> Result<Wanted, StreamsError> {
        let mut wanted = Wanted::default();
        for (name, value) in parse(query.as_bytes()) {
            let flag = matches!(&*value, "1" | "true");
            match &*name {
                "input" => wanted.stdin = flag,
                "output" => wanted.stdout = flag,
                "error" => wanted.stderr = flag,
                "tty" => wanted.terminal = flag,
                _ => {}
            }
        }
        let none = !(wanted.stdin || wanted.stdout || wanted.stderr);
        if none { Err(StreamsError::NoStream) } else { Ok(wanted) }
    }

    /// Opens the connection with a channel for each of them.
    pub(super) async fn open(self, opening: Opening) -> Option<(ChannelSender, ChannelReceiver)> {
        let all =
            [(ERROR, true), (STDIN, self.stdin), (STDOUT, self.stdout), (STDERR, self.stderr), (RESIZE, self.terminal)];
        let wanted: Vec<u8> = all.iter().filter(|(_, wanted)| *wanted).map(|(channel, _)| *channel).collect();
        let opened = opening.open(&wanted).await;
        opened.inspect_err(|error| tracing::debug!(%error, "a client went before its streams were there")).ok()
    }
}

/// The directory of a pod whose container runs.
pub(super) fn running(pods: &PodIndex, path: ContainerPath<'_>) -> Result<PathBuf, StreamsError> {
    let (pod, container) = (path.pod.to_owned(), path.container.to_owned());
    let Some(dir) = pods.get(path.namespace, path.pod) else { return Err(StreamsError::NoSuchPod { pod }) };
    let Ok(status) = ShimStatus::read(&dir) else { return Err(StreamsError::NotRunning { pod, container }) };
    match status.container(&container).map(|found| &found.state) {
        Some(ContainerState::Running { .. }) => Ok(dir),
        Some(_) => Err(StreamsError::NotRunning { pod, container }),
        None => Err(StreamsError::NoSuchContainer { pod, container }),
    }
}

/// Agrees to serve streams, and runs `session` with what was ordered when the connection is there.
pub(super) fn serve<B, O, S>(
    slot: SessionSlot,
    mut request: Request<B>,
    order: Result<O, StreamsError>,
    session: impl FnOnce(Opening, O) -> S,
) -> Response<NodeBody>
where
    S: Future<Output = ()> + Send + 'static,
{
    match order.and_then(|order| Ok((agree(&mut request)?, order))) {
        Ok(((response, opening), order)) => {
            slot.run(session(opening, order));
            response.map(|()| empty())
        }
        Err(error) => text(error.code(), &error.to_string()),
    }
}

/// Agrees to the request's protocol.
fn agree<B>(request: &mut Request<B>) -> Result<(Response<()>, Opening), StreamsError> {
    let is_spdy = spdy::is_asked(request.headers());
    Ok(if is_spdy { channels::accept_spdy(request)? } else { channels::accept(request)? })
}

/// Tells the client how it went, and ends the connection.
pub(super) async fn end(mut sender: ChannelSender, receiver: ChannelReceiver, status: Value) {
    // Who does not hear it has gone.
    let _ = sender.send(ERROR, status.to_string().as_bytes()).await;
    sender.close().await;
    receiver.linger().await;
}

/// The `v1` Status of what went well.
pub(super) fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

/// The `v1` Status of what could not be done.
pub(super) fn failure(text: &str) -> Value {
    json!({"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
        "message": format!("Internal error occurred: {text}")})
}

/// A window in characters, as clients send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct WindowSize {
    pub width: u16,
    pub height: u16,
}

impl WindowSize {
    /// None where a client sends something else.
    pub(super) fn parse(bytes: &[u8]) -> Option<WindowSize> {
        serde_json::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_which_streams() {
        let wanted = Wanted::of_query("output=1&error=true&tty=0&input=maybe").unwrap();
        assert_eq!(wanted, Wanted { stdin: false, stdout: true, stderr: true, terminal: false });
        assert!(matches!(Wanted::of_query("tty=1&output=0"), Err(StreamsError::NoStream)));
    }

    #[test]
    fn a_window_is_two_numbers() {
        let size = WindowSize::parse(br#"{"Width": 99, "Height": 33}"#);
        assert_eq!(size, Some(WindowSize { width: 99, height: 33 }));
        for nonsense in [&b""[..], b"{}", b"[1]", b"12", br#"{"Width": -1, "Height": 70000}"#, b"\xff"] {
            assert_eq!(WindowSize::parse(nonsense), None);
        }
    }
}
