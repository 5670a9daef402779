//! Days of a range by a calendar, one record each or one for each month, week or year.
//!
//! Invariant: records are in ascending order and none is empty. The key of a period that the range cuts names the days it
//! covers, so a wider range later never takes a part for the whole. Called by `shards` and `rule`.

use std::ops::Range;

use jiff::civil::{Date, ISOWeekDate};

use super::calendar::{Calendar, CalendarError, parse_day};
use super::numbers::Numbers;
use super::xnys;

/// The years that days may be of.
const YEARS: std::ops::RangeInclusive<i16> = 1900..=2199;

/// What days are put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// A month: `2024-01`.
    Month,
    /// A week from Monday, by ISO 8601: `2024-W01`.
    Week,
    /// A year: `2024`.
    Year,
}

impl Group {
    /// Its name, as in `--group month`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Month => "month",
            Self::Week => "week",
            Self::Year => "year",
        }
    }

    /// The group of that name, as in `--group month`; `None` if there is no such group.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Month, Self::Week, Self::Year].into_iter().find(|group| group.name() == name)
    }

    /// The name of the period a day is in.
    fn period(self, day: Date) -> String {
        match self {
            Self::Month => day.strftime("%Y-%m").to_string(),
            Self::Week => day.strftime("%G-W%V").to_string(),
            Self::Year => day.strftime("%Y").to_string(),
        }
    }

    /// The first and the last day of the period a day is in.
    fn bounds(self, day: Date) -> (Date, Date) {
        match self {
            Self::Month => (day.first_of_month(), day.last_of_month()),
            Self::Week => {
                let week = day.iso_week_date();
                let of = |edge: Result<ISOWeekDate, _>| edge.map_or(day, ISOWeekDate::date);
                (of(week.first_of_week()), of(week.last_of_week()))
            }
            Self::Year => (day.first_of_year(), day.last_of_year()),
        }
    }
}

/// Days that make no records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DaysError {
    /// Not `FIRST:LAST`.
    #[error("--days {text:?} is no range of days; write the first and the last as 2024-01-01:2024-12-31")]
    Range {
        /// What was given, cut to 40 characters.
        text: String,
    },
    /// A range that runs backwards.
    #[error("--days {from}:{to} ends before it begins; write the earlier day first")]
    Backwards {
        /// The first day.
        from: Date,
        /// The last.
        to: Date,
    },
    /// A year nobody means.
    #[error("--days {from}:{to} is not within 1900 to 2199; correct the year")]
    Years {
        /// The first day.
        from: Date,
        /// The last.
        to: Date,
    },
    /// Beyond what is known of an exchange.
    #[error(
        "--days {from}:{to}: the rules of XNYS are known for 1970 to 2100; shorten the range or use a file of days"
    )]
    ExchangeYears {
        /// The first day.
        from: Date,
        /// The last.
        to: Date,
    },
    /// No record at all.
    #[error("--days {from}:{to} has no day that is in the calendar; widen the range or use --calendar all")]
    NoDays {
        /// The first day.
        from: Date,
        /// The last.
        to: Date,
    },
    /// The calendar can't be used.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
}

/// Days by a calendar, maybe put together, maybe without some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Days {
    from: Date,
    to: Date,
    calendar: Calendar,
    group: Option<Group>,
    /// The days of the range that are in the calendar.
    open: Vec<Date>,
    /// Of each day or period: which of `open` it covers.
    periods: Vec<Range<u32>>,
    /// Which of `periods` are records.
    selected: Numbers,
}

impl Days {
    /// The days from `from` to `to`, both included, that are in the calendar. `O(days)`.
    pub fn new(from: Date, to: Date, calendar: Calendar, group: Option<Group>) -> Result<Self, DaysError> {
        if to < from {
            return Err(DaysError::Backwards { from, to });
        }
        let within = |years: std::ops::RangeInclusive<i16>| years.contains(&from.year()) && years.contains(&to.year());
        if !within(YEARS) {
            return Err(DaysError::Years { from, to });
        }
        if calendar == Calendar::Xnys && !within(xnys::YEARS) {
            return Err(DaysError::ExchangeYears { from, to });
        }
        let open: Vec<Date> = each_day(from, to).filter(|day| calendar.is_open(*day)).collect();
        if open.is_empty() {
            return Err(DaysError::NoDays { from, to });
        }
        let calendar = match calendar {
            // What lies outside changes nothing, and would not be in the rule.
            Calendar::Listed(_) => Calendar::Listed(open.clone()),
            named => named,
        };
        let together = |a: &Date, b: &Date| group.is_some_and(|group| group.bounds(*a) == group.bounds(*b));
        let mut end = 0;
        let periods = open.chunk_by(together).map(|days| {
            let start = end;
            end += days.len() as u32;
            start..end
        });
        let periods: Vec<_> = periods.collect();
        let selected = Numbers::all(periods.len() as u32);
        Ok(Self { from, to, calendar, group, open, periods, selected })
    }

    /// Only some of the days or periods, by position among all of them.
    pub(super) fn keep(self, selected: Numbers) -> Self {
        Self { selected, ..self }
    }

    /// The first and the last day of `2024-01-01:2024-12-31`, in this order as they are written.
    pub fn parse_range(text: &str) -> Result<(Date, Date), DaysError> {
        let days = text.split_once(':').and_then(|(from, to)| Some((parse_day(from.trim())?, parse_day(to.trim())?)));
        days.ok_or_else(|| DaysError::Range { text: text.chars().take(40).collect() })
    }

    /// How many records there are.
    pub fn len(&self) -> u32 {
        self.selected.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.selected.is_empty()
    }

    /// The first and the last day of the range.
    pub fn range(&self) -> (Date, Date) {
        (self.from, self.to)
    }

    /// The calendar that says which days of the range are records.
    pub fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// What days are put together by.
    pub fn group(&self) -> Option<Group> {
        self.group
    }

    /// The days of the range that are in the calendar, whether records cover them or not.
    pub(super) fn open(&self) -> &[Date] {
        &self.open
    }

    /// How many days or periods the range has, whether they are records or not.
    pub(super) fn periods(&self) -> u32 {
        self.periods.len() as u32
    }

    /// Which of the days or periods are records, by position.
    pub(super) fn selected(&self) -> &Numbers {
        &self.selected
    }

    /// The key of a record: `2024-01-02`; `2024-01`, `2024-W01` or `2024`; or, of a period that the range cuts, its first and
    /// last day as `2024-01-15..2024-01-31`.
    pub fn key(&self, index: u32) -> Option<String> {
        let first = *self.days(index)?.first()?;
        let Some(group) = self.group else { return Some(first.to_string()) };
        let (begin, end) = group.bounds(first);
        if begin < self.from || end > self.to {
            return Some(format!("{}..{}", begin.max(self.from), end.min(self.to)));
        }
        Some(group.period(first))
    }

    /// The name and text of what a record says: its day, or its period and that period's days.
    pub fn values(&self, index: u32) -> Option<Vec<(String, String)>> {
        let days = self.days(index)?;
        let first = *days.first()?;
        Some(match self.group {
            None => vec![("day".to_owned(), first.to_string())],
            Some(group) => {
                let days: Vec<String> = days.iter().map(Date::to_string).collect();
                vec![(group.name().to_owned(), group.period(first)), ("days".to_owned(), days.join(","))]
            }
        })
    }

    /// The days of a record, ascending, never none.
    pub fn days(&self, index: u32) -> Option<&[Date]> {
        let days = self.periods.get(self.selected.nth(index)? as usize)?;
        self.open.get(days.start as usize..days.end as usize)
    }
}

/// All days of a range.
pub(super) fn each_day(from: Date, to: Date) -> impl Iterator<Item = Date> {
    std::iter::successors(Some(from), |day| day.tomorrow().ok()).take_while(move |day| *day <= to)
}
