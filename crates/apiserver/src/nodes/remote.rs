//! Nodes whose agents run in other processes, on this machine or others, reached over TLS.
//!
//! Invariant: an agent is believed only if it shows a certificate of our authority with its node's name, and is asked as the
//! user of the API server. Each request has a connection of its own, which ends with it; a stream goes on until one of its
//! two ends does. Given to the server by `pumice apiserver`.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use pumice_store::Store;
use pumice_units::with_causes;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

use crate::http::body::Body;
use crate::nodes::{NodeProxy, NodeProxyError};
use crate::stored::parse;

/// Longest time until an agent has begun to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Reaches nodes where their objects say.
pub struct RemoteNodes {
    store: Store,
    tls: RwLock<TlsConnector>,
    /// Connections that go on.
    tasks: TaskTracker,
}

impl RemoteNodes {
    /// The nodes of a store. `tls` trusts the authority alone and shows who the API server is.
    pub fn new(store: Store, tls: ClientConfig) -> Self {
        Self { store, tls: RwLock::new(TlsConnector::from(Arc::new(tls))), tasks: TaskTracker::new() }
    }

    /// Trusts and shows what `tls` says from now on.
    pub fn replace(&self, tls: ClientConfig) {
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = TlsConnector::from(Arc::new(tls));
    }

    fn agent(&self, node: &str) -> Option<AgentAddress> {
        agent(&parse(&*self.store.find("nodes", "", node)?))
    }
}

/// Where the agent of a node listens.
#[derive(Debug, PartialEq)]
struct AgentAddress {
    host: String,
    port: u16,
}

/// As the node's object says; none where it doesn't.
fn agent(node: &Value) -> Option<AgentAddress> {
    // Zero is written where no agent said one.
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().filter(|port| *port > 0)?;
    let addresses = node["status"]["addresses"].as_array()?;
    let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
    Some(AgentAddress { host: internal["address"].as_str()?.to_owned(), port: u16::try_from(port).ok()? })
}

impl NodeProxy for Arc<RemoteNodes> {
    fn call(&self, node: &str, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, NodeProxyError>> {
        (**self).call(node, request)
    }
}

impl NodeProxy for RemoteNodes {
    fn call(&self, node: &str, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, NodeProxyError>> {
        let (agent, node) = (self.agent(node), node.to_owned());
        let tls = self.tls.read().unwrap_or_else(PoisonError::into_inner).clone();
        let tasks = self.tasks.clone();
        Box::pin(async move {
            let Some(agent) = agent else { return Err(NodeProxyError::NotConnected { node }) };
            let asked = tokio::time::timeout(ANSWER_WITHIN, ask(&node, agent, request, tls, tasks)).await;
            let cause = match asked {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(error)) => with_causes(&*error),
                Err(_) => format!("nothing within {} s", ANSWER_WITHIN.as_secs()),
            };
            Err(NodeProxyError::Call { node, cause })
        })
    }
}

async fn ask(
    node: &str,
    agent: AgentAddress,
    mut request: Request<Body>,
    tls: TlsConnector,
    tasks: TaskTracker,
) -> Result<Response<Body>, Box<dyn std::error::Error + Send + Sync>> {
    let client = request.extensions_mut().remove::<OnUpgrade>();
    request.headers_mut().insert(header::HOST, HeaderValue::from_str(node)?);
    let name = ServerName::try_from(node.to_owned())?;
    let socket = TcpStream::connect((agent.host, agent.port)).await?;
    socket.set_nodelay(true)?;
    let stream = tls.connect(name, socket).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tasks.spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(error = %error, "a connection to a node ended");
        }
    });
    let mut response = sender.send_request(request).await?;
    if let (StatusCode::SWITCHING_PROTOCOLS, Some(client)) = (response.status(), client) {
        let agent = hyper::upgrade::on(&mut response);
        tasks.spawn(async move {
            let (Ok(client), Ok(agent)) = tokio::join!(client, agent) else { return };
            let (mut client, mut agent) = (TokioIo::new(client), TokioIo::new(agent));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut agent).await {
                tracing::debug!(error = %error, "a stream of a node ended");
            }
        });
    }
    Ok(response.map(Body::new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_where_it_says() {
        let node = |status: Value| agent(&json!({ "status": status }));
        let addresses = json!([{"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "10.0.0.1"}]);
        let port = |port: u64| json!({"kubeletEndpoint": {"Port": port}});
        assert_eq!(
            node(json!({"addresses": addresses, "daemonEndpoints": port(10250)})),
            Some(AgentAddress { host: "10.0.0.1".to_owned(), port: 10250 })
        );
        assert_eq!(node(json!({"addresses": addresses})), None);
        assert_eq!(node(json!({"addresses": addresses, "daemonEndpoints": port(70_000)})), None);
        assert_eq!(node(json!({"addresses": addresses, "daemonEndpoints": port(0)})), None);
        assert_eq!(node(json!({"daemonEndpoints": port(10250)})), None);
    }
}
