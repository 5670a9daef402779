//! The client that asks webhooks: TLS always, connections kept, answers bounded.
//!
//! Invariant: a connection is used again only for the same host, name and trust, and once its last answer was read. Whoever calls bounds the time. HTTP/2 where
//! the server speaks it: then one connection carries all requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most servers that connections are kept to, and most idle ones to each.
const SERVERS_MAX: usize = 64;
const IDLE_MAX: usize = 8;
/// Where machines keep what they trust.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
    /// The name that its certificate must be for.
    pub(super) server: String,
}

impl Endpoint {
    /// That of an `https://` URL.
    pub(super) fn of_url(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if uri.scheme_str() != Some("https") || host.is_empty() {
            return Err(format!("{url:?} is no URL of https"));
        }
        Ok(Self { port: uri.port_u16().unwrap_or(443), server: host.clone(), host })
    }
}

type Key = (Endpoint, String);

enum Connection {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// An answer whose body is still to come, and the connection that is free after it, unless others share it all the time.
struct Sent {
    answer: Response<Incoming>,
    after: Option<Connection>,
}

/// Connections to webhooks. Those in use belong to their requests.
#[derive(Default)]
pub(super) struct Client {
    idle: Mutex<HashMap<Key, Vec<Connection>>>,
    /// TLS by what is trusted.
    configs: Mutex<HashMap<String, Arc<ClientConfig>>>,
    connections: TaskTracker,
}

impl Client {
    /// Sends a body to the first endpoint that can be reached, and gives that of the answer.
    pub(super) async fn post(
        &self,
        endpoints: &[Endpoint],
        url: &str,
        trusted: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, String> {
        let body = Bytes::from(body);
        let mut last = "no endpoint".to_owned();
        for endpoint in endpoints {
            let key = (endpoint.clone(), trusted.to_owned());
            // One that lay idle may have been closed meanwhile: then the request goes over a new one.
            if let Some(connection) = self.take(&key)
                && let Ok(sent) = self.send(&key, connection, request(url, &body)?).await
            {
                return self.read(&key, sent).await;
            }
            match self.connect(endpoint, trusted).await {
                Ok(connection) => {
                    let sent = self.send(&key, connection, request(url, &body)?).await?;
                    return self.read(&key, sent).await;
                }
                Err(cause) => last = cause,
            }
        }
        Err(last)
    }

    fn take(&self, key: &Key) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.get_mut(key)?;
        kept.retain(|connection| match connection {
            Connection::One(sender) => !sender.is_closed(),
            Connection::Two(sender) => !sender.is_closed(),
        });
        match kept.last()? {
            Connection::Two(sender) => Some(Connection::Two(sender.clone())),
            Connection::One(_) => kept.pop(),
        }
    }

    fn keep(&self, key: &Key, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= SERVERS_MAX && !idle.contains_key(key) {
            idle.clear();
        }
        let kept = idle.entry(key.clone()).or_default();
        let shared = kept.iter().any(|one| matches!(one, Connection::Two(_)));
        if kept.len() < IDLE_MAX && !shared {
            kept.push(connection);
        }
    }

    async fn send(&self, key: &Key, connection: Connection, mut request: Request<Full<Bytes>>) -> Result<Sent, String> {
        match connection {
            Connection::One(mut sender) => {
                // HTTP/1.1 names the host in a header alone.
                let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
                *request.uri_mut() = path.parse().map_err(|error| format!("{error}"))?;
                sender.ready().await.map_err(|error| error.to_string())?;
                let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
                Ok(Sent { answer, after: Some(Connection::One(sender)) })
            }
            Connection::Two(mut sender) => {
                sender.ready().await.map_err(|error| error.to_string())?;
                self.keep(key, Connection::Two(sender.clone()));
                let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
                Ok(Sent { answer, after: None })
            }
        }
    }

    /// The body of an answer. Then its connection is free for others.
    async fn read(&self, key: &Key, sent: Sent) -> Result<Vec<u8>, String> {
        let (code, body) = read(sent.answer).await?;
        if let Some(connection) = sent.after {
            self.keep(key, connection);
        }
        answer_body(code, &body)
    }

    /// What is trusted is read once: machines have hundreds of authorities.
    fn config(&self, trusted: &str) -> Result<Arc<ClientConfig>, String> {
        let known = self.configs.lock().unwrap_or_else(PoisonError::into_inner).get(trusted).cloned();
        if let Some(config) = known {
            return Ok(config);
        }
        let mut config = match trusted {
            "" => pumice_auth::bundle_client_config(&system_roots()?),
            trusted => pumice_auth::bundle_client_config(trusted),
        }
        .map_err(|error| format!("unable to load root certificates: {error}"))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let mut configs = self.configs.lock().unwrap_or_else(PoisonError::into_inner);
        if configs.len() >= SERVERS_MAX {
            configs.clear();
        }
        configs.insert(trusted.to_owned(), Arc::clone(&config));
        Ok(config)
    }

    async fn connect(&self, endpoint: &Endpoint, trusted: &str) -> Result<Connection, String> {
        let config = self.config(trusted)?;
        let name = ServerName::try_from(endpoint.server.clone()).map_err(|error| error.to_string())?;
        let (host, port) = (endpoint.host.as_str(), endpoint.port);
        let stream =
            TcpStream::connect((host, port)).await.map_err(|error| format!("dial tcp {host}:{port}: {error}"))?;
        // Nothing is gained by waiting: each request is one write.
        let _ = stream.set_nodelay(true);
        let connector = TlsConnector::from(config);
        let stream = connector.connect(name, stream).await.map_err(|error| format!("tls: {error}"))?;
        let speaks_two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = TokioIo::new(stream);
        if speaks_two {
            let made = http2::handshake(TokioExecutor::new(), stream).await;
            let (sender, connection) = made.map_err(|error| error.to_string())?;
            self.connections.spawn(connection);
            return Ok(Connection::Two(sender));
        }
        let (sender, connection) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
        self.connections.spawn(connection);
        Ok(Connection::One(sender))
    }
}

fn request(url: &str, body: &Bytes) -> Result<Request<Full<Bytes>>, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let host = uri.authority().map(ToString::to_string).unwrap_or_default();
    Request::post(uri)
        .header(header::HOST, host)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Full::new(body.clone()))
        .map_err(|error| error.to_string())
}

/// Reads an answer to its end.
async fn read(answer: Response<Incoming>) -> Result<(StatusCode, Bytes), String> {
    let code = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => format!("the answer has more than {ANSWER_BYTES_MAX} bytes"),
        None => error.to_string(),
    })?;
    Ok((code, body.to_bytes()))
}

/// What an answer says, if it is one of success.
fn answer_body(code: StatusCode, bytes: &Bytes) -> Result<Vec<u8>, String> {
    if !code.is_success() {
        let said = String::from_utf8_lossy(&bytes[..bytes.len().min(256)]).into_owned();
        return Err(format!("the server answered {code}: {said}"));
    }
    Ok(bytes.to_vec())
}

/// What the machine trusts.
fn system_roots() -> Result<String, String> {
    let found = SYSTEM_ROOTS.iter().find_map(|path| std::fs::read_to_string(path).ok());
    found.ok_or_else(|| "this machine has no list of trusted authorities: give the webhook a caBundle".to_owned())
}
