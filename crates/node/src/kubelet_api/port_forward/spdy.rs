//! Connections to a pod's ports over SPDY, as `kubectl port-forward` makes them: over its own connection, or within a WebSocket.
//!
//! Each connection is two streams with the same `requestid`: one for its bytes, one for words on what went wrong. The port is in
//! their headers.
//! Invariant: a connection to a pod lives no longer than the client's, and their number is bounded.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

use crate::kubelet_api::port_forward::{PodNetwork, READ_BYTES, refusal};
use crate::streams::channels;
use crate::streams::spdy::{self, Event, SpdyReceiver, SpdySender};

/// What is spoken over the streams.
pub(crate) const PROTOCOL: &str = "portforward.k8s.io";
/// The same within a WebSocket.
pub(crate) const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
/// Connections of one client at a time, at most; and those of which one stream is there.
const CONNECTIONS_MAX: usize = 128;
/// Messages of the client that wait for a pod that reads slowly, at most. Then the client waits.
const WAITING_MAX: usize = 4;

/// A connection that was agreed on.
pub(crate) struct Opening {
    pub upgrade: OnUpgrade,
    /// Whether SPDY goes within a WebSocket.
    pub tunnel: bool,
}

/// Waits for the client's connection, and forwards to its end.
pub(crate) async fn serve(Opening { upgrade, tunnel }: Opening, network: PodNetwork) -> io::Result<()> {
    let (sender, receiver) = if tunnel { tunnelled(upgrade).await? } else { spdy::upgraded(upgrade).await? };
    forward(network, sender, receiver).await
}

/// The session whose bytes are the messages of a WebSocket.
async fn tunnelled(upgrade: OnUpgrade) -> io::Result<(SpdySender, SpdyReceiver)> {
    let connection = TokioIo::new(upgrade.await.map_err(io::Error::other)?);
    let (sink, stream) = channels::socket(connection).await.split();
    let bytes = stream.filter_map(async |message| match message {
        Ok(Frame::Binary(bytes)) => Some(Ok(bytes)),
        // Pings are answered where they are read, and an end is the stream's.
        Ok(_) => None,
        Err(error) => Some(Err(io::Error::other(error))),
    });
    let sink = sink.sink_map_err(io::Error::other).with(async |bytes: Bytes| Ok::<_, io::Error>(Frame::Binary(bytes)));
    let writer = SinkWriter::new(CopyToBytes::new(sink));
    Ok(spdy::session(Box::new(Box::pin(StreamReader::new(Box::pin(bytes)))), Box::new(Box::pin(writer))))
}

/// What the headers of a connection's two streams have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ConnectionKey {
    request: String,
    port: u16,
}

/// A connection of which not both streams are there.
#[derive(Default)]
struct Half {
    data: Option<u32>,
    error: Option<u32>,
}

/// All connections of one client.
struct Connections {
    network: Arc<PodNetwork>,
    sender: SpdySender,
    halves: HashMap<ConnectionKey, Half>,
    /// Where bytes of a stream go.
    inputs: HashMap<u32, mpsc::Sender<Bytes>>,
    running: JoinSet<u32>,
}

async fn forward(network: PodNetwork, sender: SpdySender, mut receiver: SpdyReceiver) -> io::Result<()> {
    let (halves, inputs) = Default::default();
    let network = Arc::new(network);
    let mut connections = Connections { network, sender, halves, inputs, running: JoinSet::new() };
    loop {
        let event = tokio::select! {
            event = receiver.next() => event,
            Some(ended) = connections.running.join_next(), if !connections.running.is_empty() => {
                if let Ok(stream) = ended {
                    connections.inputs.remove(&stream);
                }
                continue;
            }
        };
        match event {
            Some(event) => connections.take(event?).await?,
            None => return Ok(()),
        }
    }
}

impl Connections {
    async fn take(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Begin { stream, headers } => {
                let header =
                    |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
                let port = header("port").and_then(|port| port.parse().ok()).filter(|port| *port > 0);
                let request = header("requestid").unwrap_or_default().to_owned();
                match (port, header("streamtype")) {
                    (Some(port), Some(kind @ ("data" | "error"))) => {
                        self.begin(stream, kind, ConnectionKey { request, port }).await
                    }
                    _ => self.sender.refuse(stream).await,
                }
            }
            Event::Data { stream, bytes } => {
                if let Some(input) = self.inputs.get(&stream) {
                    // A pod that has closed its side takes nothing more.
                    let _ = input.send(bytes).await;
                }
                Ok(())
            }
            Event::End { stream } => {
                self.inputs.remove(&stream);
                Ok(())
            }
        }
    }

    /// Connects once both streams are there.
    async fn begin(&mut self, stream: u32, kind: &str, key: ConnectionKey) -> io::Result<()> {
        if self.running.len() + self.halves.len() >= CONNECTIONS_MAX && !self.halves.contains_key(&key) {
            return self.sender.refuse(stream).await;
        }
        let half = self.halves.entry(key.clone()).or_default();
        let slot = if kind == "data" { &mut half.data } else { &mut half.error };
        if slot.is_some() {
            return self.sender.refuse(stream).await;
        }
        *slot = Some(stream);
        if let Half { data: Some(data), error: Some(error) } = *half {
            self.halves.remove(&key);
            let (input, bytes) = mpsc::channel(WAITING_MAX);
            self.inputs.insert(data, input);
            let (network, sender) = (Arc::clone(&self.network), self.sender.clone());
            self.running.spawn(async move {
                // A client that is gone is seen where it is read from.
                let _ = connect(network, Port { number: key.port, data, error }, bytes, sender).await;
                data
            });
        }
        Ok(())
    }
}

/// The port that one connection goes to, and the streams of its bytes and of its errors.
struct Port {
    number: u16,
    data: u32,
    error: u32,
}

/// Connects, and copies both ways until the pod has ended its side.
async fn connect(
    network: Arc<PodNetwork>,
    port: Port,
    bytes: mpsc::Receiver<Bytes>,
    sender: SpdySender,
) -> io::Result<()> {
    let connected = match network.sockets(1).await.map(|mut sockets| sockets.pop()) {
        Ok(Some(sockets)) => sockets.connect(port.number).await,
        Ok(None) => Err(io::Error::other("no socket")),
        Err(error) => Err(error),
    };
    let outcome = match connected {
        Ok(stream) => {
            let (reader, writer) = stream.into_split();
            let from_pod = from_pod(reader, port.data, &sender);
            tokio::pin!(from_pod);
            let outcome = tokio::select! {
                outcome = &mut from_pod => outcome,
                // The client has said all; the pod may say more.
                () = to_pod(writer, bytes) => from_pod.await,
            };
            outcome.map_err(|error| format!("the connection to the pod's port {} broke off: {error}", port.number))
        }
        Err(error) => Err(refusal(port.number, &error)),
    };
    if let Err(words) = outcome {
        sender.send(port.error, words.as_bytes()).await?;
    }
    sender.end(port.data).await?;
    sender.end(port.error).await
}

async fn from_pod(mut pod: OwnedReadHalf, stream: u32, sender: &SpdySender) -> io::Result<()> {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        match pod.read(&mut bytes).await? {
            0 => return Ok(()),
            count => sender.send(stream, &bytes[..count]).await?,
        }
    }
}

async fn to_pod(mut pod: OwnedWriteHalf, mut bytes: mpsc::Receiver<Bytes>) {
    while let Some(bytes) = bytes.recv().await {
        if pod.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // The client says nothing more; the pod may.
    let _ = pod.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::spdy::tests::{Client, pair};
    use tokio::net::TcpListener;

    async fn opened(client: &mut Client, first: u32, port: u16) {
        let (port, id) = (port.to_string(), first.to_string());
        for (stream, kind) in [(first, "error"), (first + 2, "data")] {
            client.begin(stream, &[("streamtype", kind), ("port", &port), ("requestid", &id)]).await;
        }
        client.data(first, b"", true).await;
    }

    #[tokio::test]
    async fn each_pair_of_streams_is_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mut client, sender, receiver) = pair();
        let speaks = async {
            for (first, ends) in [(1, true), (5, false)] {
                opened(&mut client, first, port).await;
                client.data(first + 2, b"hello", ends).await;
                let (mut peer, _) = listener.accept().await.unwrap();
                let mut said = [0; 5];
                peer.read_exact(&mut said).await.unwrap();
                assert_eq!(&said, b"hello");
                if ends {
                    assert_eq!(peer.read(&mut said).await.unwrap(), 0, "the client says nothing more");
                }
                peer.write_all(b"back").await.unwrap();
                drop(peer);
                assert_eq!(client.next().await, Some((first + 2, b"back".to_vec(), false)));
                assert_eq!(client.next().await, Some((first + 2, Vec::new(), true)));
                assert_eq!(client.next().await, Some((first, Vec::new(), true)));
            }
            // Of no use: another kind, no port, a stream that is there already.
            client.begin(9, &[("streamtype", "video"), ("port", "80")]).await;
            client.begin(11, &[("streamtype", "data")]).await;
            client.begin(13, &[("streamtype", "data"), ("port", "80"), ("requestid", "x")]).await;
            client.begin(15, &[("streamtype", "data"), ("port", "80"), ("requestid", "x")]).await;
            for stream in [9, 11, 15] {
                assert_eq!(client.next().await, Some((stream, b"refused".to_vec(), true)));
            }
            drop(client);
        };
        tokio::join!(forward(PodNetwork::Host, sender, receiver), speaks).0.unwrap();
    }

    #[tokio::test]
    async fn a_port_that_refuses_is_told_in_words() {
        // An own connection's end: nobody can listen there.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let held = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let port = held.local_addr().unwrap().port();
        let (mut client, sender, receiver) = pair();
        let speaks = async {
            opened(&mut client, 1, port).await;
            let words = format!("pod's port {port} refuses connections: nothing listens there on 127.0.0.1 or ::1");
            assert_eq!(client.next().await, Some((1, words.into_bytes(), false)));
            assert_eq!(client.next().await, Some((3, Vec::new(), true)));
            assert_eq!(client.next().await, Some((1, Vec::new(), true)));
            drop(client);
        };
        tokio::join!(forward(PodNetwork::Host, sender, receiver), speaks).0.unwrap();
    }
}
