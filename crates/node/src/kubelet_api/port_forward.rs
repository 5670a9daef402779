//! `/portForward/{namespace}/{pod}?port=N`: connections to a pod's ports over the channels of a WebSocket; or over SPDY, as
//! `kubectl` does it, without `port`: see [`spdy`].
//!
//! The i-th port has channel 2i for its bytes and 2i+1 for words on what went wrong; the first message of
//! each is the port's number, two bytes, little endian, as the kubelet has it.
//! Invariant: a message is read when the one before has gone to the pod, and a pod's bytes when those
//! before have gone to the client, so a slow side costs no memory. Ends when the client goes, when the
//! pod has ended all connections (a pod's end does), and with the agent.

mod spdy;

use std::io;

use futures::future::join_all;
use http::{Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;

use crate::kubelet_api::sessions::SessionSlot;
use crate::kubelet_api::{NodeBody, empty, text};
use crate::networks::pod_network::{PodNetwork, PodNetworkError, Sockets};
use crate::pod_index::PodIndex;
use crate::streams::channels::{self, ChannelReceiver, ChannelSender, HandshakeError, Message, Opening};
use crate::streams::spdy as session;

/// Most ports of one request: each has two channels, and a channel's number is a byte.
const PORTS_MAX: usize = 64;
/// Read from a pod at a time, in bytes.
const READ_BYTES: usize = 32 * 1024;

/// Why there is no connection to a pod's ports.
#[derive(Debug, thiserror::Error)]
enum PortForwardError {
    #[error("query parameter \"port\" is required: 1 to {PORTS_MAX} numbers from 1 to 65535")]
    Ports,
    #[error("pod {pod:?} is not on this node")]
    NoSuchPod { pod: String },
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("unable to forward ports of pod {pod:?}: {source}")]
    Network {
        pod: String,
        #[source]
        source: PodNetworkError,
    },
}

impl PortForwardError {
    fn code(&self) -> StatusCode {
        match self {
            PortForwardError::NoSuchPod { .. } => StatusCode::NOT_FOUND,
            PortForwardError::Handshake(error) => error.code(),
            PortForwardError::Network { source: PodNetworkError::Open(_) | PodNetworkError::Spec(_), .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            PortForwardError::Ports | PortForwardError::Network { .. } => StatusCode::BAD_REQUEST,
        }
    }
}

/// What a stream needs.
struct Order {
    name: String,
    network: PodNetwork,
    ports: Vec<u16>,
}

/// Agrees to connect, and connects when the client's connection is there.
pub(crate) fn serve<B>(
    pods: &PodIndex,
    slot: SessionSlot,
    namespace: &str,
    pod: &str,
    mut request: Request<B>,
) -> Response<NodeBody> {
    let over_spdy = accept_spdy(&mut request).map_err(PortForwardError::from).and_then(|agreed| match agreed {
        Some(agreed) => network(pods, namespace, pod).map(|network| Some((agreed, network))),
        None => Ok(None),
    });
    match over_spdy {
        Ok(Some(((response, upgrade), network))) => {
            let name = format!("{namespace}/{pod}");
            slot.run(async move {
                if let Err(error) = spdy::serve(upgrade, network).await {
                    tracing::debug!(pod = name, %error, "a port-forward broke off");
                }
            });
            return response.map(|()| empty());
        }
        Ok(None) => {}
        Err(error) => return text(error.code(), &error.to_string()),
    }
    let agreed = order(pods, namespace, pod, request.uri().query().unwrap_or_default())
        .and_then(|order| Ok((channels::accept(&mut request)?, order)));
    match agreed {
        Ok(((response, opening), order)) => {
            slot.run(stream(opening, order));
            response.map(|()| empty())
        }
        Err(error) => text(error.code(), &error.to_string()),
    }
}

fn order(pods: &PodIndex, namespace: &str, pod: &str, query: &str) -> Result<Order, PortForwardError> {
    let ports = ports(query).ok_or(PortForwardError::Ports)?;
    let network = network(pods, namespace, pod)?;
    Ok(Order { name: format!("{namespace}/{pod}"), network, ports })
}

fn network(pods: &PodIndex, namespace: &str, pod: &str) -> Result<PodNetwork, PortForwardError> {
    let dir = pods.get(namespace, pod).ok_or_else(|| PortForwardError::NoSuchPod { pod: pod.to_owned() })?;
    PodNetwork::open(&dir).map_err(|source| PortForwardError::Network { pod: pod.to_owned(), source })
}

/// Agrees to SPDY where that is asked for: the answer, and what the connection becomes after it.
fn accept_spdy<B>(request: &mut Request<B>) -> Result<Option<(Response<()>, spdy::Opening)>, HandshakeError> {
    if session::is_asked(request.headers()) {
        let (response, upgrade) = session::accept(request, spdy::PROTOCOL)?;
        return Ok(Some((response, spdy::Opening { upgrade, tunnel: false })));
    }
    // Who doesn't ask for the tunnel speaks over the WebSocket's own channels.
    let Ok(agreed) = channels::accept_as(request, &[(spdy::TUNNEL, ())]) else { return Ok(None) };
    Ok(Some((agreed.response, spdy::Opening { upgrade: agreed.upgrade, tunnel: true })))
}

fn ports(query: &str) -> Option<Vec<u16>> {
    let texts = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "port");
    let ports: Option<Vec<u16>> =
        texts.map(|(_, text)| text.parse().ok().filter(|port| *port > 0)).take(PORTS_MAX + 1).collect();
    ports.filter(|ports| (1..=PORTS_MAX).contains(&ports.len()))
}

async fn stream(opening: Opening, Order { name, network, ports }: Order) {
    let work = async {
        let (sender, receiver) = opening.open(&[]).await?;
        forward(&ports, network.sockets(ports.len()).await, sender, receiver).await
    };
    if let Err(error) = work.await {
        tracing::debug!(pod = name, %error, "a port-forward broke off");
    }
}

/// One port among those of a request.
#[derive(Clone, Copy)]
struct Port {
    number: u16,
    data: u8,
    error: u8,
}

/// Connects to the ports and copies both ways to the end.
async fn forward<S>(
    numbers: &[u16],
    sockets: io::Result<Vec<Sockets>>,
    mut sender: ChannelSender<S>,
    mut receiver: ChannelReceiver<S>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ports: Vec<Port> =
        (0..).step_by(2).zip(numbers).map(|(data, number)| Port { number: *number, data, error: data + 1 }).collect();
    for port in &ports {
        for channel in [port.data, port.error] {
            sender.send(channel, &port.number.to_le_bytes()).await?;
        }
    }
    let sender = Mutex::new(sender);
    let (mut readers, mut writers) = (Vec::new(), Vec::new());
    match sockets {
        Ok(sockets) => {
            let connecting = ports.iter().zip(sockets).map(|(port, sockets)| sockets.connect(port.number));
            for (port, outcome) in ports.iter().zip(join_all(connecting).await) {
                let writer = match outcome {
                    Ok(stream) => {
                        let (reader, writer) = stream.into_split();
                        readers.push(from_pod(*port, reader, &sender));
                        Some(writer)
                    }
                    Err(error) => {
                        let text = refusal(port.number, &error);
                        sender.lock().await.send(port.error, text.as_bytes()).await?;
                        None
                    }
                };
                writers.push(writer);
            }
        }
        Err(error) => {
            for port in &ports {
                sender.lock().await.send(port.error, refusal(port.number, &error).as_bytes()).await?;
            }
        }
    }
    tokio::select! {
        // The protocol has no word for one port's end: it is all of them, or a silent one.
        _ = join_all(readers) => {}
        outcome = to_pod(&mut receiver, writers) => return outcome,
    }
    sender.into_inner().close().await;
    receiver.linger().await;
    Ok(())
}

fn refusal(port: u16, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("pod's port {port} refuses connections: nothing listens there on 127.0.0.1 or ::1")
        }
        _ => format!("pod's port {port} can't be reached: {error}"),
    }
}

/// Sends what the pod says on a port, to its end.
async fn from_pod<S>(port: Port, mut pod: OwnedReadHalf, sender: &Mutex<ChannelSender<S>>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut bytes = vec![0; READ_BYTES];
    loop {
        let (channel, words) = match pod.read(&mut bytes).await {
            Ok(0) => return,
            Ok(count) => (port.data, &bytes[..count]),
            Err(error) => {
                let text = format!("the connection to the pod's port {} broke off: {error}", port.number);
                let _ = sender.lock().await.send(port.error, text.as_bytes()).await;
                return;
            }
        };
        // Without a client there is nobody to tell; that the client is gone is seen where it is read from.
        if sender.lock().await.send(channel, words).await.is_err() {
            return;
        }
    }
}

/// Gives what the client sends to the ports, until it goes.
async fn to_pod<S>(receiver: &mut ChannelReceiver<S>, mut writers: Vec<Option<OwnedWriteHalf>>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = receiver.next().await {
        let (channel, bytes) = match message? {
            Message::Data { channel, bytes } => (channel, Some(bytes)),
            Message::Closed { channel } => (channel, None),
        };
        // Odd channels are for words on what went wrong, and those go to the client only.
        if channel % 2 != 0 {
            continue;
        }
        let Some(slot) = writers.get_mut(usize::from(channel) / 2) else { continue };
        let Some(writer) = slot else { continue };
        let goes_on = match bytes {
            Some(bytes) => writer.write_all(&bytes).await.is_ok(),
            None => false,
        };
        // To drop it is to say to the pod that nothing more comes.
        if !goes_on {
            *slot = None;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet_api::sessions::Sessions;
    use crate::networks::pod_network::tests::write_spec;
    use crate::streams::channels::Protocol;
    use crate::streams::channels::tests::{Client, pair};
    use futures::{SinkExt, StreamExt};
    use http::header::SEC_WEBSOCKET_PROTOCOL;
    use http_body_util::BodyExt;
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use pumice_shim::control;
    use pumice_shim::spec::Network;
    use std::convert::Infallible;
    use tokio::io::DuplexStream;
    use tokio::net::TcpListener;
    use tokio_tungstenite::tungstenite::Message as Frame;
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;

    async fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    /// Accepts once and sends everything back.
    async fn echo(listener: TcpListener) {
        let (mut peer, _) = listener.accept().await.unwrap();
        let (mut reader, mut writer) = peer.split();
        tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    }

    /// The next message that has bytes: its channel and them.
    async fn next(client: &mut Client) -> Option<(u8, Vec<u8>)> {
        loop {
            match client.next().await?.unwrap() {
                Frame::Binary(bytes) => return Some((bytes[0], bytes[1..].to_vec())),
                Frame::Close(_) => return None,
                _ => {}
            }
        }
    }

    async fn begins(client: &mut Client, ports: &[u16]) {
        for (index, port) in ports.iter().enumerate() {
            for channel in [2 * index, 2 * index + 1] {
                let first = (u8::try_from(channel).unwrap(), port.to_le_bytes().to_vec());
                assert_eq!(next(client).await, Some(first));
            }
        }
    }

    #[tokio::test]
    async fn bytes_go_to_each_port_and_back() {
        let ((one, first), (two, second)) = (listener().await, listener().await);
        let (mut client, sender, receiver) = pair(Protocol::V5).await;
        let sockets = PodNetwork::Host.sockets(2).await;
        let ports = [first, second];
        let pod = async { tokio::join!(echo(one), echo(two)) };
        let speaks = async {
            begins(&mut client, &ports).await;
            let large = vec![7; 300_000];
            client.send(Frame::binary([&[2][..], &large].concat())).await.unwrap();
            let mut back = Vec::new();
            while back.len() < large.len() {
                let (channel, bytes) = next(&mut client).await.unwrap();
                assert_eq!(channel, 2);
                back.extend(bytes);
            }
            assert!(back == large);
            client.send(Frame::binary(&b"\0one"[..])).await.unwrap();
            assert_eq!(next(&mut client).await, Some((0, b"one".to_vec())));
            // Nobody's channels are passed over; the end of a port's input reaches the pod, whose end ends it all.
            for frame in [&b"\x01x"[..], b"\x09x", b"\xff\x00", b"\xff\x02"] {
                client.send(Frame::binary(frame)).await.unwrap();
            }
            assert_eq!(next(&mut client).await, None);
            assert!(client.next().await.is_none());
        };
        let (outcome, ..) = tokio::join!(forward(&ports, sockets, sender, receiver), pod, speaks);
        outcome.unwrap();
    }

    #[tokio::test]
    async fn a_port_that_refuses_is_told_in_words() {
        let (gone, refusing) = listener().await;
        drop(gone);
        let (there, open) = listener().await;
        let (mut client, sender, receiver) = pair(Protocol::V4).await;
        let sockets = PodNetwork::Host.sockets(2).await;
        let ports = [refusing, open];
        let speaks = async {
            begins(&mut client, &ports).await;
            let text = format!("pod's port {refusing} refuses connections: nothing listens there on 127.0.0.1 or ::1");
            assert_eq!(next(&mut client).await, Some((1, text.into_bytes())));
            client.send(Frame::binary(&b"\x02still"[..])).await.unwrap();
            assert_eq!(next(&mut client).await, Some((2, b"still".to_vec())));
            client.close(None).await.unwrap();
            while client.next().await.is_some() {}
        };
        let (outcome, ..) = tokio::join!(forward(&ports, sockets, sender, receiver), echo(there), speaks);
        outcome.unwrap();

        let (mut client, sender, receiver) = pair(Protocol::V4).await;
        let speaks = async {
            begins(&mut client, &[80]).await;
            assert_eq!(next(&mut client).await, Some((1, b"pod's port 80 can't be reached: no".to_vec())));
            assert_eq!(next(&mut client).await, None);
            while client.next().await.is_some() {}
        };
        let failed = Err(io::Error::other("no"));
        tokio::join!(forward(&[80], failed, sender, receiver), speaks).0.unwrap();
    }

    /// Serves one connection as the API server does, which hands the client's connection on.
    async fn serve_connection(pods: PodIndex, connection: DuplexStream) {
        let service = service_fn(move |request: Request<Incoming>| {
            let response = serve(&pods, Sessions::new().reserve("ns", "p").unwrap(), "ns", "p", request);
            async { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
        connection.with_upgrades().await.unwrap();
    }

    #[tokio::test]
    async fn a_client_reaches_a_port_through_its_connection() {
        let dir = tempfile::tempdir().unwrap();
        write_spec(dir.path(), Network::Host);
        let _lock = control::lock(dir.path()).unwrap();
        let pods = PodIndex::default();
        pods.insert("ns", "p", dir.path().to_owned(), crate::pod_index::DiskRules::default());
        let (pod, port) = listener().await;
        let (near, far) = tokio::io::duplex(4096);
        let talks = async {
            let uri = format!("ws://node/portForward/ns/p?port={port}");
            let mut request = uri.into_client_request().unwrap();
            request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io".parse().unwrap());
            let (mut client, response) = tokio_tungstenite::client_async(request, near).await.unwrap();
            assert_eq!(response.headers()[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
            begins(&mut client, &[port]).await;
            client.send(Frame::binary(&b"\0hello"[..])).await.unwrap();
            assert_eq!(next(&mut client).await, Some((0, b"hello".to_vec())));
            client.send(Frame::binary(&b"\xff\x00"[..])).await.unwrap();
            assert_eq!(next(&mut client).await, None);
        };
        tokio::join!(serve_connection(pods, far), echo(pod), talks);
    }

    #[tokio::test]
    async fn what_can_not_be_served_is_told() {
        let dir = tempfile::tempdir().unwrap();
        write_spec(dir.path(), Network::Host);
        let pods = PodIndex::default();
        pods.insert("ns", "p", dir.path().to_owned(), crate::pod_index::DiskRules::default());
        let ports = "query parameter \"port\" is required: 1 to 64 numbers from 1 to 65535";
        let many = vec!["port=1"; 65].join("&");
        let mut cases = vec![
            ("p", "", 400, ports),
            ("p", "port=0", 400, ports),
            ("p", "port=80&port=x", 400, ports),
            ("p", many.as_str(), 400, ports),
            ("q", "port=80", 404, "pod \"q\" is not on this node"),
            ("p", "port=80", 400, "unable to forward ports of pod \"p\": the pod does not run"),
        ];
        let mut lock = None;
        for _ in 0..2 {
            for (pod, query, code, text) in cases.drain(..) {
                let request = Request::get(format!("/portForward/ns/{pod}?{query}")).body(()).unwrap();
                let response = serve(&pods, Sessions::new().reserve("ns", "p").unwrap(), "ns", pod, request);
                assert_eq!(response.status(), code, "{pod}?{query}");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body, text, "{pod}?{query}");
            }
            lock = lock.or_else(|| Some(control::lock(dir.path()).unwrap()));
            let upgrade =
                "this path needs a connection of its own: send \"Connection: Upgrade\" and \"Upgrade: websocket\"";
            cases = vec![("p", "port=80", 400, upgrade)];
        }
    }

    #[tokio::test]
    async fn who_asks_for_another_protocol_over_spdy_is_told_which_one_is_spoken() {
        let request = Request::post("/portForward/ns/p")
            .header("Upgrade", "SPDY/3.1")
            .header("X-Stream-Protocol-Version", "v4.channel.k8s.io")
            .body(())
            .unwrap();
        let response = serve(&PodIndex::default(), Sessions::new().reserve("ns", "p").unwrap(), "ns", "p", request);
        assert_eq!(response.status(), 400);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = "SPDY is spoken here with \"X-Stream-Protocol-Version: portforward.k8s.io\", which the request does not offer";
        assert_eq!(body, text);
    }
}
