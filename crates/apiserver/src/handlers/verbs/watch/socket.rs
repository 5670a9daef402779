//! A watch over a WebSocket: one text message for each event.
//!
//! Invariant: it lives no longer than its watch and a few seconds, whatever the client does; what the client says is bounded
//! and passed over, but for pings and its end.

use std::time::Duration;

use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_util::sync::CancellationToken;

use crate::context::Call;
use crate::handlers::request_log::LongRunning;
use crate::http::respond::Answer;
use crate::http::websocket;

/// Largest message taken from a client, in bytes: it has nothing to say.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Read at a time from the connection, in bytes.
const READ_BYTES: usize = 4 * 1024;
/// How often a quiet client is pinged, so that the kernel finds out about one that is gone.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long a client may take to end its side after ours, and to take what was sent when the watch has ended.
const LINGER: Duration = Duration::from_secs(5);

/// The connection, if the client asks for a WebSocket and has one that can become it.
pub(super) fn requested_upgrade(call: &Call) -> Option<OnUpgrade> {
    if websocket::is_asked(&call.headers) { call.upgrade.clone() } else { None }
}

/// Agrees, and sends `frames`, whose lines are the events, once the client has that answer. Ends at `deadline`.
pub(super) fn answer(
    call: &Call,
    upgrade: OnUpgrade,
    frames: impl Stream<Item = Bytes> + Send + 'static,
    deadline: Instant,
) -> Answer {
    let mut response = websocket::agree(&call.headers)?;
    let lasting = LongRunning::in_place_of(&mut response);
    let closing = call.listener.closing.clone();
    call.listener.sockets.spawn(async move {
        // Counted as long as it lasts.
        let _lasting = lasting;
        let talk = async {
            let upgraded = upgrade.await.map_err(|error| Error::Io(std::io::Error::other(error)))?;
            talk(TokioIo::new(upgraded), Box::pin(frames)).await
        };
        tokio::select! {
            ended = talk => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a watch over a WebSocket broke off");
                }
            }
            () = over(&closing, deadline) => {}
        }
    });
    Ok(response)
}

/// Returns when even a client that takes nothing has had its time.
async fn over(closing: &CancellationToken, deadline: Instant) {
    tokio::select! {
        () = closing.cancelled() => tokio::time::sleep(LINGER).await,
        () = tokio::time::sleep_until(deadline + LINGER) => {}
    }
}

async fn talk<S>(connection: S, frames: impl Stream<Item = Bytes> + Unpin) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let (mut sink, mut incoming) = socket.split();
    let listening = async {
        // Answers pings on the way, and the client's end.
        while let Some(message) = incoming.next().await {
            message?;
        }
        Ok(())
    };
    let mut listening = std::pin::pin!(listening);
    tokio::select! {
        ended = listening.as_mut() => return ended,
        sent = send(&mut sink, frames) => sent?,
    }
    // A connection that is dropped with unread bytes is reset, and the client would lose the last of what was sent.
    tokio::time::timeout(LINGER, listening).await.unwrap_or(Ok(()))
}

/// Sends all events, then the end.
async fn send(
    sink: &mut (impl Sink<Message, Error = Error> + Unpin),
    mut frames: impl Stream<Item = Bytes> + Unpin,
) -> Result<(), Error> {
    let mut pings = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let frame = tokio::select! {
            frame = frames.next() => frame,
            _ = pings.tick() => {
                sink.send(Message::Ping(Bytes::new())).await?;
                continue;
            }
        };
        let Some(frame) = frame else { break };
        for line in frame.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let text = Utf8Bytes::try_from(frame.slice_ref(line)).map_err(|error| Error::Utf8(error.to_string()))?;
            sink.feed(Message::Text(text)).await?;
        }
        sink.flush().await?;
    }
    let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    sink.send(Message::Close(Some(normal))).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;

    async fn client(server: impl AsyncRead + AsyncWrite + Unpin) -> WebSocketStream<impl AsyncRead + AsyncWrite> {
        WebSocketStream::from_raw_socket(server, Role::Client, None).await
    }

    #[tokio::test]
    async fn an_event_is_a_message_and_the_end_is_told() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let frames = stream::iter([Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n"), Bytes::from_static(b"{}\n")]);
        let reads = async {
            let mut client = client(far).await;
            let mut all = Vec::new();
            while let Some(Ok(message)) = client.next().await {
                all.push(message);
            }
            all
        };
        let (talked, all) = tokio::join!(talk(near, frames), reads);
        talked.unwrap();
        let texts: Vec<&str> = all.iter().filter(|one| one.is_text()).map(|one| one.to_text().unwrap()).collect();
        assert_eq!(texts, ["{\"a\":1}", "{\"b\":2}", "{}"]);
        assert!(matches!(&all[3], Message::Close(Some(word)) if word.code == CloseCode::Normal), "{all:?}");
    }

    #[tokio::test]
    async fn pings_are_answered_words_passed_over_and_the_client_may_leave() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let speaks = async {
            let mut client = client(far).await;
            client.send(Message::text("hello")).await.unwrap();
            client.send(Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
            let pong = client.next().await.unwrap().unwrap();
            client.close(None).await.unwrap();
            while client.next().await.is_some() {}
            pong
        };
        let (talked, pong) = tokio::join!(talk(near, stream::pending()), speaks);
        talked.unwrap();
        assert_eq!(pong, Message::Pong(Bytes::from_static(b"there?")));
    }

    #[tokio::test]
    async fn a_client_that_says_too_much_is_left() {
        let (near, far) = tokio::io::duplex(1 << 20);
        let speaks = async {
            let mut client = client(far).await;
            // It may be left before it has said all.
            let _ = client.send(Message::binary(vec![0; MESSAGE_BYTES_MAX + 1])).await;
        };
        let (talked, ()) = tokio::join!(talk(near, stream::pending()), speaks);
        talked.unwrap_err();
    }
}
