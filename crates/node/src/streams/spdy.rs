//! SPDY/3.1, as clients speak it that are older than WebSockets in Kubernetes: `kubectl exec` before 1.29, and `kubectl
//! port-forward` of any version, which speaks it even within a WebSocket.
//!
//! Streams are opened by the client alone; each has headers that say what it is for. As every server of this protocol, we keep to no
//! windows: whoever reads slowly holds up the connection.
//! Invariant: frames, header blocks and the number of streams are bounded, and so is what waits to be sent; a frame goes out whole
//! or not at all.

mod channels;
mod frames;
mod headers;

use std::io;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::streams::channels::HandshakeError;
pub(crate) use channels::{Incoming, Outgoing, open};
use frames::Frame;
use headers::{HeaderReader, HeaderWriter, Headers};

/// What a client asks to become.
pub(crate) const NAME: &str = "SPDY/3.1";
/// What is spoken over the streams, in requests and in answers.
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// Frames that wait to be sent, at most.
const WAITING_MAX: usize = 16;
/// Read at a time from the connection, in bytes.
const READ_BYTES: usize = 32 << 10;

/// Why a connection is given up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpdyError {
    /// What came is no frame.
    #[error("no SPDY/3.1: {0}")]
    Frame(&'static str),
    /// What came has no headers.
    #[error("no headers of SPDY/3.1: {0}")]
    Headers(&'static str),
}

/// Whether a request asks for SPDY.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|asked| asked.as_bytes().eq_ignore_ascii_case(NAME.as_bytes()))
}

/// Agrees to speak SPDY, and `protocol` over its streams: the answer to give, and the connection that follows it. Fails when
/// the client speaks another protocol, or its connection can't be had.
pub(crate) fn accept<B>(
    request: &mut Request<B>,
    protocol: &'static str,
) -> Result<(Response<()>, OnUpgrade), HandshakeError> {
    let mut offered = request.headers().get_all(&STREAM_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
    if !offered.any(|line| line.split(',').any(|word| word.trim() == protocol)) {
        return Err(HandshakeError::NoSpdy { protocol });
    }
    let upgrade = request.extensions_mut().remove::<OnUpgrade>().ok_or(HandshakeError::NoUpgrade)?;
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().extend([
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static(NAME)),
        (STREAM_PROTOCOL, HeaderValue::from_static(protocol)),
    ]);
    Ok((response, upgrade))
}

/// The session over a connection that was agreed on.
pub(crate) async fn upgraded(upgrade: OnUpgrade) -> io::Result<(SpdySender, SpdyReceiver)> {
    let connection = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
    let (reader, writer) = tokio::io::split(connection);
    Ok(session(Box::new(reader), Box::new(writer)))
}

/// The session over two halves of a connection.
#[allow(clippy::disallowed_methods, reason = "the writing task ends with the sender and the receiver")]
pub(crate) fn session(
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
) -> (SpdySender, SpdyReceiver) {
    let (sender, frames) = mpsc::channel(WAITING_MAX);
    tokio::spawn(write(writer, frames));
    let sender = SpdySender { frames: sender };
    let receiver = SpdyReceiver {
        reader,
        buffer: BytesMut::new(),
        headers: HeaderReader::new(),
        answers: HeaderWriter::default(),
        sender: sender.clone(),
        waiting: None,
    };
    (sender, receiver)
}

/// Writes frames until nobody is left to send any, or the client is gone.
async fn write(mut writer: Box<dyn AsyncWrite + Send + Unpin>, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if writer.write_all(&frame).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
    let _ = writer.shutdown().await;
}

/// Sends on streams; cheap to clone. Each call is cancel safe.
#[derive(Clone)]
pub(crate) struct SpdySender {
    frames: mpsc::Sender<Vec<u8>>,
}

impl SpdySender {
    /// Sends bytes of a stream, waiting for a client that is slow to read.
    pub(crate) async fn send(&self, stream: u32, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(frames::FRAME_BYTES_MAX) {
            self.put(frames::data(stream, part, false)).await?;
        }
        Ok(())
    }

    /// Says that nothing more comes on a stream.
    pub(crate) async fn end(&self, stream: u32) -> io::Result<()> {
        self.put(frames::data(stream, &[], true)).await
    }

    /// Says that a stream is not wanted.
    pub(crate) async fn refuse(&self, stream: u32) -> io::Result<()> {
        self.put(frames::refuse(stream)).await
    }

    async fn put(&self, frame: Vec<u8>) -> io::Result<()> {
        self.frames.send(frame).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// What a client does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A stream has begun, and the client was told that it may.
    Begin {
        stream: u32,
        /// What it is for.
        headers: Headers,
    },
    /// Bytes of a stream.
    Data {
        stream: u32,
        /// They may be none.
        bytes: Bytes,
    },
    /// The client says nothing more on a stream, or is no longer interested in it.
    End { stream: u32 },
}

/// Receives what a client does.
pub(crate) struct SpdyReceiver {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    buffer: BytesMut,
    headers: HeaderReader,
    answers: HeaderWriter,
    sender: SpdySender,
    /// What has to be sent before more is read, and what comes of it.
    waiting: Option<Waiting>,
}

/// A frame with its last part not handed on yet.
#[derive(Default)]
struct Waiting {
    answer: Option<Vec<u8>>,
    events: [Option<Event>; 2],
}

impl SpdyReceiver {
    /// The next event; none once the client has gone. Answers on the way. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Event>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                if let Some(answer) = &waiting.answer {
                    let Ok(room) = self.sender.frames.reserve().await else { return None };
                    room.send(answer.clone());
                    waiting.answer = None;
                }
                match waiting.events.iter_mut().find_map(Option::take) {
                    Some(event) => return Some(Ok(event)),
                    None => self.waiting = None,
                }
            }
            match frames::take(&mut self.buffer) {
                Ok(Some(Frame::GoAway)) => return None,
                Ok(Some(frame)) => match self.look_at(frame) {
                    Ok(waiting) => self.waiting = Some(waiting),
                    Err(error) => return Some(Err(io::Error::other(error))),
                },
                Ok(None) => {
                    self.buffer.reserve(READ_BYTES);
                    match self.reader.read_buf(&mut self.buffer).await {
                        Ok(0) => return None,
                        Ok(_) => {}
                        Err(error) => return Some(Err(error)),
                    }
                }
                Err(error) => return Some(Err(io::Error::other(error))),
            }
        }
    }

    fn look_at(&mut self, frame: Frame) -> Result<Waiting, SpdyError> {
        let ended = |stream: u32, end: bool| end.then_some(Event::End { stream });
        Ok(match frame {
            Frame::Begin { stream, headers, end } => {
                let headers = self.headers.read(&headers)?;
                let answer = Some(frames::reply(stream, &self.answers.write(&[])));
                Waiting { answer, events: [Some(Event::Begin { stream, headers }), ended(stream, end)] }
            }
            Frame::Headers { headers } => {
                self.headers.read(&headers)?;
                Waiting::default()
            }
            Frame::Data { stream, bytes, end } => {
                Waiting { answer: None, events: [Some(Event::Data { stream, bytes }), ended(stream, end)] }
            }
            Frame::Reset { stream } => Waiting { answer: None, events: [ended(stream, true), None] },
            Frame::Ping { id } => Waiting { answer: Some(frames::pong(id)), events: [None, None] },
            Frame::GoAway | Frame::Other => Waiting::default(),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    /// A client's side: it writes frames, and reads them back.
    pub(crate) struct Client {
        connection: DuplexStream,
        headers: HeaderWriter,
        buffer: BytesMut,
    }

    impl Client {
        pub(crate) async fn begin(&mut self, stream: u32, headers: &[(&str, &str)]) {
            let block = self.headers.write(headers);
            let length = (10 + block.len() as u32).to_be_bytes();
            let mut frame = vec![0x80, 3, 0, 1, 0, length[1], length[2], length[3]];
            frame.extend_from_slice(&stream.to_be_bytes());
            frame.extend_from_slice(&[0; 6]);
            frame.extend_from_slice(&block);
            self.connection.write_all(&frame).await.unwrap();
        }

        pub(crate) async fn data(&mut self, stream: u32, bytes: &[u8], end: bool) {
            self.connection.write_all(&frames::data(stream, bytes, end)).await.unwrap();
        }

        /// The next bytes that the server says on any stream, and whether these are the last; no bytes for its other frames.
        pub(crate) async fn next(&mut self) -> Option<(u32, Vec<u8>, bool)> {
            loop {
                match frames::take(&mut self.buffer).unwrap() {
                    Some(Frame::Data { stream, bytes, end }) => return Some((stream, bytes.to_vec(), end)),
                    Some(Frame::Ping { id }) => return Some((id, Vec::new(), false)),
                    Some(Frame::Reset { stream }) => return Some((stream, b"refused".to_vec(), true)),
                    Some(_) => {}
                    None if self.connection.read_buf(&mut self.buffer).await.unwrap() == 0 => return None,
                    None => {}
                }
            }
        }

        pub(crate) async fn ping(&mut self, id: u8) {
            self.connection.write_all(&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, id]).await.unwrap();
        }
    }

    pub(crate) fn pair() -> (Client, SpdySender, SpdyReceiver) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let (sender, receiver) = session(Box::new(reader), Box::new(writer));
        let client = Client { connection: near, headers: HeaderWriter::default(), buffer: BytesMut::new() };
        (client, sender, receiver)
    }

    #[tokio::test]
    async fn streams_begin_speak_and_end() {
        let (mut client, sender, mut receiver) = pair();
        client.begin(1, &[("streamtype", "stdin")]).await;
        client.data(1, b"in", true).await;
        client.ping(7).await;
        client.connection.write_all(&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 5]).await.unwrap();
        let headers = vec![("streamtype".to_owned(), "stdin".to_owned())];
        let data = Event::Data { stream: 1, bytes: Bytes::from_static(b"in") };
        for wanted in [Event::Begin { stream: 1, headers }, data, Event::End { stream: 1 }, Event::End { stream: 1 }] {
            assert_eq!(receiver.next().await.unwrap().unwrap(), wanted);
        }
        assert_eq!(client.next().await, Some((7, Vec::new(), false)), "a ping comes back");
        sender.send(1, b"out").await.unwrap();
        sender.end(1).await.unwrap();
        sender.refuse(3).await.unwrap();
        assert_eq!(client.next().await, Some((1, b"out".to_vec(), false)));
        assert_eq!(client.next().await, Some((1, Vec::new(), true)));
        assert_eq!(client.next().await, Some((3, b"refused".to_vec(), true)));
        client.connection.shutdown().await.unwrap();
        assert!(receiver.next().await.is_none());
        drop((sender, receiver));
        assert_eq!(client.next().await, None, "the connection ends with its users");
    }

    #[tokio::test]
    async fn what_is_no_spdy_ends_the_session() {
        let (mut client, _sender, mut receiver) = pair();
        client.connection.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        client.connection.shutdown().await.unwrap();
        // The letters are a frame of data that is too large.
        assert!(receiver.next().await.unwrap().is_err());
    }

    #[test]
    fn what_is_asked_is_agreed_to_where_it_can_be() {
        let mut request = Request::post("/exec/ns/p/c").header("Upgrade", "spdy/3.1").body(()).unwrap();
        assert!(is_asked(request.headers()));
        for line in ["v3.channel.k8s.io", "v4.channel.k8s.io, v2.channel.k8s.io"] {
            request.headers_mut().append(STREAM_PROTOCOL, line.parse().unwrap());
        }
        let taken = accept(&mut request, "v4.channel.k8s.io").map(|_| ());
        assert_eq!(taken, Err(HandshakeError::NoUpgrade), "there is no connection to take");
        let upgrade = hyper::upgrade::on(&mut request);
        request.extensions_mut().insert(upgrade);
        let protocol = "portforward.k8s.io";
        let refused = accept(&mut request, protocol).map(|_| ());
        assert_eq!(refused, Err(HandshakeError::NoSpdy { protocol }));
        let (response, _) = accept(&mut request, "v4.channel.k8s.io").unwrap();
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
        assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
    }
}
