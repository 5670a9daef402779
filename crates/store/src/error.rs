//! Why a change was not made.

use std::sync::Arc;

use thiserror::Error;

use crate::key::{Key, KeyError};
use crate::log::LogError;
use crate::object::Object;

/// Why a change was not made. Nothing of the request has happened, save for [`ApplyError::Write`].
#[derive(Debug, Clone, Error)]
pub enum ApplyError {
    /// Expected none, found this one.
    #[error("{key} already exists", key = .0.key)]
    AlreadyExists(Arc<Object>),
    /// Expected another revision than this one's.
    #[error("{key} is at revision {revision}, not the expected one", key = .0.key, revision = .0.revision)]
    Conflict(Arc<Object>),
    /// Expected one, found none.
    #[error("{0} does not exist")]
    NotFound(Key),
    /// The key cannot be stored.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The body is over the limit.
    #[error("{key} has up to {bytes} bytes, over the limit of {limit}")]
    BodyTooLarge {
        key: Key,
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The batch is over the limit.
    #[error("batch has {changes} changes, over the limit of {limit}")]
    BatchTooLarge {
        /// How many changes it has.
        changes: usize,
        limit: usize,
    },
    /// The disk is full. The change was not made; the store goes on.
    #[error("the disk is full")]
    Full(#[source] Arc<LogError>),
    /// Writing failed. The change is not visible and will be undone unless the process ends first.
    #[error("the change could not be made durable")]
    Write(#[source] Arc<LogError>),
    /// The store has closed.
    #[error("the store is closed")]
    Closed,
}
