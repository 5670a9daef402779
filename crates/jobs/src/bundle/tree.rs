//! The objects a bundle is made of, to bytes and back: pieces, lists of pieces, leaves, index nodes, roots.
//!
//! Invariant: each value has one spelling, so that equal content has equal ids; what is read back was within the bounds.
//! The spelling is docs/bundles.md, held by goldens. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::chunk::{Chunk, ChunkId};
use super::error::FormatError;
use super::wire::{Cursor, Kind, begin, check, put_bytes, put_number};

/// Most content bytes of one piece of a blob.
pub const PIECE_BYTES_MAX: usize = 512 << 10;
/// A value up to this size stands in its leaf; a larger one becomes a blob.
pub const INLINE_BYTES_MAX: usize = 32 << 10;
/// Most content bytes of a leaf: what a shard reads to get at one record.
pub const LEAF_BYTES_MAX: usize = 128 << 10;
/// Most records of a leaf.
pub const LEAF_RECORDS_MAX: u64 = 4096;
/// Most children of an index node.
pub const INDEX_CHILDREN_MAX: usize = 1024;
/// Most levels of index nodes: 2³⁰ leaves.
pub const LEVELS_MAX: u8 = 3;
/// Most records of a bundle.
pub const RECORDS_MAX: u64 = 1 << 32;
/// Longest key of a record in bytes.
pub const KEY_BYTES_MAX: u64 = 256;
/// Largest value of a record, and largest result, in bytes.
pub const VALUE_BYTES_MAX: u64 = 64 << 20;
/// Largest attachment in bytes.
pub const BLOB_BYTES_MAX: u64 = 2 << 30;
/// Most attachments of a bundle.
pub const ATTACHMENTS_MAX: u64 = 64;
/// Longest name of an attachment in bytes.
pub const ATTACHMENT_NAME_BYTES_MAX: u64 = 128;

/// Bytes of any length, cut into pieces. A blob of one piece is that piece; a longer one is a list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blob {
    /// The piece, or the list.
    pub id: ChunkId,
    /// Bytes in all.
    pub length: u64,
}

/// Where the bytes of a record or of a result are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Here; at most [`INLINE_BYTES_MAX`].
    Inline(Bytes),
    /// In chunks of their own.
    Blob(Blob),
}

impl Value {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Value::Inline(bytes) => {
                out.push(0);
                put_bytes(out, bytes);
            }
            Value::Blob(blob) => {
                out.push(1);
                blob.write(out);
            }
        }
    }

    pub(super) fn read(cursor: &mut Cursor) -> Result<Self, FormatError> {
        match cursor.byte()? {
            0 => cursor.bytes("bytes of a value in its leaf", INLINE_BYTES_MAX as u64).map(Value::Inline),
            1 => Blob::read(cursor, VALUE_BYTES_MAX).map(Value::Blob),
            _ => Err(FormatError::Number),
        }
    }

    /// Refuses what [`Value::read`] would refuse.
    pub(super) fn check(&self) -> Result<(), FormatError> {
        match self {
            Value::Inline(bytes) => check("bytes of a value in its leaf", bytes.len() as u64, INLINE_BYTES_MAX as u64),
            Value::Blob(blob) => check("bytes of a value", blob.length, VALUE_BYTES_MAX),
        }
    }
}

impl Blob {
    /// Whether its id is that of its only piece.
    pub(super) fn is_piece(&self) -> bool {
        self.length <= PIECE_BYTES_MAX as u64
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.id.as_bytes());
        put_number(out, self.length);
    }

    fn read(cursor: &mut Cursor, max: u64) -> Result<Self, FormatError> {
        Ok(Blob { id: read_id(cursor)?, length: cursor.count("bytes of a blob", max)? })
    }
}

fn read_id(cursor: &mut Cursor) -> Result<ChunkId, FormatError> {
    ChunkId::from_bytes(&cursor.take(ChunkId::LENGTH)?)
}

/// A piece of a blob as a chunk.
pub(super) fn piece(content: &[u8]) -> Chunk {
    let mut out = begin(Kind::Piece);
    out.extend_from_slice(content);
    Chunk::new(out)
}

/// The content of a piece that must have this length.
pub(super) fn read_piece(bytes: &Bytes, length: u64) -> Result<Bytes, FormatError> {
    let content = Cursor::open(bytes, Kind::Piece)?.rest();
    if content.len() as u64 == length { Ok(content) } else { Err(FormatError::Sum { what: "the bytes of a piece" }) }
}

/// The list of a blob's pieces as a chunk.
pub(super) fn pieces(ids: &[ChunkId]) -> Chunk {
    let mut out = begin(Kind::Pieces);
    for id in ids {
        out.extend_from_slice(id.as_bytes());
    }
    Chunk::new(out)
}

/// The pieces of a blob of this length, in order, with the length of each.
pub(super) fn read_pieces(bytes: &Bytes, length: u64) -> Result<Vec<(ChunkId, u64)>, FormatError> {
    let mut cursor = Cursor::open(bytes, Kind::Pieces)?;
    let mut list = Vec::new();
    let mut left = length;
    while left > 0 {
        let here = left.min(PIECE_BYTES_MAX as u64);
        list.push((read_id(&mut cursor)?, here));
        left -= here;
    }
    cursor.end()?;
    Ok(list)
}

/// Records in a row, being gathered.
#[derive(Debug, Default)]
pub(super) struct LeafContent {
    content: Vec<u8>,
    pub(super) records: u64,
}

impl LeafContent {
    /// A record alone, to see how large it is.
    pub(super) fn of(key: &str, value: &Value) -> Result<Self, FormatError> {
        check("bytes of a key", key.len() as u64, KEY_BYTES_MAX)?;
        value.check()?;
        let mut content = Vec::new();
        put_bytes(&mut content, key.as_bytes());
        value.write(&mut content);
        Ok(LeafContent { content, records: 1 })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Whether `other` still has room behind this.
    pub(super) fn has_room_for(&self, other: &Self) -> bool {
        self.content.len() + other.content.len() <= LEAF_BYTES_MAX && self.records + other.records <= LEAF_RECORDS_MAX
    }

    pub(super) fn append(&mut self, other: &Self) {
        self.content.extend_from_slice(&other.content);
        self.records += other.records;
    }

    /// The leaf as a chunk; this is empty then.
    pub(super) fn close(&mut self) -> Chunk {
        let mut out = begin(Kind::Leaf);
        put_number(&mut out, self.records);
        out.extend_from_slice(&self.content);
        self.content.clear();
        self.records = 0;
        Chunk::new(out)
    }
}

/// The records of a leaf, in order.
pub(super) fn read_leaf(bytes: &Bytes) -> Result<Vec<(String, Value)>, FormatError> {
    let mut cursor = Cursor::open(bytes, Kind::Leaf)?;
    let count = cursor.count("records of a leaf", LEAF_RECORDS_MAX)?;
    let records = (0..count).map(|_| Ok((cursor.text("a key", KEY_BYTES_MAX)?, Value::read(&mut cursor)?)));
    let records = records.collect::<Result<_, FormatError>>()?;
    cursor.end()?;
    Ok(records)
}

/// A leaf or an index node, and how many records it has below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) id: ChunkId,
    pub(super) records: u64,
}

/// An index node as a chunk. `level` is 1 above leaves.
pub(super) fn index(level: u8, children: &[Child]) -> Chunk {
    let mut out = begin(Kind::Index);
    out.push(level);
    put_number(&mut out, children.len() as u64);
    for child in children {
        out.extend_from_slice(child.id.as_bytes());
        put_number(&mut out, child.records);
    }
    Chunk::new(out)
}

/// The children of an index node that must be of this level and have so many records below it.
pub(super) fn read_index(bytes: &Bytes, level: u8, records: u64) -> Result<Vec<Child>, FormatError> {
    let mut cursor = Cursor::open(bytes, Kind::Index)?;
    if cursor.byte()? != level {
        return Err(FormatError::Sum { what: "the levels of the index" });
    }
    let count = cursor.count("children of an index node", INDEX_CHILDREN_MAX as u64)?;
    let mut sum = 0;
    let mut children = Vec::new();
    for _ in 0..count {
        let child = Child { id: read_id(&mut cursor)?, records: cursor.count("records", RECORDS_MAX)? };
        sum += child.records;
        children.push(child);
    }
    cursor.end()?;
    if sum == records { Ok(children) } else { Err(FormatError::Sum { what: "the records of an index node" }) }
}

/// The whole bundle: what its id stands for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Root {
    /// The top of the tree and the levels of index nodes in it; `None` without records.
    pub(super) tree: Option<(Child, u8)>,
    /// By name.
    pub(super) attachments: BTreeMap<String, Blob>,
}

impl Root {
    pub(super) fn chunk(&self) -> Chunk {
        let mut out = begin(Kind::Root);
        put_number(&mut out, self.tree.map_or(0, |(top, _)| top.records));
        if let Some((top, levels)) = self.tree {
            out.push(levels);
            out.extend_from_slice(top.id.as_bytes());
        }
        put_number(&mut out, self.attachments.len() as u64);
        for (name, blob) in &self.attachments {
            put_bytes(&mut out, name.as_bytes());
            blob.write(&mut out);
        }
        Chunk::new(out)
    }

    pub(super) fn read(bytes: &Bytes) -> Result<Self, FormatError> {
        let mut cursor = Cursor::open(bytes, Kind::Root)?;
        let tree = match cursor.count("records", RECORDS_MAX)? {
            0 => None,
            records => {
                let levels = cursor.byte()?;
                check("levels of the index", u64::from(levels), u64::from(LEVELS_MAX))?;
                Some((Child { id: read_id(&mut cursor)?, records }, levels))
            }
        };
        let count = cursor.count("attachments", ATTACHMENTS_MAX)?;
        let mut attachments = BTreeMap::new();
        for _ in 0..count {
            let name = cursor.text("the name of an attachment", ATTACHMENT_NAME_BYTES_MAX)?;
            let blob = Blob::read(&mut cursor, BLOB_BYTES_MAX)?;
            if attachments.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(FormatError::Order { what: "attachments" });
            }
            attachments.insert(name, blob);
        }
        cursor.end()?;
        Ok(Root { tree, attachments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(records: u64) -> Child {
        Child { id: ChunkId::of(&records.to_le_bytes()), records }
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        let leaf = |count: u64, content: &[u8]| {
            let mut out = begin(Kind::Leaf);
            put_number(&mut out, count);
            out.extend_from_slice(content);
            read_leaf(&out.into()).unwrap_err()
        };
        assert_eq!(leaf(1, b""), FormatError::Cut);
        assert_eq!(leaf(0, b"x"), FormatError::Trailing);
        assert_eq!(leaf(1, b"\x01\xff\x00\x00"), FormatError::Text { what: "a key" });
        assert_eq!(leaf(1, b"\x01k\x02"), FormatError::Number);
        assert!(matches!(leaf(LEAF_RECORDS_MAX + 1, b""), FormatError::Limit { .. }));
        assert!(matches!(leaf(1, b"\x81\x02"), FormatError::Limit { max: KEY_BYTES_MAX, .. }));

        let node = index(1, &[child(3), child(4)]);
        assert_eq!(read_index(node.bytes(), 1, 7).unwrap(), [child(3), child(4)]);
        assert!(matches!(read_index(node.bytes(), 2, 7), Err(FormatError::Sum { .. })));
        assert!(matches!(read_index(node.bytes(), 1, 8), Err(FormatError::Sum { .. })));

        let list = pieces(&[ChunkId::of(b"a"), ChunkId::of(b"b")]);
        let max = PIECE_BYTES_MAX as u64;
        let lengths = read_pieces(list.bytes(), max + 1).unwrap().into_iter().map(|(_, length)| length);
        assert_eq!(lengths.collect::<Vec<_>>(), [max, 1]);
        assert_eq!(read_pieces(list.bytes(), 2 * max + 1), Err(FormatError::Cut));
        assert_eq!(read_pieces(list.bytes(), max), Err(FormatError::Trailing));
        assert!(read_piece(piece(b"abc").bytes(), 4).is_err());
    }

    #[test]
    fn roots_name_each_attachment_once() {
        let blob = Blob { id: ChunkId::of(b"a"), length: 1 };
        let root = Root {
            tree: Some((child(5), 1)),
            attachments: BTreeMap::from([("a".to_owned(), blob), ("b".to_owned(), blob)]),
        };
        let mut bytes = root.chunk().bytes().to_vec();
        assert_eq!(Root::read(&bytes.clone().into()).unwrap(), root);
        let b = bytes.iter().rposition(|byte| *byte == b'b').unwrap();
        bytes[b] = b'a';
        assert_eq!(Root::read(&bytes.into()), Err(FormatError::Order { what: "attachments" }));
        assert_eq!(Root::read(Root::default().chunk().bytes()).unwrap(), Root::default());
    }
}
