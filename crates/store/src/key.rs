//! The address of an object: resource, namespace, name.
//!
//! Invariant: the parts of a key that reached the log hold no NUL byte, so its encoded form sorts
//! and splits back without escapes. Made by the API server, encoded by the log.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// Where an object lives.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Resource with its group, as in `pods` or `batch.volcano.sh/jobs`.
    pub resource: Arc<str>,
    /// Namespace; empty for an object of the whole cluster.
    pub namespace: Arc<str>,
    /// Name, unique within resource and namespace.
    pub name: Arc<str>,
}

/// Why a key cannot be stored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Resource or name is empty.
    #[error("key {key} lacks a resource or a name")]
    Empty { key: Key },
    /// A part is longer than the log takes.
    #[error("key of {bytes} bytes is longer than the {limit} bytes allowed")]
    TooLong {
        /// Length of the encoded key.
        bytes: usize,
        limit: usize,
    },
    /// A part holds a NUL byte.
    #[error("key {key} holds a NUL byte")]
    HasNul { key: Key },
}

/// Longest encoded key in bytes: three Kubernetes names and room.
const KEY_BYTES_MAX: usize = 1024;

impl Key {
    /// A key of the given parts; `namespace` is empty for objects of the cluster.
    pub fn new(resource: impl Into<Arc<str>>, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }

    /// Checks that the log can hold this key.
    pub fn check(&self) -> Result<(), KeyError> {
        let bytes = self.resource.len() + self.namespace.len() + self.name.len() + 2;
        if self.resource.is_empty() || self.name.is_empty() {
            return Err(KeyError::Empty { key: self.clone() });
        }
        if bytes > KEY_BYTES_MAX {
            return Err(KeyError::TooLong { bytes, limit: KEY_BYTES_MAX });
        }
        if [&self.resource, &self.namespace, &self.name].iter().any(|part| part.contains('\0')) {
            return Err(KeyError::HasNul { key: self.clone() });
        }
        Ok(())
    }

    /// The bytes under which the log files this key; ordered by resource, namespace, name.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.resource.len() + self.namespace.len() + self.name.len() + 2);
        out.extend_from_slice(self.resource.as_bytes());
        out.push(0);
        out.extend_from_slice(self.namespace.as_bytes());
        out.push(0);
        out.extend_from_slice(self.name.as_bytes());
        out
    }

    /// The key that [`Key::encode`] gave these bytes; `None` when it did not.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut parts = text.split('\0');
        let key = Self::new(parts.next()?, parts.next()?, parts.next()?);
        (parts.next().is_none() && key.check().is_ok()).then_some(key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.resource, self.name)
        } else {
            write!(f, "{}/{}/{}", self.resource, self.namespace, self.name)
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_splits_back_and_sorts_like_the_key() {
        let keys = [
            Key::new("batch.volcano.sh/jobs", "a", "x"),
            Key::new("nodes", "", "n1"),
            Key::new("pods", "a", "b"),
            Key::new("pods", "a-b", "a"),
            Key::new("pods", "ab", ""),
        ];
        for key in &keys[..4] {
            assert_eq!(Key::decode(&key.encode()).as_ref(), Some(key));
        }
        assert!(keys.windows(2).all(|pair| pair[0].encode() < pair[1].encode()));
        assert_eq!(Key::decode(&keys[4].encode()), None);
    }

    #[test]
    fn refuses_what_the_log_cannot_hold() {
        let long = "x".repeat(2000);
        for (key, bad) in [
            (Key::new("", "a", "b"), true),
            (Key::new("pods", "a", ""), true),
            (Key::new("pods", "a\0b", "c"), true),
            (Key::new("pods", "a", long), true),
            (Key::new("pods", "", "c"), false),
        ] {
            assert_eq!(key.check().is_err(), bad, "{key}");
        }
        assert_eq!(Key::decode(b"pods\0a"), None);
        assert_eq!(Key::decode(b"pods\0a\0b\0c"), None);
        assert_eq!(Key::decode(&[0xff, 0, 1]), None);
    }
}
