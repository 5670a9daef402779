//! The shares of queues in a pool, as Armada defines them: what each should have, and what it has.
//!
//! A queue's cost is its largest part of any one resource. Pure.

use std::collections::BTreeMap;

/// Amounts by resource: cpu in milli-cores, everything else in whole units.
pub type Amounts = BTreeMap<String, i128>;

/// What counts for a queue's cost.
const RESOURCES: [&str; 4] = ["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage"];
/// Spare shares are given out again so often at most, and until so little is left.
const TURNS_MAX: usize = 10;
const LITTLE: f64 = 0.01;

/// A queue that has or wants something of a pool.
#[derive(Debug, Clone, Default)]
pub struct Asking {
    /// 1 / priority factor.
    pub weight: f64,
    pub allocated: Amounts,
    /// What it has and waits for.
    pub demanded: Amounts,
}

/// Shares of a pool, from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Shares {
    /// By its weight alone.
    pub fair: f64,
    /// With what others leave, as far as it wants it.
    pub adjusted: f64,
    /// With what others leave.
    pub uncapped: f64,
    pub actual: f64,
    pub demand: f64,
}

/// The shares of all queues of a pool that has `total`, in their order. O(queues).
pub fn shares(total: &Amounts, queues: &[Asking]) -> Vec<Shares> {
    let all: f64 = queues.iter().map(|queue| queue.weight).sum();
    let first = |queue: &Asking| Shares {
        fair: part(queue.weight, all),
        actual: cost(total, &queue.allocated),
        demand: cost(total, &queue.demanded),
        ..Shares::default()
    };
    let mut shares: Vec<Shares> = queues.iter().map(first).collect();
    let mut spares = vec![0.0; queues.len()];
    let mut is_satisfied = vec![false; queues.len()];
    let mut unallocated = 1.0;
    for _ in 0..TURNS_MAX {
        if unallocated <= LITTLE {
            break;
        }
        let hungry: f64 =
            queues.iter().zip(&is_satisfied).filter(|(_, done)| !**done).map(|(queue, _)| queue.weight).sum();
        let given = std::mem::take(&mut spares);
        spares = vec![0.0; queues.len()];
        for (index, queue) in queues.iter().enumerate() {
            if is_satisfied[index] {
                // If it wanted more, it would get its part of what others left.
                shares[index].uncapped += part(queue.weight, hungry + queue.weight) * (unallocated - given[index]);
                continue;
            }
            let more = part(queue.weight, hungry) * unallocated;
            shares[index].uncapped += more;
            shares[index].adjusted += more;
            let spare = shares[index].adjusted - shares[index].demand;
            if spare > 0.0 {
                shares[index].adjusted = shares[index].demand;
                spares[index] = spare;
                is_satisfied[index] = true;
            }
        }
        unallocated = spares.iter().sum();
    }
    shares
}

/// The largest part of a resource.
#[allow(clippy::cast_precision_loss, reason = "a share is no exact number")]
pub fn cost(total: &Amounts, of: &Amounts) -> f64 {
    let parts = RESOURCES.iter().filter_map(|name| Some(part(*of.get(*name)? as f64, *total.get(*name)? as f64)));
    parts.fold(0.0, f64::max)
}

fn part(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(amount: i128) -> Amounts {
        [("cpu".to_owned(), amount)].into()
    }

    fn asking(weight: f64, has: i128, wants: i128) -> Asking {
        Asking { weight, allocated: cpu(has), demanded: cpu(has + wants) }
    }

    #[test]
    fn what_one_leaves_others_get() {
        let queues = [asking(1.0, 10, 0), asking(1.0, 0, 1_000), asking(2.0, 90, 910)];
        let all = shares(&cpu(100), &queues);
        let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
        let fair: Vec<f64> = all.iter().map(|share| share.fair).collect();
        assert_eq!(fair, [0.25, 0.25, 0.5]);
        // The first wants a tenth; its 0.15 go to the others, one part and two.
        let adjusted: Vec<f64> = all.iter().map(|share| rounded(share.adjusted)).collect();
        assert_eq!(adjusted, [0.1, 0.3, 0.6]);
        // Had it wanted all, it would have its own and no more: what it left is its own.
        let uncapped: Vec<f64> = all.iter().map(|share| rounded(share.uncapped)).collect();
        assert_eq!(uncapped, [0.25, 0.3, 0.6]);
        let actual: Vec<f64> = all.iter().map(|share| share.actual).collect();
        assert_eq!(actual, [0.1, 0.0, 0.9]);
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(shares(&cpu(100), &[]), []);
        let empty = shares(&Amounts::new(), &[asking(1.0, 5, 5), asking(0.0, 0, 0)]);
        assert!(empty.iter().all(|share| share.actual == 0.0 && share.adjusted.is_finite()));
        let weightless = shares(&cpu(10), &[asking(0.0, 5, 5)]);
        assert_eq!(weightless[0].fair, 0.0);
    }

    #[test]
    fn the_largest_part_counts_and_only_of_what_counts() {
        let total = Amounts::from([("cpu".into(), 100), ("memory".into(), 10), ("licences".into(), 1)]);
        let of = Amounts::from([("cpu".into(), 20), ("memory".into(), 5), ("licences".into(), 1)]);
        assert_eq!(cost(&total, &of), 0.5);
    }
}
