//! A cache of tokens whose signature was found good, for a pod shows the same one with every request.
//!
//! Invariant: bounded, and holds no token: only its hash. What a token says is checked each time by whoever asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ring::digest::{SHA256, digest};

use crate::tokens::{Claims, TokenError, TokenKey};

/// Most tokens that are remembered; then it starts over.
const TOKENS_MAX: usize = 4096;

/// Tokens of one key that were opened.
#[derive(Default)]
pub struct TokenCache(Mutex<HashMap<Vec<u8>, Arc<Claims>>>);

impl TokenCache {
    /// As [`TokenKey::open`], with less work for a token that was opened before.
    pub fn open(&self, key: &TokenKey, token: &str) -> Result<Arc<Claims>, TokenError> {
        let hash = digest(&SHA256, token.as_bytes()).as_ref().to_vec();
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&hash) {
            return Ok(Arc::clone(known));
        }
        let claims = Arc::new(key.open(token)?);
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.len() >= TOKENS_MAX {
            opened.clear();
        }
        opened.insert(hash, Arc::clone(&claims));
        Ok(claims)
    }
}
