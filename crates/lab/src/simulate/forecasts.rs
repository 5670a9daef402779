//! How starts came beside what was expected: how many lay in the interval that four of five should, how far off the middle
//! was, how wide the interval is. Beside it the naive forecast: as the last jobs of the same queue that waited.
//!
//! Invariant: the naive forecast knows of nothing that happened after it was asked. Called by the simulator; times are in
//! seconds.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use super::history::{Answer, History, Question};
use super::trace::Trace;

/// Waits of one queue that the naive forecast goes by.
const NAIVE_WAITS: usize = 100;
/// Fewer tell it nothing.
const NAIVE_ENOUGH: usize = 12;

/// How forecasts of one kind came out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quality {
    /// How many were asked for, of jobs that started.
    #[serde(rename = "asked")]
    pub questions: usize,
    /// How many of these were answered.
    pub answered: usize,
    /// The part of the answered ones whose start lay in the interval.
    pub inside: f64,
    /// Half of them were off by no more.
    pub error_p50_s: f64,
    /// Half of their intervals are no wider.
    pub width_p50_s: f64,
    /// The part of the answered ones that started within a minute of the expected start.
    pub within_1m: f64,
    /// Within ten minutes.
    pub within_10m: f64,
}

/// Forecasts of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecasts {
    /// Jobs that started when they came: nobody had to tell them when.
    pub started_at_once: usize,
    /// The engine's, asked when a job was submitted.
    pub first: Quality,
    /// The engine's, asked later of jobs that still waited.
    pub later: Quality,
    /// The naive one, asked when a job was submitted.
    pub naive_first: Quality,
    /// The naive one, asked later.
    pub naive_later: Quality,
    /// Of all jobs that started, those that did within a minute of what the engine said when they came; those that started
    /// at once are among them.
    pub all_within_1m: f64,
    /// Within ten minutes.
    pub all_within_10m: f64,
}

/// An answer, and when the job started.
struct Answered {
    answer: Answer,
    started_ms: i64,
}

/// What came of the forecasts in this history.
pub fn forecasts(trace: &Trace, history: &History) -> Forecasts {
    let started = |question: &Question| history.outcomes[question.job as usize].started_ms;
    let naive = naive(trace, history);
    let quality = |first: bool, answers: &dyn Fn(usize, &Question) -> Option<Answer>| {
        let (mut questions, mut answered) = (0, Vec::new());
        for (place, question) in history.questions.iter().enumerate().filter(|(_, question)| question.first == first) {
            let Some(started_ms) = started(question) else { continue };
            questions += 1;
            answered.extend(answers(place, question).map(|answer| Answered { answer, started_ms }));
        }
        Quality::of(questions, &answered)
    };
    let own = |_: usize, question: &Question| question.answer;
    let first = quality(true, &own);
    let all = history.outcomes.iter().filter(|outcome| outcome.started_ms.is_some()).count();
    let at_once = all.saturating_sub(first.questions);
    let of_all = |part: f64| (at_once as f64 + part * first.answered as f64) / (all.max(1)) as f64;
    Forecasts {
        started_at_once: at_once,
        all_within_1m: of_all(first.within_1m),
        all_within_10m: of_all(first.within_10m),
        first,
        later: quality(false, &own),
        naive_first: quality(true, &|place, _| naive[place]),
        naive_later: quality(false, &|place, _| naive[place]),
    }
}

impl Quality {
    /// `answered` of so many questions about jobs that started.
    fn of(questions: usize, answered: &[Answered]) -> Self {
        let part = |is: &dyn Fn(&Answered) -> bool| {
            answered.iter().filter(|one| is(one)).count() as f64 / answered.len().max(1) as f64
        };
        let error = |one: &Answered| one.answer.start_ms.abs_diff(one.started_ms);
        let middle = |of: &dyn Fn(&Answered) -> u64| {
            let mut all: Vec<u64> = answered.iter().map(of).collect();
            all.sort_unstable();
            all.get(all.len().saturating_sub(1) / 2).copied().unwrap_or(0) as f64 / 1_000.0
        };
        Self {
            questions,
            answered: answered.len(),
            inside: part(&|one| (one.answer.early_ms..=one.answer.late_ms).contains(&one.started_ms)),
            error_p50_s: middle(&error),
            width_p50_s: middle(&|one| one.answer.late_ms.saturating_sub(one.answer.early_ms).max(0) as u64),
            within_1m: part(&|one| error(one) <= 60_000),
            within_10m: part(&|one| error(one) <= 600_000),
        }
    }
}

/// What the naive forecast says to each question: the waits of the last jobs of the same queue, of those that were longer
/// than what the job has waited already.
fn naive(trace: &Trace, history: &History) -> Vec<Option<Answer>> {
    let mut starts: Vec<(i64, usize)> = history
        .outcomes
        .iter()
        .enumerate()
        .filter_map(|(job, outcome)| Some((outcome.started_ms?, job)))
        .filter(|(started, job)| *started > trace.jobs[*job].submit_ms)
        .collect();
    starts.sort_unstable();
    let mut starts = starts.into_iter().peekable();
    let mut last: HashMap<&str, VecDeque<i64>> = HashMap::new();
    let mut answers = Vec::with_capacity(history.questions.len());
    for question in &history.questions {
        while let Some((started, job)) = starts.next_if(|(started, _)| *started <= question.at_ms) {
            let waits = last.entry(&trace.jobs[job].queue).or_default();
            waits.push_back(started - trace.jobs[job].submit_ms);
            if waits.len() > NAIVE_WAITS {
                waits.pop_front();
            }
        }
        let job = &trace.jobs[question.job as usize];
        let waited = question.at_ms - job.submit_ms;
        let longer = last.get(&*job.queue).into_iter().flatten().copied().filter(|wait| *wait > waited);
        let mut waits: Vec<i64> = longer.collect();
        waits.sort_unstable();
        if waits.len() < NAIVE_ENOUGH {
            answers.push(None);
            continue;
        }
        let at = |part: usize| job.submit_ms + waits[(waits.len() * part / 10).min(waits.len() - 1)];
        answers.push(Some(Answer { start_ms: at(5), early_ms: at(1), late_ms: at(9) }));
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::history::Outcome;
    use crate::simulate::trace::tests::{job, trace};

    fn history(starts: &[i64]) -> History {
        let outcome = |started: &i64| Outcome { started_ms: Some(started * 1_000), ..Outcome::default() };
        History { outcomes: starts.iter().map(outcome).collect(), ..History::default() }
    }

    fn answer(early: i64, start: i64, late: i64) -> Option<Answer> {
        Some(Answer { start_ms: start * 1_000, early_ms: early * 1_000, late_ms: late * 1_000 })
    }

    #[test]
    fn what_was_said_is_held_against_what_came() {
        let jobs = (0..5).map(|at| job("j", at, 1, 10, 10)).collect();
        let mut history = history(&[0, 101, 202, 1_003, 5_000]);
        let question = |job: u32, answer| Question { job, at_ms: i64::from(job) * 1_000, first: true, answer };
        history.questions = vec![
            question(1, answer(50, 101, 200)),
            question(2, answer(0, 100, 150)),
            question(3, answer(0, 600, 2_000)),
            question(4, None),
        ];
        let found = forecasts(&trace(jobs), &history);
        assert_eq!(found.started_at_once, 1);
        assert_eq!((found.first.questions, found.first.answered), (4, 3));
        assert_eq!(found.first.inside, 2.0 / 3.0);
        assert_eq!((found.first.error_p50_s, found.first.width_p50_s), (102.0, 150.0));
        assert_eq!((found.first.within_1m, found.first.within_10m), (1.0 / 3.0, 1.0));
        assert_eq!((found.all_within_1m, found.all_within_10m), (2.0 / 5.0, 4.0 / 5.0));
        assert_eq!((found.later, found.naive_first.answered), (Quality::default(), 0));
    }

    #[test]
    fn the_naive_one_goes_by_the_waits_that_it_has_seen() {
        // Twenty jobs that wait for 100 s each, one after the other, and one that is asked for when 15 have started.
        let mut jobs: Vec<_> = (0..20).map(|at| job("j", at * 10, 1, 10, 10)).collect();
        jobs.push(job("last", 241, 1, 10, 10));
        let mut starts: Vec<i64> = (0..20).map(|at| at * 10 + 100).collect();
        starts.push(400);
        let mut history = history(&starts);
        let at = |seconds: i64| Question { job: 20, at_ms: seconds * 1_000, first: seconds == 241, answer: None };
        history.questions = vec![at(241), at(345)];
        let told = naive(&trace(jobs), &history);
        assert_eq!(told, [answer(341, 341, 341), None], "nobody has waited for longer than 104 s");
    }
}
