//! Results: what came of records, as an entry in the log of their shard, and what the log says in the end.
//!
//! Invariant: read in order, a record's first success stands and nothing after it counts; before that the last failure
//! stands. An entry ends with the hash of all before, since its name does not tell what it holds, and where its run has a
//! key, with the [`mark`](super::mark) of it. Pure.

use bytes::Bytes;

use super::chunk::ChunkId;
use super::error::FormatError;
use super::mark::{MARK_BYTES, Mark, RunKey};
use super::store::EntryName;
use super::tree::{INLINE_BYTES_MAX, KEY_BYTES_MAX, RECORDS_MAX, Value};
use super::wire::{Cursor, FIRST_VERSION, Kind, MARKED_VERSION, begin_in, check, put_bytes, put_number};

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
    pub record: u64,
    pub key: String,
    /// The attempt that tells this, from 1.
    pub attempt: u32,
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

/// An entry that was read.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) outcomes: Vec<Outcome<Value>>,
    /// What its mark is worth.
    pub(super) mark: Mark,
}

/// An entry as it is stored: marked where there is a key, else as programs wrote it that knew no marks.
pub(super) fn write<'o>(
    name: &EntryName,
    outcomes: impl ExactSizeIterator<Item = &'o Outcome<Value>>,
    key: Option<&RunKey>,
) -> Bytes {
    let mut out = begin_in(if key.is_some() { MARKED_VERSION } else { FIRST_VERSION }, Kind::Entry);
    put_number(&mut out, u64::from(name.shard));
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
    if let Some(key) = key {
        out.extend_from_slice(&key.mark(name, sum));
    }
    out.into()
}

/// The entry of this name.
pub(super) fn read(bytes: &Bytes, name: &EntryName, key: Option<&RunKey>) -> Result<Entry, FormatError> {
    let (version, mut cursor) = Cursor::versioned(bytes, Kind::Entry)?;
    let mark = if version >= MARKED_VERSION { Some(cursor.take_last(MARK_BYTES)?) } else { None };
    let stored_sum = cursor.take_last(ChunkId::LENGTH)?;
    let tail = ChunkId::LENGTH + mark.as_ref().map_or(0, Bytes::len);
    let sum = ChunkId::of(&bytes[..bytes.len() - tail]);
    if sum.as_bytes() != stored_sum {
        return Err(FormatError::Hash);
    }
    if cursor.number()? != u64::from(name.shard) {
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
    Ok(Entry { outcomes, mark: Mark::check(key, name, sum, mark.as_deref()) })
}

#[cfg(test)]
mod tests {
    use super::super::RunId;
    use super::*;

    fn name(shard: u32, number: u32) -> EntryName {
        EntryName { run: RunId::new("run").unwrap(), shard, number }
    }

    fn outcomes() -> [Outcome<Value>; 2] {
        let value = Value::Inline(Bytes::from_static(b"42"));
        let one = Outcome { record: 300, key: "300".to_owned(), attempt: 2, status: Status::Failed, value };
        let two = Outcome { record: 301, status: Status::Succeeded, ..one.clone() };
        [one, two]
    }

    #[test]
    fn an_entry_is_read_back_or_refused() {
        let (name, all) = (name(7, 0), outcomes());
        let key: RunKey = ChunkId::of(b"key").to_string().parse().unwrap();
        for key in [None, Some(&key)] {
            let bytes = write(&name, all.iter(), key);
            assert_eq!(read(&bytes, &name, key).unwrap().outcomes, all);
            let other_shard = EntryName { shard: 8, ..name.clone() };
            assert!(matches!(read(&bytes, &other_shard, key), Err(FormatError::Sum { .. })));
            for at in 0..bytes.len() {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 1;
                // A mark that was changed is a wrong one; the rest is whole, and read by who has no key.
                match read(&damaged.into(), &name, key) {
                    Ok(entry) => {
                        assert_eq!((entry.mark, at + MARK_BYTES >= bytes.len()), (Mark::Wrong, true), "byte {at}")
                    }
                    Err(_) => assert!(key.is_none() || at + MARK_BYTES < bytes.len(), "byte {at}"),
                }
                assert!(read(&bytes.slice(..at), &name, key).is_err(), "cut at {at}");
            }
        }
    }

    #[test]
    fn what_a_mark_is_worth_depends_on_key_and_name() {
        let key: RunKey = ChunkId::of(b"key").to_string().parse().unwrap();
        let other: RunKey = ChunkId::of(b"another run's").to_string().parse().unwrap();
        let (here, all) = (name(7, 1), outcomes());
        let marked = write(&here, all.iter(), Some(&key));
        let unmarked = write(&here, all.iter(), None);
        let elsewhere = EntryName { run: RunId::new("another").unwrap(), ..here };
        for (bytes, name, key, wanted) in [
            (&marked, &here, Some(&key), Mark::Right),
            (&marked, &here, Some(&other), Mark::Wrong),
            (&marked, &name(7, 2), Some(&key), Mark::Wrong),
            (&marked, &elsewhere, Some(&key), Mark::Wrong),
            (&marked, &here, None, Mark::Unchecked),
            (&unmarked, &here, Some(&key), Mark::Missing),
            (&unmarked, &here, None, Mark::Unchecked),
        ] {
            let entry = read(bytes, name, key).unwrap();
            assert_eq!((entry.mark, entry.outcomes.as_slice()), (wanted, all.as_slice()), "{name:?}");
        }
    }

    /// The mark of one entry under the content of another, in either direction.
    #[test]
    fn a_mark_is_not_taken_along() {
        let key: RunKey = ChunkId::of(b"key").to_string().parse().unwrap();
        let (here, [one, two]) = (name(7, 0), outcomes());
        let [first, second] = [one, two].map(|outcome| write(&here, [outcome].iter(), Some(&key)));
        let cut = |bytes: &Bytes| bytes.len() - MARK_BYTES;
        let forged = [&first[..cut(&first)], &second[cut(&second)..]].concat();
        assert_eq!(read(&forged.into(), &here, Some(&key)).unwrap().mark, Mark::Wrong);
        // As if it were of the version before: there is no mark then, and more than there should be.
        let mut older = first.to_vec();
        older[4] = FIRST_VERSION;
        assert_eq!(read(&older.into(), &here, Some(&key)).unwrap_err(), FormatError::Hash);
    }
}
