//! `/exec/{namespace}/{pod}/{container}` as the kubelet serves it: one more program in a container that runs, with its
//! streams as channels of a WebSocket, or as streams of SPDY.
//!
//! Invariant: the program ends with its client, and whatever happens the client is told how it went, last.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use form_urlencoded::parse;
use http::{Request, Response};
use serde_json::{Value, json};

use crate::container_exec::Stream;
use crate::container_exec::helper::Helper;
use crate::container_exec::{DRAIN, PIPE_BYTES_MAX, READ_BYTES};
use crate::kubelet_api::container_streams::{
    self, RESIZE, STDERR, STDIN, STDOUT, StreamsError, Wanted, WindowSize, failure, running, success,
};
use crate::kubelet_api::sessions::SessionSlot;
use crate::kubelet_api::{ContainerPath, NodeBody};
use crate::launcher::Launcher;
use crate::pod_index::PodIndex;
use crate::streams::channels::{ChannelReceiver, ChannelSender, Message, Opening};
use pumice_shim::exec;
use pumice_shim::report::Report;

/// What a session needs.
struct Order {
    shim: Launcher,
    dir: PathBuf,
    request: exec::Request,
}

/// Agrees to run a program, and runs it when the connection is there.
pub(crate) fn serve<B>(
    pods: &PodIndex,
    shim: &Launcher,
    slot: SessionSlot,
    path: ContainerPath<'_>,
    request: Request<B>,
) -> Response<NodeBody> {
    let order = order(pods, shim, path, request.uri().query().unwrap_or_default());
    container_streams::serve(slot, request, order, session)
}

fn order(pods: &PodIndex, shim: &Launcher, path: ContainerPath<'_>, query: &str) -> Result<Order, StreamsError> {
    let request = parse_query(path.container, query)?;
    Ok(Order { shim: shim.clone(), dir: running(pods, path)?, request })
}

fn parse_query(container: &str, query: &str) -> Result<exec::Request, StreamsError> {
    let words = parse(query.as_bytes()).filter(|(name, _)| name == "command");
    let argv: Vec<String> = words.map(|(_, word)| word.into_owned()).collect();
    if argv.is_empty() {
        return Err(StreamsError::NoCommand);
    }
    let Wanted { stdin, stdout, stderr, terminal } = Wanted::of_query(query)?;
    Ok(exec::Request { container: container.to_owned(), argv, stdin, stdout, stderr, terminal })
}

/// How a session went.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The program has ended, or did not start.
    Program(Report),
    /// The client is gone.
    Client,
}

async fn session(opening: Opening, order: Order) {
    let exec::Request { stdin, stdout, stderr, terminal, .. } = order.request;
    let wanted = Wanted { stdin, stdout, stderr, terminal };
    let Some((mut sender, mut receiver)) = wanted.open(opening).await else { return };
    let end = run(&order, &mut sender, &mut receiver).await;
    let end = end.unwrap_or_else(|error| End::Program(Report::Failed(error.to_string())));
    if let End::Program(report) = end {
        container_streams::end(sender, receiver, status(&report)).await;
    }
}

async fn run(order: &Order, sender: &mut ChannelSender, receiver: &mut ChannelReceiver) -> io::Result<End> {
    let mut helper = Helper::start(order.shim.clone(), &order.dir, &order.request).await?;
    match helper.report().await? {
        Report::Started => {}
        failed => return Ok(End::Program(failed)),
    }
    let mut ends = helper.take_ends().into_iter().map(|end| Stream::new(end).map(Arc::new));
    let mut next = |wanted: bool| if wanted { ends.next().transpose() } else { Ok(None) };
    let asked = &order.request;
    let (stdin, window, stdout, stderr) = if asked.terminal {
        let terminal = next(true)?;
        let stdin = if asked.stdin { terminal.clone() } else { None };
        (stdin, terminal.clone(), terminal, None)
    } else {
        (next(asked.stdin)?, None, next(asked.stdout)?, next(asked.stderr)?)
    };
    tokio::select! {
        end = outbound(&mut helper, stdout, stderr, sender) => end,
        () = inbound(stdin, window, receiver) => Ok(End::Client),
    }
}

/// Carries output until the program has ended and all that it said has gone out.
async fn outbound(
    helper: &mut Helper,
    mut stdout: Option<Arc<Stream>>,
    mut stderr: Option<Arc<Stream>>,
    sender: &mut ChannelSender,
) -> io::Result<End> {
    let (mut output, mut errors) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
    let mut report = None;
    loop {
        if let (Some(report), None, None) = (&report, &stdout, &stderr) {
            return Ok(End::Program(Report::clone(report)));
        }
        let (channel, bytes) = tokio::select! {
            found = helper.report(), if report.is_none() => {
                report = Some(found?);
                continue;
            }
            read = read(stdout.as_deref(), &mut output) => (STDOUT, &output[..read]),
            read = read(stderr.as_deref(), &mut errors) => (STDERR, &errors[..read]),
            () = tokio::time::sleep(DRAIN), if report.is_some() => {
                // On a busy machine nobody may have had the time to look at what the program has written.
                for (channel, stream) in [(STDOUT, stdout.take()), (STDERR, stderr.take())] {
                    if let Some(stream) = stream && send_rest(channel, &stream, sender).await.is_err() {
                        return Ok(End::Client);
                    }
                }
                continue;
            }
        };
        if bytes.is_empty() {
            *(if channel == STDOUT { &mut stdout } else { &mut stderr }) = None;
        } else if sender.send(channel, bytes).await.is_err() {
            return Ok(End::Client);
        }
    }
}

/// Sends what is in a stream that others may go on to write to.
async fn send_rest(channel: u8, stream: &Stream, sender: &mut ChannelSender) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    for _ in 0..PIPE_BYTES_MAX / READ_BYTES {
        let read = stream.read_now(&mut buffer);
        if read == 0 {
            break;
        }
        sender.send(channel, &buffer[..read]).await?;
    }
    Ok(())
}

/// Reads a stream, 0 at its end or when it breaks; waits for ever where there is none.
async fn read(stream: Option<&Stream>, buffer: &mut [u8]) -> usize {
    match stream {
        Some(stream) => stream.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// Carries what is typed, and the size of the window, until the client is gone.
async fn inbound(mut stdin: Option<Arc<Stream>>, window: Option<Arc<Stream>>, receiver: &mut ChannelReceiver) {
    while let Some(Ok(message)) = receiver.next().await {
        match message {
            Message::Data { channel: STDIN, bytes } => {
                // A program that closed its input goes on without.
                if let Some(open) = &stdin
                    && open.write_all(&bytes).await.is_err()
                {
                    stdin = None;
                }
            }
            Message::Closed { channel: STDIN } => stdin = None,
            Message::Data { channel: RESIZE, bytes } => {
                if let (Some(window), Some(size)) = (&window, WindowSize::parse(&bytes)) {
                    // A program that has just ended has no window.
                    let _ = window.resize(size.width, size.height);
                }
            }
            Message::Data { .. } | Message::Closed { .. } => {}
        }
    }
}

/// The `v1` Status that ends a session.
fn status(report: &Report) -> Value {
    let code = match report {
        Report::Started | Report::Exited(0) | Report::Discarded(_) => {
            return success();
        }
        Report::Exited(code) => *code,
        Report::Killed(signal) => 128 + signal,
        Report::Failed(text) | Report::NoRoom(text) => return failure(text),
    };
    json!({"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit code {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_what_to_run() {
        let request = parse_query("c", "command=sh&command=-c&command=echo+a%26b&output=1&error=true&tty=0").unwrap();
        assert_eq!(request.argv, ["sh", "-c", "echo a&b"]);
        assert_eq!((request.stdin, request.stdout, request.stderr, request.terminal), (false, true, true, false));
        for (query, expected) in [
            ("output=1", "you must specify at least 1 command for the container"),
            ("command=sh", "you must specify at least 1 of stdin, stdout, stderr"),
            ("command=sh&output=0", "you must specify at least 1 of stdin, stdout, stderr"),
        ] {
            assert_eq!(parse_query("c", query).unwrap_err().to_string(), expected, "{query}");
        }
    }

    #[test]
    fn the_end_is_told_as_the_kubelet_does() {
        let cases = [
            (Report::Exited(0), "Success", Value::Null, Value::Null),
            (Report::Exited(3), "Failure", json!("NonZeroExitCode"), json!("3")),
            (Report::Killed(9), "Failure", json!("NonZeroExitCode"), json!("137")),
            (Report::Failed("no such program".into()), "Failure", json!("InternalError"), Value::Null),
        ];
        for (report, word, reason, code) in cases {
            let status = status(&report);
            assert_eq!(status["status"], word, "{report:?}");
            assert_eq!(status["reason"], reason, "{report:?}");
            assert_eq!(status["details"]["causes"][0]["message"], code, "{report:?}");
        }
    }
}
