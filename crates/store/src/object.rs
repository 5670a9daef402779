//! Stored objects and the changes that make them.
//!
//! Invariant: an [`Object`] never changes; its body carries its own revision, so lists, gets and
//! watch events share the same bytes. Drafts come from the API server, objects from the writer.

use bytes::{BufMut, Bytes, BytesMut};

use crate::key::Key;

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub key: Key,
    /// The global revision at which this version was written.
    pub revision: u64,
    /// The full JSON text, `metadata.resourceVersion` included.
    pub body: Bytes,
}

/// An object that waits for its revision: the body is `head`, the decimal revision, `tail`.
///
/// The revision is known only inside the writer, so the API server renders the JSON once with a
/// hole where the digits of `metadata.resourceVersion` go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    head: Bytes,
    tail: Bytes,
}

/// What must hold of the stored object for a change to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is none.
    Absent,
    /// There is one, at exactly this revision.
    Revision(u64),
    Any,
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put {
        key: Key,
        draft: Draft,
        /// What it must be now.
        expect: Expect,
    },
    Delete {
        key: Key,
        /// Its last state, which gets the revision of the deletion and goes to watchers.
        draft: Draft,
        /// What it must be now.
        expect: Expect,
    },
}

/// A revision takes at most this many digits: those of `u64::MAX`.
const REVISION_DIGITS_MAX: usize = 20;

impl Draft {
    /// A draft whose revision goes between `head` and `tail`.
    pub fn new(head: impl Into<Bytes>, tail: impl Into<Bytes>) -> Self {
        Self { head: head.into(), tail: tail.into() }
    }

    /// Upper bound of the body's length in bytes.
    pub fn len_max(&self) -> usize {
        self.head.len() + REVISION_DIGITS_MAX + self.tail.len()
    }

    /// The body at `revision`. One allocation.
    pub fn render(&self, revision: u64) -> Bytes {
        let digits = revision.to_string();
        let mut body = BytesMut::with_capacity(self.head.len() + digits.len() + self.tail.len());
        body.put_slice(&self.head);
        body.put_slice(digits.as_bytes());
        body.put_slice(&self.tail);
        body.freeze()
    }
}

impl Change {
    /// The object that this changes.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    pub(crate) fn draft(&self) -> &Draft {
        match self {
            Self::Put { draft, .. } | Self::Delete { draft, .. } => draft,
        }
    }

    pub(crate) fn expect(&self) -> Expect {
        match self {
            Self::Put { expect, .. } | Self::Delete { expect, .. } => *expect,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_fills_the_hole() {
        let draft = Draft::new("{\"rv\":\"", "\"}");
        assert_eq!(draft.render(42), "{\"rv\":\"42\"}");
        assert_eq!(draft.render(u64::MAX).len(), draft.len_max());
    }
}
