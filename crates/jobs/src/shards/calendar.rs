//! Which days count: every day, weekdays, the trading days of New York, or the days of a user's own file.
//!
//! Invariant: pure; a file's text comes in as an argument. Called by `days`.

use jiff::civil::{Date, Weekday};

use super::xnys;

/// The longest calendar file, in bytes.
pub const FILE_BYTES_MAX: usize = 2 << 20;

/// Which days of a range become records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Calendar {
    All,
    Weekdays,
    /// The trading days of the New York Stock Exchange, 1970 to 2100.
    Xnys,
    /// Just these days, in ascending order.
    Listed(Vec<Date>),
}

/// A calendar that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// A file over the limit.
    #[error("{origin} has more than {FILE_BYTES_MAX} bytes; list only the days, one a line as 2024-01-31")]
    TooLong { origin: String },
    /// A line that is no day.
    #[error("{origin}:{line}: {text:?} is not a day such as 2024-01-31; write one day a line, `#` begins a comment")]
    NoDay {
        origin: String,
        /// From 1.
        line: usize,
        /// The line, cut to 40 characters.
        text: String,
    },
    /// A day that isn't after the one before.
    #[error("{origin}:{line}: {day} does not come after {before}; sort the days and list each once")]
    Order {
        origin: String,
        /// From 1.
        line: usize,
        day: Date,
        /// The day listed before it.
        before: Date,
    },
    /// No day at all.
    #[error("{origin} lists no day; write one day a line, such as 2024-01-31")]
    Empty { origin: String },
}

impl Calendar {
    /// A calendar by its name: `all`, `weekdays` or `XNYS`; `None` for anything else, which is then a file.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "all" => Some(Self::All),
            "weekdays" => Some(Self::Weekdays),
            "XNYS" => Some(Self::Xnys),
            _ => None,
        }
    }

    /// Reads a file's text: one day a line, ascending; `#` begins a comment. `origin` names the file in errors.
    pub fn from_text(origin: &str, text: &str) -> Result<Self, CalendarError> {
        let origin = || origin.to_owned();
        if text.len() > FILE_BYTES_MAX {
            return Err(CalendarError::TooLong { origin: origin() });
        }
        let mut days: Vec<Date> = Vec::new();
        let lines = text.trim_start_matches('\u{feff}').lines().map(|line| line.split('#').next().unwrap_or("").trim());
        for (line, text) in (1..).zip(lines).filter(|(_, text)| !text.is_empty()) {
            let day = parse_day(text).ok_or_else(|| CalendarError::NoDay {
                origin: origin(),
                line,
                text: text.chars().take(40).collect(),
            })?;
            if let Some(&before) = days.last().filter(|before| **before >= day) {
                return Err(CalendarError::Order { origin: origin(), line, day, before });
            }
            days.push(day);
        }
        if days.is_empty() { Err(CalendarError::Empty { origin: origin() }) } else { Ok(Self::Listed(days)) }
    }

    /// Whether a day counts. `O(log days)` for a list.
    pub fn is_open(&self, day: Date) -> bool {
        match self {
            Self::All => true,
            Self::Weekdays => !matches!(day.weekday(), Weekday::Saturday | Weekday::Sunday),
            Self::Xnys => xnys::is_open(day),
            Self::Listed(days) => days.binary_search(&day).is_ok(),
        }
    }
}

/// A day as `2024-01-31` and in no other spelling.
pub(super) fn parse_day(text: &str) -> Option<Date> {
    text.parse::<Date>().ok().filter(|day| day.to_string() == text)
}
