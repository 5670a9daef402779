//! What queues held, and what would have been their fair shares, over time.
//!
//! A share is a part of everything that the nodes offer, of the resource of which it is most. At any moment a queue demands what
//! its jobs ask for that were submitted and have not ended; its fair share is the weighted max-min share of those demands.
//! Unfairness is the sum over time of |held - fair|, over twice the sum of the fair shares.
//!
//! Invariant: O(changes + steps x queues x resources), with at most [`STEPS_MAX`] steps: between two of them that lie closer
//! together shares count as unchanged.

use std::collections::BTreeMap;

use pumice_engine::Resources;

use super::report::{Moment, Part, ResourceReport};

/// Times at which shares are looked at.
const STEPS_MAX: i64 = 10_000;
/// Equal parts of the time that shares are told of.
pub(super) const PARTS: usize = 12;

/// A change of what a queue demands or holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'r> {
    pub at_ms: i64,
    pub queue: usize,
    pub demand: bool,
    pub is_more: bool,
    pub requests: &'r Resources,
}

/// What comes of all changes.
#[derive(Debug, Default)]
pub(super) struct Shares {
    pub queues: Vec<Part>,
    pub over_time: Vec<Moment>,
    pub resources: BTreeMap<String, ResourceReport>,
    pub unfairness: f64,
}

/// A queue at a moment. Amounts are in the order of the resources.
#[derive(Debug, Clone)]
struct Queue {
    weight: f64,
    demand: Vec<i64>,
    used: Vec<i64>,
    /// While it demanded something: the time, and share and fair share times it.
    busy_ms: f64,
    sum: Part,
}

/// Shares of `offered` from the first change that is submitted to `to_ms`.
#[allow(clippy::cast_precision_loss, reason = "parts, not amounts")]
pub(super) fn shares(
    weights: &[f64],
    offered: &Resources,
    mut changes: Vec<Change<'_>>,
    from_ms: i64,
    to_ms: i64,
) -> Shares {
    let names: BTreeMap<&str, usize> = offered.keys().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
    let totals: Vec<i64> = offered.values().copied().collect();
    let new = |weight: &f64| Queue {
        weight: *weight,
        demand: vec![0; totals.len()],
        used: vec![0; totals.len()],
        busy_ms: 0.0,
        sum: Part::default(),
    };
    let mut queues: Vec<Queue> = weights.iter().map(new).collect();
    // What is given back at a moment is there for others at that moment.
    changes.sort_by_key(|change| (change.at_ms, change.is_more));
    let length_ms = (to_ms - from_ms).max(1);
    let step_ms = (length_ms / STEPS_MAX).max(1);
    let mut parts = vec![vec![Part::default(); weights.len()]; PARTS];
    let (mut used, mut sums, mut most) =
        (vec![0_i64; totals.len()], vec![0.0; totals.len()], vec![0_i64; totals.len()]);
    let (mut apart, mut fair) = (0.0, 0.0);
    let mut since = from_ms;
    let mut next = changes.iter().peekable();
    while since < to_ms {
        while let Some(change) = next.next_if(|change| change.at_ms <= since) {
            let queue = &mut queues[change.queue];
            let amounts = if change.demand { &mut queue.demand } else { &mut queue.used };
            for (name, amount) in change.requests {
                let Some(place) = names.get(name.as_str()) else { continue };
                let amount = if change.is_more { *amount } else { -amount };
                amounts[*place] += amount;
                if !change.demand {
                    used[*place] += amount;
                    most[*place] = most[*place].max(used[*place]);
                }
            }
        }
        let until = next.peek().map_or(to_ms, |change| change.at_ms.max(since + step_ms)).min(to_ms);
        let lasted = (until - since) as f64;
        let now = now(&queues, &totals);
        for (queue, part) in queues.iter_mut().zip(&now) {
            if queue.demand.iter().any(|amount| *amount > 0) {
                queue.busy_ms += lasted;
                add(&mut queue.sum, *part, lasted);
            }
            apart += (part.used - part.fair).abs() * lasted;
            fair += part.fair * lasted;
        }
        for (sum, used) in sums.iter_mut().zip(&used) {
            *sum += *used as f64 * lasted;
        }
        spread_over(&mut parts, &now, since - from_ms, until - from_ms, length_ms);
        since = until;
    }
    let mean = |sum: f64, total: i64| if total > 0 { sum / (total as f64 * length_ms as f64) } else { 0.0 };
    let resource = |((name, total), (sum, most)): ((&String, &i64), (&f64, &i64))| {
        let unit = if name == "cpu" { 1_000.0 } else { 1.0 };
        let most = if *total > 0 { *most as f64 / *total as f64 } else { 0.0 };
        (name.clone(), ResourceReport { offered: *total as f64 / unit, mean: mean(*sum, *total), most })
    };
    let of_queue = |queue: &Queue| match queue.busy_ms {
        0.0 => Part::default(),
        busy => Part { used: queue.sum.used / busy, fair: queue.sum.fair / busy },
    };
    Shares {
        queues: queues.iter().map(of_queue).collect(),
        over_time: over_time(parts, length_ms),
        resources: offered.iter().zip(sums.iter().zip(&most)).map(resource).collect(),
        unfairness: if fair > 0.0 { apart / (2.0 * fair) } else { 0.0 },
    }
}

fn add(sum: &mut Part, part: Part, times: f64) {
    sum.used += part.used * times;
    sum.fair += part.fair * times;
}

/// Adds shares that lasted for a time to the parts of the whole time that it lies in.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "parts of a time"
)]
fn spread_over(parts: &mut [Vec<Part>], now: &[Part], from: i64, to: i64, length: i64) {
    let part = length as f64 / PARTS as f64;
    let first = ((from as f64 / part) as usize).min(PARTS - 1);
    for (place, sums) in parts.iter_mut().enumerate().skip(first) {
        let begins = place as f64 * part;
        let lasted = (to as f64).min(begins + part) - (from as f64).max(begins);
        if begins >= to as f64 {
            break;
        }
        for (sum, share) in sums.iter_mut().zip(now) {
            add(sum, *share, lasted.max(0.0));
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a time in ms")]
fn over_time(parts: Vec<Vec<Part>>, length_ms: i64) -> Vec<Moment> {
    let part = length_ms as f64 / PARTS as f64;
    let moment = |(place, sums): (usize, Vec<Part>)| Moment {
        from_s: place as f64 * part / 1_000.0,
        to_s: (place + 1) as f64 * part / 1_000.0,
        shares: sums.iter().map(|sum| Part { used: sum.used / part, fair: sum.fair / part }).collect(),
    };
    parts.into_iter().enumerate().map(moment).collect()
}

/// What each holds now, and its fair share.
fn now(queues: &[Queue], totals: &[i64]) -> Vec<Part> {
    #[allow(clippy::cast_precision_loss, reason = "parts, not amounts")]
    let dominant = |amounts: &[i64]| {
        let parts = amounts.iter().zip(totals).filter(|(amount, _)| **amount > 0);
        parts.map(|(amount, total)| if *total > 0 { *amount as f64 / *total as f64 } else { 0.0 }).fold(0.0, f64::max)
    };
    let demands: Vec<f64> = queues.iter().map(|queue| dominant(&queue.demand)).collect();
    let mut order: Vec<usize> = (0..queues.len()).filter(|queue| demands[*queue] > 0.0).collect();
    order.sort_by(|left, right| {
        (demands[*left] / queues[*left].weight).total_cmp(&(demands[*right] / queues[*right].weight))
    });
    let mut parts: Vec<Part> = queues.iter().map(|queue| Part { used: dominant(&queue.used), fair: 0.0 }).collect();
    let mut weights: f64 = order.iter().map(|queue| queues[*queue].weight).sum();
    let mut left = 1.0_f64;
    for queue in order {
        let share = demands[queue].min(left * queues[queue].weight / weights);
        left = (left - share).max(0.0);
        weights -= queues[queue].weight;
        parts[queue].fair = share;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(milli: i64) -> Resources {
        [("cpu".to_owned(), milli)].into()
    }

    fn queue(weight: f64, demand: i64, used: i64) -> Queue {
        Queue { weight, demand: vec![demand], used: vec![used], busy_ms: 0.0, sum: Part::default() }
    }

    #[test]
    fn shares_are_max_min_by_weight() {
        for (queues, fair) in [
            (vec![queue(1.0, 10, 10), queue(1.0, 2, 0)], [0.8, 0.2]),
            (vec![queue(3.0, 100, 6), queue(1.0, 100, 2)], [0.75, 0.25]),
            (vec![queue(3.0, 1, 1), queue(1.0, 100, 7)], [0.1, 0.9]),
            (vec![queue(1.0, 0, 0), queue(1.0, 3, 0)], [0.0, 0.3]),
        ] {
            let found: Vec<f64> = now(&queues, &[10]).iter().map(|part| part.fair).collect();
            assert_eq!(found, fair, "{queues:?}");
        }
    }

    #[test]
    fn one_that_holds_all_while_another_waits_is_half_unfair() {
        let all = cores(2_000);
        let change = |at_ms, queue, demand, is_more| Change { at_ms, queue, demand, is_more, requests: &all };
        let changes = vec![
            change(100, 0, false, false),
            change(0, 0, true, true),
            change(0, 1, true, true),
            change(0, 0, false, true),
        ];
        let found = shares(&[1.0, 1.0], &all, changes, 0, 100);
        assert_eq!(found.queues, [Part { used: 1.0, fair: 0.5 }, Part { used: 0.0, fair: 0.5 }]);
        assert_eq!(found.unfairness, 0.5);
        assert_eq!(found.resources["cpu"], ResourceReport { offered: 2.0, mean: 1.0, most: 1.0 });
        assert_eq!(found.over_time.len(), PARTS);
        assert!(found.over_time.iter().all(|moment| (moment.shares[0].used - 1.0).abs() < 1e-9));
    }

    #[test]
    fn many_changes_are_looked_at_in_steps() {
        let one = cores(1_000);
        let changes: Vec<Change<'_>> = (0..200_000)
            .map(|at| Change { at_ms: at, queue: 0, demand: at % 4 < 2, is_more: at % 2 == 0, requests: &one })
            .collect();
        let found = shares(&[1.0], &one, changes, 0, 200_000);
        let mean = found.resources["cpu"].mean;
        assert!((0.0..=1.0).contains(&mean), "{mean}");
        let empty = shares(&[], &one, Vec::new(), 0, 0);
        assert_eq!((empty.unfairness, empty.queues.len()), (0.0, 0));
    }
}
