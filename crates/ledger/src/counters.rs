//! How much waits in a queue and how much it holds, counted as it changes, so that nobody who asks walks through jobs.
//!
//! Invariant: the counters of a queue's classes are what a look at all of its jobs and runs would give;
//! [`crate::Ledger::lint`] checks it. What nothing is counted in is not kept.

use std::collections::BTreeMap;

use crate::ids::TimeMs;
use crate::job::RunPhase;

/// Times are kept to the minute: so fine are the classes of [`Counter::ages`].
const MINUTE_MS: i64 = 60_000;

/// Where runs hold room. Runs of one queue with equal keys are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageKey {
    /// The pool that their nodes are counted in.
    pub pool: String,
    pub cluster: String,
    /// The priority class of their jobs.
    pub class: String,
    /// How far they are.
    pub phase: RunPhase,
}

/// So many jobs or runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counter {
    count: usize,
    /// The sum of all times since when.
    since_ms: i128,
    /// How many since each minute.
    minutes: BTreeMap<i64, usize>,
    requests: BTreeMap<String, i128>,
}

/// How long it has been, for those of a counter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ages {
    /// How many are not older than each bound, in the order of the bounds.
    pub within: Vec<usize>,
    /// How many there are.
    pub count: usize,
    /// All ages together, in seconds.
    pub sum_seconds: f64,
}

impl Ages {
    /// Takes in those of another counter, by the same bounds.
    pub fn add(&mut self, other: &Ages) {
        self.within.resize(other.within.len().max(self.within.len()), 0);
        self.within.iter_mut().zip(&other.within).for_each(|(mine, theirs)| *mine += theirs);
        self.count += other.count;
        self.sum_seconds += other.sum_seconds;
    }
}

impl Counter {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What they ask for together: cpu in milli-cores, everything else in whole units.
    pub fn requests(&self) -> &BTreeMap<String, i128> {
        &self.requests
    }

    /// How old they are at `now`; `bounds` are seconds, ascending. Exact to the minute. O(minutes in which one began).
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53 milliseconds")]
    pub fn ages(&self, now: TimeMs, bounds: &[i64]) -> Ages {
        let mut classes = vec![0; bounds.len() + 1];
        for (minute, count) in &self.minutes {
            let seconds = now.0.saturating_sub(minute * MINUTE_MS).max(0) / 1_000;
            classes[bounds.partition_point(|bound| *bound < seconds)] += count;
        }
        let within = classes[..bounds.len()].iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let all_ms = i128::from(now.0) * self.count as i128 - self.since_ms;
        Ages { within: within.collect(), count: self.count, sum_seconds: all_ms.max(0) as f64 / 1e3 }
    }

    fn add(&mut self, since: TimeMs, requests: &BTreeMap<String, i64>) {
        self.count += 1;
        self.since_ms += i128::from(since.0);
        *self.minutes.entry(since.0.div_euclid(MINUTE_MS)).or_default() += 1;
        for (name, amount) in requests {
            // Names are few and known by the second time.
            match self.requests.get_mut(name) {
                Some(sum) => *sum += i128::from(*amount),
                None => drop(self.requests.insert(name.clone(), i128::from(*amount))),
            }
        }
    }

    fn remove(&mut self, since: TimeMs, requests: &BTreeMap<String, i64>) {
        self.count -= 1;
        self.since_ms -= i128::from(since.0);
        let minute = since.0.div_euclid(MINUTE_MS);
        if let Some(count) = self.minutes.get_mut(&minute) {
            *count -= 1;
            if *count == 0 {
                self.minutes.remove(&minute);
            }
        }
        for (name, amount) in requests {
            if let Some(sum) = self.requests.get_mut(name) {
                *sum -= i128::from(*amount);
            }
        }
    }
}

/// Counters by what tells them apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counters<K>(BTreeMap<K, Counter>);

impl<K> Default for Counters<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Counters<K> {
    pub(crate) fn all(&self) -> &BTreeMap<K, Counter> {
        &self.0
    }

    pub(crate) fn add(&mut self, key: K, since: TimeMs, requests: &BTreeMap<String, i64>) {
        self.0.entry(key).or_default().add(since, requests);
    }

    pub(crate) fn remove(&mut self, key: &K, since: TimeMs, requests: &BTreeMap<String, i64>) {
        let Some(counter) = self.0.get_mut(key) else { return };
        counter.remove(since, requests);
        if counter.count == 0 {
            self.0.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_counted_by_class_and_what_is_removed_leaves_nothing() {
        let requests = BTreeMap::from([("cpu".to_owned(), 500), ("memory".to_owned(), i64::MAX)]);
        let mut counters = Counters::default();
        for since in [0, 30_000, 90_000, 3_600_000] {
            counters.add("a", TimeMs(since), &requests);
        }
        let counter = &counters.all()["a"];
        let ages = counter.ages(TimeMs(3_600_000), &[60, 3_540, 3_600]);
        assert_eq!(ages.within, [1, 2, 4]);
        assert_eq!((ages.count, ages.sum_seconds), (4, 3_600.0 + 3_570.0 + 3_510.0));
        assert_eq!(counter.requests()["memory"], 4 * i128::from(i64::MAX));
        // A clock that was set back makes nobody younger than new.
        assert_eq!(counter.ages(TimeMs(-1), &[0]).within, [4]);
        for since in [0, 30_000, 90_000, 3_600_000] {
            counters.remove(&"a", TimeMs(since), &requests);
        }
        assert_eq!(counters, Counters::default());
    }
}
