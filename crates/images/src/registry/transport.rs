//! Connections to registries: TLS with the machine's authorities and those of the settings, through a proxy where the
//! environment names one: a tunnel for TLS, and for plain HTTP a proxy that passes requests on.

mod authorities;
mod forward;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::registry::error::RegistryError;
use forward::Forward;

/// Wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Connections to one host that wait for a next call.
const IDLE_MAX: usize = 4;

/// What is sent: nothing, something small, or a file piece by piece.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Opens connections, and has them used again.
pub(crate) struct Transport {
    proxies: Matcher,
    clients: Mutex<HashMap<Way, Known>>,
}

/// What tells clients apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Way {
    authority: Option<PathBuf>,
    /// When the authority's file was last changed.
    changed: Option<SystemTime>,
    proxy: Option<String>,
    trust: Trust,
}

/// Whom a client believes to be a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Trust {
    /// Anybody: it speaks without TLS.
    Anybody,
    /// Those for whom the machine's authorities vouch, which were read to this place in memory.
    Machine(usize),
}

#[derive(Clone)]
enum HttpClient {
    Plain(Client<HttpConnector, Body>),
    Forwarded(Client<Forward, Body>),
    Direct(Client<HttpsConnector<HttpConnector>, Body>),
    Proxied(Client<HttpsConnector<Tunnel<HttpConnector>>, Body>),
}

impl Transport {
    /// With the proxies that it says.
    pub(crate) fn new(proxies: Matcher) -> Transport {
        Transport { proxies, clients: Mutex::default() }
    }

    /// Sends a request, and waits for the head of the answer.
    pub(crate) async fn send(
        &self,
        host: &str,
        authority: Option<&PathBuf>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, RegistryError> {
        let Chosen { client, proxy, login } = self.client(request.uri(), authority)?;
        let answer = match client {
            HttpClient::Plain(client) => client.request(request).await,
            HttpClient::Forwarded(client) => {
                if let Some(login) = login {
                    request.headers_mut().insert(PROXY_AUTHORIZATION, login);
                }
                client.request(request).await
            }
            HttpClient::Direct(client) => client.request(request).await,
            HttpClient::Proxied(client) => client.request(request).await,
        };
        answer.map_err(|error| match (RegistryError::of_connection(host, error), proxy) {
            (RegistryError::Reach { host, source }, Some(proxy)) => RegistryError::Proxy { host, proxy, source },
            (error, _) => error,
        })
    }

    fn client(&self, uri: &Uri, authority: Option<&PathBuf>) -> Result<Chosen, RegistryError> {
        let found = self.proxies.intercept(uri);
        let proxy = found.as_ref().and_then(|proxy| {
            // Without the password.
            let (host, port) = (proxy.uri().host()?, proxy.uri().port_u16());
            Some(port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
        });
        let login = found.as_ref().and_then(|proxy| proxy.basic_auth().cloned());
        let is_plain = uri.scheme() == Some(&Scheme::HTTP);
        // The clients have it as well, so no other comes to lie there.
        let machines = (!is_plain).then(authorities::of_machine);
        let authority = authority.filter(|_| !is_plain);
        let way = Way {
            authority: authority.cloned(),
            changed: authority.and_then(|path| std::fs::metadata(path).ok()?.modified().ok()),
            proxy: found.as_ref().map(|proxy| format!("{} {:?}", proxy.uri(), proxy.raw_auth())),
            trust: machines.as_ref().map_or(Trust::Anybody, |roots| Trust::Machine(Arc::as_ptr(roots).addr())),
        };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Known { client, .. }) = clients.get(&way) {
            return Ok(Chosen { client: client.clone(), proxy, login });
        }
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        let client = match (&machines, found) {
            (None, None) => HttpClient::Plain(builder().build(connector)),
            (None, Some(proxy)) => HttpClient::Forwarded(builder().build(Forward::new(proxy.uri().clone(), connector))),
            (Some(machines), found) => {
                let tls = tls(machines, authority)?;
                connector.enforce_http(false);
                let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1();
                match found {
                    None => HttpClient::Direct(builder().build(https.wrap_connector(connector))),
                    Some(proxy) => {
                        let mut tunnel = Tunnel::new(proxy.uri().clone(), connector);
                        if let Some(login) = &login {
                            tunnel = tunnel.with_auth(login.clone());
                        }
                        HttpClient::Proxied(builder().build(https.wrap_connector(tunnel)))
                    }
                }
            }
        };
        // Those who trust an earlier content of the file, or what the machine trusted before, are used no more.
        clients.retain(|other, _| {
            let is_of_file = authority.is_none() || other.authority != way.authority || other.changed == way.changed;
            is_of_file && (is_plain || other.trust == way.trust || other.trust == Trust::Anybody)
        });
        clients.insert(way, Known { client: client.clone(), _machines: machines });
        Ok(Chosen { client, proxy, login })
    }
}

/// A client, with the authorities of the machine that it was made with.
struct Known {
    client: HttpClient,
    _machines: Option<Arc<RootCertStore>>,
}

/// A client for an address.
struct Chosen {
    client: HttpClient,
    /// The host and port of the proxy, if there is one.
    proxy: Option<String>,
    /// What opens the proxy.
    login: Option<HeaderValue>,
}

fn tls(machines: &Arc<RootCertStore>, authority: Option<&PathBuf>) -> Result<ClientConfig, RegistryError> {
    let failed = |problem: String| RegistryError::Tls { problem };
    let mut roots = Arc::clone(machines);
    if let Some(path) = authority {
        let named = |problem: String| failed(format!("{}: {problem}", path.display()));
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| named(error.to_string()))?;
        let mut with = RootCertStore::clone(&roots);
        let before = with.len();
        for certificate in certificates {
            let certificate = certificate.map_err(|error| named(error.to_string()))?;
            with.add(certificate).map_err(|error| named(error.to_string()))?;
        }
        if with.len() == before {
            return Err(named("it has no certificate".to_owned()));
        }
        roots = Arc::new(with);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config.map_err(|error| failed(error.to_string()))?.with_root_certificates(roots).with_no_client_auth())
}

fn builder() -> hyper_util::client::legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_max_idle_per_host(IDLE_MAX);
    builder
}
