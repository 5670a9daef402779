//! What is free from now on, as steps: until when how much is not promised.
//!
//! Invariant: times ascend, no amount is negative, and the last step lasts for ever with all there is. Each call is
//! O(steps). Used by conservative backfilling.

use super::{Amounts, fits};

pub(super) struct Profile {
    /// From when, and how much is free until the next.
    steps: Vec<(i64, Amounts)>,
}

impl Profile {
    pub(super) fn new(offered: Amounts) -> Self {
        Self { steps: vec![(i64::MIN, offered)] }
    }

    /// Steps that are over count no more.
    pub(super) fn forget_before(&mut self, now: i64) {
        let current = self.steps.partition_point(|(from, _)| *from <= now).saturating_sub(1);
        self.steps.drain(..current);
    }

    /// When so much is free for so long, `from` at the earliest. There is such a time for what all offer together.
    pub(super) fn earliest(&self, ask: &Amounts, from: i64, for_ms: i64) -> i64 {
        let mut start = from;
        let mut place = self.at(from);
        while place < self.steps.len() {
            if !fits(ask, &self.steps[place].1) {
                place += 1;
                start = self.steps.get(place).map_or(start, |(from, _)| *from);
                continue;
            }
            match self.steps.get(place + 1) {
                Some((next, _)) if *next < start + for_ms => place += 1,
                _ => break,
            }
        }
        start
    }

    pub(super) fn take(&mut self, amounts: &Amounts, from: i64, to: i64) {
        self.change(amounts, from, to, -1);
    }

    pub(super) fn give(&mut self, amounts: &Amounts, from: i64, to: i64) {
        self.change(amounts, from, to, 1);
    }

    fn change(&mut self, amounts: &Amounts, from: i64, to: i64, sign: i64) {
        let (first, end) = (self.split(from), self.split(to));
        for (_, free) in &mut self.steps[first..end] {
            for (free, amount) in free.iter_mut().zip(amounts) {
                *free += sign * amount;
                assert!(*free >= 0, "no more is promised than there is");
            }
        }
        // Steps that are like the one before them say nothing.
        for place in [end, first] {
            if place > 0 && self.steps.get(place).is_some_and(|(_, free)| *free == self.steps[place - 1].1) {
                self.steps.remove(place);
            }
        }
    }

    /// The step that holds at `time`.
    fn at(&self, time: i64) -> usize {
        self.steps.partition_point(|(from, _)| *from <= time).saturating_sub(1)
    }

    /// Makes a step begin at `time`; its place.
    fn split(&mut self, time: i64) -> usize {
        let place = self.at(time);
        if self.steps[place].0 == time {
            return place;
        }
        self.steps.insert(place + 1, (time, self.steps[place].1));
        place + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_gap_that_is_long_and_wide_enough_is_found() {
        let mut profile = Profile::new([4, 0, 0, 10]);
        profile.take(&[3, 0, 0, 1], 0, 10);
        profile.take(&[4, 0, 0, 1], 20, 30);
        for (cores, for_ms, earliest) in [(1, 20, 0), (1, 21, 30), (2, 10, 10), (2, 11, 30), (4, 100, 30)] {
            assert_eq!(profile.earliest(&[cores, 0, 0, 1], 0, for_ms), earliest, "{cores} for {for_ms}");
        }
        profile.give(&[4, 0, 0, 1], 20, 30);
        assert_eq!(profile.earliest(&[2, 0, 0, 1], 5, 100), 10);
        profile.give(&[3, 0, 0, 1], 0, 10);
        assert_eq!(profile.steps.len(), 1);
    }
}
