//! One at a time for each name.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Whose turn it is.
#[derive(Default)]
pub(super) struct Turns {
    names: Mutex<HashMap<String, Weak<AsyncMutex<()>>>>,
}

impl Turns {
    /// Waits for those who came before. The turn ends with what is returned.
    pub(super) async fn take(&self, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            match names.get(name).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    names.retain(|_, turn| turn.strong_count() > 0);
                    let turn = Arc::new(AsyncMutex::new(()));
                    names.insert(name.to_owned(), Arc::downgrade(&turn));
                    turn
                }
            }
        };
        turn.lock_owned().await
    }
}
