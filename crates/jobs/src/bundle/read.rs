//! A bundle by its root: single records, records in a row, attachments.
//!
//! Invariant: no byte is given out that was not checked against the hash it was asked for by. One record costs the root,
//! which is read once, at most [`LEVELS_MAX`](super::tree::LEVELS_MAX) index nodes, and one leaf.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use futures::stream::try_unfold;

use super::chunk::ChunkId;
use super::error::{BundleError, FormatError};
use super::store::{Name, Store};
use super::tree::{Blob, Child, Root, Value, read_index, read_leaf, read_piece, read_pieces};

/// A record as it was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number, from 0.
    pub number: u64,
    pub key: String,
    pub value: Bytes,
}

/// A bundle that is there.
#[derive(Debug, Clone)]
pub struct Bundle {
    store: Arc<dyn Store>,
    id: ChunkId,
    root: Arc<Root>,
}

impl Bundle {
    /// Opens the bundle whose root has this id. Only the root is read; records are read when they are asked for.
    pub async fn open(store: Arc<dyn Store>, id: ChunkId) -> Result<Self, BundleError> {
        let root = fetch(&*store, id, Root::read).await?;
        Ok(Bundle { store, id, root: Arc::new(root) })
    }

    /// The id of the root, which names the bundle and all that is in it.
    pub fn id(&self) -> ChunkId {
        self.id
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// How many records it has.
    pub fn records(&self) -> u64 {
        self.root.tree.map_or(0, |(top, _)| top.records)
    }

    /// The names of its attachments, in order, and their sizes in bytes.
    pub fn attachments(&self) -> impl Iterator<Item = (&str, u64)> {
        self.root.attachments.iter().map(|(name, blob)| (name.as_str(), blob.length))
    }

    /// Reads one record by its number. [`Bundle::reader`] reads neighbours with fewer requests.
    pub async fn record(&self, number: u64) -> Result<Record, BundleError> {
        self.reader().record(number).await
    }

    /// Records in a row, each leaf read once. Ends after an error; a range that goes beyond the last record gives one.
    pub fn range(&self, numbers: Range<u64>) -> impl Stream<Item = Result<Record, BundleError>> + Send + '_ {
        try_unfold((self.reader(), numbers), async |(mut reader, mut left)| {
            let Some(number) = left.next() else { return Ok(None) };
            Ok(Some((reader.record(number).await?, (reader, left))))
        })
    }

    /// Keys of records, in the order asked for; values that stand apart are not read, and each leaf is read once if they
    /// come in order.
    pub async fn keys(&self, numbers: impl IntoIterator<Item = u64>) -> Result<Vec<String>, BundleError> {
        let mut walk = Walk::default();
        let mut keys = Vec::new();
        for number in numbers {
            keys.push(self.raw(&mut walk, number).await?.0);
        }
        Ok(keys)
    }

    /// Copies an attachment out, piece by piece, and says how many bytes it has. `into` blocks while it is written.
    pub async fn attachment(&self, name: &str, into: &mut (dyn Write + Send)) -> Result<u64, BundleError> {
        let blob = *self
            .root
            .attachments
            .get(name)
            .ok_or_else(|| BundleError::NoAttachment { name: name.to_owned(), root: self.id })?;
        for (id, length) in piece_list(&*self.store, blob).await? {
            let content = fetch(&*self.store, id, |bytes| read_piece(bytes, length)).await?;
            into.write_all(&content).map_err(|source| BundleError::Copy { name: name.to_owned(), source })?;
        }
        Ok(blob.length)
    }

    /// Reads records one by one, each leaf once while they come in order.
    pub fn reader(&self) -> Reader {
        Reader { bundle: self.clone(), walk: Walk::default() }
    }

    /// Key and value of a record. `walk` remembers the way to it for the next one.
    async fn raw(&self, walk: &mut Walk, number: u64) -> Result<(String, Value), BundleError> {
        let no_record = || BundleError::NoRecord { record: number, records: self.records(), root: self.id };
        let (mut here, levels) = self.root.tree.filter(|(top, _)| number < top.records).ok_or_else(no_record)?;
        let mut first = 0;
        for level in (1..=levels).rev() {
            let children = walk.index(&*self.store, here, level).await?;
            // The children's records add up to the node's, so one of them has it.
            for child in children {
                here = *child;
                if number - first < child.records {
                    break;
                }
                first += child.records;
            }
        }
        let leaf = walk.leaf(&*self.store, here).await?;
        let at = usize::try_from(number - first).map_err(|_| no_record())?;
        leaf.get(at).cloned().ok_or_else(no_record)
    }
}

/// Records of a bundle, asked for one by one.
#[derive(Debug)]
pub struct Reader {
    bundle: Bundle,
    walk: Walk,
}

impl Reader {
    /// Reads one record by its number, from the leaf that was read last where it is in that.
    pub async fn record(&mut self, number: u64) -> Result<Record, BundleError> {
        let (key, value) = self.bundle.raw(&mut self.walk, number).await?;
        let value = read_value(&*self.bundle.store, &value).await?;
        Ok(Record { number, key, value })
    }
}

/// The index nodes and the leaf that were read last, so that neighbours are found without reading again.
#[derive(Debug, Default)]
struct Walk {
    /// By level, from 1.
    nodes: Vec<Option<(ChunkId, Vec<Child>)>>,
    leaf: Option<(ChunkId, Vec<(String, Value)>)>,
}

impl Walk {
    async fn index(&mut self, store: &dyn Store, node: Child, level: u8) -> Result<&[Child], BundleError> {
        let at = usize::from(level);
        if self.nodes.len() <= at {
            self.nodes.resize_with(at + 1, || None);
        }
        let kept = self.nodes[at].take().filter(|(id, _)| *id == node.id);
        let kept = match kept {
            Some(kept) => kept,
            None => (node.id, fetch(store, node.id, |bytes| read_index(bytes, level, node.records)).await?),
        };
        Ok(&self.nodes[at].insert(kept).1)
    }

    async fn leaf(&mut self, store: &dyn Store, leaf: Child) -> Result<&[(String, Value)], BundleError> {
        let kept = match self.leaf.take().filter(|(id, _)| *id == leaf.id) {
            Some(kept) => kept,
            None => {
                let records = fetch(store, leaf.id, |bytes| match read_leaf(bytes)? {
                    records if records.len() as u64 == leaf.records => Ok(records),
                    _ => Err(FormatError::Sum { what: "the records of a leaf" }),
                });
                (leaf.id, records.await?)
            }
        };
        Ok(&self.leaf.insert(kept).1)
    }
}

/// A chunk, checked against its id and read.
async fn fetch<T>(
    store: &dyn Store,
    id: ChunkId,
    read: impl FnOnce(&Bytes) -> Result<T, FormatError>,
) -> Result<T, BundleError> {
    let name = Name::Chunk(id);
    let Some(bytes) = store.get(name.clone()).await? else {
        return Err(BundleError::Missing { name, store: store.to_string() });
    };
    let checked = if ChunkId::of(&bytes) == id { read(&bytes) } else { Err(FormatError::Hash) };
    checked.map_err(|source| BundleError::unreadable(&name, store, source))
}

async fn piece_list(store: &dyn Store, blob: Blob) -> Result<Vec<(ChunkId, u64)>, BundleError> {
    if blob.is_piece() {
        return Ok(vec![(blob.id, blob.length)]);
    }
    fetch(store, blob.id, |bytes| read_pieces(bytes, blob.length)).await
}

/// The bytes of a value, wherever they are.
pub(super) async fn read_value(store: &dyn Store, value: &Value) -> Result<Bytes, BundleError> {
    let blob = match value {
        Value::Inline(bytes) => return Ok(bytes.clone()),
        Value::Blob(blob) => *blob,
    };
    let mut whole = BytesMut::new();
    for (id, length) in piece_list(store, blob).await? {
        whole.extend_from_slice(&fetch(store, id, |bytes| read_piece(bytes, length)).await?);
    }
    Ok(whole.freeze())
}
