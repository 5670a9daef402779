//! How secrets are written into a file: hashed, and slowly where people choose them.
//!
//! Invariant: what was parsed can be verified in bounded time, whatever the file says.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use ring::pbkdf2::{self, PBKDF2_HMAC_SHA256};
use serde::{Deserialize, Serialize};

/// Bytes of a hash.
pub(super) const BYTES: usize = ring::digest::SHA256_OUTPUT_LEN;
/// As OWASP recommends for PBKDF2 with HMAC-SHA256.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(600_000).expect("it is not 0");
/// Fewer are guessed too fast.
pub(super) const ITERATIONS_MIN: u32 = 10_000;
/// With more, a login takes many seconds.
const ITERATIONS_MAX: u32 = 10_000_000;
const SALT_BYTES_MIN: usize = 8;
const SALT_BYTES_MAX: usize = 64;
const PASSWORD_SCHEME: &str = "pbkdf2-sha256";
const PASSWORD_FORM: &str = "pbkdf2-sha256$ITERATIONS$BASE64SALT$BASE64HASH";
const TOKEN_SCHEME: &str = "sha256";
const TOKEN_FORM: &str = "sha256$BASE64HASH";

/// A hash as text, not looked at yet. Kept out of logs: it may be a password that somebody wrote there by mistake.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hashed(String);

impl From<String> for Hashed {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Hashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hashed(..)")
    }
}

/// What is wrong with a hash. Does not repeat it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// It is something else, maybe the secret itself.
    #[error("it has to be a hash, written {0}")]
    Form(&'static str),
    /// Too few, too many, or no number.
    #[error("its iterations have to be a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}")]
    Iterations,
    /// A part is no base64.
    #[error("its {0} has to be base64, with padding")]
    Base64(&'static str),
    /// The salt is too short or too long.
    #[error("its salt has to have {SALT_BYTES_MIN} to {SALT_BYTES_MAX} bytes")]
    SaltLength,
    /// The hash is cut off, or another one.
    #[error("its hash has to have {BYTES} bytes")]
    HashLength,
}

/// The hash of a password, for a file of users. The salt is random, and another one for each. Takes a tenth of a second of
/// a processor or more.
pub fn hash_password(secret: &str, salt: [u8; 16]) -> String {
    hash_slowly(secret, salt, ITERATIONS)
}

/// The hash of a token, for a file of users. Quick, so only for tokens that are random and long.
pub fn hash_token(token: &str) -> String {
    format!("{TOKEN_SCHEME}${}", STANDARD.encode(digest_token(token)))
}

pub(super) fn hash_slowly(secret: &str, salt: [u8; 16], iterations: NonZeroU32) -> String {
    let hash = derive(iterations, &salt, secret.as_bytes());
    format!("{PASSWORD_SCHEME}${iterations}${}${}", STANDARD.encode(salt), STANDARD.encode(hash))
}

pub(super) fn digest_token(token: &str) -> [u8; BYTES] {
    array(digest(&SHA256, token.as_bytes()).as_ref())
}

/// The digest of a token that a text holds.
pub(super) fn parse_token(text: &Hashed) -> Result<[u8; BYTES], HashError> {
    match text.0.split('$').collect::<Vec<_>>()[..] {
        [TOKEN_SCHEME, hash] => parse_hash(hash),
        _ => Err(HashError::Form(TOKEN_FORM)),
    }
}

/// How to tell a password.
pub(super) struct PasswordHash {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    hash: [u8; BYTES],
}

impl PasswordHash {
    pub(super) fn parse(text: &Hashed) -> Result<Self, HashError> {
        let [PASSWORD_SCHEME, iterations, salt, hash] = text.0.split('$').collect::<Vec<_>>()[..] else {
            return Err(HashError::Form(PASSWORD_FORM));
        };
        let iterations = iterations.parse::<NonZeroU32>().map_err(|_| HashError::Iterations)?;
        if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations.get()) {
            return Err(HashError::Iterations);
        }
        let salt = STANDARD.decode(salt).map_err(|_| HashError::Base64("salt"))?;
        if !(SALT_BYTES_MIN..=SALT_BYTES_MAX).contains(&salt.len()) {
            return Err(HashError::SaltLength);
        }
        Ok(Self { iterations, salt, hash: parse_hash(hash)? })
    }

    pub(super) fn iterations(&self) -> u32 {
        self.iterations.get()
    }

    /// Whether the secret is the one. Slow, and as slow where it isn't.
    pub(super) fn is_of(&self, secret: &[u8]) -> bool {
        pbkdf2::verify(PBKDF2_HMAC_SHA256, self.iterations, &self.salt, secret, &self.hash).is_ok()
    }
}

/// Takes as long as to verify a password with so many iterations.
pub(super) fn toil(secret: &[u8], iterations: NonZeroU32) {
    std::hint::black_box(derive(iterations, &[0; SALT_BYTES_MIN], secret));
}

pub(super) fn array(bytes: &[u8]) -> [u8; BYTES] {
    bytes.try_into().expect("SHA-256 gives 32 bytes")
}

fn derive(iterations: NonZeroU32, salt: &[u8], secret: &[u8]) -> [u8; BYTES] {
    let mut hash = [0; BYTES];
    pbkdf2::derive(PBKDF2_HMAC_SHA256, iterations, salt, secret, &mut hash);
    hash
}

fn parse_hash(text: &str) -> Result<[u8; BYTES], HashError> {
    let bytes = STANDARD.decode(text).map_err(|_| HashError::Base64("hash"))?;
    bytes.try_into().map_err(|_| HashError::HashLength)
}
