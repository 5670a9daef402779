//! Many runs of one program: over an array of numbers, over days, over rows of parameters.
//!
//! A *record* is one run: an array number, a day or a row. A *shard* is one pod, which works through a slice of `chunk`
//! records. A record's key never changes with chunking, so what is done can be skipped later. Everything here is pure: where
//! the rule of a [`Plan`] fits in [`RULE_BYTES_MAX`], any pod computes its slice from that text alone; else the records
//! travel in a bundle. Called by `jobctl`, by `jobctl shard` in the pod, and by Python.

pub mod array;
pub mod calendar;
pub mod days;
pub mod numbers;
pub mod params;
pub mod plan;
pub mod record;
pub mod report;
pub mod rule;
pub mod template;
mod xnys;

use std::collections::HashSet;

pub use array::Array;
pub use calendar::Calendar;
pub use days::{Days, Group};
pub use numbers::Numbers;
pub use params::{Format, KeyBy, Params, Row};
pub use plan::Plan;
pub use record::Record;
pub use template::Template;

/// The most records of a job.
pub const RECORDS_MAX: u32 = 10_000_000;
/// The longest rule, in bytes.
pub const RULE_BYTES_MAX: usize = 8 << 10;
/// The longest key of a record, in bytes.
pub const KEY_BYTES_MAX: usize = 256;

/// What each record is of, which decides the names of its values and variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An array number, which is its key.
    Array,
    Day,
    /// The days of a period.
    Period(Group),
    /// A row of parameters.
    Params,
}

/// The records of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shards {
    Numbers(Numbers),
    /// Days, or periods of days.
    Days(Days),
    /// Records that are not computed: rows of parameters, or any others whose rule is too long.
    Bundled(Bundled),
}

/// What is known here of records that are kept in a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundled {
    /// What each record is of.
    pub kind: Kind,
    pub rows: u32,
    /// The names of their values.
    pub columns: Vec<String>,
}

/// Why no records are left for a rerun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkipError {
    #[error("all {0} records are done; there is nothing to run again")]
    AllDone(u32),
    /// The keys are in the bundle.
    #[error("the records are in a bundle; read the rows again and pack those whose keys are missing")]
    InBundle,
}

impl Kind {
    /// Its name in a rule.
    pub fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Day => "day",
            Self::Period(group) => group.name(),
            Self::Params => "params",
        }
    }

    /// By its name in a rule.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "array" => Some(Self::Array),
            "day" => Some(Self::Day),
            "params" => Some(Self::Params),
            _ => Group::named(name).map(Self::Period),
        }
    }

    /// The names of the values of a record; those of parameters are their columns.
    fn columns(self) -> Vec<String> {
        match self {
            Self::Array | Self::Params => vec![],
            Self::Day => vec!["day".to_owned()],
            Self::Period(group) => vec![group.name().to_owned(), "days".to_owned()],
        }
    }
}

impl Shards {
    /// Rows of parameters in a bundle.
    pub fn params(rows: u32, columns: Vec<String>) -> Self {
        Self::Bundled(Bundled { kind: Kind::Params, rows, columns })
    }

    /// How many records there are.
    pub fn len(&self) -> u32 {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Days(days) => days.len(),
            Self::Bundled(bundled) => bundled.rows,
        }
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What each record is of.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Numbers(_) => Kind::Array,
            Self::Days(days) => days.group().map_or(Kind::Day, Kind::Period),
            Self::Bundled(bundled) => bundled.kind,
        }
    }

    /// The key of a record; `None` beyond the last, and where a bundle has it. `O(log n)`.
    pub fn key(&self, index: u32) -> Option<String> {
        match self {
            Self::Numbers(numbers) => numbers.nth(index).map(|number| number.to_string()),
            Self::Days(days) => days.key(index),
            Self::Bundled(_) => None,
        }
    }

    /// A record; `None` beyond the last, and where a bundle has it.
    pub fn record(&self, index: u32) -> Option<Record> {
        let values = match self {
            Self::Numbers(_) => vec![],
            Self::Days(days) => days.values(index)?,
            Self::Bundled(_) => return None,
        };
        Some(Record { index, key: self.key(index)?, values })
    }

    /// The variables of a record, in order: `PUMICE_SHARD_KEY` and the others. The record may come from a bundle.
    pub fn env(&self, record: &Record) -> Vec<(String, String)> {
        record.env(self.kind(), self.len())
    }

    /// The names that a command's words may use in braces.
    pub fn names(&self) -> Vec<String> {
        let columns = match self {
            Self::Bundled(bundled) => bundled.columns.clone(),
            computed => computed.kind().columns(),
        };
        ["index", "key"].map(str::to_owned).into_iter().chain(columns).collect()
    }

    /// The records whose keys are not among those done, in the same order. `O(records)`.
    pub fn skip(&self, done: &HashSet<String>) -> Result<Self, SkipError> {
        let missing = |index: &u32| self.key(*index).is_some_and(|key| !done.contains(&key));
        let missing = (0..self.len()).filter(missing);
        let left = match self {
            Self::Bundled(_) => return Err(SkipError::InBundle),
            Self::Numbers(numbers) => {
                let numbers: Vec<u32> = missing.filter_map(|index| numbers.nth(index)).collect();
                Self::Numbers(Numbers::from_ascending(&numbers))
            }
            Self::Days(days) => {
                let selected: Vec<u32> = missing.filter_map(|index| days.selected().nth(index)).collect();
                Self::Days(days.clone().keep(Numbers::from_ascending(&selected)))
            }
        };
        if left.is_empty() { Err(SkipError::AllDone(self.len())) } else { Ok(left) }
    }

    /// The same records as a bundle holds them, for when the rule is too long.
    pub fn bundled(&self) -> Bundled {
        match self {
            Self::Bundled(bundled) => bundled.clone(),
            computed => Bundled { kind: computed.kind(), rows: computed.len(), columns: computed.kind().columns() },
        }
    }
}
