//! Connections to registries: TLS with the machine's authorities and those of the settings, through a proxy where the
//! environment names one.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response, Uri};
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

/// Wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Connections to one host that wait for a next call.
const IDLE_MAX: usize = 4;

/// What is sent: nothing, something small, or a file piece by piece.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Opens connections, and has them used again.
pub(crate) struct Transport {
    proxies: Matcher,
    clients: Mutex<HashMap<Way, HttpClient>>,
    machines: OnceLock<Arc<RootCertStore>>,
}

/// What tells clients apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Way {
    authority: Option<PathBuf>,
    /// When the authority's file was last changed.
    changed: Option<SystemTime>,
    proxy: Option<String>,
}

#[derive(Clone)]
enum HttpClient {
    Direct(Client<HttpsConnector<HttpConnector>, Body>),
    Proxied(Client<HttpsConnector<Tunnel<HttpConnector>>, Body>),
}

impl Transport {
    /// With the proxies that it says.
    pub(crate) fn new(proxies: Matcher) -> Transport {
        Transport { proxies, clients: Mutex::default(), machines: OnceLock::new() }
    }

    /// Sends a request, and waits for the head of the answer.
    pub(crate) async fn send(
        &self,
        host: &str,
        authority: Option<&PathBuf>,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, RegistryError> {
        let (client, proxy) = self.client(request.uri(), authority)?;
        let answer = match client {
            HttpClient::Direct(client) => client.request(request).await,
            HttpClient::Proxied(client) => client.request(request).await,
        };
        answer.map_err(|error| match (RegistryError::of_connection(host, error), proxy) {
            (RegistryError::Reach { host, source }, Some(proxy)) => RegistryError::Proxy { host, proxy, source },
            (error, _) => error,
        })
    }

    /// With the host and port of the proxy, if there is one.
    fn client(&self, uri: &Uri, authority: Option<&PathBuf>) -> Result<(HttpClient, Option<String>), RegistryError> {
        let proxy = self.proxies.intercept(uri);
        let shown = proxy.as_ref().and_then(|proxy| {
            // Without the password.
            let (host, port) = (proxy.uri().host()?, proxy.uri().port_u16());
            Some(port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
        });
        let way = Way {
            authority: authority.cloned(),
            changed: authority.and_then(|path| std::fs::metadata(path).ok()?.modified().ok()),
            proxy: proxy.as_ref().map(|proxy| format!("{} {:?}", proxy.uri(), proxy.raw_auth())),
        };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&way) {
            return Ok((client.clone(), shown));
        }
        let tls = self.tls(authority)?;
        // Those who trust an earlier content of the file are used no more.
        clients
            .retain(|other, _| authority.is_none() || other.authority != way.authority || other.changed == way.changed);
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let client = match proxy {
            None => HttpClient::Direct(builder().build(https.wrap_connector(connector))),
            Some(proxy) => {
                let mut tunnel = Tunnel::new(proxy.uri().clone(), connector);
                if let Some(auth) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(auth.clone());
                }
                HttpClient::Proxied(builder().build(https.wrap_connector(tunnel)))
            }
        };
        clients.insert(way, client.clone());
        Ok((client, shown))
    }

    fn tls(&self, authority: Option<&PathBuf>) -> Result<ClientConfig, RegistryError> {
        let failed = |problem: String| RegistryError::Tls { problem };
        let machines = self.machines.get_or_init(|| {
            let mut roots = RootCertStore::empty();
            // A machine without authorities reaches those that the settings name.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            Arc::new(roots)
        });
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
}

fn builder() -> hyper_util::client::legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_max_idle_per_host(IDLE_MAX);
    builder
}
