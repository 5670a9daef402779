//! Tokens of an OpenID Connect issuer: who somebody is, as a signed JWT says it.
//!
//! Invariant: nobody is taken for somebody unless a key of the issuer signed it, with an algorithm of a fixed list that fits
//! the key, for this audience and for now; no text panics. Names and groups that this project has a meaning for can't come
//! from an issuer. Pure: whoever calls fetches keys and reads the clock.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
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
    /// What stands before each name of a user here.
    pub username_prefix: String,
    /// What stands before each name of a group here.
    pub groups_prefix: String,
    /// Whether tokens of logins alone are taken (ID tokens), issued to the audience itself: no access tokens, no tokens that
    /// another client got, none that tell of a logout.
    pub id_tokens_only: bool,
}

/// What a right token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub identity: Identity,
    /// When it was issued; the beginning of time where it doesn't say.
    pub issued: Timestamp,
    /// Until when it is good, without the leeway.
    pub expires: Timestamp,
    /// The login that it comes from, as a hash in hexadecimal digits: tokens that follow each other in one session have the same, where the issuer says
    /// which session that is (`sid`, `auth_time`). Otherwise it is of the token alone.
    pub session: String,
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
    /// It was given to somebody else, who may show it to this audience.
    #[error("the token was issued to another client")]
    Party,
    /// It is none of a login.
    #[error("the token is no ID token")]
    Kind,
    /// The issuer does not vouch for the address.
    #[error("the issuer has not verified the user's email address")]
    Email,
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
    typ: Option<String>,
    /// What has to be understood; nothing is.
    crit: Option<Value>,
}

/// A token, read and not believed.
#[derive(Debug)]
pub struct OidcToken<'t> {
    algorithm: Algorithm,
    key_id: Option<String>,
    /// What the token says it is.
    kind: Option<String>,
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
        Ok(Self { algorithm, key_id: header.kid, kind: header.typ, signed, signature: bytes(signature)?, claims })
    }

    /// Who it is about, if everything about it is right at `now`.
    ///
    /// # Errors
    /// The first thing that is not.
    pub fn verify(&self, keys: &OidcKeys, rules: &OidcRules, now: Timestamp) -> Result<Verified, OidcError> {
        if !keys.has_one_for(self) {
            return Err(OidcError::Key);
        }
        if !keys.for_token(self).any(|key| self.is_signed_by(&key.public)) {
            return Err(OidcError::Signature);
        }
        if self.text("iss") != Some(rules.issuer.as_str()) {
            return Err(OidcError::Issuer);
        }
        self.check_audience(rules)?;
        let now = now.as_second();
        // One that does not end is none.
        let expires = self.time("exp")?.ok_or(OidcError::Expired)?;
        if has_ended(expires, now) {
            return Err(OidcError::Expired);
        }
        for begins in [self.time("nbf")?, self.time("iat")?].into_iter().flatten() {
            if begins > now.saturating_add(LEEWAY_SECONDS) {
                return Err(OidcError::Early);
            }
        }
        if rules.username_claim == "email" && self.claims.get("email_verified").is_some_and(|is| is != true) {
            return Err(OidcError::Email);
        }
        let name = self.text(&rules.username_claim).filter(|name| !name.is_empty());
        let name = name.map(|name| format!("{}{name}", rules.username_prefix)).filter(|name| is_name(name));
        let name = name.ok_or_else(|| OidcError::Name(rules.username_claim.clone()))?;
        let identity = Identity::new(name, self.groups(rules)?);
        let time = |seconds: Option<i64>, otherwise| {
            seconds.and_then(|at| Timestamp::from_second(at).ok()).unwrap_or(otherwise)
        };
        let (issued, expires) = (time(self.time("iat")?, Timestamp::MIN), time(Some(expires), Timestamp::MAX));
        Ok(Verified { identity, issued, expires, session: self.session() })
    }

    fn check_audience(&self, rules: &OidcRules) -> Result<(), OidcError> {
        let (is_for_us, others) = match self.claims.get("aud") {
            Some(Value::String(audience)) => (*audience == rules.audience, false),
            Some(Value::Array(all)) => {
                let mine = all.iter().filter(|audience| audience.as_str() == Some(&rules.audience)).count();
                (mine > 0, mine < all.len())
            }
            _ => (false, false),
        };
        if !is_for_us {
            return Err(OidcError::Audience);
        }
        if !rules.id_tokens_only {
            return Ok(());
        }
        let is_jwt = self.kind.as_deref().is_none_or(|kind| kind.eq_ignore_ascii_case("JWT"));
        if !is_jwt || self.claims.contains_key("events") {
            return Err(OidcError::Kind);
        }
        match self.claims.get("azp") {
            None if others => Err(OidcError::Party),
            Some(party) if party.as_str() != Some(&rules.audience) => Err(OidcError::Party),
            _ => Ok(()),
        }
    }

    /// See [`Verified::session`].
    fn session(&self) -> String {
        let claim = |name| self.claims.get(name).filter(|value| value.is_string() || value.is_number());
        let of = match (claim("sid"), claim("auth_time")) {
            (Some(session), _) => format!("sid {session}"),
            (None, Some(time)) => format!("auth_time {time}"),
            (None, None) => format!("token {}", self.signed),
        };
        let text = serde_json::json!([self.text("iss"), self.text("sub"), of]).to_string();
        digest(&SHA256, text.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn groups(&self, rules: &OidcRules) -> Result<Vec<String>, OidcError> {
        let all: Vec<&str> = match self.claims.get(&rules.groups_claim) {
            Some(Value::String(group)) => vec![group],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if all.len() > GROUPS_MAX {
            return Err(OidcError::Groups);
        }
        let named =
            all.into_iter().filter(|group| !group.is_empty()).map(|group| format!("{}{group}", rules.groups_prefix));
        Ok(named.filter(|group| is_name(group)).collect())
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

/// Whether a token that ends then has ended.
pub(crate) fn has_ended(expires: i64, now: i64) -> bool {
    expires <= now.saturating_sub(LEEWAY_SECONDS)
}

/// Whether a name has a meaning of its own here, so that nobody outside can have it.
pub fn is_reserved(name: &str) -> bool {
    RESERVED.iter().any(|reserved| name.starts_with(reserved))
}

/// Somebody who can come from an issuer. Names are compared byte by byte, so one that only looks like another is another; what
/// can't be seen at all is refused, as people could never tell such names apart.
fn is_name(name: &str) -> bool {
    let is_hidden = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !is_reserved(name)
        && name.trim() == name
        && !name.contains(is_hidden)
}

fn short(text: &str) -> String {
    text.chars().take(20).collect()
}
