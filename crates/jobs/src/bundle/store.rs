//! Where stored objects are: names to bytes, each name written once.
//!
//! Invariant: a place never replaces what a name stands for, and of two that create the same name exactly one makes it.
//! Everything else (hashes, order, retries of a shard) is built on these two operations, so that another kind of store
//! needs no more than them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt, ready};

use super::chunk::{ChunkId, STORED_BYTES_MAX};
use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;
use crate::names::{self, LabelError};
use crate::platform::call::CallError;

/// The flag that puts a bundle into a folder; errors name it.
pub const FOLDER_FLAG: &str = "--bundle-dir FOLDER";

/// The results of one task of one job: lower case letters, digits and `-`, at most 63 characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(Arc<str>);

impl RunId {
    /// The run of this name, which has to be a DNS label.
    pub fn new(name: &str) -> Result<Self, LabelError> {
        names::check_label("run", name)?;
        Ok(RunId(name.into()))
    }

    /// One that nobody else has: what a submission gives its job.
    pub fn fresh() -> Result<Self, StoreError> {
        Ok(RunId(random_name()?.into()))
    }

    /// The name, as it stands in the names of stored entries.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An entry in the log of a shard's results.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryName {
    pub run: RunId,
    /// The shard's index in its task.
    pub shard: u32,
    /// Its place in the log, from 0.
    pub number: u32,
}

/// The name of a stored object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// A chunk, by its hash.
    Chunk(ChunkId),
    /// An entry of results, by its place in the log.
    Entry(EntryName),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Chunk(id) => write!(f, "chunk {id}"),
            Name::Entry(EntryName { run, shard, number }) => write!(f, "entry {number} of shard {shard} of {run}"),
        }
    }
}

/// What became of a creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// The name is new.
    New,
    /// The name stood for something already, which stays.
    Existing,
}

/// A place for stored objects. Its text says where it is, for messages.
pub trait Store: Send + Sync + fmt::Debug + fmt::Display {
    /// What the name stands for, at most [`STORED_BYTES_MAX`]; `None` if nothing.
    fn get(&self, name: Name) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// Lets a new name stand for these bytes, durably. Dropping it leaves the name either made whole or not at all.
    fn create(&self, name: Name, bytes: Bytes) -> BoxFuture<'_, Result<Made, StoreError>>;
}

/// Why a place failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file can't be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The disk is full, or the user's part of it.
    #[error("no space is left in {}: free some there, or name another folder by {FOLDER_FLAG}", folder.display())]
    Full {
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The folder was never made one for bundles, or is not mounted here.
    #[error("{} holds no bundles: is the volume mounted here, at the same path as where the job was submitted?", folder.display())]
    NoFolder { folder: PathBuf },
    /// The folder has another format.
    #[error("{} is in format {found:?}, and this program knows {known:?}; use a newer pumice or another folder", folder.display())]
    OtherFormat {
        folder: PathBuf,
        /// What it says of itself.
        found: String,
        /// What it should say.
        known: &'static str,
    },
    /// The folder's file system can't make a file appear whole and only once.
    #[error("the file system of {} has no hard links, without which a result might be recorded twice; name another folder by {FOLDER_FLAG}", folder.display())]
    NoLinks {
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The API did not do it.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It does not belong into API objects.
    #[error(
        "{what}: {found}, and objects in the API are for at most {max}; name a folder that the pods see too by {FOLDER_FLAG}"
    )]
    Bound {
        /// What there is too much of.
        what: &'static str,
        found: u64,
        /// The most.
        max: u64,
    },
    /// Pods can't be given what they need to read it.
    #[error(
        "pods can't be let read and record ConfigMaps in namespace {namespace}, which takes the right to create service accounts, roles and role bindings there; name a folder that pods see by {FOLDER_FLAG}, do without results by --no-results where no rows are to reach them, or ask for that right"
    )]
    Rights {
        namespace: String,
        #[source]
        source: CallError,
    },
    /// A name in the API that is none.
    #[error(transparent)]
    Name(#[from] LabelError),
    /// An object of the API that is not one of ours.
    #[error("ConfigMap {namespace}/{name} is no part of a bundle")]
    Foreign { namespace: String, name: String },
    /// It is in the API, and there is no way there.
    #[error("{address} is in the API, and nothing says how to reach that from here")]
    NoConnection { address: String },
    /// A task of the runtime was stopped.
    #[error("the program is being shut down")]
    Stopped,
}

impl Failure for StoreError {
    fn exit(&self) -> Exit {
        match self {
            StoreError::Call(error) | StoreError::Rights { source: error, .. } => error.exit(),
            _ => Exit::Usage,
        }
    }

    fn remedy(&self) -> Remedy {
        match self {
            StoreError::Call(error) => error.remedy(),
            StoreError::Bound { .. }
            | StoreError::Full { .. }
            | StoreError::NoLinks { .. }
            | StoreError::Rights { .. } => Remedy::Do(format!("jobctl run {FOLDER_FLAG} ...")),
            _ => Remedy::Unknown,
        }
    }
}

/// A name that nobody else has, on no machine: 32 hexadecimal digits.
pub fn random_name() -> Result<String, StoreError> {
    names::random().map_err(|source| StoreError::File { doing: "read", path: names::RANDOM_SOURCE.into(), source })
}

/// A place in this process's memory: for what is on its way to another, for tests, and for back ends that run in one process.
#[derive(Debug)]
pub struct Memory {
    contents: Mutex<Contents>,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Contents {
    objects: BTreeMap<Name, Bytes>,
    /// What was ever created.
    bytes: u64,
}

impl Default for Memory {
    /// One without a bound.
    fn default() -> Self {
        Memory::bounded(u64::MAX)
    }
}

impl Memory {
    /// One for what has to fit into API objects later: at most `bytes_max` of all that is new.
    pub fn bounded(bytes_max: u64) -> Self {
        Memory { contents: Mutex::default(), bytes_max }
    }

    /// Everything in it, by name.
    pub fn objects(&self) -> BTreeMap<Name, Bytes> {
        self.contents().objects.clone()
    }

    /// Lets a name stand for other bytes, or for none: what a careless hand would do.
    pub fn damage(&self, name: Name, bytes: Option<Bytes>) {
        let objects = &mut self.contents().objects;
        match bytes {
            Some(bytes) => objects.insert(name, bytes),
            None => objects.remove(&name),
        };
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory")
    }
}

impl Store for Memory {
    fn get(&self, name: Name) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        ready(Ok(self.contents().objects.get(&name).cloned())).boxed()
    }

    fn create(&self, name: Name, bytes: Bytes) -> BoxFuture<'_, Result<Made, StoreError>> {
        debug_assert!(bytes.len() <= STORED_BYTES_MAX);
        let mut contents = self.contents();
        let found = contents.bytes + bytes.len() as u64;
        let made = match contents.objects.entry(name) {
            std::collections::btree_map::Entry::Occupied(_) => Ok(Made::Existing),
            std::collections::btree_map::Entry::Vacant(_) if found > self.bytes_max => {
                Err(StoreError::Bound { what: "bytes", found, max: self.bytes_max })
            }
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(bytes);
                contents.bytes = found;
                Ok(Made::New)
            }
        };
        ready(made).boxed()
    }
}

/// A place that keeps nothing: to tell the root of what is not to be stored.
#[derive(Debug)]
pub struct NullStore;

impl fmt::Display for NullStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nowhere")
    }
}

impl Store for NullStore {
    fn get(&self, _: Name) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>> {
        ready(Ok(None)).boxed()
    }

    fn create(&self, _: Name, _: Bytes) -> BoxFuture<'_, Result<Made, StoreError>> {
        ready(Ok(Made::New)).boxed()
    }
}
