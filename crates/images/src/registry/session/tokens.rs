//! Who a session is: what a registry asks for, and the tokens that it names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::sleep;

use super::answers::is_passing;
use super::content::{empty, small};
use super::{Right, Session};
use crate::registry::challenge::{Challenge, challenges};
use crate::registry::credentials::Credential;
use crate::registry::error::RegistryError;

/// Largest answer with a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 1 << 20;

impl Session {
    /// Gets what the registry asks for.
    pub(super) async fn authorize(&self, headers: &HeaderMap, what: &str) -> Result<(), RegistryError> {
        let denied = || RegistryError::Denied {
            host: self.host(),
            what: what.to_owned(),
            with_credential: self.credential.is_some(),
            right: self.right.clone(),
            message: String::new(),
        };
        for challenge in challenges(headers) {
            let header = match (challenge, &self.credential) {
                (Challenge::Basic, Some(credential @ Credential::Password { .. })) => basic(credential),
                (Challenge::Bearer { realm, service, .. }, _) => {
                    let token = self.token(&realm, service.as_deref(), what).await?;
                    secret_header(&format!("Bearer {token}"))
                }
                (Challenge::Basic, _) => continue,
            };
            *self.authorization.lock().await = Some(header.ok_or_else(denied)?);
            return Ok(());
        }
        Err(denied())
    }

    /// A token. The right that is asked for is our own choice, whatever the registry proposes.
    async fn token(&self, realm: &str, service: Option<&str>, what: &str) -> Result<String, RegistryError> {
        let not_one = || RegistryError::Realm { host: self.host(), realm: realm.chars().take(200).collect() };
        let uri: Uri = realm.parse().map_err(|_| not_one())?;
        let authority = uri.authority().ok_or_else(not_one)?.to_string();
        let is_own = authority == self.endpoint.address;
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if self.endpoint.plain_http => {}
            _ => return Err(not_one()),
        }
        if self.credential.is_some() && !is_own && !self.endpoint.token_hosts.contains(&authority) {
            return Err(RegistryError::TokenHost { host: self.host(), realm: authority });
        }
        let failed = |problem: String| RegistryError::Token { host: self.host(), realm: authority.clone(), problem };
        let mut failures = 0;
        let answer = loop {
            let pause = self.patience.pause.pause(failures);
            failures += 1;
            let may_try = failures < self.patience.tries;
            match self.ask_for_token(&uri, service).await {
                Ok(answer) if answer.status().is_success() => break answer,
                Ok(answer) if is_passing(answer.status().as_u16()) && may_try => {
                    sleep(self.named_pause(answer.headers()).unwrap_or(pause)).await;
                }
                Err(error) if error.is_passing() && may_try => sleep(pause).await,
                Ok(answer) if matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                    return Err(self.denied(what, answer).await);
                }
                // A redirect as well: it would take the credential along.
                Ok(answer) => return Err(failed(answer.status().to_string())),
                Err(error) => return Err(error),
            }
        };
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let body = self.read(answer, TOKEN_BYTES_MAX, "a token").await?;
        let token: Token = serde_json::from_slice(&body).map_err(|_| failed("with no token".to_owned()))?;
        let given = token.token.or(token.access_token).filter(|token| !token.is_empty());
        given.ok_or_else(|| failed("with no token".to_owned()))
    }

    async fn ask_for_token(&self, uri: &Uri, service: Option<&str>) -> Result<Response<Incoming>, RegistryError> {
        let scopes = self.scopes();
        let joined = scopes.join(" ");
        let mut pairs: Vec<_> = service.map(|service| ("service", service)).into_iter().collect();
        let request = match &self.credential {
            Some(Credential::Identity(token)) => {
                pairs.extend([
                    ("scope", joined.as_str()),
                    ("grant_type", "refresh_token"),
                    ("client_id", "pumice"),
                    ("refresh_token", token),
                ]);
                let kind = "application/x-www-form-urlencoded";
                let request = Request::post(uri).header(CONTENT_TYPE, kind);
                request.body(small(form(&pairs).into()))
            }
            credential => {
                pairs.extend(scopes.iter().map(|scope| ("scope", scope.as_str())));
                let joint = if uri.query().is_some() { '&' } else { '?' };
                let mut request = Request::get(format!("{uri}{joint}{}", form(&pairs)));
                if let Some(header) = credential.as_ref().and_then(basic) {
                    request = request.header(AUTHORIZATION, header);
                }
                request.body(empty())
            }
        };
        let not_one =
            |_| RegistryError::Realm { host: self.host(), realm: uri.to_string().chars().take(200).collect() };
        self.send(request.map_err(not_one)?, None).await
    }

    /// The rights that a token is asked for: one for each repository.
    fn scopes(&self) -> Vec<String> {
        let own = match &self.right {
            Right::Pull => "pull",
            Right::Push { .. } => "pull,push",
        };
        let mut scopes = vec![format!("repository:{}:{own}", self.repository)];
        if let Right::Push { from: Some(from) } = &self.right {
            scopes.push(format!("repository:{from}:pull"));
        }
        scopes
    }
}

fn form(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

fn basic(credential: &Credential) -> Option<HeaderValue> {
    let Credential::Password { user, password } = credential else { return None };
    secret_header(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

/// A header that is left out where headers are shown.
pub(super) fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(text).ok()?;
    header.set_sensitive(true);
    Some(header)
}
