//! Numbers by index, as a short text: `0-3,7:2` says 1 of the indices 0 to 3, and 2 of index 7.
//!
//! Invariant: runs are sorted, don't touch or overlap with the same value, and no text is longer than [`TEXT_MAX`]. What can't
//! be read is nothing. Used for what a job must remember of pods that are gone.

use std::collections::{BTreeMap, BTreeSet};

/// Longest text, in bytes.
pub(crate) const TEXT_MAX: usize = 32 * 1024;
/// Highest index; a text can't ask for more memory than a job of that many pods.
const INDEX_MAX: i32 = 1_000_000;

/// A number for each index, zero for most: runs of indices that share one, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeEncoding {
    runs: Vec<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: i32,
    last: i32,
    value: i64,
}

impl RangeEncoding {
    /// Reads a text. `O(length)`.
    pub fn read(text: &str) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let mut runs = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (span, value) = part.split_once(':').unwrap_or((part, "1"));
            let (first, last) = span.split_once('-').unwrap_or((span, span));
            let run = Run { first: first.parse().ok()?, last: last.parse().ok()?, value: value.parse().ok()? };
            let after = runs.runs.last().is_none_or(|before| before.last < run.first);
            if !after || run.first < 0 || run.first > run.last || run.last > INDEX_MAX {
                return None;
            }
            runs.push(run);
        }
        Some(runs)
    }

    /// The text, however long; whoever keeps it looks at its length.
    pub fn write(&self) -> String {
        let part = |run: &Run| {
            let span =
                if run.first == run.last { run.first.to_string() } else { format!("{}-{}", run.first, run.last) };
            if run.value == 1 { span } else { format!("{span}:{}", run.value) }
        };
        self.runs.iter().map(part).collect::<Vec<_>>().join(",")
    }

    /// The number at an index. `O(log runs)`.
    pub fn get(&self, index: i32) -> Option<i64> {
        let after = self.runs.partition_point(|run| run.first <= index);
        let run = self.runs.get(after.checked_sub(1)?)?;
        (index <= run.last).then_some(run.value)
    }

    /// All indices with their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (i32, i64)> {
        self.runs.iter().flat_map(|run| (run.first..=run.last).map(|index| (index, run.value)))
    }

    /// How many runs there are.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Where each run begins, and where the indices after it do.
    pub fn borders(&self) -> impl Iterator<Item = i32> {
        self.runs.iter().flat_map(|run| [run.first, run.last.saturating_add(1)])
    }

    /// At each index the higher of two numbers; none counts as lower than any.
    pub fn highest(&self, other: &Self) -> Self {
        if other.runs.is_empty() {
            return self.clone();
        }
        let borders: BTreeSet<i32> = self.borders().chain(other.borders()).collect();
        let mut all = Self::default();
        for (first, end) in borders.iter().zip(borders.iter().skip(1)) {
            if let Some(value) = self.get(*first).max(other.get(*first)) {
                all.push(Run { first: *first, last: end - 1, value });
            }
        }
        all
    }

    /// The highest number, for all indices up to `last`.
    pub fn flattened(&self, last: i32) -> Self {
        let value = self.runs.iter().map(|run| run.value).max();
        Self { runs: value.map(|value| Run { first: 0, last: last.clamp(0, INDEX_MAX), value }).into_iter().collect() }
    }

    /// How many indices have a number.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.last.abs_diff(run.first)) + 1).sum()
    }

    fn push(&mut self, run: Run) {
        match self.runs.last_mut() {
            Some(before) if before.value == run.value && before.last.saturating_add(1) == run.first => {
                before.last = run.last;
            }
            _ => self.runs.push(run),
        }
    }
}

impl From<&BTreeMap<i32, i64>> for RangeEncoding {
    /// Indices that are negative or too high are left out.
    fn from(numbers: &BTreeMap<i32, i64>) -> Self {
        let mut runs = Self::default();
        for (index, value) in numbers.range(0..=INDEX_MAX) {
            runs.push(Run { first: *index, last: *index, value: *value });
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_read_strictly() {
        let cases = [
            ("", Some("")),
            ("0-3,7:2", Some("0-3,7:2")),
            ("0,1,2:1,3-4", Some("0-4")),
            ("5:-3", Some("5:-3")),
            ("3-1", None),
            ("1,1", None),
            ("4-9,8", None),
            ("-1", None),
            ("0-2147483647", None),
            ("a", None),
            ("1:", None),
        ];
        for (text, expected) in cases {
            assert_eq!(RangeEncoding::read(text).map(|runs| runs.write()).as_deref(), expected, "{text:?}");
        }
        assert_eq!(RangeEncoding::read(&"1,".repeat(TEXT_MAX)), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(numbers in prop::collection::btree_map(0..60_i32, 0..3_i64, 0..40)) {
            let runs = RangeEncoding::from(&numbers);
            let read = RangeEncoding::read(&runs.write());
            prop_assert_eq!(read.as_ref(), Some(&runs));
            for index in -1..61 {
                prop_assert_eq!(runs.get(index), numbers.get(&index).copied());
            }
            prop_assert!(runs.runs.windows(2).all(|pair| pair[0].last + 1 < pair[1].first || pair[0].value != pair[1].value));
            prop_assert_eq!(runs.iter().collect::<BTreeMap<_, _>>(), numbers);
        }

        #[test]
        fn the_higher_of_two_numbers_counts(
            one in prop::collection::btree_map(0..30_i32, -2..3_i64, 0..20),
            other in prop::collection::btree_map(0..30_i32, -2..3_i64, 0..20),
        ) {
            let highest = RangeEncoding::from(&one).highest(&RangeEncoding::from(&other));
            for index in -1..31 {
                prop_assert_eq!(highest.get(index), one.get(&index).copied().max(other.get(&index).copied()));
            }
            prop_assert_eq!(RangeEncoding::read(&highest.write()), Some(highest));
        }

        #[test]
        fn no_text_panics(text in "[0-9,:-]{0,40}") {
            let _ = RangeEncoding::read(&text);
        }
    }
}
