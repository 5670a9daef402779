//! Baselines to hold the engine against: strict FIFO, EASY and conservative backfilling (Mu'alem and Feitelson 2001),
//! over what all nodes offer together. They know no nodes, no queues, no priorities and no users.
//!
//! Invariant: what is offered in all is never exceeded, and a job under conservative backfilling never starts later than
//! it was promised when it came; both are asserted. Called by the simulator.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use pumice_engine::{NodeFacts, Resources};

use super::history::{History, Hold};
use super::nodes;
use super::trace::{Job, Trace};

mod profile;

use profile::Profile;

/// Resources that baselines count; what else a job asks for they don't see.
const COUNTED: [&str; DIMS] = ["cpu", "memory", "nvidia.com/gpu", "pods"];
const DIMS: usize = 4;
/// Waiting jobs that are moved forward where a job ends before its time; the others keep their promises.
const MOVED_MAX: usize = 500;

type Amounts = [i64; DIMS];

/// A policy without an engine, which the engine is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// In the order of submission; what does not fit holds up all behind it.
    Fifo,
    /// The first that waits is promised a start; others pass it where that does not delay it.
    Easy,
    /// Each is promised a start when it comes; others pass where they delay nobody.
    Conservative,
}

impl Baseline {
    /// The baseline of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "fifo" => Some(Self::Fifo),
            "easy" => Some(Self::Easy),
            "conservative" => Some(Self::Conservative),
            _ => None,
        }
    }
}

/// Runs a trace to its end.
pub fn run(trace: &Trace, nodes: &[NodeFacts], baseline: Baseline) -> History {
    let offered = counted(&nodes::total(nodes), 1);
    let mut machine = Machine {
        trace,
        baseline,
        free: offered,
        profile: Profile::new(offered),
        running: BTreeSet::new(),
        ends: BinaryHeap::new(),
        waiting: Vec::new(),
        history: History::of(trace.jobs.len()),
    };
    machine.run(offered);
    machine.history
}

fn counted(resources: &Resources, times: u32) -> Amounts {
    COUNTED.map(|name| resources.get(name).copied().unwrap_or(0).saturating_mul(i64::from(times)))
}

fn fits(asked: &Amounts, free: &Amounts) -> bool {
    asked.iter().zip(free).all(|(asked, free)| asked <= free)
}

struct Machine<'t> {
    trace: &'t Trace,
    baseline: Baseline,
    free: Amounts,
    /// What is promised, of conservative backfilling.
    profile: Profile,
    /// By when they are expected to end.
    running: BTreeSet<(i64, usize)>,
    ends: BinaryHeap<Reverse<(i64, usize)>>,
    /// In the order of submission, with the promised starts.
    waiting: Vec<(usize, i64)>,
    history: History,
}

impl Machine<'_> {
    fn run(&mut self, offered: Amounts) {
        let mut submitted = 0;
        loop {
            let end = self.ends.peek().map(|Reverse((at, _))| *at);
            let submission = self.trace.jobs.get(submitted).map(|job| job.submit_ms);
            let promised = match self.baseline {
                Baseline::Conservative => self.waiting.iter().map(|(_, start)| *start).min(),
                Baseline::Fifo | Baseline::Easy => None,
            };
            let Some(now) = end.into_iter().chain(submission).chain(promised).min() else { break };
            self.history.ended_ms = now;
            let early = self.end(now);
            self.profile.forget_before(now);
            if early && self.baseline == Baseline::Conservative {
                self.move_forward(now);
            }
            while let Some(job) = self.trace.jobs.get(submitted).filter(|job| job.submit_ms <= now) {
                if fits(&self.ask(submitted), &offered) {
                    self.promise(submitted, job, now);
                }
                submitted += 1;
            }
            self.history.cycles += 1;
            match self.baseline {
                Baseline::Fifo => self.start_in_order(now),
                Baseline::Easy => self.start_around_the_first(now),
                Baseline::Conservative => self.start_promised(now),
            }
        }
    }

    fn ask(&self, job: usize) -> Amounts {
        let job = &self.trace.jobs[job];
        let mut ask = counted(&job.requests, job.pods);
        ask[DIMS - 1] = i64::from(job.pods);
        ask
    }

    /// Whether one of them ended before it was expected to.
    fn end(&mut self, now: i64) -> bool {
        let mut early = false;
        while let Some(Reverse((at, job))) = self.ends.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.ends.pop();
            let (ask, about) = (self.ask(job), &self.trace.jobs[job]);
            let started = self.history.outcomes[job].started_ms.unwrap_or(at);
            let expected = started + about.estimate_ms();
            self.running.remove(&(expected, job));
            for (free, amount) in self.free.iter_mut().zip(ask) {
                *free += amount;
            }
            if expected > at && self.baseline == Baseline::Conservative {
                self.profile.give(&ask, at, expected);
                early = true;
            }
            self.history.outcomes[job].ended_ms = Some(at);
            self.history.holds.push(Hold { job: job as u32, pods: about.pods, from_ms: started, to_ms: at });
        }
        early
    }

    fn promise(&mut self, number: usize, job: &Job, now: i64) {
        let mut start = now;
        if self.baseline == Baseline::Conservative {
            let ask = self.ask(number);
            start = self.profile.earliest(&ask, now, job.estimate_ms());
            self.profile.take(&ask, start, start + job.estimate_ms());
        }
        self.waiting.push((number, start));
    }

    /// Gives those that wait what an early end has freed, the first first.
    fn move_forward(&mut self, now: i64) {
        for place in 0..self.waiting.len().min(MOVED_MAX) {
            let (number, start) = self.waiting[place];
            let (ask, estimate) = (self.ask(number), self.trace.jobs[number].estimate_ms());
            self.profile.give(&ask, start, start + estimate);
            let earlier = self.profile.earliest(&ask, now, estimate);
            assert!(earlier <= start, "a promise is kept: {earlier} after {start}");
            self.profile.take(&ask, earlier, earlier + estimate);
            self.waiting[place].1 = earlier;
        }
    }

    fn start(&mut self, number: usize, now: i64) {
        let (ask, job) = (self.ask(number), &self.trace.jobs[number]);
        for (free, amount) in self.free.iter_mut().zip(ask) {
            *free -= amount;
            assert!(*free >= 0, "no more is given than there is");
        }
        self.running.insert((now + job.estimate_ms(), number));
        self.ends.push(Reverse((now + job.held_ms(), number)));
        self.history.outcomes[number].started_ms = Some(now);
    }

    fn start_in_order(&mut self, now: i64) {
        let mut started = 0;
        while let Some((number, _)) = self.waiting.get(started).copied() {
            if !fits(&self.ask(number), &self.free) {
                break;
            }
            self.start(number, now);
            started += 1;
        }
        self.waiting.drain(..started);
    }

    fn start_around_the_first(&mut self, now: i64) {
        self.start_in_order(now);
        let Some((first, _)) = self.waiting.first().copied() else { return };
        // When the first can start if all run as long as they may, and what is left beside it then.
        let (ask, mut left, mut shadow) = (self.ask(first), self.free, now);
        for (expected, number) in &self.running {
            if fits(&ask, &left) {
                break;
            }
            shadow = *expected;
            for (left, amount) in left.iter_mut().zip(self.ask(*number)) {
                *left += amount;
            }
        }
        for (left, amount) in left.iter_mut().zip(ask) {
            *left -= amount;
        }
        let mut place = 1;
        while let Some((number, _)) = self.waiting.get(place).copied() {
            let ask = self.ask(number);
            let ends_before = now + self.trace.jobs[number].estimate_ms() <= shadow;
            if !fits(&ask, &self.free) || !(ends_before || fits(&ask, &left)) {
                place += 1;
                continue;
            }
            if !ends_before {
                for (left, amount) in left.iter_mut().zip(ask) {
                    *left -= amount;
                }
            }
            self.waiting.remove(place);
            self.start(number, now);
        }
    }

    fn start_promised(&mut self, now: i64) {
        let (due, later) = std::mem::take(&mut self.waiting).into_iter().partition(|(_, start)| *start <= now);
        self.waiting = later;
        let due: Vec<(usize, i64)> = due;
        for (number, _) in due {
            self.start(number, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::trace::tests::{job, trace};

    /// Starts in seconds on four cores.
    fn starts(jobs: Vec<Job>, baseline: Baseline) -> Vec<i64> {
        let history = run(&trace(jobs), &nodes::parse("4x1cpu").unwrap(), baseline);
        history.outcomes.iter().map(|outcome| outcome.started_ms.map_or(-1, |ms| ms / 1_000)).collect()
    }

    /// By hand: `wide` waits for `long`; `small` fits beside `long` and ends in time, `beyond` would delay `wide` by
    /// its estimate, and `long` ends 40 s before its estimate.
    fn jobs() -> Vec<Job> {
        vec![
            job("long", 0, 3, 60, 100),
            job("wide", 1, 4, 10, 10),
            job("small", 2, 1, 20, 50),
            job("beyond", 3, 1, 200, 300),
            job("never", 4, 5, 1, 1),
        ]
    }

    #[test]
    fn the_head_of_the_line_blocks_under_fifo() {
        assert_eq!(starts(jobs(), Baseline::Fifo), [0, 60, 70, 70, -1]);
    }

    #[test]
    fn others_pass_the_first_where_they_do_not_delay_it() {
        assert_eq!(starts(jobs(), Baseline::Easy), [0, 60, 2, 70, -1]);
        assert_eq!(starts(jobs(), Baseline::Conservative), [0, 60, 2, 70, -1]);
    }

    #[test]
    fn only_conservative_backfilling_protects_the_second() {
        // Under EASY `late` delays `second` (not the first), as it fits beside `first` once `long` has ended.
        let jobs = vec![
            job("long", 0, 3, 100, 100),
            job("first", 1, 2, 100, 100),
            job("second", 2, 4, 10, 10),
            job("late", 3, 1, 400, 400),
        ];
        assert_eq!(starts(jobs.clone(), Baseline::Easy), [0, 100, 403, 3]);
        assert_eq!(starts(jobs, Baseline::Conservative), [0, 100, 200, 210]);
    }
}
