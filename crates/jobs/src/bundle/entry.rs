//! Results: what came of records, as an entry in the log of their shard, and what the log says in the end.
//!
//! Invariant: read in order, a record's first success stands and nothing after it counts; before that the last failure
//! stands. An entry ends with the hash of all before, since its name does not tell what it holds. Pure.

use bytes::Bytes;

use super::chunk::ChunkId;
use super::error::FormatError;
use super::tree::{INLINE_BYTES_MAX, KEY_BYTES_MAX, RECORDS_MAX, Value};
use super::wire::{Cursor, Kind, begin, check, put_bytes, put_number};

/// Most results of one entry.
pub const OUTCOMES_MAX: u64 = 4096;
/// From so many bytes on an entry takes no more results.
pub const ENTRY_BYTES_FULL: usize = 256 << 10;
/// Most entries of a shard: an end for whoever reads a log that somebody else fills.
pub const ENTRIES_MAX: u32 = 1 << 20;

// The last result that an entry takes fits whatever it is, so no entry is larger than a chunk may be.
const _: () = assert!(ENTRY_BYTES_FULL + INLINE_BYTES_MAX + 1024 < super::chunk::STORED_BYTES_MAX);

/// Whether a record was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It was; this is final.
    Succeeded = 0,
    /// It was tried and failed; another attempt may succeed.
    Failed = 1,
}

/// What came of a record. `V` is what there is of its bytes: their place in an entry, the bytes, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<V = Bytes> {
    /// The record's number.
    pub record: u64,
    /// Its stable name.
    pub key: String,
    /// The attempt that tells this, from 1.
    pub attempt: u32,
    /// How it went.
    pub status: Status,
    /// What the program gave: a result, or what explains the failure.
    pub value: V,
}

impl<V> Outcome<V> {
    /// The same with other bytes.
    pub(super) fn with<W>(self, value: W) -> Outcome<W> {
        let Outcome { record, key, attempt, status, value: _ } = self;
        Outcome { record, key, attempt, status, value }
    }

    /// Whether something later may stand instead of this.
    pub(super) fn is_open(&self) -> bool {
        self.status == Status::Failed
    }
}

impl Outcome<Value> {
    /// Refuses what can't be read back.
    pub(super) fn check(&self) -> Result<(), FormatError> {
        check("record", self.record, RECORDS_MAX)?;
        check("bytes of a key", self.key.len() as u64, KEY_BYTES_MAX)?;
        self.value.check()
    }

    /// About how many bytes it takes in an entry.
    pub(super) fn weight(&self) -> usize {
        let value = match &self.value {
            Value::Inline(bytes) => bytes.len(),
            Value::Blob(_) => ChunkId::LENGTH,
        };
        self.key.len() + value + 32
    }
}

/// An entry as it is stored.
pub(super) fn write<'o>(shard: u32, outcomes: impl ExactSizeIterator<Item = &'o Outcome<Value>>) -> Bytes {
    let mut out = begin(Kind::Entry);
    put_number(&mut out, u64::from(shard));
    put_number(&mut out, outcomes.len() as u64);
    for outcome in outcomes {
        put_number(&mut out, outcome.record);
        put_number(&mut out, u64::from(outcome.attempt));
        out.push(outcome.status as u8);
        put_bytes(&mut out, outcome.key.as_bytes());
        outcome.value.write(&mut out);
    }
    let sum = ChunkId::of(&out);
    out.extend_from_slice(sum.as_bytes());
    out.into()
}

/// The results of an entry that must be of this shard.
pub(super) fn read(bytes: &Bytes, shard: u32) -> Result<Vec<Outcome<Value>>, FormatError> {
    let body = bytes.len().checked_sub(ChunkId::LENGTH).ok_or(FormatError::Cut)?;
    let (body, sum) = (bytes.slice(..body), &bytes[body..]);
    let mut cursor = Cursor::open(&body, Kind::Entry)?;
    if ChunkId::of(&body).as_bytes() != sum {
        return Err(FormatError::Hash);
    }
    if cursor.number()? != u64::from(shard) {
        return Err(FormatError::Sum { what: "the shards of an entry and of its name" });
    }
    let count = cursor.count("results of an entry", OUTCOMES_MAX)?;
    let mut outcomes = Vec::new();
    for _ in 0..count {
        let record = cursor.count("record", RECORDS_MAX)?;
        let attempt = u32::try_from(cursor.number()?).map_err(|_| FormatError::Number)?;
        let status = match cursor.byte()? {
            0 => Status::Succeeded,
            1 => Status::Failed,
            _ => return Err(FormatError::Number),
        };
        let key = cursor.text("a key", KEY_BYTES_MAX)?;
        let value = Value::read(&mut cursor)?;
        outcomes.push(Outcome { record, key, attempt, status, value });
    }
    cursor.end()?;
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_back_or_refused() {
        let value = Value::Inline(Bytes::from_static(b"42"));
        let one = Outcome { record: 300, key: "300".to_owned(), attempt: 2, status: Status::Failed, value };
        let two = Outcome { record: 301, status: Status::Succeeded, ..one.clone() };
        let all = [one, two];
        let bytes = write(7, all.iter());
        assert_eq!(read(&bytes, 7).unwrap(), all);
        assert!(matches!(read(&bytes, 8), Err(FormatError::Sum { .. })));
        for at in 0..bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 1;
            assert!(read(&damaged.into(), 7).is_err(), "byte {at}");
            assert!(read(&bytes.slice(..at), 7).is_err(), "cut at {at}");
        }
    }
}
