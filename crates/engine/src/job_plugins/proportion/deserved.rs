//! The split of one dimension by weight: every queue grows in proportion to its weight until it has what it wants,
//! and what one does not want goes to the others.
//!
//! This is the fixed point of Volcano's loop of rounds, found exactly: there is no remainder that could be charged
//! twice (kube-batch 665), no queue that freezes because another dimension is met (729a), no intermediate value that
//! falls (729b). Law: the sum is `min(total, Σ max(floor, want))`, or the sum of the floors where that is more.

use std::cmp::Ordering;

use rustc_hash::FxHashSet;

/// What one queue wants of one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Claim {
    /// Its weight; without one it gets its floor.
    pub(crate) weight: u32,
    /// It gets this much in any case (its guarantee).
    pub(crate) floor: i64,
    /// It gets no more than this (what it requests and may ever hold), unless its floor is more.
    pub(crate) want: i64,
}

impl Claim {
    fn floor(&self) -> i64 {
        self.floor.max(0)
    }

    fn ceiling(&self) -> i64 {
        self.want.max(self.floor())
    }
}

/// Splits `total`. A unit that can't be split goes to those that come first. O(n log n), times the number of levels at
/// which floors bind.
pub(crate) fn split(total: i64, claims: &[Claim]) -> Vec<i64> {
    let mut shares: Vec<i64> = claims.iter().map(Claim::floor).collect();
    let mut growing: Vec<usize> = (0..claims.len()).filter(|index| claims[*index].weight > 0).collect();
    growing.sort_by(|left, right| by_level(&claims[*left], &claims[*right]));
    loop {
        let fixed: i128 = total_of(&shares) - growing.iter().map(|index| i128::from(shares[*index])).sum::<i128>();
        let grown = grow((i128::from(total) - fixed).max(0), claims, &growing);
        // A queue whose floor is above the common level keeps its floor, and the level of the others falls.
        let below = |(index, share): &(usize, i64)| *share < claims[*index].floor();
        let held: FxHashSet<usize> = grown.iter().filter(|grown| below(grown)).map(|(index, _)| *index).collect();
        if held.is_empty() {
            for (index, share) in grown {
                shares[index] = share;
            }
            return shares;
        }
        growing.retain(|index| !held.contains(index));
    }
}

fn total_of(shares: &[i64]) -> i128 {
    shares.iter().map(|share| i128::from(*share)).sum()
}

/// Which of two is satisfied at the lower level.
fn by_level(left: &Claim, right: &Claim) -> Ordering {
    let level = |one: &Claim, other: &Claim| i128::from(one.ceiling()) * i128::from(other.weight);
    level(left, right).cmp(&level(right, left))
}

/// The shares of `growing`, in order of the level at which each is satisfied, from `pool`, without floors.
fn grow(mut pool: i128, claims: &[Claim], growing: &[usize]) -> Vec<(usize, i64)> {
    let mut weights: i128 = growing.iter().map(|index| i128::from(claims[*index].weight)).sum();
    let mut shares = Vec::with_capacity(growing.len());
    let mut rest = growing;
    while let [index, others @ ..] = rest {
        let (weight, ceiling) = (i128::from(claims[*index].weight), claims[*index].ceiling());
        if i128::from(ceiling) * weights > pool * weight {
            break;
        }
        shares.push((*index, ceiling));
        pool -= i128::from(ceiling);
        weights -= weight;
        rest = others;
    }
    if weights == 0 {
        return shares;
    }
    // All the rest want more than the level offers.
    let part = |index: usize| pool * i128::from(claims[index].weight) / weights;
    let mut left = pool - rest.iter().map(|index| part(*index)).sum::<i128>();
    let mut in_order = rest.to_vec();
    in_order.sort_unstable();
    for index in in_order {
        let unit = i128::from(left > 0);
        left -= unit;
        shares.push((index, i64::try_from(part(index) + unit).unwrap_or(i64::MAX)));
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(weight: u32, floor: i64, want: i64) -> Claim {
        Claim { weight, floor, want }
    }

    #[test]
    fn splits() {
        for (name, total, claims, shares) in [
            (
                "665: earlier rounds are not charged again",
                9,
                vec![claim(1, 0, 1), claim(1, 0, 6), claim(1, 0, 6)],
                vec![1, 4, 4],
            ),
            ("729a: nobody wants it", 3, vec![claim(1, 0, 0), claim(1, 0, 0)], vec![0, 0]),
            ("729a: one leaves room for the other", 12, vec![claim(1, 0, 2), claim(1, 0, 8)], vec![2, 8]),
            ("729b: cpu", 8, vec![claim(1, 0, 8), claim(1, 0, 2)], vec![6, 2]),
            ("729b: gpu", 4, vec![claim(1, 0, 0), claim(1, 0, 1)], vec![0, 1]),
            ("by weight", 12, vec![claim(1, 0, 99), claim(2, 0, 99), claim(3, 0, 99)], vec![2, 4, 6]),
            ("units that can't be split", 8, vec![claim(1, 0, 99), claim(1, 0, 99), claim(1, 0, 99)], vec![3, 3, 2]),
            (
                "a guarantee counts in the split",
                10,
                vec![claim(1, 6, 99), claim(1, 0, 99), claim(1, 0, 99)],
                vec![6, 2, 2],
            ),
            ("a guarantee below the share changes nothing", 10, vec![claim(1, 4, 99), claim(1, 0, 99)], vec![5, 5]),
            ("a guarantee holds without a request", 10, vec![claim(1, 4, 0), claim(1, 0, 99)], vec![4, 6]),
            ("guarantees beyond everything", 10, vec![claim(1, 8, 8), claim(1, 8, 8), claim(1, 0, 5)], vec![8, 8, 0]),
            ("no weight, no more than the guarantee", 10, vec![claim(0, 1, 9), claim(1, 0, 99)], vec![1, 9]),
            ("nothing to split", 0, vec![claim(1, 0, 9)], vec![0]),
            ("less than nothing", -5, vec![claim(1, 0, 9)], vec![0]),
            ("nobody", 5, vec![], vec![]),
        ] {
            assert_eq!(split(total, &claims), shares, "{name}");
        }
    }

    fn any_claim() -> impl Strategy<Value = Claim> {
        let amount = || prop_oneof![0_i64..50, any::<i64>()];
        (any::<u32>(), amount(), amount()).prop_map(|(weight, floor, want)| Claim { weight, floor, want })
    }

    proptest! {
        #[test]
        fn the_sum_is_all_there_is_or_all_that_is_wanted(
            total in 0_i64..1 << 48,
            claims in proptest::collection::vec((1_u32..1 << 31, 0_i64..1 << 48), 1..20),
        ) {
            let claims: Vec<Claim> = claims.into_iter().map(|(weight, want)| claim(weight, 0, want)).collect();
            let shares = split(total, &claims);
            let wanted: i64 = claims.iter().map(|claim| claim.want).sum();
            prop_assert_eq!(shares.iter().sum::<i64>(), total.min(wanted));
            for (index, (share, claim)) in shares.iter().zip(&claims).enumerate() {
                prop_assert!(*share <= claim.want);
                // Nobody who wants more holds less per weight than another, but for a unit.
                for (other, rival) in shares.iter().zip(&claims) {
                    let (held, rivals) = (i128::from(*share + 1), i128::from(*other - 1));
                    let fair = held * i128::from(rival.weight) >= rivals * i128::from(claim.weight);
                    prop_assert!(*share == claim.want || fair, "queue {} of {:?}: {:?}", index, claims, shares);
                }
            }
        }

        #[test]
        fn any_input_has_an_answer_within_bounds(
            total in any::<i64>(),
            claims in proptest::collection::vec(any_claim(), 0..12),
        ) {
            let shares = split(total, &claims);
            prop_assert_eq!(shares.len(), claims.len());
            for (share, claim) in shares.iter().zip(&claims) {
                prop_assert!((claim.floor()..=claim.ceiling()).contains(share));
            }
        }
    }
}
