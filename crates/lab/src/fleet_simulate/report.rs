//! What is told of a simulation. The names of fields are those of the JSON.

use std::collections::BTreeMap;

use serde::Serialize;

/// What came of a simulation. Its JSON is the output of `fleet simulate`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What the clusters are called.
    pub clusters: String,
    /// What the workload is called.
    pub workload: String,
    /// What run times were drawn by.
    pub seed: u64,
    /// How many clusters there are.
    pub cluster_count: usize,
    pub nodes: usize,
    /// In how many pools.
    pub pools: usize,
    /// What the specifications say that changes nothing.
    pub notes: Vec<String>,
    /// How many jobs there are.
    pub jobs: usize,
    /// Those of them that ended well.
    pub succeeded: usize,
    pub failed: usize,
    pub rejected: usize,
    /// That started and did not end.
    pub unfinished: usize,
    /// That were submitted and never started.
    pub never_started: usize,
    /// That were never submitted, since what they wait for did not end well.
    pub never_submitted: usize,
    /// Why jobs never started, with how many it holds for of the first that it was asked of.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub why_never: BTreeMap<String, usize>,
    /// It was stopped, since it went on without an end.
    pub cut_off: bool,
    /// From the first submission to the last end, in seconds.
    pub makespan_s: f64,
    /// No order of the jobs could take less, in seconds.
    pub makespan_at_least_s: f64,
    /// How often runs had to make room.
    pub preemptions: u64,
    /// Core-hours that ran in vain.
    pub lost_core_hours: f64,
    /// How far queues were from their fair shares, 0 (never) to 1 (the wrong ones held all).
    pub unfairness: f64,
    /// By resource.
    pub resources: BTreeMap<String, ResourceReport>,
    /// The queues, in the order of the workload.
    pub queues: Vec<QueueReport>,
    /// Shares in equal parts of the makespan.
    pub over_time: Vec<Moment>,
    pub rounds: Rounds,
}

/// How the values of many jobs lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Half of them are no larger.
    pub p50: f64,
    /// Nine of ten are no larger.
    pub p90: f64,
    /// All but one in a hundred are no larger.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these values; all 0 where there are none.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a place among at most millions"
    )]
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let at = |part: f64| match (count as f64 * part).ceil() as usize {
            _ if count == 0 => 0.0,
            place => values[place.clamp(1, count) - 1],
        };
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1.0) }
    }
}

/// How much of a resource was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReport {
    /// What all nodes offer, in cores, bytes or whole units.
    pub offered: f64,
    /// The part of it that was held on average over the makespan, 0 to 1.
    pub mean: f64,
    /// The most that was held at once.
    pub most: f64,
}

/// How a queue fared.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueReport {
    pub name: String,
    pub weight: f64,
    pub jobs: usize,
    /// Those of them that ended well.
    pub succeeded: usize,
    /// From submission until the pod runs, in seconds, of those that started.
    pub wait_s: Spread,
    /// What it held and what was its fair share while it had jobs that had not ended, on average.
    pub share: Part,
    /// How often its runs had to make room.
    pub preemptions: u64,
}

/// A part of everything that the nodes offer: of the resource of which it is most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Part {
    #[serde(rename = "held")]
    pub used: f64,
    /// The fair share: by weight, and no more than is asked for.
    pub fair: f64,
}

/// Shares over a part of the time.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// From when, in seconds from the first submission.
    pub from_s: f64,
    /// Until when.
    pub to_s: f64,
    /// By queue, in the order of the workload.
    pub shares: Vec<Part>,
}

/// The rounds of all pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rounds {
    pub count: usize,
    /// What all took together, in milliseconds of the clock.
    pub wall_ms: f64,
    pub each_ms: Spread,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occur() {
        let spread = Spread::of((1..=100).rev().map(f64::from).collect());
        assert_eq!((spread.p50, spread.p90, spread.p99, spread.max), (50.0, 90.0, 99.0, 100.0));
        assert_eq!(Spread::of(vec![3.0]).p50, 3.0);
        assert_eq!(Spread::of(Vec::new()), Spread::default());
    }
}
