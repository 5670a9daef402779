//! Amounts and shares: vectors by dimension, and how much of a whole they are. Integers, saturating, total.
//!
//! A share is in parts per billion, rounded down; equal fractions give equal shares whatever dimension they stand
//! in. Called by the plugins that divide the cluster among queues, namespaces and jobs.

use crate::ids::DimId;
use crate::resource_dims::Demand;

/// A share of everything.
pub(crate) const WHOLE: i64 = 1_000_000_000;

/// The amount of `dim`; absent is zero.
pub(crate) fn at(amounts: &[i64], dim: DimId) -> i64 {
    amounts.get(dim.index()).copied().unwrap_or(0)
}

/// Adds `amounts`, `times` times.
pub(crate) fn add(sum: &mut Vec<i64>, amounts: &[i64], times: i64) {
    sum.resize(sum.len().max(amounts.len()), 0);
    for (sum, amount) in sum.iter_mut().zip(amounts) {
        *sum = sum.saturating_add(amount.saturating_mul(times));
    }
}

/// What `left` has beyond `right`, per dimension.
pub(crate) fn beyond(left: &[i64], right: &[i64]) -> Vec<i64> {
    let pairs = left.iter().enumerate();
    pairs.map(|(index, amount)| amount.saturating_sub(at(right, DimId::from(index))).max(0)).collect()
}

/// A demand as a vector.
pub(crate) fn vector(demand: &Demand) -> Vec<i64> {
    let mut amounts = Vec::new();
    demand.add_to(&mut amounts, 1);
    amounts
}

/// `held / of` in parts per billion; of nothing, anything is the whole.
pub(crate) fn ratio(held: i64, of: i64) -> i64 {
    if held <= 0 {
        return 0;
    }
    if of <= 0 {
        return WHOLE;
    }
    // A division of 64 bits is much quicker, and enough for most.
    match held.checked_mul(WHOLE) {
        Some(parts) => parts / of,
        None => i64::try_from(i128::from(held) * i128::from(WHOLE) / i128::from(of)).unwrap_or(i64::MAX),
    }
}

/// The largest share in any dimension that `of` has.
pub(crate) fn dominant(held: &[i64], of: &[i64]) -> i64 {
    let shares = held.iter().zip(of).filter(|(_, of)| **of > 0).map(|(held, of)| ratio(*held, *of));
    shares.max().unwrap_or(0)
}

/// The same of two amounts together.
pub(crate) fn dominant_sum(held: &[i64], more: &[i64], of: &[i64]) -> i64 {
    let amount = |dim: usize| [held, more].map(|all| all.get(dim).copied().unwrap_or(0)).iter().sum();
    let shares = of.iter().enumerate().filter(|(_, of)| **of > 0).map(|(dim, of)| ratio(amount(dim), *of));
    shares.max().unwrap_or(0)
}

/// The same of a demand.
pub(crate) fn dominant_of(demand: &Demand, of: &[i64]) -> i64 {
    let shares = demand.iter().map(|(dim, amount)| (amount, at(of, dim))).filter(|(_, of)| *of > 0);
    shares.map(|(amount, of)| ratio(amount, of)).max().unwrap_or(0)
}

/// Upper bounds by dimension; one that is not named has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Limits(Vec<i64>);

impl Limits {
    /// Limits in the named dimensions only.
    pub(crate) fn of(named: impl IntoIterator<Item = (DimId, i64)>) -> Self {
        let mut limits = Self::default();
        for (dim, limit) in named {
            limits.lower(dim, limit);
        }
        limits
    }

    /// Limits in the first dimensions, all of them.
    pub(crate) fn all(amounts: Vec<i64>) -> Self {
        Self(amounts)
    }

    pub(crate) fn get(&self, dim: DimId) -> i64 {
        self.0.get(dim.index()).copied().unwrap_or(i64::MAX)
    }

    /// The limits of the first dimensions; `i64::MAX` where there is none.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DimId, i64)> + '_ {
        self.0.iter().enumerate().map(|(dim, limit)| (DimId::from(dim), *limit))
    }

    /// Limits `dim` to `limit`, unless it is limited to less.
    pub(crate) fn lower(&mut self, dim: DimId, limit: i64) {
        if self.0.len() <= dim.index() {
            self.0.resize(dim.index() + 1, i64::MAX);
        }
        let cell = &mut self.0[dim.index()];
        *cell = limit.min(*cell);
    }

    /// The tighter of both, per dimension.
    pub(crate) fn tighter(&self, other: &Self) -> Self {
        let dims = (0..self.0.len().max(other.0.len())).map(DimId::from);
        Self(dims.map(|dim| self.get(dim).min(other.get(dim))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_fractions_rounded_down() {
        for (held, of, share) in [
            (1, 2, WHOLE / 2),
            (1, 3, 333_333_333),
            (10 << 30, 30 << 30, 333_333_333),
            (0, 0, 0),
            (5, 0, WHOLE),
            (-5, 10, 0),
            (i64::MAX, 1, i64::MAX),
        ] {
            assert_eq!(ratio(held, of), share, "{held} of {of}");
        }
        assert_eq!(dominant(&[1, 5, 9], &[10, 10, 0]), WHOLE / 2, "a dimension nobody has counts for nothing");
        assert_eq!(dominant(&[], &[10]), 0);
    }

    #[test]
    fn limits_that_are_not_named_do_not_bind() {
        let (cpu, gpu) = (DimId(0), DimId(4));
        let limits = Limits::of([(gpu, 2)]);
        assert_eq!((limits.get(cpu), limits.get(gpu), limits.get(DimId(9))), (i64::MAX, 2, i64::MAX));
        let both = limits.tighter(&Limits::all(vec![7, 8, 9, 9, 1]));
        assert_eq!((both.get(cpu), both.get(gpu)), (7, 1));
    }
}
