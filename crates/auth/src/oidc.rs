//! Tokens of an OpenID Connect issuer: who somebody is, as a signed JWT says it.
//!
//! Invariant: nobody is taken for somebody unless a key of the issuer signed it, with an algorithm of a fixed list that fits
//! the key, for this audience and for now; no text panics. Names and groups that this project has a meaning for can't come
//! from an issuer. Pure: whoever calls fetches keys and reads the clock.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use crate::identity::Identity;

/// Longest token that is read at all, in bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Keys that are kept of an issuer.
const KEYS_MAX: usize = 100;
/// Groups that are read of a token.
const GROUPS_MAX: usize = 1_000;
/// Longest name of a user or group, in bytes.
const NAME_BYTES_MAX: usize = 512;
/// How far an issuer's clock may be from ours, in seconds.
const LEEWAY_SECONDS: i64 = 60;
/// What names begin with that mean something here.
const RESERVED: [&str; 2] = ["pumice:", "system:"];

/// What a token has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OidcRules {
    /// Who issues tokens, letter by letter.
    pub issuer: String,
    /// For whom they are.
    pub audience: String,
    /// The claim that has the user's name.
    pub username_claim: String,
    /// The claim that has the user's groups: a text, or a list of texts.
    pub groups_claim: String,
}

/// Why a token is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OidcError {
    /// It is none.
    #[error("the token is no signed token of an issuer")]
    Form,
    /// It is signed in a way that is not taken here, or not at all.
    #[error("the token is signed with {0:?}, which is not taken; RS256, PS256, ES256 and EdDSA are, among others")]
    Algorithm(String),
    /// No key has its name.
    #[error("the issuer has no key that signed the token")]
    Key,
    /// The signature is none.
    #[error("the token was not signed by its issuer")]
    Signature,
    /// Somebody else issued it.
    #[error("the token is of another issuer")]
    Issuer,
    /// It is for somebody else.
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not good yet; are the clocks right?")]
    Early,
    /// It names nobody, or somebody who can't come from an issuer.
    #[error("the claim {0:?} of the token names nobody who can come from an issuer")]
    Name(String),
    /// It has too many groups.
    #[error("the token has more than {GROUPS_MAX} groups")]
    Groups,
    /// The issuer's keys are none.
    #[error("the issuer's keys can't be read")]
    Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }

    fn of_rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Self::Es256 | Self::Es384 | Self::EdDsa => return None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    /// The only algorithm that it is for, if it says one.
    only: Option<Algorithm>,
    public: Public,
}

/// The public keys of an issuer that tokens may be signed with; of other kinds than RSA, P-256, P-384 and Ed25519 none is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OidcKeys(Vec<Key>);

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl OidcKeys {
    /// Reads what an issuer publishes (RFC 7517). Keys of kinds that are not known here are left out.
    ///
    /// # Errors
    /// Where it is no set of keys.
    pub fn read(jwks: &[u8]) -> Result<Self, OidcError> {
        let read: Jwks = serde_json::from_slice(jwks).map_err(|_| OidcError::Keys)?;
        Ok(Self(read.keys.into_iter().filter_map(key).take(KEYS_MAX).collect()))
    }

    /// Whether there is a key that may have signed the token.
    pub fn has_one_for(&self, token: &OidcToken<'_>) -> bool {
        self.for_token(token).next().is_some()
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn for_token<'k>(&'k self, token: &'k OidcToken<'_>) -> impl Iterator<Item = &'k Key> {
        let named = move |key: &&Key| token.key_id.is_none() || key.id == token.key_id;
        self.0.iter().filter(named).filter(|key| key.only.is_none_or(|only| only == token.algorithm))
    }
}

fn key(value: Value) -> Option<Key> {
    let Jwk { kty, kid, usage, alg, crv, n, e, x, y } = serde_json::from_value(value).ok()?;
    if usage.is_some_and(|usage| usage != "sig") {
        return None;
    }
    let only = match alg {
        Some(alg) => Some(Algorithm::parse(&alg)?),
        None => None,
    };
    let bytes = |text: Option<String>| BASE64.decode(text?).ok();
    let point = |length: usize| {
        let (x, y) = (bytes(x.clone())?, bytes(y.clone())?);
        (x.len() == length && y.len() == length).then(|| [vec![4], x, y].concat())
    };
    let public = match (kty.as_str(), crv.as_deref()) {
        ("RSA", _) => Public::Rsa { n: bytes(n)?, e: bytes(e)? },
        ("EC", Some("P-256")) => Public::P256(point(32)?),
        ("EC", Some("P-384")) => Public::P384(point(48)?),
        ("OKP", Some("Ed25519")) => Public::Ed25519(bytes(x)?),
        _ => return None,
    };
    Some(Key { id: kid, only, public })
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// What has to be understood; nothing is.
    crit: Option<Value>,
}

/// A token, read and not believed.
#[derive(Debug)]
pub struct OidcToken<'t> {
    algorithm: Algorithm,
    key_id: Option<String>,
    signed: &'t str,
    signature: Vec<u8>,
    claims: serde_json::Map<String, Value>,
}

impl<'t> OidcToken<'t> {
    /// Whether a text has the form of a token, so that other kinds of secrets are told from it.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    /// Reads a token.
    ///
    /// # Errors
    /// Where it is none, or is signed in a way that is not taken.
    pub fn read(text: &'t str) -> Result<Self, OidcError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(OidcError::Form);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(OidcError::Form)?;
        let (header, claims) = signed.split_once('.').ok_or(OidcError::Form)?;
        let bytes = |part: &str| BASE64.decode(part).map_err(|_| OidcError::Form);
        let header: Header = serde_json::from_slice(&bytes(header)?).map_err(|_| OidcError::Form)?;
        let algorithm = Algorithm::parse(&header.alg).ok_or_else(|| OidcError::Algorithm(short(&header.alg)))?;
        if header.crit.is_some() {
            return Err(OidcError::Form);
        }
        let claims = serde_json::from_slice(&bytes(claims)?).map_err(|_| OidcError::Form)?;
        Ok(Self { algorithm, key_id: header.kid, signed, signature: bytes(signature)?, claims })
    }

    /// Who it is about, if everything about it is right at `now`.
    ///
    /// # Errors
    /// The first thing that is not.
    pub fn verify(&self, keys: &OidcKeys, rules: &OidcRules, now: Timestamp) -> Result<Identity, OidcError> {
        if !keys.has_one_for(self) {
            return Err(OidcError::Key);
        }
        if !keys.for_token(self).any(|key| self.is_signed_by(&key.public)) {
            return Err(OidcError::Signature);
        }
        if self.text("iss") != Some(rules.issuer.as_str()) {
            return Err(OidcError::Issuer);
        }
        let is_for_us = match self.claims.get("aud") {
            Some(Value::String(audience)) => *audience == rules.audience,
            Some(Value::Array(all)) => all.iter().any(|audience| audience.as_str() == Some(&rules.audience)),
            _ => false,
        };
        if !is_for_us {
            return Err(OidcError::Audience);
        }
        let now = now.as_second();
        // One that does not end is none.
        if self.time("exp")?.is_none_or(|ends| ends <= now.saturating_sub(LEEWAY_SECONDS)) {
            return Err(OidcError::Expired);
        }
        for begins in [self.time("nbf")?, self.time("iat")?].into_iter().flatten() {
            if begins > now.saturating_add(LEEWAY_SECONDS) {
                return Err(OidcError::Early);
            }
        }
        let name = self.text(&rules.username_claim).filter(|name| is_name(name));
        let name = name.ok_or_else(|| OidcError::Name(rules.username_claim.clone()))?;
        Ok(Identity::new(name, self.groups(&rules.groups_claim)?))
    }

    fn groups(&self, claim: &str) -> Result<Vec<String>, OidcError> {
        let all: Vec<&str> = match self.claims.get(claim) {
            Some(Value::String(group)) => vec![group],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if all.len() > GROUPS_MAX {
            return Err(OidcError::Groups);
        }
        Ok(all.into_iter().filter(|group| is_name(group)).map(str::to_owned).collect())
    }

    fn is_signed_by(&self, public: &Public) -> bool {
        let message = self.signed.as_bytes();
        let plain = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, &self.signature).is_ok()
        };
        match (public, self.algorithm) {
            (Public::Rsa { n, e }, algorithm) => algorithm.of_rsa().is_some_and(|parameters| {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, &self.signature).is_ok()
            }),
            (Public::P256(point), Algorithm::Es256) => plain(&ECDSA_P256_SHA256_FIXED, point),
            (Public::P384(point), Algorithm::Es384) => plain(&ECDSA_P384_SHA384_FIXED, point),
            (Public::Ed25519(key), Algorithm::EdDsa) => plain(&ED25519, key),
            _ => false,
        }
    }

    fn text(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim).and_then(Value::as_str)
    }

    /// A time in whole seconds; JSON may write it with a fraction.
    #[allow(clippy::cast_possible_truncation, reason = "a float is cut off at the ends")]
    fn time(&self, claim: &str) -> Result<Option<i64>, OidcError> {
        match self.claims.get(claim) {
            None => Ok(None),
            Some(Value::Number(number)) => {
                Ok(Some(number.as_i64().or(number.as_f64().map(|time| time as i64)).ok_or(OidcError::Form)?))
            }
            Some(_) => Err(OidcError::Form),
        }
    }
}

/// Somebody who can come from an issuer.
fn is_name(name: &str) -> bool {
    let is_reserved = RESERVED.iter().any(|reserved| name.starts_with(reserved));
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !is_reserved && !name.contains(char::is_control)
}

fn short(text: &str) -> String {
    text.chars().take(20).collect()
}
