//! Requests to those who log people in: small answers, bounded in size and time; no redirect is followed.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;

use super::{Authority, LoginError};

/// Longest time for an answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Who may be at the other end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trust<'a> {
    /// Whoever the system's authorities vouch for.
    System,
    /// Whoever this authority vouches for.
    Authority(&'a Authority),
    /// Anybody: only to learn which authority somebody claims to be known by.
    Anybody,
}

/// A way to one server.
pub(super) struct Client {
    client: kube::Client,
    /// Its address, without a path.
    origin: String,
}

pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

impl Client {
    /// A way to the server of this address. Must run inside a Tokio runtime; nothing is sent.
    pub(super) fn new(address: &str, trust: Trust<'_>) -> Result<Self, LoginError> {
        let wrong = || LoginError::Address(super::quoted(address));
        let uri: Uri = address.parse().map_err(|_| wrong())?;
        if !is_private(&uri) {
            return Err(wrong());
        }
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(wrong()) };
        let origin = format!("{scheme}://{authority}");
        let mut config = kube::Config::new(origin.parse().map_err(|_| wrong())?);
        config.connect_timeout = Some(ANSWER_TIMEOUT);
        config.default_retry = false;
        match trust {
            Trust::System => {}
            Trust::Authority(authority) => config.root_cert = Some(authority.certificates().to_vec()),
            Trust::Anybody => config.accept_invalid_certs = true,
        }
        let client = kube::Client::try_from(config)
            .map_err(|source| LoginError::Unreachable { url: origin.clone(), source: Box::new(source) })?;
        Ok(Self { client, origin })
    }

    /// Reads what a path, or an address of the same server, has.
    pub(super) async fn get(&self, address: &str) -> Result<Reply, LoginError> {
        self.send(Method::GET, address, None, Vec::new()).await
    }

    pub(super) async fn post(&self, address: &str, fields: &[(&str, &str)]) -> Result<Reply, LoginError> {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.send(Method::POST, address, None, form.into_bytes()).await
    }

    /// Sends nothing but a token.
    pub(super) async fn post_with_token(&self, address: &str, token: &str) -> Result<Reply, LoginError> {
        self.send(Method::POST, address, Some(token), Vec::new()).await
    }

    async fn send(
        &self,
        method: Method,
        address: &str,
        token: Option<&str>,
        form: Vec<u8>,
    ) -> Result<Reply, LoginError> {
        let path = address.strip_prefix(&self.origin).unwrap_or(address);
        let url = format!("{}{path}", self.origin);
        let wrong = || LoginError::Address(super::quoted(address));
        let mut request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        if !form.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::from(form)).map_err(|_| wrong())?;
        let answering = async {
            let answer = self.client.send(request).await;
            let answer =
                answer.map_err(|source| LoginError::Unreachable { url: url.clone(), source: Box::new(source) })?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let cut = |_| LoginError::Answer {
                url: url.clone(),
                detail: format!("it broke off, or has more than {ANSWER_BYTES_MAX} bytes"),
            };
            Ok(Reply { status, body: body.map_err(cut)?.to_bytes() })
        };
        let timeout = tokio::time::timeout(ANSWER_TIMEOUT, answering).await;
        timeout.unwrap_or_else(|_| Err(LoginError::Timeout { url: url.clone() }))
    }
}

/// Whether what is said to an address is for nobody else: it is encrypted, or stays on this machine.
pub(super) fn is_private(uri: &Uri) -> bool {
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(host)) => !host.is_empty(),
        (Some("http"), Some(host)) => matches!(host, "127.0.0.1" | "[::1]" | "localhost"),
        _ => false,
    }
}
