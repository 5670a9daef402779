//! Why a layer can't be unpacked.

use std::io;

use nix::errno::Errno;

use crate::store::error::StoreError;

/// Characters of a name that an error shows.
const PRINTED: usize = 200;

/// Why a layer is refused.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("it can't be decompressed")]
    Compression(#[source] io::Error),
    #[error("it ends in the middle of an entry")]
    Truncated,
    #[error("it has more than {max} bytes unpacked, which is the most that is taken")]
    TooManyBytes { max: u64 },
    #[error("it has more than {max} entries, which is the most that is taken")]
    TooManyEntries { max: u64 },
    #[error("the disk is full")]
    NoRoom(#[source] io::Error),
    #[error("entry {number}, {name:?}, {problem}")]
    Entry {
        /// Counted from 1.
        number: u64,
        name: String,
        problem: EntryProblem,
    },
}

impl LayerError {
    pub(crate) fn of_entry(number: u64, name: &[u8], problem: EntryProblem) -> LayerError {
        match problem {
            EntryProblem::System { source, .. } if pumice_linux::files::is_for_want_of_room(&source) => {
                LayerError::NoRoom(source)
            }
            problem => LayerError::Entry { number, name: printable(name), problem },
        }
    }
}

/// What is wrong with one entry.
#[derive(Debug, thiserror::Error)]
pub enum EntryProblem {
    #[error("has a header with a wrong checksum, so this is no tar archive, or it is damaged")]
    Checksum,
    #[error("has no number in the field {0}")]
    Number(&'static str),
    #[error("has {bytes} bytes of names and attributes; {max} are read at most")]
    Description { bytes: u64, max: u64 },
    #[error("has extended fields that are malformed (PAX): {0}")]
    Pax(&'static str),
    #[error("has two headers of the kind {kind:?} before it")]
    TwoHeaders { kind: char },
    #[error("follows a block of zeros, which is half of an archive's end")]
    HalfAnEnd,
    #[error("is announced by a header and does not follow")]
    NoEntry,
    #[error("has no name")]
    NoName,
    #[error("has a NUL in its {0}")]
    Nul(&'static str),
    #[error("has a name with `..`, which layers have not")]
    ParentFolder,
    #[error("has a {what} of {bytes} bytes; {max} are the most of Linux")]
    TooLong { what: &'static str, bytes: usize, max: usize },
    #[error("is of the kind {kind:?}, which is not known")]
    Kind { kind: char },
    #[error("is sparse, which layers are not: build the image again with a tar without --sparse")]
    Sparse,
    #[error("is a device 0/0, by which Linux marks a removed file; archives have a file .wh.NAME for it")]
    Whiteout,
    #[error("hides no file: after .wh. comes a file's name")]
    HidesNothing,
    #[error("belongs to the {what} {id}; numbers up to 4294967294 are known")]
    Owner { what: &'static str, id: i64 },
    #[error("has {bytes} bytes, and the layer may have {max}")]
    TooLarge { bytes: u64, max: u64 },
    #[error("is the layer's own folder, and no folder")]
    RootKind,
    #[error("lies in {folder:?}, which is no folder")]
    NotInFolder { folder: String },
    #[error("is a second name of {target:?}, which is no file of this layer")]
    LinkTarget { target: String },
    #[error("has an attribute {name:?} that the disk does not take")]
    Attribute {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("can't be made: {action} failed: {source}")]
    System { action: &'static str, source: io::Error },
}

impl EntryProblem {
    /// For a call of the kernel.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> EntryProblem {
        move |error| EntryProblem::System { action, source: error.into() }
    }

    /// For a look into a folder on the way to an entry.
    pub(crate) fn on_the_way(folder: &[u8], errno: Errno) -> EntryProblem {
        match errno {
            Errno::ENOTDIR | Errno::ELOOP | Errno::EEXIST => EntryProblem::NotInFolder { folder: printable(folder) },
            errno => EntryProblem::System { action: "opening its folder", source: errno.into() },
        }
    }
}

/// What making an entry ends with.
pub(crate) enum Failed {
    Entry(EntryProblem),
    Stream(LayerError),
    Store(StoreError),
}

impl From<EntryProblem> for Failed {
    fn from(problem: EntryProblem) -> Failed {
        Failed::Entry(problem)
    }
}

impl From<LayerError> for Failed {
    fn from(error: LayerError) -> Failed {
        Failed::Stream(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed::Store(error)
    }
}

/// A name as text, cut to a length that can be shown.
pub(crate) fn printable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let mut cut: String = text.chars().take(PRINTED).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}
