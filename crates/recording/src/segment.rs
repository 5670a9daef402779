//! Segments: the files of a recording, each a head and blocks.
//!
//! ```text
//!   magic "PUMICE record\n", version of the format (u32, little endian),
//!   a block with the header (JSON), blocks of lines (an entry each), the block that ends it
//! ```
//! Written by the scheduler's recorder, read by `read`. A case that was cut from a recording is such a file, too, with the bytes of a
//! World before its lines; see `case`.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use pumice_engine::TimeMs;
use serde::{Deserialize, Serialize};

use crate::block::{self, Damage, HEAD, Head};
use crate::entry::Beginning;

/// The version of the format that is written; older ones are read.
pub const FORMAT: u32 = 1;
/// What a segment begins with.
pub const MAGIC: &[u8; 14] = b"PUMICE record\n";
/// A block is closed when it has so many plain bytes, so that one that is damaged costs little.
const BLOCK_BYTES: usize = 1 << 20;

/// Longest saved World, in bytes.
const WORLD_MAX: usize = 4 << 30;

/// What a segment says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Header {
    /// Counts the segments of a folder, from 1.
    pub number: u64,
    /// It goes on with the World of the segment before; else it begins one.
    pub continues: bool,
    /// When it was begun.
    pub created: TimeMs,
    /// The version of the platform.
    pub version: String,
    /// What it is cut from; absent in segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<About>,
}

/// What a case says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    /// The first cycle, and the last.
    pub from: TimeMs,
    /// The last.
    pub to: TimeMs,
    /// The job that it was cut for, `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    pub redacted: bool,
    /// How many cycles it has.
    pub cycles: u64,
    /// Length of the World in it; 0 where it begins with one.
    pub world_bytes: u64,
}

/// The file of a segment.
pub fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}.record"))
}

/// The file with the World as it was at the begin of a segment.
pub fn start_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}.start"))
}

/// The number of a segment by the name of its file.
pub fn number_of(path: &Path) -> Option<u64> {
    if path.extension()? != "record" {
        return None;
    }
    path.file_stem()?.to_str()?.parse().ok()
}

/// The one that is written.
#[derive(Debug)]
pub struct SegmentWriter {
    file: File,
    plain: Vec<u8>,
    /// Plain bytes at which a block is closed.
    block_bytes: usize,
    /// Bytes in the file.
    pub bytes: u64,
}

impl SegmentWriter {
    /// Begins a file, over any that is there, that will have about so many bytes.
    pub fn create(path: &Path, header: &Header, bytes: u64) -> io::Result<Self> {
        let block_bytes = usize::try_from(bytes).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
        let mut options = File::options();
        options.write(true).create(true).truncate(true);
        // Names of people and of what they run.
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut writer = Self { file: options.open(path)?, plain: Vec::new(), block_bytes, bytes: 0 };
        let mut head = MAGIC.to_vec();
        head.extend(FORMAT.to_le_bytes());
        head.extend(block::pack(&serde_json::to_vec(header)?));
        writer.put(&head)?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Adds a line of JSON; writes a block once enough have gathered.
    pub fn line<T: Serialize>(&mut self, line: &T) -> io::Result<()> {
        let before = self.plain.len();
        serde_json::to_writer(&mut self.plain, line)?;
        self.plain.push(b'\n');
        if self.plain.len() - before > block::PLAIN_MAX / 2 {
            self.plain.truncate(before);
            return Err(io::Error::other("an entry is too long to be recorded"));
        }
        if self.plain.len() >= self.block_bytes { self.flush() } else { Ok(()) }
    }

    /// Adds something long, in blocks of its own.
    pub fn long(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.flush()?;
        for part in bytes.chunks(self.block_bytes.max(1)) {
            self.plain.extend(part);
            self.flush()?;
        }
        Ok(())
    }

    /// Hands all lines to the operating system.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.plain.is_empty() {
            return Ok(());
        }
        let block = block::pack(&self.plain);
        self.plain.clear();
        self.put(&block)
    }

    /// Ends it in good order.
    pub fn close(mut self) -> io::Result<()> {
        self.flush()?;
        self.put(&block::pack(&[]))
    }

    /// The same, once it is on the disk under `path`. Nobody sees a half of it.
    pub fn close_as(self, unfinished: &Path, path: &Path) -> io::Result<()> {
        let file = self.file.try_clone()?;
        self.close()?;
        file.sync_all()?;
        std::fs::rename(unfinished, path)
    }
}

/// Writes a World as it is when a segment begins. Nobody sees a half of it.
pub fn write_start(path: &Path, header: &Header, beginning: &Beginning, world: &[u8]) -> io::Result<()> {
    let unfinished = path.with_extension("part");
    let mut writer = SegmentWriter::create(&unfinished, header, u64::MAX)?;
    writer.line(beginning)?;
    writer.long(world)?;
    writer.close_as(&unfinished, path)
}

/// Reads it: what the World began with, and its bytes.
pub fn read_start(path: &Path) -> io::Result<(Beginning, Vec<u8>)> {
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let (mut reader, _) = SegmentReader::open(path).map_err(|error| bad(error.to_string()))?;
    let Next::Block(_, json) = reader.next_block()? else { return Err(bad("it has no beginning".to_owned())) };
    let beginning = serde_json::from_slice(&json)?;
    let mut world = Vec::new();
    loop {
        match reader.next_block()? {
            Next::Block(_, part) if world.len() + part.len() <= WORLD_MAX => world.extend(part),
            Next::Block(..) => return Err(bad(format!("it has more than {WORLD_MAX} bytes"))),
            Next::End => return Ok((beginning, world)),
            Next::Open | Next::CutOff(_) => return Err(bad("it is cut off".to_owned())),
            Next::Damaged(at, damage) => return Err(bad(format!("it is damaged at byte {at}: {damage}"))),
        }
    }
}

/// Why a file is no segment.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("no recording")]
    Foreign,
    /// Of a version that is not known.
    #[error("format {0}")]
    Version(u32),
    /// It ends before its header does, or the header is damaged.
    #[error("no header")]
    Headless,
}

/// How the blocks of a segment go on.
#[derive(Debug)]
pub enum Next {
    /// These bytes, of the block at this place in the file.
    Block(u64, Vec<u8>),
    /// It ends in good order.
    End,
    /// It ends; nothing says that it should: it is still written, or its writer was stopped.
    Open,
    /// It ends inside a block.
    CutOff(u64),
    /// This block is damaged.
    Damaged(u64, Damage),
}

/// One that is read.
#[derive(Debug)]
pub struct SegmentReader {
    file: io::BufReader<File>,
    at: u64,
}

impl SegmentReader {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<(Self, Header), OpenError> {
        let mut reader = Self { file: io::BufReader::with_capacity(1 << 18, File::open(path)?), at: 0 };
        let mut head = [0; MAGIC.len() + 4];
        let read = reader.fill(&mut head)?;
        let (magic, version) = head.split_at(MAGIC.len());
        if read < MAGIC.len() || magic != MAGIC {
            return Err(if MAGIC.starts_with(&head[..read]) { OpenError::Headless } else { OpenError::Foreign });
        }
        if read < head.len() {
            return Err(OpenError::Headless);
        }
        let version = u32::from_le_bytes(version.try_into().expect("four bytes are left"));
        if version != FORMAT {
            return Err(OpenError::Version(version));
        }
        match reader.next_block()? {
            Next::Block(_, json) => {
                let header = serde_json::from_slice(&json).map_err(|_| OpenError::Headless)?;
                Ok((reader, header))
            }
            _ => Err(OpenError::Headless),
        }
    }

    /// As much as there is.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read(&mut bytes[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.at += read as u64;
        Ok(read)
    }

    /// Reads the next block, or says how the segment ends.
    pub fn next_block(&mut self) -> io::Result<Next> {
        let at = self.at;
        let mut bytes = [0; HEAD];
        match self.fill(&mut bytes)? {
            0 => return Ok(Next::Open),
            HEAD => {}
            _ => return Ok(Next::CutOff(at)),
        }
        let head = match Head::read(&bytes) {
            Ok(head) if head.is_end() => return Ok(Next::End),
            Ok(head) => head,
            Err(damage) => return Ok(Next::Damaged(at, damage)),
        };
        let mut packed = vec![0; head.packed];
        if self.fill(&mut packed)? < packed.len() {
            return Ok(Next::CutOff(at));
        }
        Ok(head.unpack(&packed).map_or_else(|damage| Next::Damaged(at, damage), |plain| Next::Block(at, plain)))
    }
}
