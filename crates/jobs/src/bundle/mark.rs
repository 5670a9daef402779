//! Marks: an entry of results shows that it was recorded by who has the key of its run.
//!
//! Whoever can write to a place can write results there, and what Python returns is a pickle, which runs code when it is
//! read. So a run may have a key, which only its submitter and its pods know, and each entry then ends with a mark by it.
//!
//! Invariant: a mark belongs to one entry of one shard of one run, and to its content; at any other name, or with any other
//! byte, it is wrong. The key is in no message, no `Debug` and no stored object. Pure.

use std::fmt;
use std::str::FromStr;

use ring::hmac;

use super::chunk::ChunkId;
use super::store::EntryName;
use super::wire::{put_bytes, put_number};

/// Bytes of a mark, an HMAC-SHA256.
pub(super) const MARK_BYTES: usize = 32;

/// The key that the results of a run are marked with.
#[derive(Clone)]
pub struct RunKey(hmac::Key);

/// A text that is no key. What it was is not said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key of a run has 64 hexadecimal digits, in lower case")]
pub struct RunKeyError;

impl FromStr for RunKey {
    type Err = RunKeyError;

    fn from_str(text: &str) -> Result<Self, RunKeyError> {
        // An id of a chunk is written in the same way.
        let bytes: ChunkId = text.parse().map_err(|_| RunKeyError)?;
        Ok(RunKey(hmac::Key::new(hmac::HMAC_SHA256, bytes.as_bytes())))
    }
}

impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunKey")
    }
}

impl RunKey {
    /// The mark of an entry. `sum` is the SHA-256 of its content, so that a mark costs the same whatever the entry holds.
    pub(super) fn mark(&self, name: &EntryName, sum: ChunkId) -> [u8; MARK_BYTES] {
        let mut mark = [0; MARK_BYTES];
        mark.copy_from_slice(hmac::sign(&self.0, &marked(name, sum)).as_ref());
        mark
    }

    /// Whether it is the mark of this entry. Takes as long for a wrong one as for the right one.
    fn accepts(&self, name: &EntryName, sum: ChunkId, mark: &[u8]) -> bool {
        hmac::verify(&self.0, &marked(name, sum), mark).is_ok()
    }
}

/// What is marked: where the entry stands, and what it holds.
fn marked(name: &EntryName, sum: ChunkId) -> Vec<u8> {
    let EntryName { run, shard, number } = name;
    let mut text = Vec::with_capacity(128);
    put_bytes(&mut text, run.as_str().as_bytes());
    put_number(&mut text, u64::from(*shard));
    put_number(&mut text, u64::from(*number));
    text.extend_from_slice(sum.as_bytes());
    text
}

/// Whether an entry was recorded by who has the key of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Right,
    /// It has none: its writer had no key, or a version of this program that knew none.
    Missing,
    /// It has one that is not of this run's key, or not of this entry as it is.
    Wrong,
    /// Nobody can say: the reader has no key.
    Unchecked,
}

impl Mark {
    /// What the mark of an entry is worth to who has this key.
    pub(super) fn check(key: Option<&RunKey>, name: &EntryName, sum: ChunkId, mark: Option<&[u8]>) -> Self {
        match (key, mark) {
            (None, _) => Mark::Unchecked,
            (Some(_), None) => Mark::Missing,
            (Some(key), Some(mark)) if key.accepts(name, sum, mark) => Mark::Right,
            (Some(_), Some(_)) => Mark::Wrong,
        }
    }

    /// Whether the entry counts in the log: where there is a key, only what it marks.
    pub(super) fn counts(self) -> bool {
        matches!(self, Mark::Right | Mark::Unchecked)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RunId;
    use super::*;

    #[test]
    fn a_key_is_read_and_never_shown() {
        let text = "00112233445566778899aabbccddeeff00112233445566778899aabbccddee42";
        let key: RunKey = text.parse().unwrap();
        assert_eq!(format!("{key:?} {:#?}", Some(&key)), "RunKey Some(\n    RunKey,\n)");
        for wrong in ["", "42", &text.to_uppercase(), &format!("{text}\n"), &text.replace("42", "g2")] {
            let error = wrong.parse::<RunKey>().unwrap_err().to_string();
            assert_eq!(error, "the key of a run has 64 hexadecimal digits, in lower case");
        }
    }

    #[test]
    fn a_mark_belongs_to_one_entry_of_one_run() {
        let key: RunKey = ChunkId::of(b"key").to_string().parse().unwrap();
        let other: RunKey = ChunkId::of(b"another key").to_string().parse().unwrap();
        let entry = |run: &str, shard, number| EntryName { run: RunId::new(run).unwrap(), shard, number };
        let (name, sum) = (entry("a", 3, 1), ChunkId::of(b"content"));
        let mark = key.mark(&name, sum);
        let checked = |key, name: &EntryName, sum, mark| Mark::check(key, name, sum, mark);
        assert_eq!(checked(Some(&key), &name, sum, Some(&mark)), Mark::Right);
        assert_eq!(checked(Some(&key), &name, sum, None), Mark::Missing);
        assert_eq!(checked(None, &name, sum, Some(&mark)), Mark::Unchecked);
        assert_eq!(checked(Some(&other), &name, sum, Some(&mark)), Mark::Wrong);
        assert_eq!(checked(Some(&key), &name, ChunkId::of(b"else"), Some(&mark)), Mark::Wrong);
        for elsewhere in [entry("b", 3, 1), entry("a", 1, 1), entry("a", 3, 2), entry("a", 31, 1)] {
            assert_eq!(checked(Some(&key), &elsewhere, sum, Some(&mark)), Mark::Wrong, "{elsewhere:?}");
        }
        for cut in 0..MARK_BYTES {
            assert_eq!(checked(Some(&key), &name, sum, Some(&mark[..cut])), Mark::Wrong, "{cut} bytes");
        }
    }

    /// So that other programs can mark, too.
    #[test]
    fn marks_are_what_they_were() {
        let key: RunKey = ChunkId::of(b"key").to_string().parse().unwrap();
        let name = EntryName { run: RunId::new("train-x7-main").unwrap(), shard: 7, number: 300 };
        let mark = key.mark(&name, ChunkId::of(b"content"));
        let hex: String = mark.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "447148227dee94f0051004e2797539e3fb24d7155621968694efc452acd629cb");
    }
}
