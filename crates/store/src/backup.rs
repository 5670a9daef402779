//! How a backup is written: one file of frames, each with a sum over itself and all before it.
//!
//! Invariant: frames that decode are the ones that were encoded, in their order, none missing; a file that broke off, was
//! changed, or was written by a newer version is refused with what is wrong. Holds one frame in memory at a time. Pure:
//! the bytes come from and go to the API server, which streams a backup, and the binary, which keeps and restores it.

use std::ops::ControlFlow;

use bytes::Bytes;
use thiserror::Error;

use crate::key::Key;
use crate::log::record::checksum;
use crate::object::Object;

/// Version of what is written: since 2 the history may be among the files, in pieces. A backup of a newer format is refused.
pub const BACKUP_FORMAT: u16 = 2;

/// What every backup begins with; the format's number follows.
const MAGIC: &[u8; 14] = b"pumice-backup\n";
const PREFIX_BYTES: usize = MAGIC.len() + 2;
/// Kind, length and sum of a frame.
const FRAME_HEAD_BYTES: usize = 1 + 4 + 8;
/// Largest frame that is read, in bytes: an object is far smaller.
const FRAME_BYTES_MAX: usize = 64 << 20;

const HEADER: u8 = 1;
const OBJECT: u8 = 2;
const FILE: u8 = 3;
const END: u8 = 4;

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupHeader {
    /// Identity of the cluster.
    pub uid: String,
    /// The revision at which everything in it was read.
    pub revision: u64,
    /// When it was made, in seconds since 1970.
    pub created_seconds: i64,
    /// The version that made it.
    pub made_by: String,
}

/// A part of a backup. The header comes first, the end last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupFrame {
    /// What the backup says of itself.
    Header(BackupHeader),
    Object(Object),
    /// A file that belongs to the store: keys and certificates.
    File {
        /// Its name, without a directory.
        name: String,
        /// What is in it.
        contents: Bytes,
    },
    End {
        /// How many objects there were.
        objects: u64,
        files: u64,
    },
}

/// Why a backup can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BackupError {
    /// It is something else.
    #[error("it is not a backup of Pumice")]
    NotABackup,
    /// A newer version wrote it.
    #[error(
        "it has format {found}, newer than {supported}, the newest that this version reads; use the version that made it"
    )]
    NewerFormat {
        found: u16,
        /// The newest format known here.
        supported: u16,
    },
    /// Its end is missing.
    #[error("it breaks off after {bytes} bytes; use another backup")]
    Truncated {
        /// How many bytes there are.
        bytes: u64,
    },
    #[error("it is damaged at byte {at} ({detail}); use another backup")]
    Damaged { at: u64, detail: String },
}

/// Writes a backup, frame by frame, to the end of whatever buffer it is given.
#[derive(Debug)]
pub struct BackupEncoder {
    sum: u64,
    objects: u64,
    files: u64,
}

impl BackupEncoder {
    /// Begins a backup in `out`.
    pub fn begin(header: &BackupHeader, out: &mut Vec<u8>) -> Self {
        Self::begin_as(BACKUP_FORMAT, header, out)
    }

    fn begin_as(format: u16, header: &BackupHeader, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&format.to_le_bytes());
        let mut encoder = Self { sum: first_sum(format), objects: 0, files: 0 };
        encoder.frame(HEADER, out, |payload| {
            payload.extend_from_slice(&header.revision.to_le_bytes());
            payload.extend_from_slice(&header.created_seconds.to_le_bytes());
            put_text(&header.uid, payload);
            put_text(&header.made_by, payload);
        });
        encoder
    }

    /// Adds an object, whose key must be one that the store takes.
    pub fn object(&mut self, object: &Object, out: &mut Vec<u8>) {
        self.objects += 1;
        let key = object.key.encode();
        self.frame(OBJECT, out, |payload| {
            payload.extend_from_slice(&object.revision.to_le_bytes());
            put_part(&key, payload);
            payload.extend_from_slice(&object.body);
        });
    }

    /// Appends the frame of a file beside the store to `out`, whole.
    pub fn file(&mut self, name: &str, contents: &[u8], out: &mut Vec<u8>) {
        self.files += 1;
        self.frame(FILE, out, |payload| {
            put_text(name, payload);
            payload.extend_from_slice(contents);
        });
    }

    /// Ends the backup: without this it counts as broken off.
    pub fn end(mut self, out: &mut Vec<u8>) {
        let counts = [self.objects, self.files];
        self.frame(END, out, |payload| {
            counts.iter().for_each(|count| payload.extend_from_slice(&count.to_le_bytes()));
        });
    }

    fn frame(&mut self, kind: u8, out: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) {
        let head = out.len();
        out.push(kind);
        out.extend_from_slice(&[0; FRAME_HEAD_BYTES - 1]);
        let start = out.len();
        payload(out);
        let length = u32::try_from(out.len() - start).expect("bodies are bounded far below 4 GiB");
        self.sum = checksum(&[kind], self.sum, &out[start..]);
        out[head + 1..head + 5].copy_from_slice(&length.to_le_bytes());
        out[head + 5..start].copy_from_slice(&self.sum.to_le_bytes());
    }
}

/// Reads a backup from pieces of any size.
#[derive(Debug, Default)]
pub struct BackupDecoder {
    buffer: Vec<u8>,
    /// Up to here `buffer` was read.
    read: usize,
    /// Bytes of the backup before `buffer`.
    before: u64,
    sum: u64,
    began: bool,
    header: Option<BackupHeader>,
    objects: u64,
    files: u64,
    ended: bool,
}

impl BackupDecoder {
    /// Gives the next bytes to the decoder.
    pub fn push(&mut self, bytes: &[u8]) {
        self.before += self.read as u64;
        self.buffer.drain(..self.read);
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame; `None` until more bytes come.
    pub fn next_frame(&mut self) -> Result<Option<BackupFrame>, BackupError> {
        if !self.began && self.begin()?.is_break() {
            return Ok(None);
        }
        if self.ended && self.read < self.buffer.len() {
            return Err(self.damaged("something follows its end"));
        }
        let rest = &self.buffer[self.read..];
        let Some((head, rest)) = rest.split_first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
        let [kind, l0, l1, l2, l3, sum @ ..] = *head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(self.damaged(format!("a part of {length} bytes is over the limit of {FRAME_BYTES_MAX}")));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let found = checksum(&[kind], self.sum, payload);
        if found != u64::from_le_bytes(sum) {
            return Err(self.damaged("a checksum does not match"));
        }
        let frame = parse(kind, payload).ok_or_else(|| self.damaged(format!("a part of kind {kind} is malformed")))?;
        self.sum = found;
        self.read += FRAME_HEAD_BYTES + length;
        self.check(&frame)?;
        Ok(Some(frame))
    }

    /// Whether the backup was whole, once there are no more bytes.
    pub fn finish(&self) -> Result<(), BackupError> {
        let bytes = self.before + self.buffer.len() as u64;
        let ours = self.buffer.iter().zip(MAGIC).all(|(found, wanted)| found == wanted);
        match (self.ended, self.began) {
            (true, _) => Ok(()),
            (false, false) if bytes == 0 || !ours => Err(BackupError::NotABackup),
            (false, _) => Err(BackupError::Truncated { bytes }),
        }
    }

    fn begin(&mut self) -> Result<ControlFlow<()>, BackupError> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX_BYTES>() else { return Ok(ControlFlow::Break(())) };
        let [magic @ .., low, high] = prefix;
        if magic != MAGIC {
            return Err(BackupError::NotABackup);
        }
        let found = u16::from_le_bytes([*low, *high]);
        // Format 1 reads as well: it has no history among its files.
        if found > BACKUP_FORMAT {
            return Err(BackupError::NewerFormat { found, supported: BACKUP_FORMAT });
        }
        if found == 0 {
            return Err(self.damaged("it names no format"));
        }
        (self.began, self.read, self.sum) = (true, PREFIX_BYTES, first_sum(found));
        Ok(ControlFlow::Continue(()))
    }

    /// Whether `frame` may come here.
    fn check(&mut self, frame: &BackupFrame) -> Result<(), BackupError> {
        let wrong = match (frame, &self.header) {
            (BackupFrame::Header(header), None) => {
                self.header = Some(header.clone());
                None
            }
            (_, None) => Some("it does not begin with its header".to_owned()),
            (BackupFrame::Header(_), Some(_)) => Some("it has two headers".to_owned()),
            (BackupFrame::Object(object), Some(header)) => {
                self.objects += 1;
                if object.revision > header.revision {
                    Some(format!("{} is at revision {}, above {}", object.key, object.revision, header.revision))
                } else {
                    None
                }
            }
            (BackupFrame::File { .. }, Some(_)) => {
                self.files += 1;
                None
            }
            (BackupFrame::End { objects, files }, Some(_)) => {
                self.ended = true;
                if (*objects, *files) == (self.objects, self.files) {
                    None
                } else {
                    Some(format!("it holds {} objects of {objects}", self.objects))
                }
            }
        };
        wrong.map_or(Ok(()), |detail| Err(self.damaged(detail)))
    }

    fn damaged(&self, detail: impl Into<String>) -> BackupError {
        BackupError::Damaged { at: self.before + self.read as u64, detail: detail.into() }
    }
}

fn first_sum(format: u16) -> u64 {
    checksum(MAGIC, u64::from(format), &[])
}

fn parse(kind: u8, payload: &[u8]) -> Option<BackupFrame> {
    let mut rest = payload;
    let frame = match kind {
        HEADER => BackupFrame::Header(BackupHeader {
            revision: u64::from_le_bytes(take(&mut rest)?),
            created_seconds: i64::from_le_bytes(take(&mut rest)?),
            uid: take_text(&mut rest)?,
            made_by: take_text(&mut rest)?,
        }),
        OBJECT => {
            let revision = u64::from_le_bytes(take(&mut rest)?);
            let key = Key::decode(take_part(&mut rest)?)?;
            BackupFrame::Object(Object { key, revision, body: Bytes::copy_from_slice(std::mem::take(&mut rest)) })
        }
        FILE => {
            let name = take_text(&mut rest)?;
            BackupFrame::File { name, contents: Bytes::copy_from_slice(std::mem::take(&mut rest)) }
        }
        END => BackupFrame::End {
            objects: u64::from_le_bytes(take(&mut rest)?),
            files: u64::from_le_bytes(take(&mut rest)?),
        },
        _ => return None,
    };
    rest.is_empty().then_some(frame)
}

fn put_part(part: &[u8], out: &mut Vec<u8>) {
    // Keys, names and versions are far shorter; a longer one is cut rather than written so that it can't be read.
    let part = &part[..part.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&(part.len() as u16).to_le_bytes());
    out.extend_from_slice(part);
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    put_part(text.as_bytes(), out);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk::<N>()?;
    *rest = left;
    Some(*taken)
}

fn take_part<'p>(rest: &mut &'p [u8]) -> Option<&'p [u8]> {
    let length = usize::from(u16::from_le_bytes(take(rest)?));
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    take_part(rest).and_then(|part| String::from_utf8(part.to_vec()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BackupHeader {
        BackupHeader { uid: "u".into(), revision: 9, created_seconds: -1, made_by: "0.1.0".into() }
    }

    fn object(name: &str, revision: u64) -> Object {
        Object { key: Key::new("pods", "default", name), revision, body: Bytes::from(format!("{{\"{name}\":1}}")) }
    }

    fn sample() -> (Vec<BackupFrame>, Vec<u8>) {
        let mut out = Vec::new();
        let mut encoder = BackupEncoder::begin(&header(), &mut out);
        encoder.object(&object("a", 7), &mut out);
        encoder.object(&object("b", 9), &mut out);
        encoder.file("ca.key", b"secret", &mut out);
        encoder.end(&mut out);
        let frames = vec![
            BackupFrame::Header(header()),
            BackupFrame::Object(object("a", 7)),
            BackupFrame::Object(object("b", 9)),
            BackupFrame::File { name: "ca.key".into(), contents: Bytes::from_static(b"secret") },
            BackupFrame::End { objects: 2, files: 1 },
        ];
        (frames, out)
    }

    fn decode(bytes: &[u8], piece: usize) -> Result<Vec<BackupFrame>, BackupError> {
        let (mut decoder, mut frames) = (BackupDecoder::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        decoder.finish()?;
        Ok(frames)
    }

    #[test]
    fn what_is_written_is_read_in_pieces_of_any_size() {
        let (frames, bytes) = sample();
        for piece in [1, 2, 7, 64, bytes.len()] {
            assert_eq!(decode(&bytes, piece).unwrap(), frames, "{piece}");
        }
    }

    #[test]
    fn any_damaged_byte_and_any_cut_is_found() {
        let (_, bytes) = sample();
        for at in 0..bytes.len() {
            for bit in [0x01, 0x80] {
                let mut damaged = bytes.clone();
                damaged[at] ^= bit;
                assert!(decode(&damaged, 64).is_err(), "byte {at}");
            }
        }
        for cut in 0..bytes.len() {
            let error = decode(&bytes[..cut], 64).unwrap_err();
            let wanted = if cut == 0 { BackupError::NotABackup } else { BackupError::Truncated { bytes: cut as u64 } };
            assert_eq!(error, wanted, "cut at {cut}");
        }
    }

    #[test]
    fn frames_that_are_left_out_or_change_places_are_found() {
        let build = |names: &[&str]| {
            let mut out = Vec::new();
            let mut encoder = BackupEncoder::begin(&header(), &mut out);
            names.iter().for_each(|name| encoder.object(&object(name, 1), &mut out));
            let objects = out.len();
            encoder.end(&mut out);
            (out, objects)
        };
        let (none, start) = build(&[]);
        let (both, end) = build(&["a", "b"]);
        let frame = (end - start) / 2;
        let swapped = [&both[..start], &both[start + frame..end], &both[start..start + frame], &both[end..]].concat();
        let missing = [&both[..start], &both[end..]].concat();
        let foreign = [&both[..end], &none[start..]].concat();
        let longer = [&both[..], b"x"].concat();
        for (what, bytes) in [("swapped", swapped), ("missing", missing), ("foreign", foreign), ("longer", longer)] {
            assert!(matches!(decode(&bytes, 1 << 20), Err(BackupError::Damaged { .. })), "{what}");
        }
    }

    #[test]
    fn what_is_newer_or_something_else_is_refused_by_name() {
        let (_, mut bytes) = sample();
        assert_eq!(decode(b"PK\x03\x04 something else", 64), Err(BackupError::NotABackup));
        assert_eq!(decode(b"short", 64), Err(BackupError::NotABackup));
        let newer = BACKUP_FORMAT + 1;
        bytes[MAGIC.len()..MAGIC.len() + 2].copy_from_slice(&newer.to_le_bytes());
        assert_eq!(decode(&bytes, 64), Err(BackupError::NewerFormat { found: newer, supported: BACKUP_FORMAT }));
        bytes[MAGIC.len()] = 0;
        assert!(matches!(decode(&bytes, 64), Err(BackupError::Damaged { .. })));
    }

    #[test]
    fn the_first_format_is_still_read() {
        let mut out = Vec::new();
        let mut encoder = BackupEncoder::begin_as(1, &header(), &mut out);
        encoder.object(&object("a", 1), &mut out);
        encoder.end(&mut out);
        assert_eq!(decode(&out, 64).unwrap().len(), 3);
    }

    #[test]
    fn a_length_beyond_the_limit_is_not_waited_for() {
        let mut out = Vec::new();
        BackupEncoder::begin(&header(), &mut out);
        out.push(OBJECT);
        out.extend_from_slice(&u32::MAX.to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        let error = decode(&out, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("over the limit"), "{error}");
    }
}
