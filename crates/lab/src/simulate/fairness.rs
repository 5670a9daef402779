//! How far what queues or users held was from their fair shares.
//!
//! At any moment each of them demands the cores of its jobs that were submitted and have not ended. Its fair share is
//! the weighted max-min share of those demands over all cores: nobody gets more than it demands, and what one leaves the
//! others share by weight. The figure is the sum over time of |held - fair share|, over twice the sum of the fair
//! shares: 0 where everybody always held its share, 1/2 where nobody held anything, 1 where the wrong ones held all.
//!
//! Invariant: between 0 and 1. O(moments x parties x log(parties)). Called by the figures.

use std::collections::BTreeMap;

use super::history::History;
use super::trace::{Job, Span, Trace};

pub(super) fn of_queues(trace: &Trace, history: &History, cores_milli: i64, span: Span) -> f64 {
    let weights = trace.all_queues();
    unfairness(trace, history, cores_milli, span, |job| (&job.queue, weights.get(&job.queue).copied().unwrap_or(1)))
}

pub(super) fn of_users(trace: &Trace, history: &History, cores_milli: i64, span: Span) -> f64 {
    unfairness(trace, history, cores_milli, span, |job| (&job.user, 1))
}

/// One queue, or one user.
#[derive(Debug, Clone, Copy, Default)]
struct Party {
    weight: f64,
    demand_milli: i64,
    held_milli: i64,
}

/// A change of what a party demands or holds. Ordered by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    at_ms: i64,
    party: usize,
    demand_milli: i64,
    held_milli: i64,
}

fn unfairness<'t>(
    trace: &'t Trace,
    history: &History,
    cores_milli: i64,
    span: Span,
    party_of: impl Fn(&'t Job) -> (&'t str, i32),
) -> f64 {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut parties: Vec<Party> = Vec::new();
    let mut changes: Vec<Change> = Vec::new();
    let of_job: Vec<usize> = trace
        .jobs
        .iter()
        .map(|job| {
            let (name, weight) = party_of(job);
            *places.entry(name).or_insert_with(|| {
                parties.push(Party { weight: f64::from(weight.max(1)), ..Party::default() });
                parties.len() - 1
            })
        })
        .collect();
    for (index, (job, outcome)) in trace.jobs.iter().zip(&history.outcomes).enumerate() {
        let demands = |at_ms, demand_milli| Change { at_ms, party: of_job[index], demand_milli, held_milli: 0 };
        changes.push(demands(job.submit_ms, job.cpu_milli_all()));
        changes.extend(outcome.ended_ms.map(|ended| demands(ended, -job.cpu_milli_all())));
    }
    for hold in &history.holds {
        let held = trace.jobs[hold.job as usize].cpu_milli() * i64::from(hold.pods);
        let party = of_job[hold.job as usize];
        changes.push(Change { at_ms: hold.from_ms, party, demand_milli: 0, held_milli: held });
        changes.push(Change { at_ms: hold.to_ms, party, demand_milli: 0, held_milli: -held });
    }
    changes.sort_unstable();
    let Span { from_ms: from, to_ms: to } = span;
    let (mut apart, mut fair, mut since) = (0.0, 0.0, from);
    let mut shares = Shares::default();
    let mut next = changes.iter().peekable();
    loop {
        let at = next.peek().map_or(to, |change| change.at_ms).clamp(from, to);
        if at > since {
            let (moment_apart, moment_fair) = shares.of(&parties, cores_milli);
            let lasted = (at - since) as f64;
            apart += moment_apart * lasted;
            fair += moment_fair * lasted;
            since = at;
        }
        let Some(change) = next.next() else { break };
        parties[change.party].demand_milli += change.demand_milli;
        parties[change.party].held_milli += change.held_milli;
    }
    if fair > 0.0 { apart / (2.0 * fair) } else { 0.0 }
}

/// Kept from moment to moment, so that nothing is allocated for each.
#[derive(Default)]
struct Shares {
    order: Vec<usize>,
}

impl Shares {
    /// The sum of |held - share|, and of the shares.
    fn of(&mut self, parties: &[Party], cores_milli: i64) -> (f64, f64) {
        self.order.clear();
        self.order.extend((0..parties.len()).filter(|party| parties[*party].demand_milli > 0));
        let per_weight = |party: usize| parties[party].demand_milli as f64 / parties[party].weight;
        self.order.sort_unstable_by(|left, right| per_weight(*left).total_cmp(&per_weight(*right)));
        let mut weights: f64 = self.order.iter().map(|party| parties[*party].weight).sum();
        let mut left = cores_milli as f64;
        let (mut apart, mut fair) = (0.0, 0.0);
        for party in &self.order {
            let Party { weight, demand_milli, held_milli } = parties[*party];
            let share = (demand_milli as f64).min(left * weight / weights);
            left = (left - share).max(0.0);
            weights -= weight;
            fair += share;
            apart += (held_milli as f64 - share).abs();
        }
        (apart, fair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::history::{Hold, Outcome};
    use crate::simulate::trace::tests::{job, trace};

    #[test]
    fn shares_are_max_min_by_weight() {
        let party = |weight: f64, demand: i64, held: i64| Party { weight, demand_milli: demand, held_milli: held };
        for (parties, cores, apart, fair) in [
            (vec![party(1.0, 10, 10), party(1.0, 2, 0)], 6, 6.0 + 2.0, 6.0),
            (vec![party(3.0, 100, 6), party(1.0, 100, 2)], 8, 0.0, 8.0),
            (vec![party(3.0, 1, 1), party(1.0, 100, 7)], 8, 0.0, 8.0),
            (vec![party(1.0, 0, 0)], 8, 0.0, 0.0),
        ] {
            assert_eq!(Shares::default().of(&parties, cores), (apart, fair), "{parties:?}");
        }
    }

    #[test]
    fn one_that_holds_all_while_another_waits_is_half_unfair() {
        let mut jobs = vec![job("a", 0, 2, 100, 100), job("b", 0, 2, 100, 100), job("end", 100, 1, 1, 1)];
        jobs[1].queue = "other".into();
        let trace = trace(jobs);
        let mut history = History::of(3);
        history.holds.push(Hold { job: 0, pods: 2, from_ms: 0, to_ms: 100_000 });
        history.outcomes[0] = Outcome { ended_ms: Some(100_000), ..Outcome::default() };
        assert_eq!(of_queues(&trace, &history, 2_000, Span { from_ms: 0, to_ms: 100_000 }), 0.5);
        assert_eq!(of_users(&trace, &history, 2_000, Span { from_ms: 0, to_ms: 100_000 }), 0.0);
        assert_eq!(of_queues(&trace, &history, 2_000, Span { from_ms: 0, to_ms: 0 }), 0.0);
    }
}
