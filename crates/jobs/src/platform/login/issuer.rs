//! An OpenID Connect issuer as a client sees it: where it is asked, and what its answers mean. What is decided here is pure; what
//! is sent is sent by [`Issuer`].
//!
//! Invariant: tokens are taken only of the issuer that the platform names, over its own address, for this client and this login
//! (`nonce`). Whether they are signed is the platform's to check: it does with each request.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::http::{Client, Reply, Trust, is_private};
use super::{Authority, LoginError, OidcMethod, quoted};

/// Where an issuer tells of itself.
const DISCOVERY: &str = "/.well-known/openid-configuration";
/// How far the issuer's clock may be from ours.
const LEEWAY: SignedDuration = SignedDuration::from_secs(300);
/// How long a token is good that does not say.
const LIFE_DEFAULT: SignedDuration = SignedDuration::from_mins(5);
/// Longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Discovery {
    issuer: String,
    pub(super) authorization_endpoint: String,
    token_endpoint: String,
    pub(super) device_authorization_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    scopes_supported: Option<Vec<String>>,
    /// Whether answers name the issuer (RFC 9207).
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// What an issuer gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    pub id_token: String,
    /// Gets the next one. Without it the login ends with its token.
    pub refresh_token: Option<String>,
    /// When the token was given.
    pub issued: Timestamp,
    /// Until when it is good.
    pub expires: Timestamp,
    /// The issuer's name of the user.
    pub subject: String,
}

/// An issuer whose addresses are known.
pub struct Issuer {
    pub(super) method: OidcMethod,
    pub(super) discovery: Discovery,
    authority: Option<Authority>,
}

#[derive(Deserialize)]
struct Answer {
    id_token: Option<String>,
    refresh_token: Option<String>,
}

/// How an issuer refuses (RFC 6749, 5.2).
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Refusal {
    #[serde(default)]
    pub(super) error: String,
    #[serde(default)]
    error_description: String,
}

impl Refusal {
    /// What is told of it.
    pub(super) fn text(&self) -> String {
        let error = if self.error.is_empty() { "it says not why" } else { &self.error };
        match self.error_description.as_str() {
            "" => quoted(error),
            description => format!("{} ({})", quoted(description), quoted(error)),
        }
    }
}

impl Issuer {
    /// Asks the issuer where it is asked what.
    ///
    /// # Errors
    /// Where it does not say, or says that it is another one.
    pub async fn discover(method: &OidcMethod) -> Result<Self, LoginError> {
        let authority = method.certificate_authority.as_deref().map(Authority::from_pem).transpose()?;
        let address = format!("{}{DISCOVERY}", method.issuer.trim_end_matches('/'));
        let trust = authority.as_ref().map_or(Trust::System, Trust::Authority);
        let Reply { status, body } = Client::new(&method.issuer, trust)?.get(&address).await?;
        if status != 200 {
            return Err(LoginError::Status { url: address, status });
        }
        let discovery = read_discovery(&address, &body, &method.issuer)?;
        Ok(Self { method: method.clone(), discovery, authority })
    }

    fn client(&self, address: &str) -> Result<Client, LoginError> {
        Client::new(address, self.authority.as_ref().map_or(Trust::System, Trust::Authority))
    }

    /// Sends a form to one of the issuer's addresses.
    pub(super) async fn post(&self, address: &str, fields: &[(&str, &str)]) -> Result<Reply, LoginError> {
        self.client(address)?.post(address, fields).await
    }

    /// Asks for tokens. What the issuer refuses is left to whoever asks.
    pub(super) async fn tokens(
        &self,
        fields: &[(&str, &str)],
        nonce: Option<&str>,
        now: impl Fn() -> Timestamp,
    ) -> Result<Result<Tokens, Refusal>, LoginError> {
        let address = &self.discovery.token_endpoint;
        let client_id = [("client_id", self.method.client_id.as_str())];
        let Reply { status, body } = self.post(address, &[&client_id, fields].concat()).await?;
        if status != 200 {
            let refusal: Option<Refusal> = serde_json::from_slice(&body).ok();
            return match refusal {
                Some(refusal) if (400..500).contains(&status) => Ok(Err(refusal)),
                _ => Err(LoginError::Status { url: address.clone(), status }),
            };
        }
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|error| LoginError::Answer { url: address.clone(), detail: error.to_string() })?;
        let id_token = answer.id_token.ok_or(LoginError::Token("there is none in its answer (id_token)"))?;
        let mut tokens = read_token(id_token, &self.method, nonce, now())?;
        tokens.refresh_token = answer.refresh_token;
        Ok(Ok(tokens))
    }

    /// The next tokens. One without a refresh token goes on with the one that was used.
    ///
    /// # Errors
    /// Where there are none; [`LoginError::Refused`] where there never will be.
    pub(super) async fn refresh(&self, refresh_token: &str, now: impl Fn() -> Timestamp) -> Result<Tokens, LoginError> {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        match self.tokens(&fields, None, now).await? {
            Ok(tokens) => {
                Ok(Tokens { refresh_token: tokens.refresh_token.or(Some(refresh_token.to_owned())), ..tokens })
            }
            Err(refusal) => Err(LoginError::Refused(refusal.text())),
        }
    }

    /// Takes a refresh token back (RFC 7009), where the issuer can. Whether it could.
    pub(super) async fn revoke(&self, refresh_token: &str) -> Result<bool, LoginError> {
        let Some(address) = &self.discovery.revocation_endpoint else { return Ok(false) };
        let fields = [
            ("token", refresh_token),
            ("token_type_hint", "refresh_token"),
            ("client_id", self.method.client_id.as_str()),
        ];
        let Reply { status, .. } = self.post(address, &fields).await?;
        if status == 200 { Ok(true) } else { Err(LoginError::Status { url: address.clone(), status }) }
    }

    /// What is asked for: what the platform names, of what the issuer knows.
    pub(super) fn scopes(&self) -> String {
        let known = |scope: &&String| {
            *scope == "openid" || self.discovery.scopes_supported.as_ref().is_none_or(|known| known.contains(*scope))
        };
        let mut scopes: Vec<&str> = self.method.scopes.iter().filter(known).map(String::as_str).collect();
        if !scopes.contains(&"openid") {
            scopes.insert(0, "openid");
        }
        scopes.join(" ")
    }
}

fn read_discovery(address: &str, body: &[u8], issuer: &str) -> Result<Discovery, LoginError> {
    let unusable = |detail: String| LoginError::Answer { url: address.to_owned(), detail };
    let discovery: Discovery = serde_json::from_slice(body).map_err(|error| unusable(error.to_string()))?;
    if discovery.issuer != issuer {
        return Err(LoginError::OtherIssuer { issuer: issuer.to_owned(), named: quoted(&discovery.issuer) });
    }
    let Discovery {
        authorization_endpoint,
        token_endpoint,
        device_authorization_endpoint: device,
        revocation_endpoint: revocation,
        ..
    } = &discovery;
    for endpoint in [authorization_endpoint, token_endpoint].into_iter().chain(device).chain(revocation) {
        if !endpoint.parse().is_ok_and(|uri| is_private(&uri)) {
            return Err(unusable(format!("{:?} is not encrypted", quoted(endpoint))));
        }
    }
    Ok(discovery)
}

/// What an ID token says, if it is for this client and this login.
fn read_token(
    id_token: String,
    method: &OidcMethod,
    nonce: Option<&str>,
    now: Timestamp,
) -> Result<Tokens, LoginError> {
    let wrong = |what| Err(LoginError::Token(what));
    if id_token.len() > TOKEN_BYTES_MAX {
        return wrong("it is too long");
    }
    let claims = id_token.split('.').nth(1).and_then(|part| BASE64.decode(part).ok());
    let Some(claims) = claims.and_then(|bytes| serde_json::from_slice::<Map<String, Value>>(&bytes).ok()) else {
        return wrong("it is no signed token");
    };
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(&method.issuer) {
        return wrong("another issuer signed it");
    }
    let client = Some(method.client_id.as_str());
    let is_ours = match claims.get("aud") {
        Some(Value::String(_)) => text("aud") == client,
        Some(Value::Array(all)) => {
            all.iter().any(|audience| audience.as_str() == client) && (all.len() == 1 || text("azp") == client)
        }
        _ => false,
    };
    if !is_ours || claims.contains_key("azp") && text("azp") != client {
        return wrong("it is for another client");
    }
    // Of a refreshed token it may be missing.
    let is_of_login = match nonce {
        Some(nonce) => text("nonce") == Some(nonce),
        None => true,
    };
    if !is_of_login {
        return wrong("it is of another login (nonce)");
    }
    let time = |name: &str| {
        claims.get(name).and_then(Value::as_f64).and_then(whole).and_then(|at| Timestamp::from_second(at).ok())
    };
    let issued = time("iat").unwrap_or(now);
    let expires = time("exp").unwrap_or_else(|| now.saturating_add(LIFE_DEFAULT).unwrap_or(Timestamp::MAX));
    if expires.saturating_add(LEEWAY).unwrap_or(Timestamp::MAX) <= now {
        return wrong("it has expired; is the clock of this machine right?");
    }
    let subject = text("sub").map(quoted).unwrap_or_default();
    Ok(Tokens { refresh_token: None, issued, expires, subject, id_token })
}

#[allow(clippy::cast_possible_truncation, reason = "a float is cut off at the ends")]
fn whole(time: f64) -> Option<i64> {
    time.is_finite().then_some(time as i64)
}

/// A text that nobody can guess, of letters that addresses take.
pub(super) fn random_text() -> Result<String, LoginError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| LoginError::Random)?;
    Ok(BASE64.encode(bytes))
}

/// What is shown of a verifier before it is (RFC 7636, S256).
pub(super) fn challenge(verifier: &str) -> String {
    BASE64.encode(digest(&SHA256, verifier.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_764_000_000, 0);

    fn method() -> OidcMethod {
        OidcMethod {
            issuer: "https://login.example.com".to_owned(),
            client_id: "pumice".to_owned(),
            scopes: vec!["openid".to_owned(), "offline_access".to_owned(), "groups".to_owned()],
            certificate_authority: None,
        }
    }

    fn read(other: &Value) -> Result<Tokens, String> {
        let mut claims = json!({ "iss": "https://login.example.com", "aud": "pumice", "sub": "ada", "nonce": "n",
            "iat": NOW.as_second(), "exp": NOW.as_second() + 600 });
        claims.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        let token = format!("e30.{}.AA", BASE64.encode(claims.to_string()));
        read_token(token, &method(), Some("n"), NOW).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_is_of_this_issuer_client_and_login() {
        let tokens = read(&json!({})).unwrap();
        assert_eq!((tokens.subject.as_str(), tokens.expires.as_second()), ("ada", NOW.as_second() + 600));
        for (other, twin, word) in [
            (json!({ "iss": "https://login.example.org" }), json!({}), "another issuer"),
            (json!({ "aud": "other" }), json!({ "aud": ["pumice"] }), "another client"),
            (
                json!({ "aud": ["pumice", "other"] }),
                json!({ "aud": ["pumice", "other"], "azp": "pumice" }),
                "another client",
            ),
            (json!({ "azp": "other" }), json!({ "azp": "pumice" }), "another client"),
            (json!({ "nonce": "of before" }), json!({ "nonce": "n" }), "nonce"),
            (json!({ "nonce": null }), json!({ "nonce": "n" }), "nonce"),
            (json!({ "exp": NOW.as_second() - 301 }), json!({ "exp": NOW.as_second() - 299 }), "expired"),
        ] {
            assert!(read(&other).unwrap_err().contains(word), "{other}");
            assert!(read(&twin).is_ok(), "{twin}");
        }
        for text in ["", "a", "a.b.c", "..", "a.e30"] {
            assert!(read_token(text.to_owned(), &method(), None, NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn an_issuer_that_is_another_or_speaks_in_the_open_is_refused() {
        let good = json!({ "issuer": "https://login.example.com", "token_endpoint": "https://t.example.com/token",
            "authorization_endpoint": "https://login.example.com/auth", "scopes_supported": ["openid", "groups"] });
        let read = |other: Value| {
            let mut document = good.clone();
            document.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
            read_discovery("x", document.to_string().as_bytes(), &method().issuer).map_err(|error| error.to_string())
        };
        let discovery = read(json!({})).unwrap();
        let issuer = Issuer { method: method(), discovery, authority: None };
        assert_eq!(issuer.scopes(), "openid groups", "what it does not know is not asked for");
        assert!(read(json!({ "issuer": "https://login.example.com/" })).unwrap_err().contains("says that it is"));
        for name in ["token_endpoint", "authorization_endpoint", "device_authorization_endpoint", "revocation_endpoint"]
        {
            assert!(
                read(json!({ name: "http://login.example.com/x" })).unwrap_err().contains("not encrypted"),
                "{name}"
            );
            assert!(read(json!({ name: "https://login.example.com/x" })).is_ok(), "{name}");
        }
        assert!(read(json!({ "token_endpoint": null })).is_err());
    }

    #[test]
    fn the_challenge_is_that_of_the_standard() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert!(random_text().unwrap() != random_text().unwrap() && random_text().unwrap().len() == 43);
    }

    #[test]
    fn what_an_issuer_says_can_not_change_a_terminal() {
        let refusal = Refusal { error: "access_denied".to_owned(), error_description: "\u{1b}[31mno".to_owned() };
        assert_eq!(refusal.text(), "[31mno (access_denied)");
    }
}
