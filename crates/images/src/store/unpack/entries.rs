//! The entries of a tar archive, each with all that its headers say.
//!
//! Read are the formats of old, POSIX (ustar, PAX) and GNU tar, with Docker's understanding of them: where two readers could
//! differ, a layer must not be one thing here and another there. Invariant: memory is bounded by what may describe one entry.

use std::io::{self, Read};

use tar::Header;

use super::error::EntryProblem;
use super::error::LayerError;
use super::pax;
use super::stream::{BLOCK, Stream};
use crate::store::limits::Limits;

/// Bytes of a path, without the NUL after it.
const PATH_MAX: usize = 4095;
/// Bytes of one name in a path.
const NAME_MAX: usize = 255;
/// Where a header has its checksum.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// One file, folder, link or the like.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Counted from 1.
    pub number: u64,
    /// Relative, without `.` and `..`; empty for the layer's own folder.
    pub name: Vec<u8>,
    pub kind: Kind,
    pub attributes: Attributes,
}

/// What an entry is.
#[derive(Debug)]
pub(crate) enum Kind {
    File,
    Folder,
    /// To a target that is not looked at.
    SymbolicLink(Vec<u8>),
    /// Of a file by this name, in the form of entries' names.
    HardLink(Vec<u8>),
    Fifo,
    Device {
        major: i64,
        minor: i64,
    },
}

/// What belongs to a file besides its content.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    /// The twelve bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Names and values of extended ones.
    pub extended: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads one entry after the other.
pub(crate) struct Entries<'a> {
    stream: Stream<'a>,
    limits: &'a Limits,
    /// Headers that were read.
    headers: u64,
    /// Entries that were read.
    number: u64,
    /// Bytes of the entry's content that were not read yet, and what fills its last block.
    left: u64,
    padding: u64,
    size: u64,
}

/// What headers before an entry say of it.
#[derive(Default)]
struct Announced {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    fields: Option<pax::Fields>,
    bytes: u64,
}

/// The content of an entry.
pub(crate) struct Data<'e, 'a> {
    entries: &'e mut Entries<'a>,
}

impl Data<'_, '_> {
    /// Bytes of the whole content.
    pub(crate) fn size(&self) -> u64 {
        self.entries.size
    }
}

impl Read for Data<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (&mut self.entries.stream).take(self.entries.left).read(buffer)?;
        if count == 0 && self.entries.left > 0 && !buffer.is_empty() {
            return Err(io::Error::other(LayerError::Truncated));
        }
        self.entries.left -= u64::try_from(count).unwrap_or(u64::MAX);
        Ok(count)
    }
}

impl<'a> Entries<'a> {
    pub(crate) fn new(stream: Stream<'a>, limits: &'a Limits) -> Entries<'a> {
        Entries { stream, limits, headers: 0, number: 0, left: 0, padding: 0, size: 0 }
    }

    /// The content of the entry that was read last.
    pub(crate) fn data(&mut self) -> Data<'_, 'a> {
        Data { entries: self }
    }

    /// What the entries are read from.
    pub(crate) fn into_stream(self) -> Stream<'a> {
        self.stream
    }

    /// The next entry, whether or not the content of the one before was read; none at the archive's end.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, LayerError> {
        self.stream.skip(self.left.saturating_add(self.padding))?;
        (self.left, self.padding, self.size) = (0, 0, 0);
        self.number += 1;
        let mut announced = Announced::default();
        loop {
            let Some(header) = self.header()? else {
                let is_announced = announced.bytes > 0;
                return if is_announced { Err(self.refused(b"", EntryProblem::NoEntry)) } else { Ok(None) };
            };
            match header.as_old().linkflag[0] {
                kind @ (b'x' | b'g' | b'L' | b'K') => self.read_announcement(kind, &header, &mut announced)?,
                kind => {
                    let raw_name = announced.name.clone().unwrap_or_else(|| header.path_bytes().into_owned());
                    let read = self.entry(kind, &header, announced);
                    return read.map(Some).map_err(|problem| self.refused(&raw_name, problem));
                }
            }
        }
    }

    /// The next header whose checksum is right.
    fn header(&mut self) -> Result<Option<Header>, LayerError> {
        let Some(block) = self.stream.block()? else { return Ok(None) };
        if is_zero(&block) {
            return match self.stream.block()? {
                Some(after) if !is_zero(&after) => Err(self.refused(b"", EntryProblem::HalfAnEnd)),
                _ => Ok(None),
            };
        }
        self.headers += 1;
        if self.headers > self.limits.entries_max {
            return Err(LayerError::TooManyEntries { max: self.limits.entries_max });
        }
        let header = Header::from_byte_slice(&block).clone();
        if number(&block[CHECKSUM]).is_none_or(|sum| !checksums(&block).contains(&sum)) {
            return Err(self.refused(b"", EntryProblem::Checksum));
        }
        Ok(Some(header))
    }

    /// Reads a header that says something of the next entry.
    fn read_announcement(&mut self, kind: u8, header: &Header, to: &mut Announced) -> Result<(), LayerError> {
        let size = number(&header.as_old().size).and_then(|size| u64::try_from(size).ok());
        let Some(size) = size else { return Err(self.refused(b"", EntryProblem::Number("size"))) };
        let max = self.limits.description_bytes_max;
        to.bytes = to.bytes.saturating_add(size).saturating_add(1);
        if to.bytes > max {
            return Err(self.refused(b"", EntryProblem::Description { bytes: to.bytes, max }));
        }
        let mut bytes = Vec::new();
        let read = (&mut self.stream).take(size).read_to_end(&mut bytes).map_err(super::stream::failure)?;
        if u64::try_from(read) != Ok(size) {
            return Err(LayerError::Truncated);
        }
        self.stream.skip(padding(size))?;
        let is_second = match kind {
            b'L' => to.name.replace(until_nul(bytes)).is_some(),
            b'K' => to.target.replace(until_nul(bytes)).is_some(),
            b'x' => {
                let fields = pax::read(&bytes).map_err(|problem| self.refused(b"", problem))?;
                to.fields.replace(fields).is_some()
            }
            // Said of all entries that follow, such as the commit of an archive of git. Docker takes nothing of it.
            _ => false,
        };
        if is_second {
            return Err(self.refused(b"", EntryProblem::TwoHeaders { kind: char::from(kind) }));
        }
        Ok(())
    }

    fn entry(&mut self, kind: u8, header: &Header, announced: Announced) -> Result<Entry, EntryProblem> {
        let old = header.as_old();
        let fields = announced.fields.unwrap_or_default();
        let raw_name = announced.name.or(fields.path).unwrap_or_else(|| header.path_bytes().into_owned());
        let raw_target = announced.target.or(fields.link);
        let raw_target = raw_target.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
        let field =
            |value: Option<i64>, bytes: &[u8], what| value.or_else(|| number(bytes)).ok_or(EntryProblem::Number(what));
        let size = field(fields.size, &old.size, "size")?;
        let kind = match kind {
            // Before POSIX a folder was a file whose name ends so.
            0 if raw_name.ends_with(b"/") => Kind::Folder,
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::HardLink(
                path(&raw_target)
                    .map_err(|_| EntryProblem::LinkTarget { target: super::error::printable(&raw_target) })?,
            ),
            b'2' => Kind::SymbolicLink(target(raw_target)?),
            b'3' | b'4' => device(header)?,
            b'5' => Kind::Folder,
            b'6' => Kind::Fifo,
            b'S' => return Err(EntryProblem::Sparse),
            other => return Err(EntryProblem::Kind { kind: char::from(other) }),
        };
        let name = path(&raw_name)?;
        if name.is_empty() && !matches!(kind, Kind::Folder) {
            return Err(EntryProblem::RootKind);
        }
        if matches!(kind, Kind::File) {
            let max = self.stream.left();
            let bytes = u64::try_from(size).map_err(|_| EntryProblem::Number("size"))?;
            if bytes > max {
                return Err(EntryProblem::TooLarge { bytes, max });
            }
            (self.size, self.left, self.padding) = (bytes, bytes, padding(bytes));
        }
        let mode = field(None, &old.mode, "mode")?;
        let seconds = || number(&old.mtime).map(|seconds| (seconds, 0)).ok_or(EntryProblem::Number("mtime"));
        let attributes = Attributes {
            mode: u32::try_from(mode & 0o7777).map_err(|_| EntryProblem::Number("mode"))?,
            uid: owner(field(fields.uid, &old.uid, "uid")?, "user")?,
            gid: owner(field(fields.gid, &old.gid, "gid")?, "group")?,
            mtime: fields.mtime.map_or_else(seconds, Ok)?,
            extended: fields.attributes,
        };
        Ok(Entry { number: self.number, name, kind, attributes })
    }

    fn refused(&self, name: &[u8], problem: EntryProblem) -> LayerError {
        LayerError::of_entry(self.number, name, problem)
    }
}

fn is_zero(block: &[u8; BLOCK]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// The sum of a header's bytes, and what old programs on other machines took for it.
fn checksums(block: &[u8; BLOCK]) -> [i64; 2] {
    let bytes = || block.iter().enumerate().map(|(at, byte)| if CHECKSUM.contains(&at) { b' ' } else { *byte });
    [bytes().map(i64::from).sum(), bytes().map(|byte| i64::from(byte.cast_signed())).sum()]
}

/// A number of a header: octal digits, or the number itself after a set bit. None of it is 0.
fn number(field: &[u8]) -> Option<i64> {
    if let Some((first, rest)) = field.split_first().filter(|(first, _)| **first & 0x80 != 0) {
        let is_negative = first & 0x40 != 0;
        let first = if is_negative { i128::from(first | 0x80) - 256 } else { i128::from(first & 0x3f) };
        let sum = rest.iter().try_fold(first, |sum, byte| sum.checked_mul(256)?.checked_add(i128::from(*byte)))?;
        return i64::try_from(sum).ok();
    }
    let is_filling = |byte: &u8| matches!(byte, b' ' | 0);
    let start = field.iter().position(|byte| !is_filling(byte)).unwrap_or(field.len());
    let digits = field.get(start..).unwrap_or_default();
    let end = digits.iter().position(is_filling).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if rest.iter().any(|byte| !is_filling(byte)) && !rest.starts_with(&[0]) {
        return None;
    }
    digits.iter().try_fold(0_i64, |sum, byte| match byte {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(i64::from(byte - b'0')),
        _ => None,
    })
}

/// Bytes that fill the last block of a content.
fn padding(size: u64) -> u64 {
    let block = BLOCK as u64;
    (block - size % block) % block
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

/// A path below the layer's folder, whether or not it begins with `/`.
fn path(raw: &[u8]) -> Result<Vec<u8>, EntryProblem> {
    if raw.is_empty() {
        return Err(EntryProblem::NoName);
    }
    if raw.contains(&0) {
        return Err(EntryProblem::Nul("name"));
    }
    if raw.len() > PATH_MAX {
        return Err(EntryProblem::TooLong { what: "name", bytes: raw.len(), max: PATH_MAX });
    }
    let mut path = Vec::with_capacity(raw.len());
    for name in raw.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => continue,
            b".." => return Err(EntryProblem::ParentFolder),
            _ if name.len() > NAME_MAX => {
                return Err(EntryProblem::TooLong { what: "name in its path", bytes: name.len(), max: NAME_MAX });
            }
            _ => {}
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    Ok(path)
}

/// The target of a symbolic link; where it leads is the container's matter.
fn target(raw: Vec<u8>) -> Result<Vec<u8>, EntryProblem> {
    if raw.is_empty() {
        return Err(EntryProblem::LinkTarget { target: String::new() });
    }
    if raw.contains(&0) {
        return Err(EntryProblem::Nul("target"));
    }
    if raw.len() > PATH_MAX {
        return Err(EntryProblem::TooLong { what: "target", bytes: raw.len(), max: PATH_MAX });
    }
    Ok(raw)
}

fn device(header: &Header) -> Result<Kind, EntryProblem> {
    let (major, minor) = match (header.as_ustar(), header.as_gnu()) {
        (Some(ustar), _) => (&ustar.dev_major, &ustar.dev_minor),
        (None, Some(gnu)) => (&gnu.dev_major, &gnu.dev_minor),
        (None, None) => return Err(EntryProblem::Number("devmajor")),
    };
    let major = number(major).ok_or(EntryProblem::Number("devmajor"))?;
    Ok(Kind::Device { major, minor: number(minor).ok_or(EntryProblem::Number("devminor"))? })
}

/// An id that the kernel takes; its highest number means "none".
fn owner(id: i64, what: &'static str) -> Result<u32, EntryProblem> {
    u32::try_from(id).ok().filter(|id| *id != u32::MAX).ok_or(EntryProblem::Owner { what, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b" 644 \0  ", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"77777777777", Some(0o77_777_777_777)),
            (b"644\0junk", Some(0o644)),
            (b"644 7", None),
            (b"0000648\0", None),
            (b"-1\0", None),
            (b"\x80\0\0\0\0\0\0\x05", Some(5)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", Some(i64::MAX)),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\xbf\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None),
        ] {
            assert_eq!(number(field), expected, "{field:?}");
        }
    }

    #[test]
    fn paths_lie_below_the_layers_folder() {
        let text = |raw: &str| path(raw.as_bytes()).map(|path| String::from_utf8(path).unwrap());
        for (raw, expected) in [
            ("a/b", "a/b"),
            ("./a//./b/", "a/b"),
            ("/etc/passwd", "etc/passwd"),
            ("./", ""),
            ("...", "..."),
            ("..a", "..a"),
        ] {
            assert_eq!(text(raw).unwrap(), expected, "{raw}");
        }
        for raw in ["", "..", "../a", "a/..", "a/../b", "/../a", "./../a", "a\0b"] {
            assert!(text(raw).is_err(), "{raw:?}");
        }
    }
}
