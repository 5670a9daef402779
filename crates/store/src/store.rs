//! The store's handle: queries from memory, changes through the writer.
//!
//! Invariant: what a query or a watch shows is durable (volatile resources excepted), and a change
//! is visible before its answer is. Cloned freely; used by the API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};

use crate::disk_space::DiskSpace;
use crate::error::ApplyError;
use crate::index::{Index, Listing, ResourceIndex};
use crate::key::Key;
use crate::lock::{DirectoryLock, LockError};
use crate::log::disk::DiskLog;
use crate::log::{Log, LogError, MemoryLog};
use crate::object::{Change, Object};
use crate::options::Options;
use crate::page::{Page, Range};
use crate::shared::{Shared, Stats};
use crate::watch::{Watch, WatchError};
use crate::writer::{self, Request, Start};

/// Name of the store's file in the data directory.
pub(crate) const STORE_FILE: &str = "store.redb";

/// A handle to an open store. Clones share it; the last one to go, or [`Store::close`], ends it.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    options: Arc<Options>,
    uid: Arc<str>,
    file: Option<Arc<Path>>,
}

/// Everything in a store at one moment. Holds the objects as they were, also those that are replaced meanwhile.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Identity of the cluster.
    pub uid: Arc<str>,
    pub revision: u64,
    /// The objects, in no order.
    pub objects: Vec<Arc<Object>>,
}

/// Why a store did not open.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The data directory cannot be made.
    #[error("cannot create data directory {directory}", directory = directory.display())]
    CreateDirectory {
        directory: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The data directory cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The writer's thread did not start.
    #[error("cannot start the store's writer thread")]
    StartWriter {
        #[source]
        source: std::io::Error,
    },
}

impl Store {
    /// Opens the store in `directory`, making both as needed. Blocks while it loads.
    pub fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        std::fs::create_dir_all(directory)
            .map_err(|source| OpenError::CreateDirectory { directory: directory.to_path_buf(), source })?;
        let lock = DirectoryLock::acquire(directory)?;
        let log = DiskLog::file(&directory.join(STORE_FILE))?;
        let store = Self::start(Box::new(log), Some(lock), options)?;
        Ok(Self { file: Some(directory.join(STORE_FILE).into()), ..store })
    }

    /// An empty store that keeps nothing.
    pub fn in_memory(options: Options) -> Result<Self, OpenError> {
        Self::start(Box::new(MemoryLog), None, options)
    }

    /// A store over any log. Blocks while it loads.
    pub fn with_log(log: Box<dyn Log>, options: Options) -> Result<Self, OpenError> {
        Self::start(log, None, options)
    }

    fn start(mut log: Box<dyn Log>, lock: Option<DirectoryLock>, options: Options) -> Result<Self, OpenError> {
        let loaded = log.load()?;
        let options = Arc::new(options);
        let shared = Arc::new(Shared::new(Index::new(loaded.revision, options.clone(), loaded.objects)));
        let (requests, queue) = mpsc::channel(options.queue_depth_max.max(1));
        let start =
            Start { shared: shared.clone(), log, lock, queue, options: options.clone(), revision: loaded.revision };
        writer::spawn(start).map_err(|source| OpenError::StartWriter { source })?;
        Ok(Self { shared, requests, options, uid: loaded.uid.into(), file: None })
    }

    /// Identity of the cluster, made with its store.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The revision of the last visible change.
    pub fn revision(&self) -> u64 {
        self.shared.read().index.revision()
    }

    /// How the writer does.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Size of the store's file in bytes; none of one that is not in a directory.
    pub fn file_bytes(&self) -> Option<u64> {
        self.file.as_ref().and_then(|file| std::fs::metadata(file).ok()).map(|metadata| metadata.len())
    }

    /// Room on the disk that the store grows on; none of one that is not in a directory.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        self.file.as_ref().and_then(|file| DiskSpace::of(file))
    }

    /// How many objects each resource has, in no order.
    pub fn counts(&self) -> Vec<(Arc<str>, usize)> {
        let state = self.shared.read();
        let counted =
            state.index.resources().map(|one| (one.clone(), state.index.resource(one).map_or(0, |s| s.count(None))));
        counted.collect()
    }

    /// The object under `key`.
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        self.shared.read().index.get(key).cloned()
    }

    /// As [`Store::get`], without a key; `namespace` is empty for objects of the cluster.
    pub fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.shared.read().index.resource(resource)?.get(namespace, name).cloned()
    }

    /// All objects of a resource, or of one namespace, as of now. O(objects).
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Listing {
        let state = self.shared.read();
        let index = state.index.resource(resource);
        Listing { revision: state.index.revision(), items: index.map_or_else(Vec::new, |index| index.list(namespace)) }
    }

    /// Everything, as of now. Readers go on meanwhile; the writer waits while the list of objects is copied: O(objects),
    /// some milliseconds for 100,000.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.shared.read();
        Snapshot { uid: self.uid.clone(), revision: state.index.revision(), objects: state.index.all() }
    }

    /// At most `limit` objects of a part of a list. O(limit + events since the moment asked for); expired when the watch
    /// window has moved past that.
    pub fn page(&self, resource: &str, range: Range<'_>, limit: usize) -> Result<Page, WatchError> {
        let state = self.shared.read();
        let current = state.index.revision();
        let revision = range.revision.unwrap_or(current);
        if revision > current {
            return Err(WatchError::Ahead { requested: revision, current });
        }
        let oldest = state.index.floor(resource);
        if revision < oldest {
            return Err(WatchError::Expired { requested: revision, oldest });
        }
        let none = Page { revision, items: Vec::new(), more: false, total: range.after.is_none().then_some(0) };
        Ok(state.index.resource(resource).map_or(none, |index| index.page(range, revision, limit)))
    }

    /// How many objects a resource, or one namespace of it, has.
    pub fn count(&self, resource: &str, namespace: Option<&str>) -> usize {
        self.shared.read().index.resource(resource).map_or(0, |index| index.count(namespace))
    }

    /// When each of these resources was last changed, as revisions: differs whenever one of them has changed. 0 for one
    /// that never had an object. Does not depend on how many objects there are.
    pub fn changed<const N: usize>(&self, resources: [&str; N]) -> [u64; N] {
        let state = self.shared.read();
        resources.map(|resource| state.index.resource(resource).map_or(0, ResourceIndex::changed))
    }

    /// The resources that have objects, sorted.
    pub fn resources(&self) -> Vec<Arc<str>> {
        let mut resources: Vec<_> = self.shared.read().index.resources().cloned().collect();
        resources.sort_unstable();
        resources
    }

    /// Changes of a resource, or of one namespace of it, after `from`; `None` means from now on.
    pub fn watch(&self, resource: &str, namespace: Option<&str>, from: Option<u64>) -> Result<Watch, WatchError> {
        Watch::start(self.shared.clone(), resource, namespace, from)
    }

    /// Makes one change; answers when it is durable and visible. Cancelling the call does not
    /// cancel the change. For a deletion the answer is the object's last state.
    pub async fn apply(&self, change: Change) -> Result<Arc<Object>, ApplyError> {
        let mut objects = self.apply_all(vec![change]).await?;
        objects.pop().ok_or(ApplyError::Closed)
    }

    /// Makes all changes, in order, or none. Each sees the ones before it and gets its own
    /// revision. Answers as [`Store::apply`] does.
    pub async fn apply_all(&self, changes: Vec<Change>) -> Result<Vec<Arc<Object>>, ApplyError> {
        self.check(&changes)?;
        let (answer, answered) = oneshot::channel();
        let request = Request::Apply { changes, answer };
        self.requests.send(request).await.map_err(|_| ApplyError::Closed)?;
        answered.await.map_err(|_| ApplyError::Closed)?
    }

    /// Makes volatile changes durable now.
    pub async fn flush(&self) -> Result<(), ApplyError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Flush { answer }).await.map_err(|_| ApplyError::Closed)?;
        answered.await.map_err(|_| ApplyError::Closed)?
    }

    /// Writes what is left, ends all watches and frees the data directory. Later changes answer
    /// [`ApplyError::Closed`]; queries go on from memory. Closing twice is no error.
    pub async fn close(&self) -> Result<(), ApplyError> {
        let (answer, answered) = oneshot::channel();
        if self.requests.send(Request::Close { answer }).await.is_err() {
            return Ok(());
        }
        answered.await.unwrap_or(Ok(()))
    }

    fn check(&self, changes: &[Change]) -> Result<(), ApplyError> {
        let limit = self.options.batch_changes_max;
        if changes.len() > limit {
            return Err(ApplyError::BatchTooLarge { changes: changes.len(), limit });
        }
        for change in changes {
            change.key().check()?;
            let (bytes, limit) = (change.draft().len_max(), self.options.body_bytes_max);
            if bytes > limit {
                return Err(ApplyError::BodyTooLarge { key: change.key().clone(), bytes, limit });
            }
        }
        Ok(())
    }
}
