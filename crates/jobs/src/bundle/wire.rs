//! The few words all stored objects are written in: a header, varints, lengths before bytes.
//!
//! Invariant: whatever bytes come, reading them neither panics nor allocates more than they are long. Pure.

use bytes::Bytes;

use super::error::FormatError;

/// How every stored object begins.
const MAGIC: &[u8; 4] = b"PMCB";
/// The version that all objects began with, and that those have which did not change since.
pub(super) const FIRST_VERSION: u8 = 1;
/// The version of an entry that ends with a mark.
pub(super) const MARKED_VERSION: u8 = 2;

/// What a stored object is; its number is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A part of a blob.
    Piece = 1,
    /// The pieces of a blob.
    Pieces = 2,
    Leaf = 3,
    /// Leaves, or other index nodes.
    Index = 4,
    /// The whole bundle.
    Root = 5,
    /// Results of a shard.
    Entry = 6,
}

impl Kind {
    /// The newest version of its objects that this code reads.
    fn newest(self) -> u8 {
        match self {
            Kind::Entry => MARKED_VERSION,
            Kind::Piece | Kind::Pieces | Kind::Leaf | Kind::Index | Kind::Root => FIRST_VERSION,
        }
    }

    fn name(number: u8) -> &'static str {
        match number {
            1 => "a piece",
            2 => "a list of pieces",
            3 => "a leaf",
            4 => "an index",
            5 => "a root",
            6 => "an entry of results",
            _ => "of an unknown kind",
        }
    }
}

/// Begins an object of the first version.
pub(super) fn begin(kind: Kind) -> Vec<u8> {
    begin_in(FIRST_VERSION, kind)
}

/// Begins an object of this version.
pub(super) fn begin_in(version: u8, kind: Kind) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend([version, kind as u8]);
    out
}

/// Appends an unsigned LEB128.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Appends bytes after their length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads an object from its front.
#[derive(Debug)]
pub(super) struct Cursor {
    rest: Bytes,
}

impl Cursor {
    /// Checks the header, and stands at what follows it.
    pub(super) fn open(bytes: &Bytes, wanted: Kind) -> Result<Self, FormatError> {
        Self::versioned(bytes, wanted).map(|(_, cursor)| cursor)
    }

    /// Checks the header; the version, and what follows.
    pub(super) fn versioned(bytes: &Bytes, wanted: Kind) -> Result<(u8, Self), FormatError> {
        let mut cursor = Cursor { rest: bytes.clone() };
        if cursor.take(MAGIC.len())? != MAGIC.as_slice() {
            return Err(FormatError::Foreign);
        }
        let version = cursor.byte()?;
        if version > wanted.newest() {
            return Err(FormatError::Newer { version, known: wanted.newest() });
        }
        if version == 0 {
            return Err(FormatError::Foreign);
        }
        match cursor.byte()? {
            kind if kind == wanted as u8 => Ok((version, cursor)),
            kind => Err(FormatError::Kind { found: Kind::name(kind), wanted: Kind::name(wanted as u8) }),
        }
    }

    pub(super) fn take(&mut self, length: usize) -> Result<Bytes, FormatError> {
        if length > self.rest.len() {
            return Err(FormatError::Cut);
        }
        Ok(self.rest.split_to(length))
    }

    pub(super) fn byte(&mut self) -> Result<u8, FormatError> {
        self.take(1).map(|byte| byte[0])
    }

    pub(super) fn number(&mut self) -> Result<u64, FormatError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // One way to write each number, so that equal content has equal hashes.
            if (shift == 63 && bits > 1) || (byte == 0 && shift > 0) {
                return Err(FormatError::Number);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(FormatError::Number)
    }

    /// A number of things that there may be at most `max` of.
    pub(super) fn count(&mut self, what: &'static str, max: u64) -> Result<u64, FormatError> {
        let found = self.number()?;
        check(what, found, max)?;
        Ok(found)
    }

    /// Bytes after their length, at most `max`.
    pub(super) fn bytes(&mut self, what: &'static str, max: u64) -> Result<Bytes, FormatError> {
        let length = self.count(what, max)?;
        self.take(usize::try_from(length).map_err(|_| FormatError::Cut)?)
    }

    /// Text after its length, at most `max` bytes.
    pub(super) fn text(&mut self, what: &'static str, max: u64) -> Result<String, FormatError> {
        let bytes = self.bytes(what, max)?;
        std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| FormatError::Text { what })
    }

    /// Takes so many bytes from the end.
    pub(super) fn take_last(&mut self, length: usize) -> Result<Bytes, FormatError> {
        let left = self.rest.len().checked_sub(length).ok_or(FormatError::Cut)?;
        Ok(self.rest.split_off(left))
    }

    /// All that is left.
    pub(super) fn rest(self) -> Bytes {
        self.rest
    }

    /// Nothing may be left.
    pub(super) fn end(self) -> Result<(), FormatError> {
        if self.rest.is_empty() { Ok(()) } else { Err(FormatError::Trailing) }
    }
}

/// Refuses more than `max` of something.
pub(super) fn check(what: &'static str, found: u64, max: u64) -> Result<(), FormatError> {
    if found > max { Err(FormatError::Limit { what, found, max }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_spelling() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            let mut cursor = Cursor { rest: out.into() };
            assert_eq!(cursor.number().unwrap(), number);
            cursor.end().unwrap();
        }
        for wrong in [vec![0x80, 0x00], vec![0xff; 9], vec![0xff; 11], vec![]] {
            assert!(Cursor { rest: wrong.clone().into() }.number().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn headers_are_checked() {
        let open = |bytes: &'static [u8]| Cursor::open(&Bytes::from_static(bytes), Kind::Leaf).unwrap_err().to_string();
        assert_eq!(open(b"PMC"), "it ends too early");
        assert_eq!(open(b"{\"a\":1}"), "it is no part of a bundle");
        assert_eq!(open(b"PMCB\x01\x05"), "it is a root where a leaf belongs");
        assert_eq!(
            open(b"PMCB\x02\x03"),
            "it is in version 2 of the format and this program reads up to 1; use a newer pumice"
        );
        let entry = |bytes| Cursor::versioned(&Bytes::from_static(bytes), Kind::Entry).map(|(version, _)| version);
        assert_eq!((entry(b"PMCB\x01\x06"), entry(b"PMCB\x02\x06")), (Ok(1), Ok(2)));
        assert_eq!(entry(b"PMCB\x03\x06"), Err(FormatError::Newer { version: 3, known: 2 }));
    }
}
