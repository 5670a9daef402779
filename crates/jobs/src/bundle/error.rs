//! What can be wrong with a bundle and with results.
//!
//! Invariant: an error of stored bytes names the object and the place; one of the caller's input names the bound.

use super::chunk::ChunkId;
use super::store::{Name, StoreError};
use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;

/// Bytes or values that the format does not allow. Pure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It does not begin like one of ours.
    #[error("it is no part of a bundle")]
    Foreign,
    /// It was written by a later version.
    #[error("it is in version {version} of the format and this program reads up to {known}; use a newer pumice")]
    Newer {
        version: u8,
        /// The newest that this program reads.
        known: u8,
    },
    /// It is something else than was expected at this point.
    #[error("it is {found} where {wanted} belongs")]
    Kind { found: &'static str, wanted: &'static str },
    /// It ends in the middle.
    #[error("it ends too early")]
    Cut,
    /// There is more than there should be.
    #[error("it goes on after its end")]
    Trailing,
    /// A number is not written as it should be.
    #[error("a number in it is malformed")]
    Number,
    /// A text is not UTF-8.
    #[error("{what} is not UTF-8")]
    Text { what: &'static str },
    /// A list is not in its order, or names something twice.
    #[error("{what} are not in order, or one stands there twice")]
    Order { what: &'static str },
    /// The parts don't add up to what was announced.
    #[error("{what} don't add up")]
    Sum { what: &'static str },
    /// Its bytes are not those that its name or its last bytes announce.
    #[error("its bytes changed: they don't give its SHA-256")]
    Hash,
    /// More than is allowed.
    #[error("{what}: {found}, and at most {max} are allowed")]
    Limit {
        what: &'static str,
        /// How many, or how many bytes.
        found: u64,
        /// The most.
        max: u64,
    },
}

/// Why a bundle or results can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// What was to be stored is over a bound of the format.
    #[error("{what} can't go into a bundle")]
    Refused {
        /// What was to be stored.
        what: String,
        #[source]
        source: FormatError,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something that must be there is not.
    #[error("{name} is missing in {store}; was it deleted? submit the job again")]
    Missing {
        name: Name,
        /// Where it was looked for.
        store: String,
    },
    /// Something is there and is not what was stored.
    #[error("{name} in {store} is damaged; delete it and submit the job again")]
    Damaged {
        name: Name,
        store: String,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// Written by a later version.
    #[error("{name} in {store} can't be read")]
    Newer {
        name: Name,
        store: String,
        #[source]
        source: FormatError,
    },
    /// There are not so many records.
    #[error("there is no record {record} in bundle {root}: it has {records}, counted from 0")]
    NoRecord {
        /// What was asked for.
        record: u64,
        /// How many there are.
        records: u64,
        root: ChunkId,
    },
    /// No attachment has this name.
    #[error("bundle {root} has no attachment {name:?}")]
    NoAttachment {
        /// What was asked for.
        name: String,
        root: ChunkId,
    },
    /// A result is for a record of another shard.
    #[error("record {record} is none of shard {shard}, which has {first} to {last}")]
    NotInSlice {
        record: u64,
        shard: u32,
        /// Its first record.
        first: u64,
        /// Its last record.
        last: u64,
    },
    /// A shard was recorded so often that something is wrong.
    #[error("shard {shard} of {run} has {entries} entries of results already; look why it is run again and again")]
    TooManyEntries {
        run: String,
        shard: u32,
        /// How many there are.
        entries: u32,
    },
    /// What goes into an attachment can't be read, or what comes out can't be written.
    #[error("cannot copy attachment {name:?}")]
    Copy {
        name: String,
        #[source]
        source: std::io::Error,
    },
}

impl Failure for BundleError {
    fn exit(&self) -> Exit {
        match self {
            BundleError::Store(StoreError::Call(error)) => error.exit(),
            BundleError::Missing { .. } => Exit::NotFound,
            _ => Exit::Usage,
        }
    }

    fn remedy(&self) -> Remedy {
        match self {
            BundleError::Store(error) => error.remedy(),
            _ => Remedy::Unknown,
        }
    }
}

impl BundleError {
    /// An object that was read and is not as it should be.
    pub(super) fn unreadable(name: &Name, store: &dyn super::Store, source: FormatError) -> Self {
        let (name, store) = (name.clone(), store.to_string());
        match source {
            FormatError::Newer { .. } => BundleError::Newer { name, store, source },
            _ => BundleError::Damaged { name, store, source },
        }
    }
}
