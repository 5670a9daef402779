//! What a probe or a hook does: a program in the container, a request, a connection, or nothing for a while.
//!
//! Invariant: whatever the other side does, an action ends within the time it is given, and what a program says is cut. Nothing is
//! asked from the host's network that the pod itself could not ask: connections are made within the pod's own, and what answers
//! there is not repeated to anybody.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::TcpStream;

use crate::container_exec::once;
use crate::grace;
use crate::launcher::Launcher;
use crate::networks::pod_network::PodNetwork;
use crate::probes::grpc;
use crate::probes::http::{self, Get};
use pumice_shim::report::Report;

/// Most of a program's words that are repeated in a message, in bytes.
const SAID_BYTES_MAX: usize = 1024;

/// What a probe or a hook does to or in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Runs a program in the container; good if it ends with 0.
    Exec {
        argv: Vec<String>,
    },
    /// Asks over HTTP or HTTPS.
    Http(Get),
    /// Asks by the gRPC health protocol.
    Grpc {
        port: u16,
        service: String,
    },
    Tcp {
        host: Option<String>,
        port: u16,
    },
    /// Does nothing for so long.
    Sleep(Duration),
}

/// What a pod asks for and this node can't do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ActionError {
    #[error("probes and hooks over {0:?}")]
    Scheme(String),
    #[error("a probe or hook without an action")]
    Nothing,
    #[error("a probe or hook on port {0:?}, which the container does not have")]
    Port(String),
    #[error("a hook of no program")]
    NoCommand,
}

/// Where an action is done.
#[derive(Clone)]
pub(crate) struct ContainerTarget<'a> {
    pub shim: &'a Launcher,
    pub dir: &'a Path,
    pub container: &'a str,
    pub address: Ipv4Addr,
}

impl ContainerTarget<'_> {
    /// The address that is asked: the pod's own unless it names another. Names are looked up by nobody, since that would happen in
    /// the host's network.
    pub(crate) fn target(&self, host: Option<&str>) -> Result<IpAddr, String> {
        match host {
            None => Ok(self.address.into()),
            Some(name) if name.eq_ignore_ascii_case("localhost") => Ok(Ipv4Addr::LOCALHOST.into()),
            Some(text) => text.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| {
                format!("the host {text:?} is no address, and names are not looked up for a pod; leave host out to ask the pod itself")
            }),
        }
    }
}

impl Action {
    pub(crate) fn of_probe(probe: &Probe, container: &Container) -> Result<Action, ActionError> {
        if let Some(grpc) = &probe.grpc {
            let port = port(&IntOrString::Int(grpc.port), container)?;
            return Ok(Action::Grpc { port, service: grpc.service.clone().unwrap_or_default() });
        }
        of(probe.exec.as_ref(), probe.http_get.as_ref(), probe.tcp_socket.as_ref(), container)
    }

    pub(crate) fn of_hook(hook: &LifecycleHandler, container: &Container) -> Result<Action, ActionError> {
        if let Some(sleep) = &hook.sleep {
            return Ok(Action::Sleep(Duration::from_secs(grace::grace(sleep.seconds))));
        }
        of(hook.exec.as_ref(), hook.http_get.as_ref(), hook.tcp_socket.as_ref(), container)
    }

    /// Does it, within `limit`. The error is a sentence that says what was wrong.
    pub(crate) async fn perform(&self, target: &ContainerTarget<'_>, limit: Duration) -> Result<(), String> {
        let done = tokio::time::timeout(limit, self.attempt(target)).await;
        done.unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())))
    }

    async fn attempt(&self, target: &ContainerTarget<'_>) -> Result<(), String> {
        match self {
            Action::Exec { argv } => execute(target, argv).await,
            Action::Http(get) => http::ask(get, target).await,
            Action::Grpc { port, service } => grpc::check(target, *port, service).await,
            Action::Tcp { host, port } => connect(target, target.target(host.as_deref())?, *port).await.map(drop),
            Action::Sleep(time) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
        }
    }
}

fn of(
    exec: Option<&ExecAction>,
    http: Option<&HTTPGetAction>,
    tcp: Option<&TCPSocketAction>,
    container: &Container,
) -> Result<Action, ActionError> {
    let host = |host: &Option<String>| host.clone().filter(|host| !host.is_empty());
    if let Some(exec) = exec {
        let argv = exec.command.clone().filter(|argv| !argv.is_empty()).ok_or(ActionError::NoCommand)?;
        return Ok(Action::Exec { argv });
    }
    if let Some(http) = http {
        let scheme = http.scheme.as_deref().filter(|scheme| !scheme.is_empty()).unwrap_or("HTTP");
        let tls = scheme.eq_ignore_ascii_case("https");
        if !tls && !scheme.eq_ignore_ascii_case("http") {
            return Err(ActionError::Scheme(scheme.to_owned()));
        }
        let path = http.path.clone().unwrap_or_default();
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let headers = http.http_headers.iter().flatten().map(|header| (header.name.clone(), header.value.clone()));
        let port = port(&http.port, container)?;
        return Ok(Action::Http(Get { tls, host: host(&http.host), port, path, headers: headers.collect() }));
    }
    if let Some(tcp) = tcp {
        return Ok(Action::Tcp { host: host(&tcp.host), port: port(&tcp.port, container)? });
    }
    Err(ActionError::Nothing)
}

/// A port's number, or the number of the container's port of that name.
fn port(port: &IntOrString, container: &Container) -> Result<u16, ActionError> {
    let (found, shown) = match port {
        IntOrString::Int(number) => (Some(*number), number.to_string()),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name));
            (named.map(|port| port.container_port).or_else(|| name.parse().ok()), name.clone())
        }
    };
    found.and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0).ok_or(ActionError::Port(shown))
}

async fn execute(target: &ContainerTarget<'_>, argv: &[String]) -> Result<(), String> {
    let ran = once::run(target.shim, target.dir, target.container, argv, SAID_BYTES_MAX).await;
    let (report, said) = ran.map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    let said = if said.is_empty() { String::new() } else { format!(": {said}") };
    match report {
        Report::Started | Report::Exited(0) | Report::Discarded(_) => Ok(()),
        Report::Exited(code) => Err(format!("command terminated with exit code {code}{said}")),
        Report::Killed(signal) => Err(format!("command was killed by signal {signal}{said}")),
        Report::Failed(text) | Report::NoRoom(text) => Err(text),
    }
}

/// Connects from within the pod's network.
pub(crate) async fn connect(from: &ContainerTarget<'_>, target: IpAddr, port: u16) -> Result<TcpStream, String> {
    let address = SocketAddr::from((target, port));
    let failed = |error: &dyn std::fmt::Display| format!("can't connect to {address}: {error}");
    let network = PodNetwork::open(from.dir).map_err(|error| failed(&error))?;
    network.connect(address).await.map_err(|error| failed(&error))
}

/// Drives `connection` beside what is asked over it, and ends it with that. A connection that fails after the answer has come
/// takes nothing from it: many servers close theirs without a word.
pub(crate) async fn over<T>(
    connection: impl Future<Output = hyper::Result<()>>,
    answer: impl Future<Output = hyper::Result<T>>,
) -> hyper::Result<T> {
    let mut answer = std::pin::pin!(answer);
    tokio::select! {
        said = &mut answer => said,
        ended = connection => {
            let said = answer.await;
            // Why the connection failed tells more than that it did.
            match ended {
                Err(failed) if said.is_err() => Err(failed),
                _ => said,
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::launcher::ShimProgram;
    use crate::networks::pod_network::tests::write_spec;
    use pumice_shim::control;
    use pumice_shim::spec::Network;
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn action(probe: Value) -> Result<Action, ActionError> {
        let container = json!({"name": "c", "ports": [{"name": "web", "containerPort": 8080}], "livenessProbe": probe});
        let container: Container = serde_json::from_value(container).unwrap();
        Action::of_probe(container.liveness_probe.as_ref().unwrap(), &container)
    }

    #[test]
    fn an_action_is_what_the_spec_says() {
        let tcp = |host: Option<&str>, port| Action::Tcp { host: host.map(str::to_owned), port };
        let get =
            |tls, path: &str| Action::Http(Get { tls, host: None, port: 8080, path: path.into(), headers: vec![] });
        let grpc = |service: &str| Action::Grpc { port: 1, service: service.to_owned() };
        let cases = [
            (json!({"tcpSocket": {"port": 5}}), Ok(tcp(None, 5))),
            (json!({"tcpSocket": {"port": "web", "host": "h"}}), Ok(tcp(Some("h"), 8080))),
            (json!({"tcpSocket": {"port": "other"}}), Err(ActionError::Port("other".into()))),
            (json!({"tcpSocket": {"port": 0}}), Err(ActionError::Port("0".into()))),
            (json!({"tcpSocket": {"port": 70000}}), Err(ActionError::Port("70000".into()))),
            (json!({"httpGet": {"port": "web"}}), Ok(get(false, "/"))),
            (json!({"httpGet": {"port": "web", "path": "a?b", "scheme": "HTTP"}}), Ok(get(false, "/a?b"))),
            (json!({"httpGet": {"port": "web", "scheme": "HTTPS"}}), Ok(get(true, "/"))),
            (json!({"httpGet": {"port": "web", "scheme": "FTP"}}), Err(ActionError::Scheme("FTP".into()))),
            (json!({"exec": {"command": ["a", "b"]}}), Ok(Action::Exec { argv: vec!["a".into(), "b".into()] })),
            (json!({"exec": {}}), Err(ActionError::NoCommand)),
            (json!({"grpc": {"port": 1}}), Ok(grpc(""))),
            (json!({"grpc": {"port": 1, "service": "a.B"}}), Ok(grpc("a.B"))),
            (json!({"grpc": {"port": 0}}), Err(ActionError::Port("0".into()))),
            (json!({}), Err(ActionError::Nothing)),
        ];
        for (probe, expected) in cases {
            assert_eq!(action(probe.clone()), expected, "{probe}");
        }
    }

    /// Answers one connection after the other with `answer`; gives the port and what was asked.
    async fn server(answer: &'static str) -> (u16, tokio::sync::mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (asked, questions) = tokio::sync::mpsc::unbounded_channel();
        #[allow(clippy::disallowed_methods, reason = "ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut read = vec![0; 4096];
                let length = stream.read(&mut read).await.unwrap();
                let _ = asked.send(String::from_utf8_lossy(&read[..length]).into_owned());
                stream.write_all(answer.as_bytes()).await.unwrap();
                if answer.is_empty() {
                    std::future::pending::<()>().await;
                }
            }
        });
        (port, questions)
    }

    /// A pod that runs on the host's network.
    pub(crate) struct OnHost {
        dir: tempfile::TempDir,
        shim: Launcher,
        _lock: std::fs::File,
    }

    impl OnHost {
        pub(crate) fn new() -> OnHost {
            let dir = tempfile::tempdir().unwrap();
            write_spec(dir.path(), Network::Host);
            let _lock = control::lock(dir.path()).unwrap();
            OnHost {
                dir,
                shim: Launcher::new(ShimProgram { embedded: None, program: "/nonexistent".into(), args: vec![] }),
                _lock,
            }
        }

        pub(crate) fn target(&self) -> ContainerTarget<'_> {
            ContainerTarget { shim: &self.shim, dir: self.dir.path(), container: "c", address: Ipv4Addr::LOCALHOST }
        }
    }

    async fn perform(action: &Action) -> Result<(), String> {
        action.perform(&OnHost::new().target(), Duration::from_secs(1)).await
    }

    #[test]
    fn addresses_are_asked_and_names_are_not() {
        let pod = OnHost::new();
        for (host, expected) in [
            (None, Some("127.0.0.1")),
            (Some("localhost"), Some("127.0.0.1")),
            (Some("192.0.2.7"), Some("192.0.2.7")),
            (Some("::1"), Some("::1")),
            (Some("[::1]"), Some("::1")),
            (Some("metadata.internal"), None),
            (Some("127.1"), None),
        ] {
            let found = pod.target().target(host).ok().map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{host:?}");
        }
    }

    #[tokio::test]
    async fn answers_over_http_are_judged_by_their_codes() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""),
            ("HTTP/1.1 302 Found\r\nlocation: /b\r\ncontent-length: 0\r\n\r\n", ""),
            ("HTTP/1.0 204 Nothing\r\n\r\n", ""),
            ("HTTP/1.1 503 Busy\r\ncontent-length: 5\r\n\r\nlater", "HTTP probe failed with statuscode: 503"),
            ("", "no answer within 1 s"),
        ] {
            let (port, mut questions) = server(answer).await;
            let headers = vec![("Host".to_owned(), "example.test".to_owned()), ("X-A".to_owned(), "b".to_owned())];
            let said =
                perform(&Action::Http(Get { tls: false, host: None, port, path: "/live?deep=1".into(), headers }))
                    .await;
            assert_eq!(said.err().unwrap_or_default(), expected);
            let question = questions.recv().await.unwrap();
            assert!(question.starts_with("GET /live?deep=1 HTTP/1.1\r\n"), "{question}");
            assert!(question.contains("host: example.test\r\n") && question.contains("x-a: b\r\n"), "{question}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_fails_after_its_answer_takes_nothing_from_it() {
        let failure = || async {
            let (near, _) = tokio::io::duplex(1);
            let (mut sender, connection) = hyper::client::conn::http1::handshake::<
                _,
                http_body_util::Empty<bytes::Bytes>,
            >(hyper_util::rt::TokioIo::new(near))
            .await
            .unwrap();
            drop(connection);
            sender.send_request(::http::Request::new(http_body_util::Empty::new())).await.map(drop)
        };
        // Both are there at once, and whichever is looked at first must not matter.
        for _ in 0..50 {
            assert!(over(failure(), std::future::ready(Ok(1))).await.is_ok());
        }
        let failed = over(failure(), async { failure().await }).await;
        assert!(failed.is_err());
    }

    #[tokio::test]
    async fn over_tls_any_certificate_will_do() {
        let now = pumice_clock::now();
        let ca = pumice_auth::Ca::passing(now).unwrap();
        let issued = ca.issue_server(&["somebody.else".to_owned()], now).unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(pumice_auth::server_config(&ca, &issued).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut read = vec![0; 4096];
            let length = stream.read(&mut read).await.unwrap();
            stream.write_all(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            stream.flush().await.unwrap();
            String::from_utf8_lossy(&read[..length]).into_owned()
        };
        let https = |port| Action::Http(Get { tls: true, host: None, port, path: "/a".into(), headers: vec![] });
        let action = https(port);
        let (said, asked) = tokio::join!(perform(&action), serving);
        assert_eq!(said.unwrap_err(), "HTTP probe failed with statuscode: 404");
        assert!(asked.starts_with("GET /a HTTP/1.1\r\n"), "{asked}");
        let (plain, _questions) = server("HTTP/1.1 400 No\r\n\r\n").await;
        let said = perform(&https(plain)).await.unwrap_err();
        assert!(said.starts_with(&format!("Get \"https://127.0.0.1:{plain}/a\": no TLS: ")), "{said}");
    }

    #[tokio::test]
    async fn what_does_not_answer_or_can_not_be_asked_is_told() {
        let (port, _questions) = server("").await;
        assert_eq!(perform(&Action::Tcp { host: None, port }).await, Ok(()));
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let refused = perform(&Action::Tcp { host: None, port: free }).await.unwrap_err();
        assert!(refused.starts_with(&format!("can't connect to 127.0.0.1:{free}: ")), "{refused}");
        let (port, _questions) = server("nonsense\r\n\r\n").await;
        let ask = |path: &str, headers| Action::Http(Get { tls: false, host: None, port, path: path.into(), headers });
        assert!(perform(&ask("/", vec![])).await.unwrap_err().starts_with("Get \"http://127.0.0.1:"));
        assert!(perform(&ask("/a b", vec![])).await.unwrap_err().contains("can't be asked for"));
        let header = vec![("a b".to_owned(), String::new())];
        assert!(perform(&ask("/", header)).await.unwrap_err().contains("can't be sent"));
        assert_eq!(perform(&Action::Sleep(Duration::from_millis(1))).await, Ok(()));
    }
}
