//! The keys of tokens while one takes the place of another, and a cache of tokens whose signature was found good, for a pod shows the
//! same one with every request.
//!
//! Invariant: the cache is bounded and holds no token: only its hash. What a token says is checked each time by whoever asks. A key
//! that was dropped opens nothing, nor does what it had opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ring::digest::{SHA256, digest};

use crate::tokens::{Claims, TokenError, TokenKey};

/// Most tokens that are remembered; then it starts over.
const TOKENS_MAX: usize = 4096;

/// The key that signs, the one before it while tokens of that still count, and tokens that were opened.
pub struct TokenKeys {
    keys: RwLock<Keys>,
    opened: Mutex<HashMap<Vec<u8>, Arc<Claims>>>,
}

#[derive(Clone)]
struct Keys {
    signing: Arc<TokenKey>,
    old: Option<Arc<TokenKey>>,
}

impl From<TokenKey> for TokenKeys {
    fn from(signing: TokenKey) -> Self {
        let keys = Keys { signing: Arc::new(signing), old: None };
        Self { keys: RwLock::new(keys), opened: Mutex::default() }
    }
}

impl TokenKeys {
    /// Signs by `signing` from now on, and takes tokens of `old` as well.
    pub fn replace(&self, signing: TokenKey, old: Option<TokenKey>) {
        let keys = Keys { signing: Arc::new(signing), old: old.map(Arc::new) };
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// As [`TokenKey::sign`].
    pub fn sign(&self, claims: &Claims) -> Result<String, TokenError> {
        self.keys().signing.sign(claims)
    }

    /// Whether a token says that one of the keys signed it, which only [`Self::open`] makes sure of.
    pub fn has_signed(&self, token: &str) -> bool {
        let keys = self.keys();
        keys.signing.has_signed(token) || keys.old.is_some_and(|old| old.has_signed(token))
    }

    /// As [`TokenKey::open`], with less work for a token that was opened before.
    pub fn open(&self, token: &str) -> Result<Arc<Claims>, TokenError> {
        let hash = digest(&SHA256, token.as_bytes()).as_ref().to_vec();
        let keys = self.keys();
        if let Some(known) = self.opened.lock().unwrap_or_else(PoisonError::into_inner).get(&hash) {
            return Ok(Arc::clone(known));
        }
        let claims = match (keys.signing.open(token), &keys.old) {
            (Err(TokenError::Signature), Some(old)) => old.open(token)?,
            (opened, _) => opened?,
        };
        let claims = Arc::new(claims);
        let current = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        // A key that was dropped meanwhile must leave nothing behind.
        if Arc::ptr_eq(&current.signing, &keys.signing) {
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            if opened.len() >= TOKENS_MAX {
                opened.clear();
            }
            opened.insert(hash, Arc::clone(&claims));
        }
        Ok(claims)
    }

    fn keys(&self) -> Keys {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{ISSUER, Named};

    #[test]
    fn tokens_of_the_key_before_count_until_it_is_dropped() {
        let claims = Claims {
            namespace: "n".to_owned(),
            account: Named { name: "a".to_owned(), uid: "u".to_owned() },
            audiences: vec![ISSUER.to_owned()],
            issued: "2026-01-01T00:00:00Z".parse().unwrap(),
            expires: "2026-01-01T01:00:00Z".parse().unwrap(),
            id: "1".to_owned(),
            bound_to: None,
        };
        let pem = |key: &str| {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("k"), key).unwrap();
            TokenKey::open_file(&directory.path().join("k")).unwrap().unwrap()
        };
        let (first_text, first) = TokenKey::make().unwrap();
        let keys = TokenKeys::from(first);
        let before = keys.sign(&claims).unwrap();
        assert!(keys.open(&before).is_ok());
        let (second_text, second) = TokenKey::make().unwrap();
        keys.replace(second, Some(pem(&first_text)));
        let after = keys.sign(&claims).unwrap();
        assert!(keys.open(&before).is_ok() && keys.open(&after).is_ok());
        keys.replace(pem(&second_text), None);
        assert_eq!(keys.open(&before).err(), Some(TokenError::Signature), "though it was opened before");
        assert!(keys.open(&after).is_ok());
    }
}
