//! `--params FILE`: rows of parameters as CSV or JSON lines, read as a stream.
//!
//! Invariant: memory is bounded by one row and less than 50 bytes a row for its key, whatever the file. A row comes out as
//! canonical JSON with a key that no other row has. Nothing is guessed: what is not exactly a table is refused with its line.
//! Called by what packs bundles.

mod csv;
mod error;
mod table;

pub use error::{Fault, ParamsError};
pub(super) use table::is_name;
pub use table::{Params, Row};

/// The longest row, in bytes.
pub const ROW_BYTES_MAX: usize = 64 << 10;
/// Most columns of a table of parameters.
pub const COLUMNS_MAX: usize = 256;
/// The longest name of a column, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// The longest all names may be together: they are part of the rule.
pub const NAMES_BYTES_MAX: usize = 7 << 10;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated, by RFC 4180, with a row of names first.
    Csv,
    /// A flat JSON object a line.
    JsonLines,
}

impl Format {
    /// By the end of a file's name: `.csv`, `.jsonl` or `.ndjson`.
    pub fn of_path(path: &str) -> Option<Self> {
        let end = path.rsplit('.').next()?.to_ascii_lowercase();
        match end.as_str() {
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// Where a row's key is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyBy {
    /// A hash of what the row says, whatever the order of its columns.
    Content,
    /// The text of a column.
    Column(String),
}
