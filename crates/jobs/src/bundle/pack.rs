//! From records and blobs to chunks: what is to be stored, in which order, and the root in the end.
//!
//! Invariant: equal records and attachments give equal chunks, however they arrive; beside the chunks it hands out a
//! packer holds one leaf and the open index nodes. It stores nothing itself. Pure; called by [`super::write`].

use std::collections::BTreeMap;

use super::chunk::{Chunk, ChunkId};
use super::error::FormatError;
use super::tree::{
    ATTACHMENT_NAME_BYTES_MAX, ATTACHMENTS_MAX, BLOB_BYTES_MAX, Blob, Child, INDEX_CHILDREN_MAX, LEVELS_MAX,
    LeafContent, PIECE_BYTES_MAX, RECORDS_MAX, Root, Value, index, piece, pieces,
};
use super::wire::check;

/// Cuts bytes into pieces.
#[derive(Debug, Default)]
pub struct BlobPacker {
    /// Less than a piece.
    open: Vec<u8>,
    ids: Vec<ChunkId>,
    length: u64,
}

impl BlobPacker {
    /// Takes the first of these bytes, as many as a piece still has room for, and says how many these were. A piece that is
    /// full comes back to be stored.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, Option<Chunk>), FormatError> {
        let taken = bytes.len().min(PIECE_BYTES_MAX - self.open.len());
        check("bytes of an attachment", self.length + taken as u64, BLOB_BYTES_MAX)?;
        self.open.extend_from_slice(&bytes[..taken]);
        self.length += taken as u64;
        let full = if self.open.len() == PIECE_BYTES_MAX { Some(self.close()) } else { None };
        Ok((taken, full))
    }

    /// The chunks that are still to be stored, and what the bytes became.
    pub fn finish(mut self) -> (Vec<Chunk>, Blob) {
        let mut rest = Vec::new();
        if !self.open.is_empty() || self.ids.is_empty() {
            rest.push(self.close());
        }
        let id = match self.ids.as_slice() {
            [only] => *only,
            many => {
                let list = pieces(many);
                let id = list.id();
                rest.push(list);
                id
            }
        };
        (rest, Blob { id, length: self.length })
    }

    fn close(&mut self) -> Chunk {
        let chunk = piece(&self.open);
        self.open.clear();
        self.ids.push(chunk.id());
        chunk
    }
}

/// Builds the tree over records as they come.
#[derive(Debug, Default)]
pub struct Packer {
    leaf: LeafContent,
    /// The open node of each level, lowest first: children that wait for their index node.
    levels: Vec<Vec<Child>>,
    records: u64,
    attachments: BTreeMap<String, Blob>,
}

impl Packer {
    /// Appends a record and gives the chunks that are full now.
    pub fn record(&mut self, key: &str, value: &Value) -> Result<Vec<Chunk>, FormatError> {
        let record = LeafContent::of(key, value)?;
        check("records", self.records + 1, RECORDS_MAX)?;
        let mut full = Vec::new();
        if !self.leaf.has_room_for(&record) {
            self.close_leaf(&mut full)?;
        }
        self.leaf.append(&record);
        self.records += 1;
        Ok(full)
    }

    /// Names a blob whose chunks are stored or will be.
    pub fn attach(&mut self, name: &str, blob: Blob) -> Result<(), FormatError> {
        check("bytes of the name of an attachment", name.len() as u64, ATTACHMENT_NAME_BYTES_MAX)?;
        check("attachments", self.attachments.len() as u64 + 1, ATTACHMENTS_MAX)?;
        match self.attachments.insert(name.to_owned(), blob) {
            None => Ok(()),
            Some(_) => Err(FormatError::Order { what: "attachments" }),
        }
    }

    /// How many records there are so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The chunks that are still to be stored. The last is the root.
    pub fn finish(mut self) -> Result<(Vec<Chunk>, ChunkId), FormatError> {
        let mut rest = Vec::new();
        if !self.leaf.is_empty() {
            self.close_leaf(&mut rest)?;
        }
        let mut level = 0;
        let tree = loop {
            let top = usize::from(level) + 1 == self.levels.len();
            match self.levels.get(usize::from(level)).map(Vec::as_slice) {
                None => break None,
                Some([only]) if top => break Some((*only, level)),
                Some([]) => {}
                Some(_) => self.close_index(level, &mut rest)?,
            }
            level += 1;
        };
        let root = Root { tree, attachments: self.attachments }.chunk();
        let id = root.id();
        rest.push(root);
        Ok((rest, id))
    }

    fn close_leaf(&mut self, full: &mut Vec<Chunk>) -> Result<(), FormatError> {
        let records = self.leaf.records;
        let chunk = self.leaf.close();
        let child = Child { id: chunk.id(), records };
        full.push(chunk);
        self.add(0, child, full)
    }

    /// Puts a child under the open node of its level.
    fn add(&mut self, level: u8, child: Child, full: &mut Vec<Chunk>) -> Result<(), FormatError> {
        check("levels of the index", u64::from(level), u64::from(LEVELS_MAX))?;
        let at = usize::from(level);
        if self.levels.len() == at {
            self.levels.push(Vec::new());
        }
        self.levels[at].push(child);
        if self.levels[at].len() == INDEX_CHILDREN_MAX { self.close_index(level, full) } else { Ok(()) }
    }

    fn close_index(&mut self, level: u8, full: &mut Vec<Chunk>) -> Result<(), FormatError> {
        let above = level + 1;
        let children = std::mem::take(&mut self.levels[usize::from(level)]);
        let chunk = index(above, &children);
        let child = Child { id: chunk.id(), records: children.iter().map(|child| child.records).sum() };
        full.push(chunk);
        self.add(above, child, full)
    }
}
