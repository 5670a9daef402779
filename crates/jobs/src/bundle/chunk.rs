//! A chunk: bytes named by their SHA-256.
//!
//! Invariant: a [`Chunk`] has the id of its bytes. No stored object is larger than [`STORED_BYTES_MAX`], which as base64
//! with its wrapping stays below the megabyte that Kubernetes takes. Pure.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use ring::digest::{SHA256, digest};

use super::error::FormatError;

/// The largest stored object in bytes: 512 KiB of content and its header.
pub const STORED_BYTES_MAX: usize = (512 << 10) + 1024;

/// The SHA-256 of a chunk's bytes; as text 64 lower case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId([u8; ChunkId::LENGTH]);

impl ChunkId {
    /// Bytes of an id.
    pub(super) const LENGTH: usize = 32;

    /// The id of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut id = [0; Self::LENGTH];
        id.copy_from_slice(digest(&SHA256, bytes).as_ref());
        ChunkId(id)
    }

    /// The id as it is stored.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, FormatError> {
        bytes.try_into().map(ChunkId).map_err(|_| FormatError::Cut)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A text that is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id has 64 hexadecimal digits, in lower case")]
pub struct ChunkIdError;

impl FromStr for ChunkId {
    type Err = ChunkIdError;

    fn from_str(text: &str) -> Result<Self, ChunkIdError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(ChunkIdError),
        };
        let mut id = [0; Self::LENGTH];
        if text.len() != 2 * Self::LENGTH {
            return Err(ChunkIdError);
        }
        for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(ChunkId(id))
    }
}

/// Bytes to store and their id.
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk {
    id: ChunkId,
    bytes: Bytes,
}

impl Chunk {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Chunk { id: ChunkId::of(&bytes), bytes: bytes.into() }
    }

    /// The hash of the bytes, under which they are stored.
    pub fn id(&self) -> ChunkId {
        self.id
    }

    /// The bytes as they are stored, with their header.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({}, {} bytes)", self.id, self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_hexadecimal_text() {
        let id = ChunkId::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(id.to_string(), text);
        assert_eq!(text.parse::<ChunkId>().unwrap(), id);
        for wrong in ["", "ba78", &text.to_uppercase(), &format!("{text}0"), &text.replace('b', "g"), &"é".repeat(32)]
        {
            assert!(wrong.parse::<ChunkId>().is_err(), "{wrong}");
        }
    }
}
