//! How fast jobs may start: token buckets, one for the fleet and one for each queue.
//!
//! Invariant: over any time no more jobs start than the rate allows, plus one burst and one gang. A gang starts where there
//! is one token and takes the rest in advance, so jobs of one do not starve it; what was taken in advance is waited for. Pure:
//! whoever asks gives the time.

use std::collections::BTreeMap;

use pumice_ledger::TimeMs;

/// Parts of a token that are counted.
const TOKEN: i64 = 1_000_000;
/// Longest time without a look in which buckets are filled: any of them is full by then, or as good as never.
const FILL_MS_MAX: i64 = 1_000_000_000;

/// How fast jobs may start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Jobs a second in the long run.
    pub per_second: f64,
    /// Jobs at once after a rest. A larger gang never starts.
    pub burst: u32,
}

impl Rate {
    /// Parts of a token that come in so many milliseconds.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "bounded by the clamp")]
    fn earned(self, ms: i64) -> i64 {
        let parts = self.per_second.max(0.0) * (TOKEN / 1_000) as f64 * ms.clamp(0, FILL_MS_MAX) as f64;
        parts.clamp(0.0, self.capacity() as f64 * 2.0) as i64
    }

    fn capacity(self) -> i64 {
        i64::from(self.burst) * TOKEN
    }

    /// Milliseconds until so many parts have come.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "bounded by the clamp")]
    fn takes_ms(self, parts: i64) -> i64 {
        let per_ms = self.per_second.max(0.0) * (TOKEN / 1_000) as f64;
        (parts.max(0) as f64 / per_ms.max(f64::MIN_POSITIVE)).ceil().clamp(1.0, FILL_MS_MAX as f64) as i64
    }
}

/// How fast jobs may start; nothing is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RateLimits {
    pub all: Option<Rate>,
    /// Those of one queue.
    pub per_queue: Option<Rate>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    parts: i64,
    at: TimeMs,
}

impl Bucket {
    fn full(rate: Rate, now: TimeMs) -> Self {
        Self { parts: rate.capacity(), at: now }
    }

    fn fill(&mut self, rate: Rate, now: TimeMs) {
        // Where the clock goes back nothing comes, and it counts from there.
        self.parts = self.parts.saturating_add(rate.earned(now.since(self.at))).min(rate.capacity());
        self.at = now;
    }

    fn tokens(self) -> i64 {
        self.parts.div_euclid(TOKEN).max(0)
    }
}

/// What a round may start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// Of all queues together; nothing is no limit.
    pub all: Option<i64>,
    /// Of a queue that is not in `queues`; nothing is no limit.
    pub per_queue: Option<i64>,
    /// Of queues that have started something lately.
    pub queues: BTreeMap<String, i64>,
}

/// One bucket: how fast runs of a pool may be made to leave. A new leader begins with a full one.
#[derive(Debug)]
pub(crate) struct Meter {
    rate: Rate,
    bucket: Option<Bucket>,
}

impl Meter {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, bucket: None }
    }

    /// Takes so many tokens where there is one, the rest in advance; false where there is none.
    pub(crate) fn take(&mut self, tokens: usize, now: TimeMs) -> bool {
        let bucket = self.bucket.get_or_insert_with(|| Bucket::full(self.rate, now));
        bucket.fill(self.rate, now);
        let any = bucket.tokens() > 0;
        if any {
            let parts = i64::try_from(tokens).unwrap_or(i64::MAX).saturating_mul(TOKEN);
            bucket.parts = bucket.parts.saturating_sub(parts);
        }
        any
    }
}

/// The buckets. A new leader begins with full ones.
#[derive(Debug)]
pub struct Rates {
    limits: RateLimits,
    all: Option<Bucket>,
    /// Those that are not full.
    queues: BTreeMap<String, Bucket>,
}

impl Rates {
    /// Buckets that are full: as many jobs may start at once as `burst` says.
    pub fn new(limits: RateLimits) -> Self {
        Self { limits, all: None, queues: BTreeMap::new() }
    }

    /// What one of so many pools may start in a round that begins now. What it starts is to be [`taken`](Self::take).
    pub fn grant(&mut self, now: TimeMs, pools: usize) -> Grant {
        self.fill(now);
        let pools = i64::try_from(pools.max(1)).unwrap_or(i64::MAX);
        let part = |tokens: i64| tokens / pools + i64::from(tokens % pools > 0);
        let all = self.limits.all.map(|rate| self.all.map_or(i64::from(rate.burst), Bucket::tokens));
        Grant {
            all: all.map(part),
            per_queue: self.limits.per_queue.map(|rate| part(i64::from(rate.burst))),
            queues: self.queues.iter().map(|(name, bucket)| (name.clone(), part(bucket.tokens()))).collect(),
        }
    }

    /// So many jobs of a queue were started.
    pub fn take(&mut self, queue: &str, jobs: u32, now: TimeMs) {
        self.fill(now);
        let parts = i64::from(jobs) * TOKEN;
        if let Some(rate) = self.limits.all {
            let bucket = self.all.get_or_insert_with(|| Bucket::full(rate, now));
            bucket.parts = bucket.parts.saturating_sub(parts);
        }
        if let Some(rate) = self.limits.per_queue {
            let bucket = self.queues.entry(queue.to_owned()).or_insert_with(|| Bucket::full(rate, now));
            bucket.parts = bucket.parts.saturating_sub(parts);
        }
    }

    /// When there is a token again in every bucket; nothing where there is one in each now.
    pub fn next(&self) -> Option<TimeMs> {
        let next = |bucket: &Bucket, rate: Rate| {
            if bucket.tokens() >= 1 {
                return None;
            }
            Some(bucket.at.plus(rate.takes_ms(TOKEN - bucket.parts)))
        };
        let all = self.all.iter().zip(self.limits.all).filter_map(|(bucket, rate)| next(bucket, rate));
        let of_queues = self.limits.per_queue.into_iter();
        let of_queues = of_queues.flat_map(|rate| self.queues.values().filter_map(move |bucket| next(bucket, rate)));
        // One queue's turn does not wait for another's; the fleet's is everybody's.
        all.max().or(of_queues.min())
    }

    fn fill(&mut self, now: TimeMs) {
        if let (Some(rate), Some(bucket)) = (self.limits.all, &mut self.all) {
            bucket.fill(rate, now);
        }
        if let Some(rate) = self.limits.per_queue {
            self.queues.retain(|_, bucket| {
                bucket.fill(rate, now);
                bucket.parts < rate.capacity()
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rates(per_second: f64, burst: u32) -> Rates {
        let rate = Some(Rate { per_second, burst });
        Rates::new(RateLimits { all: rate, per_queue: rate })
    }

    #[test]
    fn a_full_bucket_gives_a_burst_and_then_the_rate() {
        let mut rates = rates(10.0, 100);
        assert_eq!(rates.grant(TimeMs(0), 1).all, Some(100));
        rates.take("q", 100, TimeMs(0));
        let empty = rates.grant(TimeMs(0), 1);
        assert_eq!((empty.all, empty.per_queue, empty.queues["q"]), (Some(0), Some(100), 0));
        assert_eq!(rates.next(), Some(TimeMs(100)));
        assert_eq!(rates.grant(TimeMs(1_550), 1).all, Some(15));
        assert_eq!(rates.grant(TimeMs(1_550), 2).all, Some(8), "of two pools");
        assert_eq!(rates.next(), None);
        assert_eq!(rates.grant(TimeMs(1 << 60), 1), Grant { all: Some(100), per_queue: Some(100), ..Grant::default() });
    }

    #[test]
    fn what_a_gang_takes_in_advance_is_waited_for() {
        let mut rates = rates(10.0, 100);
        rates.take("q", 99, TimeMs(0));
        rates.take("q", 50, TimeMs(0));
        assert_eq!(rates.grant(TimeMs(4_900), 1).all, Some(0));
        assert_eq!(rates.next(), Some(TimeMs(5_000)));
        assert_eq!(rates.grant(TimeMs(5_000), 1).all, Some(1));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing_and_takes_nothing() {
        let mut rates = rates(10.0, 100);
        rates.take("q", 90, TimeMs(10_000));
        assert_eq!(rates.grant(TimeMs(0), 1).all, Some(10));
        assert_eq!(rates.grant(TimeMs(1_000), 1).all, Some(20));
    }

    #[test]
    fn without_limits_there_is_no_limit() {
        let mut rates = Rates::new(RateLimits::default());
        rates.take("q", u32::MAX, TimeMs(0));
        assert_eq!(rates.grant(TimeMs(0), 3), Grant::default());
        assert_eq!(rates.next(), None);
    }

    proptest! {
        #[test]
        fn no_more_starts_than_the_rate_allows(
            per_second in 0.1_f64..500.0,
            burst in 1_u32..200,
            steps in prop::collection::vec((0_i64..3_000, 0_u32..300), 1..60),
        ) {
            let mut rates = rates(per_second, burst);
            let (mut now, mut started) = (TimeMs(0), 0.0);
            for (ms, wanted) in steps {
                now = now.plus(ms);
                let granted = rates.grant(now, 1).all.expect("a limit");
                let jobs = wanted.min(u32::try_from(granted).expect("few"));
                rates.take("q", jobs, now);
                started += f64::from(jobs);
                let earned = per_second * now.0 as f64 / 1_000.0;
                prop_assert!(started <= f64::from(burst) + earned + 1.0, "{started} {earned}");
            }
        }
    }
}
