//! Tokens of service accounts: signed claims about an account, for a time, for an audience.
//!
//! Invariant: a token opens only if this key signed it (ES256), and no text panics. Whether account and pod still exist
//! is not told by a token: the API server looks each time. Pure but for the nonce of a signature; the time is an argument.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::files::{self, FileError};
use crate::identity::{Identity, service_account_user};

/// Who issues tokens, and for whom they are unless they say otherwise.
pub const ISSUER: &str = "https://kubernetes.default.svc";

pub(crate) const KEY_FILE: &str = "service-accounts.key";
/// The key before, whose tokens still count.
pub(crate) const OLD_KEY_FILE: &str = "service-accounts.old.key";
const ALGORITHM: &str = "ES256";
/// Longest token that is read at all, in bytes; ours have about one thousand.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// How far ahead of ours the clock may have been that a token was signed by, in seconds: clocks are set back.
const LEEWAY_SECONDS: i64 = 60;

/// An object by name and identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Named {
    /// Its name, within the account's namespace.
    pub name: String,
    /// Its uid: another object of the same name is another.
    pub uid: String,
}

/// What a token ends with besides its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoundTo {
    Pod(Named),
    Secret(Named),
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Of which namespace the account is.
    pub namespace: String,
    /// Which account it is.
    pub account: Named,
    /// For whom the token is; [`ISSUER`] means the API server.
    pub audiences: Vec<String>,
    /// When it was signed; whole seconds.
    pub issued: Timestamp,
    /// When it ends; whole seconds.
    pub expires: Timestamp,
    pub id: String,
    /// What it ends with.
    pub bound_to: Option<BoundTo>,
}

/// Why a token is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It is no token of this kind.
    #[error("the token is not a signed token of a service account")]
    Form,
    /// Somebody else signed it, or nobody.
    #[error("the token was not signed by this server")]
    Signature,
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYet,
    /// It is for somebody else.
    #[error("the token is for {audiences:?}")]
    Audience {
        /// For whom it is.
        audiences: Vec<String>,
    },
    /// The library of signatures refuses to sign.
    #[error("the token could not be signed")]
    Sign,
}

/// Why there is no key.
#[derive(Debug, Error)]
pub enum TokenKeyError {
    /// Its file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its file holds something else.
    #[error("{path} is damaged ({detail}); restore it, or remove it for a new key: tokens of the old one end")]
    Damaged { path: String, detail: String },
    /// No key could be made.
    #[error("cannot make a key for tokens: {detail}")]
    Make {
        /// What the library says.
        detail: String,
    },
}

/// The key that tokens are signed with. Its private part never leaves its file and this type.
pub struct TokenKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    /// The first part of every token.
    header: String,
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    kid: String,
}

/// Claims as they are written, in upstream's words.
#[derive(Serialize, Deserialize)]
struct Wire {
    aud: Vec<String>,
    exp: i64,
    iat: i64,
    iss: String,
    jti: String,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Kubernetes,
    nbf: i64,
    sub: String,
}

#[derive(Serialize, Deserialize)]
struct Kubernetes {
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pod: Option<Named>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    secret: Option<Named>,
    serviceaccount: Named,
}

impl TokenKey {
    /// The key in `directory`, which exists; made on first use, for its owner's eyes alone.
    pub fn open_or_create(directory: &Path) -> Result<Self, TokenKeyError> {
        if let Some(key) = Self::open_file(&directory.join(KEY_FILE))? {
            return Ok(key);
        }
        let (text, key) = Self::make()?;
        files::write_private(&directory.join(KEY_FILE), text.as_bytes())?;
        Ok(key)
    }

    /// The key in a file, if that is there.
    pub(crate) fn open_file(path: &Path) -> Result<Option<Self>, TokenKeyError> {
        let Some(text) = files::read_text(path)? else { return Ok(None) };
        let damaged = |detail: String| TokenKeyError::Damaged { path: path.display().to_string(), detail };
        let key = KeyPair::from_pem(&text).map_err(|error| damaged(error.to_string()))?;
        Self::of(&key).map(Some).map_err(damaged)
    }

    /// A new key, and its text.
    pub(crate) fn make() -> Result<(String, Self), TokenKeyError> {
        let key = KeyPair::generate().map_err(|error| TokenKeyError::Make { detail: error.to_string() })?;
        let made = Self::of(&key).map_err(|detail| TokenKeyError::Make { detail })?;
        Ok((key.serialize_pem(), made))
    }

    /// A key that is kept nowhere: its tokens end with it.
    pub fn passing() -> Result<Self, TokenKeyError> {
        Ok(Self::make()?.1)
    }

    fn of(key: &KeyPair) -> Result<Self, String> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key.serialize_der(), &random)
            .map_err(|error| error.to_string())?;
        let kid = BASE64.encode(digest(&SHA256, &key.subject_public_key_info()));
        let header =
            serde_json::to_vec(&Header { alg: ALGORITHM.to_owned(), kid }).map_err(|error| error.to_string())?;
        Ok(Self { pair, random, header: BASE64.encode(header) })
    }

    /// The token that says `claims`.
    pub fn sign(&self, claims: &Claims) -> Result<String, TokenError> {
        let body = serde_json::to_vec(&Wire::from(claims)).map_err(|_| TokenError::Sign)?;
        let mut token = format!("{}.{}", self.header, BASE64.encode(body));
        let signature = self.pair.sign(&self.random, token.as_bytes()).map_err(|_| TokenError::Sign)?;
        token.push('.');
        token.push_str(&BASE64.encode(signature));
        Ok(token)
    }

    /// Whether a token says that this key signed it, which only [`Self::open`] makes sure of.
    pub fn has_signed(&self, token: &str) -> bool {
        token.split('.').next() == Some(self.header.as_str())
    }

    /// What `token` says, if this key signed it. Whether it holds is another question: see [`Claims::check`].
    pub fn open(&self, token: &str) -> Result<Claims, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Form);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Form)?;
        let (header, body) = signed.split_once('.').ok_or(TokenError::Form)?;
        let decoded = |part: &str| BASE64.decode(part).map_err(|_| TokenError::Form);
        // Ours begin all alike: no algorithm and no key of the token's own choice counts.
        if header != self.header {
            return Err(match serde_json::from_slice::<Header>(&decoded(header)?) {
                Ok(_) => TokenError::Signature,
                Err(_) => TokenError::Form,
            });
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key())
            .verify(signed.as_bytes(), &decoded(signature)?)
            .map_err(|_| TokenError::Signature)?;
        let wire: Wire = serde_json::from_slice(&decoded(body)?).map_err(|_| TokenError::Form)?;
        Claims::try_from(wire)
    }
}

impl Claims {
    /// Whether the token holds at `now` for one of `audiences`.
    pub fn check(&self, audiences: &[&str], now: Timestamp) -> Result<(), TokenError> {
        if now >= self.expires {
            return Err(TokenError::Expired);
        }
        if self.issued.as_second() > now.as_second().saturating_add(LEEWAY_SECONDS) {
            return Err(TokenError::NotYet);
        }
        if !self.audiences.iter().any(|mine| audiences.contains(&mine.as_str())) {
            return Err(TokenError::Audience { audiences: self.audiences.clone() });
        }
        Ok(())
    }

    /// Who shows the token.
    pub fn identity(&self) -> Identity {
        Identity::service_account(&self.namespace, &self.account.name)
    }
}

impl From<&Claims> for Wire {
    fn from(claims: &Claims) -> Self {
        let (pod, secret) = match &claims.bound_to {
            Some(BoundTo::Pod(pod)) => (Some(pod.clone()), None),
            Some(BoundTo::Secret(secret)) => (None, Some(secret.clone())),
            None => (None, None),
        };
        Self {
            aud: claims.audiences.clone(),
            exp: claims.expires.as_second(),
            iat: claims.issued.as_second(),
            iss: ISSUER.to_owned(),
            jti: claims.id.clone(),
            kubernetes: Kubernetes {
                namespace: claims.namespace.clone(),
                pod,
                secret,
                serviceaccount: claims.account.clone(),
            },
            nbf: claims.issued.as_second(),
            sub: service_account_user(&claims.namespace, &claims.account.name),
        }
    }
}

impl TryFrom<Wire> for Claims {
    type Error = TokenError;

    fn try_from(wire: Wire) -> Result<Self, TokenError> {
        let time = |second: i64| Timestamp::from_second(second).map_err(|_| TokenError::Form);
        let Kubernetes { namespace, pod, secret, serviceaccount: account } = wire.kubernetes;
        if wire.iss != ISSUER || wire.sub != service_account_user(&namespace, &account.name) {
            return Err(TokenError::Form);
        }
        Ok(Self {
            namespace,
            account,
            audiences: wire.aud,
            issued: time(wire.nbf.max(wire.iat))?,
            expires: time(wire.exp)?,
            id: wire.jti,
            bound_to: pod.map(BoundTo::Pod).or(secret.map(BoundTo::Secret)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    fn named(name: &str) -> Named {
        Named { name: name.to_owned(), uid: format!("uid-of-{name}") }
    }

    fn claims() -> Claims {
        Claims {
            namespace: "team".to_owned(),
            account: named("robot"),
            audiences: vec![ISSUER.to_owned()],
            issued: "2026-01-01T00:00:00Z".parse().unwrap(),
            expires: "2026-01-01T01:00:00Z".parse().unwrap(),
            id: "1".to_owned(),
            bound_to: Some(BoundTo::Pod(named("p"))),
        }
    }

    #[test]
    fn what_is_signed_is_read_in_upstreams_words() {
        let key = TokenKey::passing().unwrap();
        for bound_to in [None, Some(BoundTo::Pod(named("p"))), Some(BoundTo::Secret(named("s")))] {
            let claims = Claims { bound_to, ..claims() };
            assert_eq!(key.open(&key.sign(&claims).unwrap()), Ok(claims));
        }
        let token = key.sign(&claims()).unwrap();
        let body = BASE64.decode(token.split('.').nth(1).unwrap()).unwrap();
        let wanted = serde_json::json!({
            "aud": ["https://kubernetes.default.svc"], "exp": 1767229200, "iat": 1767225600, "nbf": 1767225600,
            "iss": "https://kubernetes.default.svc", "jti": "1", "sub": "system:serviceaccount:team:robot",
            "kubernetes.io": {
                "namespace": "team", "pod": {"name": "p", "uid": "uid-of-p"},
                "serviceaccount": {"name": "robot", "uid": "uid-of-robot"},
            },
        });
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&body).unwrap(), wanted);
        let identity = claims().identity();
        assert_eq!(identity.user, "system:serviceaccount:team:robot");
        assert_eq!(identity.groups, ["system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"]);
    }

    #[test]
    fn a_token_holds_for_its_time_and_its_audience() {
        let at = |time: &str| time.parse::<Timestamp>().unwrap();
        let check = |time: &str, audience: &str| claims().check(&[audience], at(time));
        assert_eq!(check("2026-01-01T00:59:59Z", ISSUER), Ok(()));
        assert_eq!(check("2026-01-01T01:00:00Z", ISSUER), Err(TokenError::Expired));
        assert_eq!(check("2025-12-31T23:59:30Z", ISSUER), Ok(()), "a clock that was set back a little");
        assert_eq!(check("2025-12-31T23:58:30Z", ISSUER), Err(TokenError::NotYet));
        assert!(matches!(check("2026-01-01T00:30:00Z", "vault"), Err(TokenError::Audience { .. })));
    }

    #[test]
    fn only_this_keys_signature_counts() {
        let (key, other) = (TokenKey::passing().unwrap(), TokenKey::passing().unwrap());
        let token = key.sign(&claims()).unwrap();
        assert_eq!(other.open(&token), Err(TokenError::Signature));
        let parts: Vec<&str> = token.split('.').collect();
        let none = BASE64.encode(r#"{"alg":"none","kid":""}"#);
        for (forged, error) in [
            (format!("{none}.{}.", parts[1]), TokenError::Signature),
            (format!("{}.{}.", parts[0], parts[1]), TokenError::Signature),
            (format!("{}.{}.{}", parts[0], BASE64.encode("{}"), parts[2]), TokenError::Signature),
            (format!("{}.{}", parts[0], parts[2]), TokenError::Form),
            (format!("{token}."), TokenError::Form),
            (format!("{token}="), TokenError::Form),
            (String::new(), TokenError::Form),
            ("x".repeat(TOKEN_BYTES_MAX + 1), TokenError::Form),
        ] {
            assert!(
                matches!(key.open(&forged), Err(found) if found == error || found == TokenError::Signature),
                "{forged}"
            );
        }
    }

    #[test]
    fn a_restart_keeps_the_key_private() {
        let directory = tempfile::tempdir().unwrap();
        let token = TokenKey::open_or_create(directory.path()).unwrap().sign(&claims()).unwrap();
        assert_eq!(TokenKey::open_or_create(directory.path()).unwrap().open(&token), Ok(claims()));
        let path = directory.path().join(KEY_FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "no key").unwrap();
        let error = TokenKey::open_or_create(directory.path()).err().unwrap().to_string();
        assert!(error.contains("service-accounts.key is damaged"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics_or_opens(text in "\\PC{0,200}", parts in proptest::collection::vec("[A-Za-z0-9_-]{0,60}", 0..5)) {
            let key = TokenKey::passing().unwrap();
            prop_assert!(key.open(&text).is_err());
            prop_assert!(key.open(&parts.join(".")).is_err());
            let ours = format!("{}.{}", key.header, parts.join("."));
            prop_assert!(key.open(&ours).is_err());
        }

        #[test]
        fn no_changed_token_opens(index in 0usize..400, letter in "[A-Za-z0-9_.-]") {
            let key = TokenKey::passing().unwrap();
            let token = key.sign(&claims()).unwrap();
            let mut changed = token.clone();
            let index = index % token.len();
            changed.replace_range(index..=index, &letter);
            prop_assert!(changed == token || key.open(&changed).is_err());
        }
    }
}
