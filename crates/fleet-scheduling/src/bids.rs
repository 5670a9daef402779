//! What queues bid for room in market pools, as it was last told.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use pumice_ledger::PriceBand;

/// A price, for what a unit of resources is worth for an hour. All prices have an order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Price(pub f64);

impl Price {
    /// The price of runs that make room for nobody: no bid is higher.
    pub const ENDLESS: Self = Self(f64::INFINITY);
}

impl PartialEq for Price {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Price {}

impl PartialOrd for Price {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Price {
    fn cmp(&self, other: &Self) -> Ordering {
        // There is one zero.
        (self.0 + 0.0).total_cmp(&(other.0 + 0.0))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ENDLESS { out.write_str("endless") } else { write!(out, "{}", self.0 + 0.0) }
    }
}

/// What a queue bids for jobs of a band in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bid {
    /// For those that wait.
    pub queued: Price,
    /// For those that have their room.
    pub running: Price,
}

/// What a queue bids in a pool. Jobs without a band have one that has no letter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolBids(BTreeMap<Option<PriceBand>, Bid>);

impl PoolBids {
    /// One for each band.
    pub fn new(bids: impl IntoIterator<Item = (Option<PriceBand>, Bid)>) -> Self {
        Self(bids.into_iter().collect())
    }
}

/// All bids. What is not bid is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bids {
    /// By queue, then pool.
    queues: BTreeMap<String, BTreeMap<String, PoolBids>>,
}

impl Bids {
    /// Takes in what a queue bids in a pool.
    pub fn set(&mut self, queue: &str, pool: &str, bids: PoolBids) {
        self.queues.entry(queue.to_owned()).or_default().insert(pool.to_owned(), bids);
    }

    /// What the queue bids for a band.
    pub fn of(&self, queue: &str, pool: &str, band: Option<PriceBand>) -> Bid {
        self.in_pool(queue, pool).and_then(|bids| bids.0.get(&band)).copied().unwrap_or_default()
    }

    /// How many queues bid.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// What the queue bids in the pool, for people.
    pub fn text(&self, queue: &str, pool: &str) -> String {
        let one = |(band, bid): (&Option<PriceBand>, &Bid)| {
            let band = band.map_or("no band", PriceBand::letter);
            format!("{band} {} ({} when it runs)", bid.queued, bid.running)
        };
        let all = self.in_pool(queue, pool).map(|bids| bids.0.iter().map(one).collect::<Vec<_>>().join(", "));
        all.filter(|all| !all.is_empty()).unwrap_or_else(|| "nothing".to_owned())
    }

    fn in_pool(&self, queue: &str, pool: &str) -> Option<&PoolBids> {
        self.queues.get(queue)?.get(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_bid_is_nothing() {
        let bid = Bid { queued: Price(2.5), running: Price(3.0) };
        let mut bids = Bids::default();
        bids.set("q", "p", PoolBids::new([(None, Bid::default()), (Some(PriceBand::B), bid)]));
        for (queue, pool, band, wanted) in [
            ("q", "p", Some(PriceBand::B), bid),
            ("q", "p", Some(PriceBand::A), Bid::default()),
            ("q", "other", Some(PriceBand::B), Bid::default()),
            ("other", "p", Some(PriceBand::B), Bid::default()),
        ] {
            assert_eq!(bids.of(queue, pool, band), wanted, "{queue} {pool} {band:?}");
        }
        assert_eq!(bids.text("q", "p"), "no band 0 (0 when it runs), B 2.5 (3 when it runs)");
        assert_eq!(bids.text("other", "p"), "nothing");
    }

    #[test]
    fn prices_have_an_order_and_one_zero() {
        assert!([Price(-1.0), Price(0.0), Price(1e-9), Price(2.0), Price::ENDLESS].is_sorted());
        assert_eq!(Price(-0.0), Price(0.0));
        assert_eq!(Price(-0.0).to_string(), "0");
    }
}
