//! A layer's archive becomes a folder.
//!
//! ```text
//!  blob ─► decompressed ─► bounded and hashed ─► entries (tar, PAX, GNU) ─► tree: made below one open folder
//! ```
//!
//! *Invariant*: whatever the archive says, files are made in the layer's folder only, no more bytes and entries than the limits
//! allow, and memory does not grow with them. Two archives that are the same to Docker are the same here; what is not clear is
//! refused.
//! *Called by*: the store, which gives the folder its name when the archive was what its digest says.

mod attributes;
pub(crate) mod entries;
mod error;
mod pax;
pub(crate) mod stream;
mod tree;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

pub use self::attributes::Owners;
pub(crate) use self::attributes::extended_attributes;
pub use self::error::{EntryProblem, LayerError};

use self::entries::{Entries, Entry, Kind};
use self::error::Failed;
use self::stream::Stream;
use self::tree::Tree;
use super::error::{StoreError, io_error};
use super::limits::Limits;
use super::record::LayerRecord;
use super::room::Reserve;
use crate::digest::Digest;

/// The layer's folder in the folder of the work.
pub(super) const ROOT: &str = "root";
/// What the names of removed files begin with.
const WHITEOUT: &[u8] = b".wh.";
/// What the names begin with that the format itself uses.
const OF_THE_FORMAT: &[u8] = b".wh..wh.";
/// Says that a folder hides what layers below have in it.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 128 << 10;
/// The unit of a file's size on most disks, in bytes.
const BLOCK_BYTES: u64 = 4096;

/// Where and within which bounds a layer is unpacked.
pub(super) struct Job<'a> {
    /// A folder for this alone, empty.
    pub work: &'a Path,
    pub limits: &'a Limits,
    pub owners: Owners,
    pub reserve: Reserve,
}

/// What came of it.
pub(super) struct Unpacked {
    /// Of the archive, decompressed.
    pub diff_id: Digest,
    pub record: LayerRecord,
}

/// Why it came to nothing: for the disk's sake or the layer's.
#[derive(Debug)]
pub(super) enum Failure {
    Store(StoreError),
    Layer(LayerError),
}

/// Unpacks a layer; its files are in the folder [`ROOT`] of the job's folder, not necessarily on the disk yet.
pub(super) fn unpack(blob: &File, job: Job<'_>) -> Result<Unpacked, Failure> {
    let decompressed = stream::decompressed(blob, job.limits.window_log_max).map_err(Failure::Layer)?;
    let stream = Stream::new(decompressed, bytes_max(blob, job.limits).map_err(Failure::Layer)?);
    let tree = Tree::new(job.work, job.owners).map_err(|error| Failure::Store(io_error("making", job.work)(error)))?;
    let record = LayerRecord { tar_bytes: 0, disk_bytes: 0, entries: 0, devices: 0, boot: None };
    let mut unpacking = Unpacking {
        entries: Entries::new(stream, job.limits),
        tree,
        reserve: job.reserve,
        record,
        buffer: vec![0; COPY_BYTES],
    };
    unpacking.run()?;
    let Unpacking { entries, mut tree, mut record, .. } = unpacking;
    let mut stream = entries.into_stream();
    // What follows the archive's end belongs to the digest, too.
    stream.drain().map_err(Failure::Layer)?;
    tree.finish().map_err(|error| Failure::Store(io_error("setting times of folders in", job.work)(error)))?;
    record.tar_bytes = stream.read_bytes();
    Ok(Unpacked { diff_id: stream.finish(), record })
}

fn bytes_max(blob: &File, limits: &Limits) -> Result<u64, LayerError> {
    let found = blob.metadata().map_err(stream::failure)?;
    Ok(limits.unpacked_max(found.len()))
}

/// What a blob is when unpacked, without making its files.
pub(super) fn diff_id(blob: &File, limits: &Limits) -> Result<Digest, LayerError> {
    let decompressed = stream::decompressed(blob, limits.window_log_max)?;
    let mut stream = Stream::new(decompressed, bytes_max(blob, limits)?);
    stream.drain()?;
    Ok(stream.finish())
}

struct Unpacking<'a> {
    entries: Entries<'a>,
    tree: Tree,
    reserve: Reserve,
    record: LayerRecord,
    buffer: Vec<u8>,
}

impl Unpacking<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        while let Some(entry) = self.entries.next_entry().map_err(Failure::Layer)? {
            self.reserve.take_file().map_err(Failure::Store)?;
            let made = self.make(&entry);
            made.map_err(|failed| match failed {
                Failed::Store(error) => Failure::Store(error),
                Failed::Stream(error) => Failure::Layer(error),
                Failed::Entry(problem) => Failure::Layer(LayerError::of_entry(entry.number, &entry.name, problem)),
            })?;
        }
        Ok(())
    }

    fn make(&mut self, entry: &Entry) -> Result<(), Failed> {
        self.record.entries += 1;
        let (folder, name) = split(&entry.name);
        if is_of_the_format(folder) || (name.starts_with(OF_THE_FORMAT) && name != OPAQUE) {
            return Ok(());
        }
        if name == OPAQUE {
            return Ok(self.tree.make_opaque(folder)?);
        }
        if let Some(hidden) = name.strip_prefix(WHITEOUT) {
            return Ok(self.tree.hide(folder, hidden)?);
        }
        self.record.disk_bytes += BLOCK_BYTES;
        match &entry.kind {
            Kind::Folder => self.tree.folder(&entry.name, &entry.attributes)?,
            Kind::File => return self.file(entry),
            Kind::SymbolicLink(target) => self.tree.symbolic_link(&entry.name, target, &entry.attributes)?,
            Kind::HardLink(target) => self.tree.hard_link(&entry.name, target)?,
            Kind::Fifo => self.tree.fifo(&entry.name, &entry.attributes)?,
            Kind::Device { major: 0, minor: 0, .. } => return Err(EntryProblem::Whiteout.into()),
            // A container's devices are those of its own `/dev`. Another that it could open would be a way out of it.
            Kind::Device { .. } => {
                self.tree.remove(&entry.name)?;
                self.record.devices += 1;
            }
        }
        Ok(())
    }

    fn file(&mut self, entry: &Entry) -> Result<(), Failed> {
        let mut file = self.tree.file(&entry.name)?;
        let mut data = self.entries.data();
        loop {
            let count = data.read(&mut self.buffer).map_err(stream::failure)?;
            let Some(bytes @ [_, ..]) = self.buffer.get(..count) else { break };
            self.reserve.take_bytes(u64::try_from(count).unwrap_or(u64::MAX))?;
            io::Write::write_all(&mut file, bytes).map_err(EntryProblem::system("writing"))?;
        }
        let size = data.size();
        self.record.disk_bytes += size.next_multiple_of(BLOCK_BYTES);
        Ok(self.tree.finish_file(&file, &entry.attributes)?)
    }
}

/// The folder and the last name of a path; both are empty for the root.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => (b"", path),
    }
}

fn is_of_the_format(folder: &[u8]) -> bool {
    folder.split(|byte| *byte == b'/').any(|name| name.starts_with(OF_THE_FORMAT))
}
