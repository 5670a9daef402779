//! Streams of bytes side by side over one WebSocket, as `kubectl exec` and clients of `portforward` speak them:
//! `v5.channel.k8s.io` and `v4.channel.k8s.io`; and over SPDY, for those who are older.
//!
//! Each binary message is one byte, the channel's number, and then data. v5 adds that channel 255
//! followed by a number says that this channel has ended.
//! Invariant: a message from outside is at most [`MESSAGE_BYTES_MAX`]; nothing is kept for a peer that
//! does not read: whoever sends waits.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as Frame, Utf8Bytes};

use crate::streams::spdy;

/// Largest message taken from a peer, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Read at a time from the connection, in bytes.
const READ_BYTES: usize = 32 * 1024;
/// How often a peer is pinged. One that is gone does not acknowledge, and the kernel ends the
/// connection; a pong is not insisted on, as `kubectl exec ... | less` sends none while it waits.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long a peer may take to end its side after ours.
const LINGER: Duration = Duration::from_secs(5);
/// The protocols, best first.
const PROTOCOLS: [Protocol; 2] = [Protocol::V5, Protocol::V4];
/// v5: the channel on which the end of others is said.
const CLOSE_CHANNEL: u8 = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    V5,
    V4,
}

impl Protocol {
    const fn name(self) -> &'static str {
        match self {
            Protocol::V5 => "v5.channel.k8s.io",
            Protocol::V4 => "v4.channel.k8s.io",
        }
    }
}

/// Why a request does not become a WebSocket.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("this path needs a connection of its own: send \"Connection: Upgrade\" and \"Upgrade: websocket\"")]
    NoUpgrade,
    #[error("WebSocket version 13 is served (Sec-WebSocket-Version)")]
    Version,
    #[error("Sec-WebSocket-Key is missing")]
    NoKey,
    #[error("none of the asked protocols is served; served are {} and {}", Protocol::V5.name(), Protocol::V4.name())]
    NoProtocol,
    #[error("SPDY is spoken here with \"X-Stream-Protocol-Version: {protocol}\", which the request does not offer")]
    NoSpdy { protocol: &'static str },
}

impl HandshakeError {
    /// The HTTP code of the answer: the request itself is wrong in each case.
    pub(crate) fn code(&self) -> StatusCode {
        StatusCode::BAD_REQUEST
    }
}

/// A connection that was agreed on; it opens once the answer has gone to the client.
#[derive(Debug)]
pub(crate) struct Opening {
    upgrade: OnUpgrade,
    /// None for SPDY, whose streams are the channels.
    protocol: Option<Protocol>,
}

/// Agrees to `request`: the answer to give, and what the connection becomes after it.
pub(crate) fn accept<B>(request: &mut Request<B>) -> Result<(Response<()>, Opening), HandshakeError> {
    let agreed = accept_as(request, &PROTOCOLS.map(|protocol| (protocol.name(), protocol)))?;
    Ok((agreed.response, Opening { upgrade: agreed.upgrade, protocol: Some(agreed.protocol) }))
}

/// The same for clients that ask for SPDY, in which v4 has its own streams.
pub(crate) fn accept_spdy<B>(request: &mut Request<B>) -> Result<(Response<()>, Opening), HandshakeError> {
    let (response, upgrade) = spdy::accept(request, Protocol::V4.name())?;
    Ok((response, Opening { upgrade, protocol: None }))
}

/// What was agreed on for a WebSocket: the answer to give, the connection that follows it, and what is spoken over it.
pub(crate) struct Agreed<P> {
    pub response: Response<()>,
    pub upgrade: OnUpgrade,
    pub protocol: P,
}

/// Agrees to a WebSocket of one of these protocols, best first, each by its name.
pub(crate) fn accept_as<B, P: Copy>(
    request: &mut Request<B>,
    protocols: &[(&'static str, P)],
) -> Result<Agreed<P>, HandshakeError> {
    let headers = request.headers();
    if !lists(headers, &CONNECTION, "upgrade") || !lists(headers, &UPGRADE, "websocket") {
        return Err(HandshakeError::NoUpgrade);
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(HandshakeError::Version);
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or(HandshakeError::NoKey)?;
    let answer_key = HeaderValue::try_from(derive_accept_key(key.as_bytes())).map_err(|_| HandshakeError::NoKey)?;
    let (name, protocol) = protocols
        .iter()
        .find(|(name, _)| lists(headers, &SEC_WEBSOCKET_PROTOCOL, name))
        .copied()
        .ok_or(HandshakeError::NoProtocol)?;
    let upgrade = request.extensions_mut().remove::<OnUpgrade>().ok_or(HandshakeError::NoUpgrade)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend([
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, answer_key),
        (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(name)),
    ]);
    Ok(Agreed { response, upgrade, protocol })
}

/// Whether a header that is a list (over one or more lines) has `word`.
fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|found| found.trim().eq_ignore_ascii_case(word))
}

impl Opening {
    /// Waits until the connection is ours, and a client of SPDY has begun the streams of the `wanted` channels. Must be polled after
    /// the answer was handed on, not before.
    pub(crate) async fn open(self, wanted: &[u8]) -> io::Result<(ChannelSender, ChannelReceiver)> {
        let Some(protocol) = self.protocol else {
            let (sender, receiver) = spdy::upgraded(self.upgrade).await?;
            let (sink, stream) = spdy::open(sender, receiver, wanted).await?;
            return Ok((
                ChannelSender { sink: Outgoing::Spdy(sink) },
                ChannelReceiver { stream: Incoming::Spdy(Box::new(stream)) },
            ));
        };
        let upgraded = self.upgrade.await.map_err(io::Error::other)?;
        Ok(channels(TokioIo::new(upgraded), protocol, PING_EVERY).await)
    }
}

/// The connection under the channels of a client of the API server.
type Connection = TokioIo<Upgraded>;
type Sink<S> = Arc<Mutex<SplitSink<WebSocketStream<S>, Frame>>>;

#[allow(clippy::disallowed_methods, reason = "the pinging task ends with the sender")]
async fn channels<S>(connection: S, protocol: Protocol, ping_every: Duration) -> (ChannelSender<S>, ChannelReceiver<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sink, stream) = socket(connection).await.split();
    let sink = Arc::new(Mutex::new(sink));
    tokio::spawn(ping(Arc::downgrade(&sink), ping_every));
    let (sink, stream) = (Outgoing::Socket(sink), Incoming::Socket { stream, protocol });
    (ChannelSender { sink }, ChannelReceiver { stream })
}

/// A WebSocket over a connection that was agreed on.
pub(crate) async fn socket<S: AsyncRead + AsyncWrite + Unpin>(connection: S) -> WebSocketStream<S> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await
}

/// Pings until the sender is gone. A task of its own, so that a peer that does not read holds up
/// neither what it sends nor the ping's timer.
async fn ping<S>(sink: Weak<Mutex<SplitSink<WebSocketStream<S>, Frame>>>, every: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        tokio::time::sleep(every).await;
        let Some(sink) = sink.upgrade() else { return };
        if sink.lock().await.send(Frame::Ping(Bytes::new())).await.is_err() {
            return;
        }
    }
}

/// The sending half of a connection, over a WebSocket or SPDY.
pub(crate) struct ChannelSender<S = Connection> {
    sink: Outgoing<S>,
}

enum Outgoing<S> {
    Socket(Sink<S>),
    Spdy(spdy::Outgoing),
}

impl<S: AsyncRead + AsyncWrite + Unpin> ChannelSender<S> {
    /// Sends `bytes` on `channel`, waiting for a peer that is slow to read. When cancelled, the message
    /// has gone out whole or not at all.
    pub(crate) async fn send(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        let sink = match &self.sink {
            Outgoing::Socket(sink) => sink,
            Outgoing::Spdy(streams) => return streams.send(channel, bytes).await,
        };
        let mut message = Vec::with_capacity(bytes.len() + 1);
        message.push(channel);
        message.extend_from_slice(bytes);
        sink.lock().await.send(Frame::Binary(message.into())).await.map_err(into_io)
    }

    /// Says that nothing more will come. Let [`ChannelReceiver::linger`] follow.
    pub(crate) async fn close(self) {
        let sink = match self.sink {
            Outgoing::Socket(sink) => sink,
            Outgoing::Spdy(streams) => return streams.close().await,
        };
        // Without a code kubectl takes the end for an error. A peer that is gone already needs no word.
        let normal = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        let _ = sink.lock().await.send(Frame::Close(Some(normal))).await;
    }
}

/// What comes from the peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Bytes of a channel; may be empty.
    Data {
        channel: u8,
        /// Its bytes.
        bytes: Bytes,
    },
    /// Nothing more will come on a channel.
    Closed { channel: u8 },
}

/// The receiving half of a connection, over a WebSocket or SPDY.
pub(crate) struct ChannelReceiver<S = Connection> {
    stream: Incoming<S>,
}

enum Incoming<S> {
    Socket { stream: SplitStream<WebSocketStream<S>>, protocol: Protocol },
    Spdy(Box<spdy::Incoming>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> ChannelReceiver<S> {
    /// The next message; none once the peer has closed. Answers pings on the way. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Message>> {
        let (stream, protocol) = match &mut self.stream {
            Incoming::Socket { stream, protocol } => (stream, *protocol),
            Incoming::Spdy(streams) => return streams.next().await,
        };
        loop {
            let mut bytes = match stream.next().await? {
                Ok(Frame::Binary(bytes)) => bytes,
                Ok(Frame::Text(text)) => Bytes::from(text),
                // Its answer goes out on the next turn, and then the stream ends.
                Ok(_) => continue,
                Err(SocketError::ConnectionClosed | SocketError::AlreadyClosed) => return None,
                Err(error) => return Some(Err(into_io(error))),
            };
            if bytes.is_empty() {
                continue;
            }
            let channel = bytes.split_to(1)[0];
            return Some(Ok(match (protocol, channel, bytes.first()) {
                (Protocol::V5, CLOSE_CHANNEL, Some(&channel)) => Message::Closed { channel },
                _ => Message::Data { channel, bytes },
            }));
        }
    }

    /// Takes what still comes until the peer has closed too, for some seconds at most: a connection that
    /// is dropped with unread bytes is reset, and the peer would lose the last of what we sent.
    pub(crate) async fn linger(mut self) {
        let rest = async { while let Some(Ok(_)) = self.next().await {} };
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

fn into_io(error: SocketError) -> io::Error {
    match error {
        SocketError::Io(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    pub(crate) type Client = WebSocketStream<DuplexStream>;

    const ASKED: [(&str, &str); 5] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "v4.channel.k8s.io, v5.channel.k8s.io"),
    ];

    /// A request whose header `name` is `value` (or missing), as it reaches the agent.
    fn request(name: &str, value: Option<&str>) -> Request<()> {
        let mut request = Request::get("/exec/ns/p/c").body(()).unwrap();
        for (header, usual) in ASKED {
            if let Some(value) = if header == name { value } else { Some(usual) } {
                request.headers_mut().append(header, value.parse().unwrap());
            }
        }
        // Outside a connection hyper gives an upgrade that never comes.
        let upgrade = hyper::upgrade::on(&mut request);
        request.extensions_mut().insert(upgrade);
        request
    }

    #[test]
    fn a_handshake_is_agreed_to() {
        let (response, opening) = accept(&mut request("", None)).unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        assert_eq!(header("connection"), "Upgrade");
        assert_eq!(header("upgrade"), "websocket");
        // The example of RFC 6455.
        assert_eq!(header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(header("sec-websocket-protocol"), "v5.channel.k8s.io", "the better one, whatever the order");
        assert_eq!(opening.protocol, Some(Protocol::V5));
        let only = accept(&mut request("sec-websocket-protocol", Some("v4.channel.k8s.io"))).unwrap();
        assert_eq!(only.1.protocol, Some(Protocol::V4));
    }

    #[test]
    fn what_is_no_websocket_is_refused() {
        let cases = [
            ("upgrade", None, HandshakeError::NoUpgrade),
            ("upgrade", Some("SPDY/3.1"), HandshakeError::NoUpgrade),
            ("connection", None, HandshakeError::NoUpgrade),
            ("connection", Some("close"), HandshakeError::NoUpgrade),
            ("sec-websocket-version", None, HandshakeError::Version),
            ("sec-websocket-version", Some("8"), HandshakeError::Version),
            ("sec-websocket-key", None, HandshakeError::NoKey),
            ("sec-websocket-protocol", None, HandshakeError::NoProtocol),
            ("sec-websocket-protocol", Some("channel.k8s.io"), HandshakeError::NoProtocol),
        ];
        for (name, value, expected) in cases {
            let error = accept(&mut request(name, value)).unwrap_err();
            assert_eq!(error, expected, "{name}: {value:?}");
            assert_eq!(error.code(), StatusCode::BAD_REQUEST);
        }
        let mut without = request("", None);
        without.extensions_mut().clear();
        assert_eq!(accept(&mut without).unwrap_err(), HandshakeError::NoUpgrade, "a connection that can't be taken");
    }

    /// A client, and the agent's side of its channels.
    pub(crate) async fn pair(
        protocol: Protocol,
    ) -> (Client, ChannelSender<DuplexStream>, ChannelReceiver<DuplexStream>) {
        let (client, server) = tokio::io::duplex(4 * MESSAGE_BYTES_MAX);
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let (sender, receiver) = channels(server, protocol, PING_EVERY).await;
        (client, sender, receiver)
    }

    fn data(channel: u8, bytes: &'static [u8]) -> Message {
        Message::Data { channel, bytes: Bytes::from_static(bytes) }
    }

    #[tokio::test]
    async fn bytes_go_both_ways_by_channel() {
        let (mut client, mut sender, mut receiver) = pair(Protocol::V5).await;
        for frame in [&b"\0in"[..], b"", b"\x02", b"\xff\x00", b"\xff"] {
            client.send(Frame::binary(frame)).await.unwrap();
        }
        client.send(Frame::text("\x04{}")).await.unwrap();
        let expected =
            [data(0, b"in"), data(2, b""), Message::Closed { channel: 0 }, data(CLOSE_CHANNEL, b""), data(4, b"{}")];
        for message in expected {
            assert_eq!(receiver.next().await.unwrap().unwrap(), message);
        }
        sender.send(1, b"out").await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Frame::binary(&b"\x01out"[..]));
    }

    #[tokio::test]
    async fn only_v5_ends_channels() {
        let (mut client, _sender, mut receiver) = pair(Protocol::V4).await;
        client.send(Frame::binary(&b"\xff\x00"[..])).await.unwrap();
        assert_eq!(receiver.next().await.unwrap().unwrap(), data(CLOSE_CHANNEL, b"\0"));
    }

    #[tokio::test]
    async fn pings_are_answered_and_sent() {
        let (mut client, sender, mut receiver) = pair(Protocol::V5).await;
        client.send(Frame::Ping(Bytes::from_static(b"there?"))).await.unwrap();
        client.send(Frame::binary(&b"\0x"[..])).await.unwrap();
        receiver.next().await.unwrap().unwrap();
        assert!(futures::poll!(std::pin::pin!(receiver.next())).is_pending());
        assert_eq!(client.next().await.unwrap().unwrap(), Frame::Pong(Bytes::from_static(b"there?")));
        drop((sender, receiver));

        let (client, server) = tokio::io::duplex(1024);
        let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let _channels = channels(server, Protocol::V5, Duration::from_millis(1)).await;
        assert_eq!(client.next().await.unwrap().unwrap(), Frame::Ping(Bytes::new()));
    }

    #[tokio::test]
    async fn either_side_closes() {
        let (mut client, _sender, mut receiver) = pair(Protocol::V5).await;
        client.close(None).await.unwrap();
        assert!(receiver.next().await.is_none());
        assert!(matches!(client.next().await, Some(Ok(Frame::Close(_)))), "our answer to it");

        let (mut client, sender, receiver) = pair(Protocol::V5).await;
        let ends = async {
            sender.close().await;
            receiver.linger().await;
        };
        let reads = async {
            let close = client.next().await;
            let end = client.next().await;
            let normal = |word: &CloseFrame| word.code == CloseCode::Normal;
            (matches!(close, Some(Ok(Frame::Close(Some(word)))) if normal(&word)), end.is_none())
        };
        assert_eq!(tokio::join!(ends, reads).1, (true, true));
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_ends_it() {
        let (mut client, _sender, mut receiver) = pair(Protocol::V5).await;
        client.send(Frame::binary(vec![0; MESSAGE_BYTES_MAX + 1])).await.unwrap();
        assert!(receiver.next().await.unwrap().is_err());
    }
}
