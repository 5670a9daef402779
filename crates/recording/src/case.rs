//! Cases: stretches of a recording, each a file by itself, that `pumice scheduler check` runs.
//!
//! ```text
//!   a segment's head, whose header says `case`,
//!   blocks: what the World began with (a line), its bytes, the entries (lines), the block that ends it
//! ```
//! Invariant: a case that is damaged, cut off, of another version, or says that it is huge is an error, never a panic,
//! and takes no more memory than its bounds. Written by `cut`, run by `check`.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use pumice_engine::plugin::Registry;

use crate::block::Damage;
use crate::digest;
use crate::entry::{Beginning, Cycle, Entry};
use crate::player::{PlayError, Player};
use crate::replay::Difference;
use crate::segment::{self, About, FORMAT, MAGIC, Next, OpenError, SegmentReader};

/// Most entries of a case.
pub const ENTRIES_MAX: usize = 300_000;
/// Longest saved World of a case, in bytes.
const WORLD_BYTES_MAX: u64 = 2 << 30;
/// Most bytes of its lines.
const LINES_BYTES_MAX: u64 = 1 << 30;

/// Why a file is no case.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// It can't be read.
    #[error("it could not be read")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is no case that was cut from a recording: cut one with pumice scheduler record cut")]
    Foreign,
    /// It is of another version.
    #[error("it is of format {0}, this version reads {FORMAT}: run it with the version that cut it")]
    Version(u32),
    /// It ends too early.
    #[error("it is cut off")]
    CutOff,
    #[error("it is damaged at byte {at}: {damage}")]
    Damaged { at: u64, damage: Damage },
    /// It says that it has more than it may.
    #[error("it has {what}, more than {max}: cut a shorter stretch")]
    TooMuch { what: String, max: u64 },
    /// A line is no entry.
    #[error("entry {entry} is none that this version knows")]
    Entry {
        /// Which, from 1.
        entry: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
}

/// A case as it stands in its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What it says of itself.
    pub about: About,
    /// What its World began with.
    pub beginning: Beginning,
    /// The World; nothing where the entries begin with one.
    pub world: Vec<u8>,
    pub entries: Vec<Entry>,
}

/// Whether a file begins as a case, or a segment, does.
///
/// # Errors
/// When it can't be read.
pub fn is_case(path: &Path) -> io::Result<bool> {
    let mut begins = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begins)?;
    Ok(begins == MAGIC)
}

impl Case {
    /// Writes the case beside `path` first, so that there is never half a case of that name.
    pub(crate) fn write(&self, path: &Path, version: String) -> io::Result<()> {
        let unfinished = path.with_extension("part");
        let header = segment::Header { continues: true, version, case: Some(self.about.clone()), ..Default::default() };
        let mut writer = segment::SegmentWriter::create(&unfinished, &header, u64::MAX)?;
        writer.line(&self.beginning)?;
        writer.long(&self.world)?;
        self.entries.iter().try_for_each(|entry| writer.line(entry))?;
        writer.close_as(&unfinished, path)
    }

    /// Reads one.
    ///
    /// # Errors
    /// When the file is none, or not whole.
    pub fn read(path: &Path) -> Result<Self, CaseError> {
        let (mut reader, header) = SegmentReader::open(path).map_err(|error| match error {
            OpenError::Io(source) => CaseError::Io(source),
            OpenError::Foreign => CaseError::Foreign,
            OpenError::Version(version) => CaseError::Version(version),
            OpenError::Headless => CaseError::CutOff,
        })?;
        let about = header.case.ok_or(CaseError::Foreign)?;
        if about.world_bytes > WORLD_BYTES_MAX {
            let what = format!("a World of {} bytes", about.world_bytes);
            return Err(CaseError::TooMuch { what, max: WORLD_BYTES_MAX });
        }
        let json = next(&mut reader)?.ok_or(CaseError::CutOff)?;
        let beginning = serde_json::from_slice(&json).map_err(|source| CaseError::Entry { entry: 0, source })?;
        let mut world = Vec::new();
        while (world.len() as u64) < about.world_bytes {
            world.extend(next(&mut reader)?.ok_or(CaseError::CutOff)?);
        }
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while let Some(lines) = next(&mut reader)? {
            bytes += lines.len() as u64;
            if bytes > LINES_BYTES_MAX {
                return Err(CaseError::TooMuch { what: format!("{bytes} bytes of entries"), max: LINES_BYTES_MAX });
            }
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let entry = entries.len() + 1;
                if entry > ENTRIES_MAX {
                    let what = format!("{entry} entries");
                    return Err(CaseError::TooMuch { what, max: ENTRIES_MAX as u64 });
                }
                entries.push(serde_json::from_slice(line).map_err(|source| CaseError::Entry { entry, source })?);
            }
        }
        Ok(Self { about, beginning, world, entries })
    }

    /// Runs it: the first plan that comes out otherwise, if there is one.
    ///
    /// # Errors
    /// When it can't be played by this version, or with these plugins.
    pub fn run(&self, registry: &Registry) -> Result<Option<Difference>, PlayError> {
        let mut player = Player::new(registry);
        self.begin(&mut player)?;
        let mut cycles = 0;
        for entry in &self.entries {
            let plan = player.play(entry)?;
            if let (Entry::Cycle(recorded), Some(plan)) = (entry, plan) {
                cycles += 1;
                if digest(&plan) != recorded.digest {
                    let (recorded, replayed) = (recorded.clone(), Cycle::of(recorded.at, &plan));
                    return Ok(Some(Difference { cycle: cycles, recorded, replayed }));
                }
            }
        }
        Ok(None)
    }

    /// Puts a player where the case begins.
    pub(crate) fn begin(&self, player: &mut Player<'_>) -> Result<(), PlayError> {
        if self.world.is_empty() { Ok(()) } else { player.carry(self.beginning.clone(), &self.world, None) }
    }

    /// Its name: from the file's, and the job that it is about.
    pub fn name(&self, path: &Path) -> String {
        let file = path.file_stem().map_or_else(|| PathBuf::from(path), PathBuf::from);
        match &self.about.job {
            Some(job) => format!("{} ({job})", file.display()),
            None => file.display().to_string(),
        }
    }
}

/// The next block's bytes; nothing behind the last.
fn next(reader: &mut SegmentReader) -> Result<Option<Vec<u8>>, CaseError> {
    match reader.next_block()? {
        Next::Block(_, bytes) => Ok(Some(bytes)),
        Next::End => Ok(None),
        Next::Open | Next::CutOff(_) => Err(CaseError::CutOff),
        Next::Damaged(at, damage) => Err(CaseError::Damaged { at, damage }),
    }
}
