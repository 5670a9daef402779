//! An OpenID Connect issuer whose tokens are taken: where it is, and its keys, fetched and kept.
//!
//! Invariant: nothing is fetched at a stranger's pace: keys are asked for again when a token names one that is not known, and
//! not before [`AGAIN`] has passed; answers are bounded in size and time, and no redirect is followed. While an issuer is
//! away its keys go on counting.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use pumice_auth::{OidcError, OidcKeys, OidcRules, OidcToken};
use pumice_clock as clock;
use pumice_units::with_causes;
use serde::Deserialize;

use super::Known;
use crate::trust::{TrustError, authorities};

/// Longest time for an answer of the issuer.
const ASK_MAX: Duration = Duration::from_secs(10);
/// Largest answer of it.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Between two questions for keys, however many tokens want one.
const AGAIN: Duration = Duration::from_secs(10);
/// Keys that are older are asked for with the next token: one that the issuer gave up ends here within this time.
const FRESH: Duration = Duration::from_secs(3_600);
/// Where an issuer tells of itself.
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// An issuer as the configuration names it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IssuerSettings {
    /// Its address, as its tokens have it.
    #[serde(alias = "providerUrl")]
    pub issuer: String,
    /// For whom tokens have to be.
    pub client_id: String,
    /// The claim that names the user.
    #[serde(default = "sub")]
    pub username_claim: String,
    /// The claim that names groups.
    #[serde(default = "groups")]
    pub groups_claim: String,
    /// Certificates of the authority that the issuer is known by; those of the system otherwise.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

fn sub() -> String {
    "sub".to_owned()
}

fn groups() -> String {
    "groups".to_owned()
}

/// Why an issuer can't be used.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// Its address is none.
    #[error("{0:?} is no address of an issuer; https://HOST/PATH is wanted, http:// for this machine alone")]
    Address(String),
    /// Nothing is said of whom tokens are for.
    #[error("clientId is empty; it is the audience of tokens that are for this fleet")]
    Audience,
    /// Whom to trust is not known.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// It does not answer.
    #[error("the issuer can't be reached at {0}")]
    Away(String, #[source] hyper_util::client::legacy::Error),
    /// It does not answer in time.
    #[error("no answer of {0} within {seconds} s", seconds = ASK_MAX.as_secs())]
    Timeout(String),
    /// It answers something else.
    #[error("{0} answers with status {1}")]
    Status(String, u16),
    /// What it says is too long or broke off.
    #[error("the answer of {0} broke off, or has more than {ANSWER_BYTES_MAX} bytes")]
    Body(String),
    /// It says nothing that can be read.
    #[error("what {0} says can't be read")]
    Answer(String, #[source] serde_json::Error),
    /// It says that it is another one.
    #[error("the issuer says that it is {0:?}; write it so in the configuration")]
    Other(String),
    /// Its keys are none.
    #[error(transparent)]
    Keys(#[from] OidcError),
}

/// Why a token names nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// It is not right.
    #[error(transparent)]
    Token(#[from] OidcError),
    /// There was never an answer to what its keys are.
    #[error("the issuer of tokens can't be reached, so that none can be checked; try again later")]
    Away,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// An issuer of tokens, with the keys that it had when they were last fetched.
#[derive(Debug)]
pub struct Issuer {
    rules: OidcRules,
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    keys: RwLock<Arc<OidcKeys>>,
    attempt: tokio::sync::Mutex<LastAttempt>,
    /// When keys were last fetched.
    fetched: RwLock<Option<Instant>>,
}

#[derive(Debug, Default)]
struct LastAttempt {
    /// When the issuer was last asked.
    last: Option<Instant>,
}

impl Issuer {
    /// An issuer that was not asked for anything yet.
    ///
    /// # Errors
    /// Settings that can't be used.
    pub fn new(settings: &IssuerSettings) -> Result<Self, IssuerError> {
        if !is_trusted(&settings.issuer) {
            return Err(IssuerError::Address(settings.issuer.clone()));
        }
        if settings.client_id.is_empty() {
            return Err(IssuerError::Audience);
        }
        let tls = authorities(settings.ca_file.as_deref(), settings.issuer.starts_with("https"))?;
        let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        Ok(Self {
            rules: OidcRules {
                issuer: settings.issuer.clone(),
                audience: settings.client_id.clone(),
                username_claim: settings.username_claim.clone(),
                groups_claim: settings.groups_claim.clone(),
            },
            client: Client::builder(TokioExecutor::new()).build(connector.build()),
            keys: RwLock::default(),
            attempt: tokio::sync::Mutex::default(),
            fetched: RwLock::default(),
        })
    }

    /// Asks for its keys, now.
    ///
    /// # Errors
    /// Where it does not say; what was known before goes on counting.
    pub async fn fetch(&self) -> Result<(), IssuerError> {
        let mut attempt = self.attempt.lock().await;
        self.fetch_locked(&mut attempt).await
    }

    async fn fetch_locked(&self, attempt: &mut LastAttempt) -> Result<(), IssuerError> {
        attempt.last = Some(clock::monotonic());
        let address = format!("{}{DISCOVERY}", self.rules.issuer.trim_end_matches('/'));
        let body = self.get(&address).await?;
        let discovery: Discovery =
            serde_json::from_slice(&body).map_err(|error| IssuerError::Answer(address, error))?;
        if discovery.issuer != self.rules.issuer {
            return Err(IssuerError::Other(discovery.issuer.chars().take(200).collect()));
        }
        if !is_trusted(&discovery.jwks_uri) {
            return Err(IssuerError::Address(discovery.jwks_uri.chars().take(200).collect()));
        }
        let keys = OidcKeys::read(&self.get(&discovery.jwks_uri).await?)?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        *self.fetched.write().unwrap_or_else(PoisonError::into_inner) = Some(clock::monotonic());
        Ok(())
    }

    async fn get(&self, address: &str) -> Result<Bytes, IssuerError> {
        let uri: Uri = address.parse().map_err(|_| IssuerError::Address(address.to_owned()))?;
        let asking = async {
            let request = Request::get(uri).header(http::header::ACCEPT, "application/json").body(Empty::new());
            let request = request.map_err(|_| IssuerError::Address(address.to_owned()))?;
            let answer = self.client.request(request).await;
            let answer = answer.map_err(|error| IssuerError::Away(address.to_owned(), error))?;
            if !answer.status().is_success() {
                return Err(IssuerError::Status(address.to_owned(), answer.status().as_u16()));
            }
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok(body.map_err(|_| IssuerError::Body(address.to_owned()))?.to_bytes())
        };
        tokio::time::timeout(ASK_MAX, asking).await.unwrap_or_else(|_| Err(IssuerError::Timeout(address.to_owned())))
    }

    /// Whose a token is. Asks the issuer where the token's key is not known, or keys are old.
    ///
    /// # Errors
    /// Where it is nobody's.
    pub async fn identify(&self, token: &str, now: Timestamp) -> Result<Known, Unknown> {
        let token = OidcToken::read(token)?;
        let mut keys = self.keys();
        let is_known = keys.has_one_for(&token);
        if !is_known || !self.is_fresh() {
            self.refresh(!is_known).await;
            keys = self.keys();
        }
        if keys.is_empty() {
            return Err(Unknown::Away);
        }
        let identity = token.verify(&keys, &self.rules, now)?;
        Ok(Known { name: identity.user, groups: identity.groups.into_iter().collect() })
    }

    /// Asks again, unless somebody just did, or does it now and nobody has to `wait` for that.
    async fn refresh(&self, wait: bool) {
        let mut attempt = match self.attempt.try_lock() {
            Ok(attempt) => attempt,
            Err(_) if wait => self.attempt.lock().await,
            Err(_) => return,
        };
        if attempt.last.is_some_and(|last| last.elapsed() < AGAIN) {
            return;
        }
        if let Err(error) = self.fetch_locked(&mut attempt).await {
            let error = with_causes(&error);
            tracing::warn!(error, issuer = self.rules.issuer, "the issuer's keys could not be fetched");
        }
    }

    fn keys(&self) -> Arc<OidcKeys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_fresh(&self) -> bool {
        let fetched = *self.fetched.read().unwrap_or_else(PoisonError::into_inner);
        fetched.is_some_and(|fetched| fetched.elapsed() < FRESH)
    }
}

/// Encrypted, or on this machine.
fn is_trusted(address: &str) -> bool {
    let Ok(uri) = address.parse::<Uri>() else { return false };
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => true,
        (Some("http"), Some(host)) => matches!(host, "127.0.0.1" | "[::1]" | "localhost"),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
