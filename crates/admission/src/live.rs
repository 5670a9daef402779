//! Rules that may change while they are applied.
//!
//! Invariant: whoever judges an object does so by one set of rules from beginning to end. The shell sets new ones when their
//! file has changed.

use std::sync::{Arc, PoisonError, RwLock};

use crate::Rules;

/// The rules of now, shared by those who apply and those who set them.
#[derive(Clone, Debug, Default)]
pub struct LiveRules(Arc<RwLock<Arc<Rules>>>);

impl LiveRules {
    /// Begins with these.
    pub fn new(rules: Rules) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(rules))))
    }

    /// The rules of now.
    pub fn get(&self) -> Arc<Rules> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Rules from now on.
    pub fn set(&self, rules: Rules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }
}
