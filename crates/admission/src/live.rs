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

    /// Changes the rules from now on.
    pub fn change(&self, change: impl FnOnce(&mut Rules)) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut held));
    }
}
