//! Reads a recording: its entries in order, up to where it is whole, and again from where a World begins.
//!
//! Invariant: what is given out between two breaks is what was recorded, without a gap. A damaged file costs the entries
//! up to the next World, never a panic; a file that is none of ours, or of another version, is an error.

use std::path::{Path, PathBuf};

use crate::block::Damage;
use crate::entry::Entry;
use crate::segment::{self, FORMAT, Header, Next, OpenError, SegmentReader};

/// Most segments of one folder.
const SEGMENTS_MAX: usize = 1_000_000;

/// Why a folder can't be read as a recording.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or the folder can't be read.
    #[error("{path} could not be read")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It is a file.
    #[error("{path} is a file: name the folder of the recording")]
    NoFolder { path: PathBuf },
    /// There are no segments.
    #[error("{folder} holds no recording: name the folder with the files that end in .record")]
    Empty { folder: PathBuf },
    /// There are too many.
    #[error("{folder} holds more than {SEGMENTS_MAX} segments: move some of them elsewhere")]
    TooMany { folder: PathBuf },
    /// A file is something else.
    #[error("{path} is no part of a recording: move it elsewhere")]
    Foreign { path: PathBuf },
    /// A file is of another version.
    #[error("{path} is of format {version}, this version reads {FORMAT}: replay it with the version that recorded it")]
    Version { path: PathBuf, version: u32 },
    /// A line is no entry.
    #[error("{path}, block at {at}, line {line}: no entry that this version knows")]
    Entry {
        path: PathBuf,
        /// Where its block begins.
        at: u64,
        /// The line in the block, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// Why a recording does not go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Break {
    /// A file ends in the middle of a block.
    #[error("segment {segment} is cut off at byte {at}")]
    CutOff {
        segment: u64,
        /// Where the block begins.
        at: u64,
    },
    /// A block is damaged.
    #[error("segment {segment} is damaged at byte {at}: {damage}")]
    Damaged {
        segment: u64,
        /// Where the block begins.
        at: u64,
        damage: Damage,
    },
    /// It was not closed: its writer was stopped hard, or still writes.
    #[error("segment {segment} was not closed: the scheduler was killed, or still runs")]
    Open { segment: u64 },
    /// What goes before is not there.
    #[error("segment {segment} goes on from one that is not there")]
    Missing { segment: u64 },
    /// Entries were left out: the disk was too slow, or full.
    #[error("segment {segment} lacks {entries} entries or more: they came faster than they could be written")]
    Hole { segment: u64, entries: u64 },
}

/// One step of a recording, in the order in which it was written.
#[allow(clippy::large_enum_variant, reason = "nearly all are entries; one at a time is read")]
#[derive(Debug)]
pub enum Item {
    Entry(Entry),
    /// A World as it was when a segment began: the file it is in.
    Start(PathBuf),
    /// Nothing more of this World can be read. What follows begins with another.
    Break(Break),
}

/// A folder of segments.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
    /// In order.
    segments: Vec<u64>,
}

impl Recording {
    /// Looks what there is. Nothing is read yet.
    ///
    /// # Errors
    /// When the folder can't be read, or holds no recording.
    pub fn open(folder: &Path) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io { path: folder.to_owned(), source };
        if folder.is_file() {
            return Err(ReadError::NoFolder { path: folder.to_owned() });
        }
        let mut segments = Vec::new();
        for file in std::fs::read_dir(folder).map_err(io)? {
            segments.extend(segment::number_of(&file.map_err(io)?.path()));
            if segments.len() > SEGMENTS_MAX {
                return Err(ReadError::TooMany { folder: folder.to_owned() });
            }
        }
        segments.sort_unstable();
        if segments.is_empty() {
            return Err(ReadError::Empty { folder: folder.to_owned() });
        }
        Ok(Self { folder: folder.to_owned(), segments })
    }

    /// The same, of these segments only.
    pub fn only(mut self, numbers: std::ops::Range<u64>) -> Self {
        self.segments.retain(|number| numbers.contains(number));
        self
    }

    /// What it holds, in order.
    pub fn entries(&self) -> Entries<'_> {
        Entries { recording: self, left: self.segments.iter(), now: None, ended: None, lost: false }
    }
}

/// The segment that is being read.
#[derive(Debug)]
struct Current {
    number: u64,
    reader: SegmentReader,
    plain: Vec<u8>,
    /// Where in `plain` the next line begins.
    next: usize,
    line: usize,
    /// Where in the file the block begins.
    at: u64,
}

/// Reads a recording, line by line. Memory: one block.
#[derive(Debug)]
pub struct Entries<'r> {
    recording: &'r Recording,
    left: std::slice::Iter<'r, u64>,
    now: Option<Current>,
    /// The last segment that ended in good order.
    ended: Option<u64>,
    /// The World is lost: entries mean nothing until the next one begins.
    lost: bool,
}

impl Iterator for Entries<'_> {
    type Item = Result<Item, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let step = if self.now.is_some() { self.line().transpose() } else { self.open().transpose() };
            match step {
                // Nothing to tell of this step.
                Some(Ok(None)) => {}
                Some(Ok(Some(item))) => return Some(Ok(item)),
                Some(Err(error)) => {
                    self.now = None;
                    self.left = [].iter();
                    return Some(Err(error));
                }
                None => return None,
            }
        }
    }
}

impl Entries<'_> {
    /// The next segment. Nothing if there is none left.
    fn open(&mut self) -> Result<Option<Option<Item>>, ReadError> {
        let Some(number) = self.left.next().copied() else { return Ok(None) };
        let folder = &self.recording.folder;
        let path = segment::path(folder, number);
        let (reader, header) = match SegmentReader::open(&path) {
            Ok(opened) => opened,
            Err(OpenError::Io(source)) => return Err(ReadError::Io { path, source }),
            Err(OpenError::Foreign) => return Err(ReadError::Foreign { path }),
            Err(OpenError::Version(version)) => return Err(ReadError::Version { path, version }),
            Err(OpenError::Headless) => return Ok(Some(Some(self.lose(Break::CutOff { segment: number, at: 0 })))),
        };
        self.now = Some(Current { number, reader, plain: Vec::new(), next: 0, line: 0, at: 0 });
        Ok(Some(self.connect(number, &header)))
    }

    /// How a segment that was just opened goes on from what was before.
    fn connect(&mut self, number: u64, header: &Header) -> Option<Item> {
        let follows = self.ended.take() == number.checked_sub(1) && number > 0 && !self.lost;
        if !header.continues {
            self.lost = false;
            return None;
        }
        if follows && self.recording.segments.first() != Some(&number) {
            return None;
        }
        let start = segment::start_path(&self.recording.folder, number);
        if start.exists() {
            self.lost = false;
            return Some(Item::Start(start));
        }
        if self.lost {
            // Feedback already.
            self.now = None;
            return None;
        }
        Some(self.lose(Break::Missing { segment: number }))
    }

    fn lose(&mut self, what: Break) -> Item {
        self.now = None;
        self.lost = true;
        Item::Break(what)
    }

    /// The next line of the segment.
    fn line(&mut self) -> Result<Option<Option<Item>>, ReadError> {
        let Some(current) = &mut self.now else { return Ok(Some(None)) };
        let rest = &current.plain[current.next..];
        if let Some(length) = rest.iter().position(|byte| *byte == b'\n') {
            current.next += length + 1;
            current.line += 1;
            let (segment, line, at) = (current.number, current.line, current.at);
            let entry = serde_json::from_slice(&rest[..length]).map_err(|source| ReadError::Entry {
                path: segment::path(&self.recording.folder, segment),
                at,
                line,
                source,
            })?;
            return Ok(Some(Some(match entry {
                Entry::Hole { entries } => self.lose(Break::Hole { segment, entries }),
                entry => Item::Entry(entry),
            })));
        }
        let segment = current.number;
        let next = current.reader.next_block();
        let next =
            next.map_err(|source| ReadError::Io { path: segment::path(&self.recording.folder, segment), source })?;
        Ok(Some(match next {
            Next::Block(at, plain) => {
                (current.plain, current.next, current.line, current.at) = (plain, 0, 0, at);
                None
            }
            Next::End => {
                self.now = None;
                self.ended = Some(segment);
                None
            }
            Next::Open => Some(self.lose(Break::Open { segment })),
            Next::CutOff(at) => Some(self.lose(Break::CutOff { segment, at })),
            Next::Damaged(at, damage) => Some(self.lose(Break::Damaged { segment, at, damage })),
        }))
    }
}
