//! Records and attachments into a place: what the packer gives is stored while more is packed.
//!
//! Invariant: a few more chunks than `SAVES_MAX` are under way at most. The root is stored last, when all it stands for is there.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;

use super::chunk::{Chunk, ChunkId};
use super::error::{BundleError, FormatError};
use super::pack::{BlobPacker, Packer};
use super::store::{Made, Name, Store};
use super::tree::{INLINE_BYTES_MAX, PIECE_BYTES_MAX, VALUE_BYTES_MAX, Value};
use super::wire::check;

/// Chunks that are being stored at a time.
const SAVES_MAX: usize = 8;

/// What a bundle came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// The name of the whole.
    pub root: ChunkId,
    pub records: u64,
    /// Chunks that it is made of, those counted twice that stand in it twice.
    pub chunks: u64,
    /// Bytes of all chunks.
    pub bytes: u64,
    /// Bytes of the chunks that were in the place before.
    pub reused_bytes: u64,
}

/// Packs records and attachments into one bundle and stores its chunks on the way; `finish` stores the root.
#[derive(Debug)]
pub struct BundleWriter {
    packer: Packer,
    saver: Saver,
}

impl BundleWriter {
    /// Begins a bundle in this place.
    pub fn new(store: Arc<dyn Store>) -> Self {
        BundleWriter { packer: Packer::default(), saver: Saver::new(store) }
    }

    /// Appends a record; the first has number 0. `value` has at most 64 MiB.
    pub async fn record(&mut self, key: &str, value: Bytes) -> Result<(), BundleError> {
        let number = self.packer.records();
        let what = || format!("record {number} ({key:.80})");
        let value = self.saver.value(value).await.map_err(|error| named(error, what()))?;
        let full = self.packer.record(key, &value).map_err(|source| refused(what(), source))?;
        self.saver.save_all(full).await
    }

    /// Reads an attachment to its end; at most 2 GiB. `source` blocks while it is read.
    pub async fn attach(&mut self, name: &str, source: &mut (dyn Read + Send)) -> Result<(), BundleError> {
        let what = || format!("attachment {name:.80}");
        let mut packer = BlobPacker::default();
        let mut buffer = vec![0; PIECE_BYTES_MAX];
        loop {
            let read = match source.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(BundleError::Copy { name: name.to_owned(), source }),
            };
            let mut rest = &buffer[..read];
            while !rest.is_empty() {
                let (taken, full) = packer.take(rest).map_err(|source| refused(what(), source))?;
                rest = &rest[taken..];
                self.saver.save_all(full).await?;
            }
        }
        let (chunks, blob) = packer.finish();
        self.saver.save_all(chunks).await?;
        self.packer.attach(name, blob).map_err(|source| refused(what(), source))
    }

    /// Stores what is left and, when all of it is there, the root.
    pub async fn finish(self) -> Result<Packed, BundleError> {
        let BundleWriter { packer, mut saver } = self;
        let records = packer.records();
        let (mut rest, id) = packer.finish().map_err(|source| refused("the end of it".to_owned(), source))?;
        let root = rest.pop();
        saver.save_all(rest).await?;
        saver.settle().await?;
        saver.save_all(root).await?;
        saver.settle().await?;
        let Saver { chunks, bytes, reused_bytes, .. } = saver;
        Ok(Packed { root: id, records, chunks, bytes, reused_bytes })
    }
}

fn refused(what: String, source: FormatError) -> BundleError {
    BundleError::Refused { what, source }
}

/// The same refusal with a better name.
fn named(error: BundleError, what: String) -> BundleError {
    match error {
        BundleError::Refused { source, .. } => BundleError::Refused { what, source },
        other => other,
    }
}

/// Stores chunks, several at a time.
pub(super) struct Saver {
    store: Arc<dyn Store>,
    under_way: FuturesUnordered<BoxFuture<'static, Result<Stored, NotStored>>>,
    /// What could not be stored and is tried again when all must be there.
    again: Vec<Chunk>,
    chunks: u64,
    bytes: u64,
    reused_bytes: u64,
}

/// A chunk that is in the place now.
struct Stored {
    made: Made,
    bytes: u64,
}

/// A chunk that is not.
struct NotStored {
    chunk: Chunk,
    error: BundleError,
}

impl std::fmt::Debug for Saver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Saver").field("place", &self.store).field("chunks", &self.chunks).finish_non_exhaustive()
    }
}

impl Saver {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Saver { store, under_way: FuturesUnordered::new(), again: Vec::new(), chunks: 0, bytes: 0, reused_bytes: 0 }
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The bytes as they stand in a leaf or an entry: there if they are small, else in chunks of their own.
    pub(super) async fn value(&mut self, bytes: Bytes) -> Result<Value, BundleError> {
        check("bytes of a value", bytes.len() as u64, VALUE_BYTES_MAX)
            .map_err(|source| refused("a value".to_owned(), source))?;
        if bytes.len() <= INLINE_BYTES_MAX {
            return Ok(Value::Inline(bytes));
        }
        let mut packer = BlobPacker::default();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (taken, full) = packer.take(rest).map_err(|source| refused("a value".to_owned(), source))?;
            rest = &rest[taken..];
            self.save_all(full).await?;
        }
        let (chunks, blob) = packer.finish();
        self.save_all(chunks).await?;
        Ok(Value::Blob(blob))
    }

    /// Begins to store them; waits while too many are under way.
    pub(super) async fn save_all(&mut self, chunks: impl IntoIterator<Item = Chunk>) -> Result<(), BundleError> {
        // All of them are begun before any can fail, so that none is forgotten when it goes on after an error.
        for chunk in chunks {
            self.begin(chunk);
        }
        while self.under_way.len() >= SAVES_MAX
            && let Some(stored) = self.under_way.next().await
        {
            self.note(stored)?;
        }
        Ok(())
    }

    /// Waits until all of them are stored, or none is under way any more. May be called again after an error, also one of
    /// [`Saver::save_all`].
    pub(super) async fn settle(&mut self) -> Result<(), BundleError> {
        for chunk in std::mem::take(&mut self.again) {
            self.begin(chunk);
        }
        let mut result = Ok(());
        while let Some(stored) = self.under_way.next().await {
            result = result.and(self.note(stored));
        }
        result
    }

    fn begin(&mut self, chunk: Chunk) {
        let store = Arc::clone(&self.store);
        let stored = async move { put(&*store, &chunk).await.map_err(|error| NotStored { chunk, error }) };
        self.under_way.push(stored.boxed());
    }

    fn note(&mut self, stored: Result<Stored, NotStored>) -> Result<(), BundleError> {
        let Stored { made, bytes } = stored.map_err(|NotStored { chunk, error }| {
            self.again.push(chunk);
            error
        })?;
        self.chunks += 1;
        self.bytes += bytes;
        if made == Made::Existing {
            self.reused_bytes += bytes;
        }
        Ok(())
    }
}

/// Stores one chunk. What is there under its name already must be just that.
async fn put(store: &dyn Store, chunk: &Chunk) -> Result<Stored, BundleError> {
    let name = Name::Chunk(chunk.id());
    let made = store.create(name.clone(), chunk.bytes().clone()).await?;
    if made == Made::Existing {
        let there = store.get(name.clone()).await?;
        // Not there any more: somebody cleans up just now, and a second try would race with that.
        let there = there.ok_or_else(|| BundleError::Missing { name: name.clone(), store: store.to_string() })?;
        if there != chunk.bytes() {
            return Err(BundleError::unreadable(&name, store, FormatError::Hash));
        }
    }
    Ok(Stored { made, bytes: chunk.bytes().len() as u64 })
}
