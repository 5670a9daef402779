//! A set of numbers in few words: `0-9999`, `1-9:2,20`, as HyperQueue and Slurm write array indices.
//!
//! Invariant: runs are sorted and their spans don't overlap, so the set is in ascending order and the n-th number is a binary
//! search away. At most [`RECORDS_MAX`] numbers. Used for arrays, for the records a rerun leaves out, and for the days of a
//! calendar of the user's own.

use std::fmt;

use super::RECORDS_MAX;

/// Numbers in ascending order, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Numbers {
    runs: Vec<Run>,
}

/// `first`, `first + step`, …: `count` numbers, after `before` numbers of earlier runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u32,
    step: u32,
    count: u32,
    before: u32,
}

impl Run {
    fn last(&self) -> u32 {
        self.first + (self.count - 1) * self.step
    }

    fn position(&self, number: u32) -> Option<u32> {
        let distance = number.checked_sub(self.first)?;
        (distance.is_multiple_of(self.step) && distance / self.step < self.count).then(|| distance / self.step)
    }
}

/// A text that is no set of numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NumbersError {
    #[error("it names no number; write numbers and ranges such as 0-99, 1-10:2,20 or 1_000-1_999")]
    Empty,
    /// A part that is neither a number nor a range.
    #[error("{part:?} is no number and no range; write numbers up to 4_294_967_295 and ranges such as 0-99, 1-10:2,20")]
    Part {
        /// The part, cut to 40 characters.
        part: String,
    },
    /// A range that runs backwards.
    #[error("{part:?} ends before it begins; write the smaller number first")]
    Backwards { part: String },
    /// A step of 0.
    #[error("{part:?} has a step of 0; the step is at least 1")]
    Step { part: String },
    #[error("it has more than {RECORDS_MAX} numbers; submit it in several jobs")]
    TooMany,
}

impl Numbers {
    /// Of ascending numbers, each once. `O(numbers)`.
    pub(super) fn from_ascending(numbers: &[u32]) -> Self {
        let mut set = Self::default();
        let mut rest = numbers;
        while let [first, tail @ ..] = rest {
            let step = tail.first().map_or(1, |second| second - first);
            let steps = rest.windows(2).take_while(|pair| pair[1] - pair[0] == step).count();
            // Two numbers apart are shorter as two than as a range with a step.
            let count = if steps == 1 && step > 1 { 1 } else { steps + 1 };
            set.push(*first, if count == 1 { 1 } else { step }, count as u32);
            rest = &rest[count..];
        }
        set
    }

    /// The numbers from 0, `len` of them.
    pub(super) fn all(len: u32) -> Self {
        let mut set = Self::default();
        if len > 0 {
            set.push(0, 1, len);
        }
        set
    }

    fn push(&mut self, first: u32, step: u32, count: u32) {
        let before = self.len();
        self.runs.push(Run { first, step, count, before });
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.before + run.count)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The number at a position from 0. `O(log runs)`.
    pub fn nth(&self, position: u32) -> Option<u32> {
        let run = self.runs.get(self.runs.partition_point(|run| run.before <= position).checked_sub(1)?)?;
        let within = position - run.before;
        (within < run.count).then(|| run.first + within * run.step)
    }

    /// The position of a number, if it is in the set. `O(log runs)`.
    pub fn position(&self, number: u32) -> Option<u32> {
        let run = self.runs.get(self.runs.partition_point(|run| run.first <= number).checked_sub(1)?)?;
        run.position(number).map(|within| run.before + within)
    }

    /// The least, if there is one.
    pub fn first(&self) -> Option<u32> {
        self.runs.first().map(|run| run.first)
    }

    /// The distance of all from the one before; 1 where that is not the same for all.
    pub fn step(&self) -> u32 {
        match self.runs.as_slice() {
            [only] => only.step,
            _ => 1,
        }
    }

    /// The greatest, if there is one.
    pub fn last(&self) -> Option<u32> {
        self.runs.last().map(Run::last)
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|run| (0..run.count).map(|within| run.first + within * run.step))
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, run) in self.runs.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{}", run.first)?;
            if run.count > 1 {
                write!(f, "-{}", run.last())?;
            }
            if run.step > 1 {
                write!(f, ":{}", run.step)?;
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Numbers {
    type Err = NumbersError;

    /// Reads `1-10:2,20`. Numbers may have `_` between digits; what is named twice counts once.
    fn from_str(text: &str) -> Result<Self, NumbersError> {
        if text.trim().is_empty() {
            return Err(NumbersError::Empty);
        }
        let mut runs = text.split(',').map(|part| parse_run(part.trim())).collect::<Result<Vec<_>, _>>()?;
        runs.sort_unstable_by_key(|run| run.first);
        if runs.iter().map(|run| u64::from(run.count)).sum::<u64>() > u64::from(RECORDS_MAX) {
            return Err(NumbersError::TooMany);
        }
        if runs.windows(2).all(|pair| pair[0].last() < pair[1].first) {
            let mut set = Self::default();
            runs.iter().for_each(|run| set.push(run.first, run.step, run.count));
            return Ok(set);
        }
        let mut numbers: Vec<u32> = Self { runs }.iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        Ok(Self::from_ascending(&numbers))
    }
}

fn parse_run(part: &str) -> Result<Run, NumbersError> {
    let shown = || part.chars().take(40).collect::<String>();
    let bad = || NumbersError::Part { part: shown() };
    let (span, step) = match part.split_once(':') {
        Some((span, step)) if span.contains('-') => (span, parse_number(step).ok_or_else(bad)?),
        Some(_) => return Err(bad()),
        None => (part, 1),
    };
    let (first, last) = span.split_once('-').unwrap_or((span, span));
    let (first, last) = (parse_number(first).ok_or_else(bad)?, parse_number(last).ok_or_else(bad)?);
    if last < first {
        return Err(NumbersError::Backwards { part: shown() });
    }
    if step == 0 {
        return Err(NumbersError::Step { part: shown() });
    }
    // `0-4294967295` has one more than a u32 can say, far beyond what is allowed.
    let count = ((last - first) / step).checked_add(1).ok_or(NumbersError::TooMany)?;
    if count > RECORDS_MAX {
        return Err(NumbersError::TooMany);
    }
    Ok(Run { first, step: if count == 1 { 1 } else { step }, count, before: 0 })
}

/// Digits with single `_` between them.
pub(super) fn parse_number(text: &str) -> Option<u32> {
    let well_formed = text.len() <= 32
        && text.split('_').all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_digit()));
    if well_formed { text.replace('_', "").parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written_shortest_first() {
        for (text, written, len) in [
            ("0-9999", "0-9999", 10_000),
            ("1-10:2,20", "1-9:2,20", 6),
            ("1_000-1_002", "1000-1002", 3),
            ("7", "7", 1),
            ("5-5:3", "5", 1),
            ("20, 1-3", "1-3,20", 4),
            ("1-9:2,2-8:2", "1-9", 9),
            ("0-5,3-7", "0-7", 8),
            ("4,4,4", "4", 1),
            ("1,3", "1,3", 2),
            ("4294967295", "4294967295", 1),
        ] {
            let numbers: Numbers = text.parse().unwrap();
            assert_eq!((numbers.to_string().as_str(), numbers.len()), (written, len), "{text}");
            assert_eq!(written.parse::<Numbers>().unwrap(), numbers);
        }
    }

    #[test]
    fn what_is_no_set_is_refused() {
        let shown = |part: &str| part.to_owned();
        for (text, error) in [
            ("", NumbersError::Empty),
            ("1,,2", NumbersError::Part { part: shown("") }),
            ("a", NumbersError::Part { part: shown("a") }),
            ("-1", NumbersError::Part { part: shown("-1") }),
            ("1:2", NumbersError::Part { part: shown("1:2") }),
            ("_1", NumbersError::Part { part: shown("_1") }),
            ("1__0", NumbersError::Part { part: shown("1__0") }),
            ("4294967296", NumbersError::Part { part: shown("4294967296") }),
            ("9-1", NumbersError::Backwards { part: shown("9-1") }),
            ("1-9:0", NumbersError::Step { part: shown("1-9:0") }),
            ("0-10_000_000", NumbersError::TooMany),
            ("0-4294967295", NumbersError::TooMany),
            ("0-6_000_000,0-6_000_000", NumbersError::TooMany),
        ] {
            assert_eq!(text.parse::<Numbers>(), Err(error), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_set_survives_its_text(numbers in proptest::collection::btree_set(0u32..400, 1..120), probe in 0u32..400) {
            let ascending: Vec<u32> = numbers.iter().copied().collect();
            let set = Numbers::from_ascending(&ascending);
            proptest::prop_assert!(set.iter().eq(ascending.iter().copied()));
            proptest::prop_assert_eq!(&set.to_string().parse::<Numbers>().unwrap(), &set);
            proptest::prop_assert_eq!(set.position(probe).and_then(|at| set.nth(at)), numbers.get(&probe).copied());
            for (position, number) in ascending.iter().enumerate() {
                proptest::prop_assert_eq!(set.nth(position as u32), Some(*number));
            }
            proptest::prop_assert_eq!(set.nth(set.len()), None);
        }
    }
}
