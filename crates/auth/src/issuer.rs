//! An OpenID Connect issuer whose tokens are taken: where it is, and its keys, fetched and cached.
//!
//! Invariant: nothing is fetched at a stranger's pace: keys are asked for again when a token names one that is not known, and
//! not before [`AGAIN`] has passed; answers are bounded in size and time, and no redirect is followed. While an issuer is
//! away its keys go on counting, and tokens of known keys wait for nobody.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use pumice_clock as clock;
use pumice_units::with_causes;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use tokio_util::task::TaskTracker;

use crate::oidc::{OidcError, OidcKeys, OidcRules, OidcToken, Verified, has_ended, is_reserved};
use crate::trust::{TrustError, authorities};

/// Longest time for an answer of the issuer.
const ASK_MAX: Duration = Duration::from_secs(10);
/// Largest answer of it.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Between two questions for keys, however many tokens want one.
const AGAIN: Duration = Duration::from_secs(10);
/// Keys that are older are asked for with the next token: one that the issuer gave up ends here within this time.
const FRESH: Duration = Duration::from_secs(3_600);
/// Tokens whose signature was found good that are remembered; then it starts over.
const TOKENS_MAX: usize = 4_096;
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
    /// What stands before each user's name here.
    #[serde(default)]
    pub username_prefix: String,
    /// What stands before each group's name here.
    #[serde(default)]
    pub groups_prefix: String,
    /// Whether tokens of logins alone are taken: [`OidcRules::id_tokens_only`].
    #[serde(skip)]
    pub id_tokens_only: bool,
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
    #[error("the client id is empty; it is the audience of tokens that are taken here")]
    Audience,
    /// Names would get a meaning that they can't have from outside.
    #[error("the prefix {0:?} is reserved: names that begin with it belong to the platform; choose another")]
    Prefix(String),
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
    #[error("the issuer says that it is {0:?}; write it so where it is named")]
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

/// An issuer of tokens, with the keys that it had when they were last fetched. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Issuer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: OidcRules,
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    current: RwLock<Current>,
    /// Longest time for an answer.
    timeout: Duration,
    attempt: tokio::sync::Mutex<LastAttempt>,
    refreshing: TaskTracker,
    /// Hashes of tokens whose signature the present keys have made.
    verified: Mutex<HashMap<Vec<u8>, Verified>>,
}

#[derive(Clone, Debug, Default)]
struct Current {
    keys: Arc<OidcKeys>,
    /// When they were fetched.
    fetched: Option<Instant>,
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
        Self::with_timeout(settings, ASK_MAX)
    }

    fn with_timeout(settings: &IssuerSettings, timeout: Duration) -> Result<Self, IssuerError> {
        if !is_trusted(&settings.issuer) {
            return Err(IssuerError::Address(settings.issuer.clone()));
        }
        if settings.client_id.is_empty() {
            return Err(IssuerError::Audience);
        }
        if let Some(prefix) =
            [&settings.username_prefix, &settings.groups_prefix].into_iter().find(|it| is_reserved(it))
        {
            return Err(IssuerError::Prefix(prefix.clone()));
        }
        let tls = authorities(settings.ca_file.as_deref(), settings.issuer.starts_with("https"))?;
        let connector = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        Ok(Self(Arc::new(Shared {
            rules: OidcRules {
                issuer: settings.issuer.clone(),
                audience: settings.client_id.clone(),
                username_claim: settings.username_claim.clone(),
                groups_claim: settings.groups_claim.clone(),
                username_prefix: settings.username_prefix.clone(),
                groups_prefix: settings.groups_prefix.clone(),
                id_tokens_only: settings.id_tokens_only,
            },
            client: Client::builder(TokioExecutor::new()).build(connector.build()),
            current: RwLock::default(),
            timeout,
            attempt: tokio::sync::Mutex::default(),
            refreshing: TaskTracker::new(),
            verified: Mutex::default(),
        })))
    }

    /// Asks for its keys, now.
    ///
    /// # Errors
    /// Where it does not say; what was known before goes on counting.
    pub async fn fetch(&self) -> Result<(), IssuerError> {
        let mut attempt = self.0.attempt.lock().await;
        self.0.fetch(&mut attempt).await
    }

    /// Whose a token is. Asks the issuer where the token's key is not known; where keys are only old, beside it.
    ///
    /// # Errors
    /// Where it is nobody's.
    pub async fn identify(&self, token: &str, now: Timestamp) -> Result<Verified, Unknown> {
        let hash = digest(&SHA256, token.as_bytes()).as_ref().to_vec();
        if self.0.is_fresh()
            && let Some(known) = self.0.remembered(&hash)
        {
            return if has_ended(known.expires.as_second(), now.as_second()) {
                Err(OidcError::Expired.into())
            } else {
                Ok(known)
            };
        }
        let token = OidcToken::read(token)?;
        if !self.0.keys().has_one_for(&token) {
            self.0.refresh().await;
        } else if !self.0.is_fresh() {
            let shared = Arc::clone(&self.0);
            self.0.refreshing.spawn(async move { shared.refresh().await });
        }
        let keys = self.0.keys();
        if keys.is_empty() {
            return Err(Unknown::Away);
        }
        let verified = token.verify(&keys, &self.0.rules, now)?;
        self.0.remember(hash, &keys, &verified);
        Ok(verified)
    }
}

impl Shared {
    async fn fetch(&self, attempt: &mut LastAttempt) -> Result<(), IssuerError> {
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
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Current { keys: Arc::new(keys), fetched: Some(clock::monotonic()) };
        // A key that the issuer gave up vouches for nobody any more.
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).clear();
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
        tokio::time::timeout(self.timeout, asking)
            .await
            .unwrap_or_else(|_| Err(IssuerError::Timeout(address.to_owned())))
    }

    /// Asks again, unless somebody just did; waits for whoever does it now.
    async fn refresh(&self) {
        let mut attempt = self.attempt.lock().await;
        if attempt.last.is_some_and(|last| last.elapsed() < AGAIN) {
            return;
        }
        if let Err(error) = self.fetch(&mut attempt).await {
            let error = with_causes(&error);
            tracing::warn!(error, issuer = self.rules.issuer, "the issuer's keys could not be fetched");
        }
    }

    fn keys(&self) -> Arc<OidcKeys> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).keys)
    }

    fn is_fresh(&self) -> bool {
        let fetched = self.current.read().unwrap_or_else(PoisonError::into_inner).fetched;
        fetched.is_some_and(|fetched| fetched.elapsed() < FRESH)
    }

    fn remembered(&self, hash: &[u8]) -> Option<Verified> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(hash).cloned()
    }

    /// Remembers what `keys` have signed, if they are still the issuer's.
    fn remember(&self, hash: Vec<u8>, keys: &Arc<OidcKeys>, verified: &Verified) {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&current.keys, keys) {
            return;
        }
        let mut all = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= TOKENS_MAX {
            all.clear();
        }
        all.insert(hash, verified.clone());
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
