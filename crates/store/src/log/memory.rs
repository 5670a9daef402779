//! A log that forgets: for tests and throw-away stores.

use crate::log::{Append, Loaded, Log, LogError};

/// Accepts everything and keeps nothing.
#[derive(Debug, Default)]
pub struct MemoryLog;

impl Log for MemoryLog {
    fn load(&mut self) -> Result<Loaded, LogError> {
        Ok(Loaded { uid: uuid::Uuid::now_v7().to_string(), revision: 1, objects: Vec::new() })
    }

    fn append(&mut self, _batch: &Append) -> Result<(), LogError> {
        Ok(())
    }
}
