//! Content by its SHA-256.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

/// The prefix of the one algorithm that is taken.
const ALGORITHM: &str = "sha256:";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 64;

/// Why a text is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a digest: sha256: and 64 lowercase hexadecimal digits")]
pub struct DigestError {
    /// What was given, cut to a length that can be shown.
    pub text: String,
}

/// What some content is: the SHA-256 of its bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    /// 64 lowercase digits, so that it is a file's name.
    hex: String,
}

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Its 64 lowercase hexadecimal digits.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Digest, DigestError> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match text.strip_prefix(ALGORITHM) {
            Some(hex) if hex.len() == DIGITS && hex.bytes().all(is_digit) => Ok(Digest { hex: hex.to_owned() }),
            _ => Err(DigestError { text: text.chars().take(100).collect() }),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Digest, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", self.hex)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Makes a digest of content that comes in pieces.
#[derive(Clone)]
pub struct Hasher {
    context: Context,
}

impl Default for Hasher {
    fn default() -> Self {
        Self::new()
    }
}

impl Hasher {
    /// Of no bytes yet.
    pub fn new() -> Hasher {
        Hasher { context: Context::new(&SHA256) }
    }

    /// Adds the bytes that follow.
    pub fn update(&mut self, bytes: &[u8]) {
        self.context.update(bytes);
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Digest {
        let digest = self.context.finish();
        let hex = digest.as_ref().iter().fold(String::with_capacity(DIGITS), |mut hex, byte| {
            for half in [byte >> 4, byte & 15] {
                hex.extend(char::from_digit(u32::from(half), 16));
            }
            hex
        });
        Digest { hex }
    }
}

/// Passes on what it reads and makes a digest of it.
pub struct HashingReader<R> {
    inner: R,
    hasher: Hasher,
    /// Bytes that were read.
    pub read: u64,
}

impl<R: Read> HashingReader<R> {
    /// Over a reader from which nothing was read.
    pub fn new(inner: R) -> HashingReader<R> {
        HashingReader { inner, hasher: Hasher::new(), read: 0 }
    }

    /// The digest of all that was read.
    pub fn finish(self) -> Digest {
        self.hasher.finish()
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        if let Some(bytes) = buffer.get(..count) {
            self.hasher.update(bytes);
        }
        self.read = self.read.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_NOTHING: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn content_has_one_digest_however_it_comes() {
        assert_eq!(Digest::of(b"").to_string(), OF_NOTHING);
        let mut reader = HashingReader::new(&b"abcdef"[..]);
        io::copy(&mut reader, &mut io::sink()).unwrap();
        assert_eq!(reader.read, 6);
        assert_eq!(reader.finish(), Digest::of(b"abcdef"));
    }

    #[test]
    fn what_is_no_digest_is_no_files_name_either() {
        assert_eq!(OF_NOTHING.parse::<Digest>().unwrap().to_string(), OF_NOTHING);
        let upper = OF_NOTHING.to_uppercase();
        let long = format!("{OF_NOTHING}0");
        for text in ["", "sha256:", "sha256:../../etc/passwd", "sha512:00", &upper, &long, &OF_NOTHING[7..], "md5:aa"] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
            assert!(serde_json::from_value::<Digest>(text.into()).is_err(), "{text}");
        }
    }
}
