//! How long jobs ran beside what was expected when they were submitted: by the engine, by the mean of their user's last
//! two runs (Tsafrir, Etsion and Feitelson 2007), which is the baseline to beat, and by the limit alone.
//!
//! Invariant: nothing that ended after a job was submitted counts in what is predicted of it; where a predictor knows
//! nothing the limit speaks, and no prediction is above it. Called by the simulator.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde::Serialize;

use super::history::History;
use super::trace::Trace;

/// How good the predictions of one predictor were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Accuracy {
    /// Jobs of which it said something.
    pub jobs: usize,
    /// The mean over them of the shorter of run and prediction over the longer.
    pub accuracy: f64,
    /// The part of them that ran no longer than they should at most.
    pub within: f64,
}

/// Predictions of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Predictions {
    pub engine: Accuracy,
    /// The mean of the user's last two runs.
    pub last_two: Accuracy,
    pub limit: Accuracy,
}

#[derive(Default)]
struct Sum {
    jobs: usize,
    accuracy: f64,
    within: usize,
}

impl Sum {
    fn add(&mut self, run_ms: i64, predicted: Option<(i64, i64)>, limit_ms: Option<i64>) {
        let below = |ms: i64| limit_ms.map_or(ms, |limit| ms.min(limit)).max(1);
        let said = predicted.map(|(typical, most)| (below(typical), below(most)));
        let Some((typical, most)) = said.or_else(|| limit_ms.map(|limit| (limit.max(1), limit))) else { return };
        self.jobs += 1;
        self.accuracy += run_ms.min(typical) as f64 / run_ms.max(typical) as f64;
        self.within += usize::from(run_ms <= most);
    }

    fn accuracy(&self) -> Accuracy {
        let jobs = self.jobs.max(1) as f64;
        Accuracy { jobs: self.jobs, accuracy: self.accuracy / jobs, within: self.within as f64 / jobs }
    }
}

/// What came of the predictions in this history.
pub fn predictions(trace: &Trace, history: &History) -> Predictions {
    let mut ends: BinaryHeap<Reverse<(i64, usize)>> = history
        .outcomes
        .iter()
        .enumerate()
        .filter_map(|(job, outcome)| Some(Reverse((outcome.ended_ms?, job))))
        .collect();
    let mut last: HashMap<&str, (i64, Option<i64>)> = HashMap::new();
    let (mut engine, mut last_two, mut limit) = (Sum::default(), Sum::default(), Sum::default());
    for (place, job) in trace.jobs.iter().enumerate() {
        while let Some(Reverse((ended, other))) = ends.peek().copied()
            && ended <= job.submit_ms
        {
            ends.pop();
            let other = &trace.jobs[other];
            let run = other.held_ms();
            last.entry(&other.user).and_modify(|runs| *runs = (run, Some(runs.0))).or_insert((run, None));
        }
        let run = job.held_ms();
        let guessed = history.guessed.get(place).copied().flatten();
        engine.add(run, guessed.map(|guessed| (guessed.typical_ms, guessed.most_ms)), job.limit_ms);
        let mean = last.get(&*job.user).map(|(one, before)| before.map_or(*one, |before| (one + before) / 2));
        last_two.add(run, mean.map(|mean| (mean, mean)), job.limit_ms);
        limit.add(run, None, job.limit_ms);
    }
    Predictions { engine: engine.accuracy(), last_two: last_two.accuracy(), limit: limit.accuracy() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::history::{Guessed, Outcome};
    use crate::simulate::trace::tests::{job, trace};

    #[test]
    fn what_ended_before_a_job_came_tells_of_it() {
        let mut jobs = vec![
            job("a", 0, 1, 100, 400),
            job("b", 0, 1, 300, 400),
            job("c", 150, 1, 50, 400),
            job("d", 500, 1, 400, 400),
        ];
        jobs.push(job("e", 600, 1, 100, 400));
        jobs[4].user = "other".into();
        let trace = trace(jobs);
        let ended = |at: i64| Outcome { ended_ms: Some(at * 1_000), ..Outcome::default() };
        let guessed = |typical: i64| Some(Guessed { typical_ms: typical * 1_000, most_ms: 2_000 * typical });
        let history = History {
            outcomes: [100, 300, 200, 900, 700].map(ended).into(),
            guessed: vec![None, None, guessed(25), guessed(800), None],
            ..History::default()
        };
        let found = predictions(&trace, &history);
        // a, b: 100 and 300 of 400. c: 50 of 100, which ended before. d: 175 (b and c) of 400. e: 100 of 400.
        let close = |value: f64, sum: f64| (value - sum / 5.0).abs() < 1e-9;
        assert!(close(found.last_two.accuracy, 0.25 + 0.75 + 0.5 + 175.0 / 400.0 + 0.25), "{found:?}");
        assert!(close(found.last_two.within, 4.0), "{found:?}");
        assert!(close(found.engine.accuracy, 0.25 + 0.75 + 0.5 + 1.0 + 0.25), "{found:?}");
        assert!(close(found.engine.within, 5.0), "{found:?}");
        assert!(close(found.limit.accuracy, 0.25 + 0.75 + 0.125 + 1.0 + 0.25), "{found:?}");
    }
}
