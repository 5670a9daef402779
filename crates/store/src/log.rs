//! The durable side of the store: what a log keeps and promises.
//!
//! Invariant: after [`Log::append`] answered `Ok` the whole batch survives power loss; after `Err`
//! all of it or nothing may be there, and the next append repairs what matters. Called by the
//! writer thread alone, so a log may block.

pub mod disk;
pub(crate) mod record;
mod upgrade;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use crate::key::Key;
use crate::object::Object;

/// Version of what is written. A store of a newer format is refused.
pub const FORMAT: u64 = 1;

/// An object as the log keeps it.
pub type StoredObject = Object;

/// What a log held when it was opened.
#[derive(Debug)]
pub struct Loaded {
    /// Identity of the cluster, made with the store.
    pub uid: String,
    /// No revision above this one was ever shown to anybody.
    pub revision: u64,
    /// The live objects, in no order.
    pub objects: Vec<StoredObject>,
}

/// Changes that become durable together or not at all.
#[derive(Debug, Default)]
pub struct Append {
    /// The new state of each key; `None` removes it.
    pub writes: BTreeMap<Key, Option<Arc<Object>>>,
    /// What [`Loaded::revision`] shall be from now on.
    pub revision: u64,
}

/// Where the store's changes become durable.
pub trait Log: Send {
    /// Everything in the log. Called once, before the first append.
    fn load(&mut self) -> Result<Loaded, LogError>;
    /// Makes `batch` durable. Usable again after an error.
    fn append(&mut self, batch: &Append) -> Result<(), LogError>;
}

/// Why a log failed.
#[derive(Debug, Error)]
pub enum LogError {
    /// The file is not one of ours, or damaged.
    #[error(
        "{path} is damaged or not a Pumice store ({detail}); move it away and restore a backup, \
         or start with an empty data directory",
        path = path.display()
    )]
    Corrupt { path: PathBuf, detail: String },
    /// The file was written by a newer version.
    #[error(
        "{path} has format {found}, newer than {supported}, the newest that this version reads; \
         use the version that wrote it",
        path = path.display()
    )]
    NewerFormat {
        path: PathBuf,
        found: u64,
        /// The newest format known here.
        supported: u64,
    },
    /// There is no room for the write.
    #[error("no room to write {path}; free disk space", path = path.display())]
    Full {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Reading or writing failed.
    #[error("cannot {operation} {path}; check the disk", path = path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The storage library refused.
    #[error("cannot {operation} {path}", path = path.display())]
    Engine {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: Box<redb::Error>,
    },
}

impl LogError {
    /// Whether room on the disk is what is missing.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// A log that accepts everything and keeps nothing: for tests and throw-away stores.
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
