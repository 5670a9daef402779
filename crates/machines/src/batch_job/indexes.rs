//! Sets of indexes, as a Job's status writes them: `0,2-5,9`.
//!
//! Invariant: ranges are ascending and don't touch.

use std::fmt;

/// A set of indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Reads a text; what is not below `end`, or no number, is left out.
    pub fn read(text: &str, end: u32) -> Self {
        let mut indexes = Self::default();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>())
                && first < end
                && first <= last
            {
                indexes.add(first, last.min(end - 1));
            }
        }
        indexes
    }

    /// Adds an index; says whether it is new. `O(ranges)`.
    pub fn insert(&mut self, index: u32) -> bool {
        let is_new = !self.contains(index);
        if is_new {
            self.add(index, index);
        }
        is_new
    }

    fn add(&mut self, first: u32, last: u32) {
        let begin = self.0.partition_point(|(_, end)| end.saturating_add(1) < first);
        let end = self.0.partition_point(|(start, _)| *start <= last.saturating_add(1));
        let touched = self.0.get(begin..end).unwrap_or_default();
        let first = touched.first().map_or(first, |(start, _)| first.min(*start));
        let last = touched.last().map_or(last, |(_, end)| last.max(*end));
        self.0.splice(begin..end.max(begin), [(first, last)]);
    }

    pub fn contains(&self, index: u32) -> bool {
        let at = self.0.partition_point(|(_, end)| *end < index);
        self.0.get(at).is_some_and(|(start, _)| *start <= index)
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|(start, end)| (end - start) as usize + 1).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of `other` are in it.
    pub fn len_within(&self, other: &Self) -> usize {
        let within = |(start, end): &(u32, u32)| {
            let parts = other.0.iter().map(|(s, e)| (*s.max(start), *e.min(end)));
            parts.filter(|(s, e)| s <= e).map(|(s, e)| (e - s) as usize + 1).sum::<usize>()
        };
        self.0.iter().map(within).sum()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (start, end)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            match end - start {
                0 => write!(f, "{comma}{start}")?,
                // As upstream: two neighbours are no range.
                1 => write!(f, "{comma}{start},{end}")?,
                _ => write!(f, "{comma}{start}-{end}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_upstreams() {
        for (text, end, shown, count) in [
            ("", 5, "", 0),
            ("0", 5, "0", 1),
            ("0-4", 5, "0-4", 5),
            ("1,2", 5, "1,2", 2),
            ("1-3,5,7-9", 8, "1-3,5,7", 5),
            ("4,x,2-1,3", 9, "3,4", 2),
        ] {
            let indexes = Indexes::read(text, end);
            assert_eq!((indexes.to_string().as_str(), indexes.len()), (shown, count), "{text}");
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(inserted in prop::collection::vec(0_u32..60, 0..80)) {
            let (mut indexes, mut set) = (Indexes::default(), BTreeSet::new());
            for index in inserted {
                prop_assert_eq!(indexes.insert(index), set.insert(index));
                prop_assert_eq!(indexes.len(), set.len());
                prop_assert!(indexes.0.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            }
            prop_assert!((0..60).all(|index| indexes.contains(index) == set.contains(&index)));
            prop_assert_eq!(Indexes::read(&indexes.to_string(), 60), indexes);
        }
    }
}
