//! The Standard Workload Format of the Parallel Workloads Archive (Feitelson): a header of comments, then a line of 18
//! numbers for each job.
//!
//! Invariant: no text can panic it, and every line is either a job, a comment, or counted in the notes. Called by the
//! edge that reads traces; what is not a number there is taken as unknown (-1), as the format says.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::{NodeFacts, Resources};

use super::nodes::{self, NodesError};
use super::trace::{DEFAULT_QUEUE, JOBS_MAX, Job, Notes, PODS_MAX, TIME_MAX_MS, Trace};

/// Fields of a line that must be there; what is missing after them is unknown.
const FIELDS_MIN: usize = 5;
/// Fields of a line.
const FIELDS: usize = 18;

/// Why a log can't be taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SwfError {
    /// It has too many jobs.
    #[error("it has more than {JOBS_MAX} jobs: cut it")]
    TooMany,
    /// It says nothing of its machine.
    #[error("its header names neither MaxNodes nor MaxProcs: say --nodes")]
    NoMachine,
    /// Its machine can't be simulated.
    #[error("its header's machine can't be simulated; say --nodes")]
    Machine(#[source] NodesError),
}

/// Of what a job's pods are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parts {
    /// As few pods of equal size as the cores of one node allow.
    #[default]
    Nodes,
    /// A pod for each processor.
    Cores,
}

/// A log as it was read: numbers by column, in the order of the lines.
#[derive(Debug, Clone, Default)]
pub struct Log {
    lines: Vec<[i64; FIELDS]>,
    nodes_max: i64,
    procs_max: i64,
    memory_kib: i64,
    notes: Notes,
}

/// Columns, counted from 0.
mod column {
    pub const NUMBER: usize = 0;
    pub const SUBMIT: usize = 1;
    pub const RUN: usize = 3;
    pub const PROCS: usize = 4;
    pub const PROCS_REQUESTED: usize = 7;
    pub const TIME_REQUESTED: usize = 8;
    pub const MEMORY_REQUESTED: usize = 9;
    pub const STATUS: usize = 10;
    pub const USER: usize = 11;
    pub const PROGRAM: usize = 13;
    pub const QUEUE: usize = 14;
}

/// Values of the status column.
mod status {
    /// Parts of a job that was checkpointed: the job's own line has their sum.
    pub const PARTS: std::ops::RangeInclusive<i64> = 2..=4;
    pub const CANCELLED: i64 = 5;
}

impl Log {
    /// Reads a log. Lines that can't be read are counted.
    ///
    /// # Errors
    /// When it has too many jobs.
    pub fn read(text: &str) -> Result<Self, SwfError> {
        let mut log = Self { nodes_max: -1, procs_max: -1, memory_kib: -1, ..Self::default() };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix(';') {
                log.header(comment);
                continue;
            }
            let mut fields = [-1; FIELDS];
            let mut found = 0;
            for (field, word) in fields.iter_mut().zip(line.split_whitespace()) {
                *field = number(word);
                found += 1;
            }
            if found < FIELDS_MIN {
                log.notes.count("lines of fewer than five fields: left out");
            } else if log.lines.len() >= JOBS_MAX {
                return Err(SwfError::TooMany);
            } else {
                log.lines.push(fields);
            }
        }
        Ok(log)
    }

    fn header(&mut self, comment: &str) {
        let Some((key, value)) = comment.split_once(':') else { return };
        let value = value.split_whitespace().next().map_or(-1, number);
        match key.trim() {
            "MaxNodes" => self.nodes_max = value,
            "MaxProcs" => self.procs_max = value,
            "MaxMemory" => self.memory_kib = value,
            _ => {}
        }
    }

    /// The machine that the header describes. Memory counts where it names it.
    ///
    /// # Errors
    /// When it names none, or one that is too large.
    pub fn nodes(&self) -> Result<Vec<NodeFacts>, SwfError> {
        let (count, cores) = match (self.nodes_max, self.procs_max) {
            (nodes, procs) if nodes > 0 && procs > nodes => (nodes, parts_of(procs, nodes)),
            (nodes, procs) if nodes > 0 || procs > 0 => (nodes.max(procs), 1),
            _ => return Err(SwfError::NoMachine),
        };
        let memory = Some(self.memory_kib).filter(|kib| *kib > 0).map(|kib| kib.saturating_mul(1024));
        nodes::alike(count.unsigned_abs(), cores, memory).map_err(SwfError::Machine)
    }

    /// Its jobs, as pods for these nodes.
    pub fn trace(self, nodes: &[NodeFacts], parts: Parts) -> Trace {
        let cores = match parts {
            Parts::Nodes => nodes::cores_max(nodes),
            Parts::Cores => 1,
        };
        let memory = nodes.iter().any(|node| node.allocatable.contains_key("memory"));
        let mut notes = self.notes;
        let mut names = BTreeMap::new();
        let jobs = self.lines.iter().filter_map(|line| job(line, cores, memory, &mut names, &mut notes));
        Trace::new(jobs.collect(), BTreeMap::new(), notes)
    }
}

/// Users, queues and programs are few: each is made once.
type Names = BTreeMap<(char, i64), Arc<str>>;

fn job(line: &[i64; FIELDS], cores: i64, memory: bool, names: &mut Names, notes: &mut Notes) -> Option<Job> {
    let mut name = |letter: char, column: usize, otherwise: &str| {
        let number = line[column];
        let make = || if number < 0 { otherwise.into() } else { format!("{letter}{number}").into() };
        names.entry((letter, number)).or_insert_with(make).clone()
    };
    let (user, queue) = (name('u', column::USER, "unknown"), name('q', column::QUEUE, DEFAULT_QUEUE));
    let profile = name('x', column::PROGRAM, "");
    if status::PARTS.contains(&line[column::STATUS]) {
        notes.count("parts of a job that was checkpointed: left out");
        return None;
    }
    if line[column::SUBMIT] < 0 {
        notes.count("without a time of submission: left out");
        return None;
    }
    let mut run = line[column::RUN];
    if run <= 0 && line[column::STATUS] == status::CANCELLED {
        notes.count("cancelled before they ran: left out");
        return None;
    }
    if run < 0 {
        notes.count("without a run time: left out");
        return None;
    }
    if run == 0 {
        notes.count("ran for 0 s: taken as 1 s");
        run = 1;
    }
    let procs = [line[column::PROCS_REQUESTED], line[column::PROCS]].into_iter().find(|procs| *procs > 0);
    let Some(procs) = procs else {
        notes.count("without processors: left out");
        return None;
    };
    let limit = Some(line[column::TIME_REQUESTED]).filter(|limit| *limit > 0);
    if limit.is_none() {
        notes.count("without a requested time: no limit");
    }
    if limit.is_some_and(|limit| limit < run) {
        notes.count("ran longer than requested: ended at the limit");
    }
    let Some(pods) = u32::try_from(parts_of(procs, cores)).ok().filter(|pods| *pods <= PODS_MAX) else {
        notes.count("larger than the cluster: left out");
        return None;
    };
    let each = |amount: i64| parts_of(amount, i64::from(pods));
    let mut requests = Resources::from([("cpu".to_owned(), each(procs.saturating_mul(1_000)))]);
    let kib = line[column::MEMORY_REQUESTED];
    if memory && kib > 0 {
        let all = kib.saturating_mul(1_024).saturating_mul(procs);
        requests.insert("memory".to_owned(), each(all));
    }
    let ms = |seconds: i64| seconds.saturating_mul(1_000).min(TIME_MAX_MS);
    Some(Job {
        name: format!("j{}", line[column::NUMBER]),
        submit_ms: ms(line[column::SUBMIT]),
        user,
        queue,
        pods,
        min: pods,
        requests: Arc::new(requests),
        run_ms: ms(run),
        limit_ms: limit.map(ms),
        priority: 0,
        preemptable: false,
        profile,
        deadline_ms: None,
    })
}

/// A number that is not negative, divided and rounded up.
fn parts_of(all: i64, by: i64) -> i64 {
    all / by + i64::from(all % by != 0)
}

/// A number of the format; what is none is unknown. Fractions are rounded.
fn number(word: &str) -> i64 {
    word.parse::<i64>().unwrap_or_else(|_| match word.parse::<f64>() {
        // A cast saturates.
        Ok(number) if number.is_finite() => number.round() as i64,
        _ => -1,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOG: &str = "; MaxNodes: 4\n;MaxProcs:  8 (of 9)\n; Note: 3\n\n\
        2 70 -1 100 5 -1 -1 5 60 -1 1 7 1 3 2 -1 -1 -1\n\
        1 50 -1 0 1 -1 -1 -1 -1 2048 1 -1 -1 -1 -1 -1 -1 -1\n\
        3 80 -1 -1 5 -1 -1 5 60 -1 5 7 1 3 2 -1 -1 -1\n\
        4 80 -1 -1 5 -1 -1 5 60 -1 1 7 1 3 2 -1 -1 -1\n\
        5 -1 -1 10 5\n6 80 -1 10 0\n7 80 -1 10 5 -1 -1 5 60 -1 3\nx y\n8 80 nan 10.6 4e99\n";

    #[test]
    fn jobs_are_read_and_holes_are_counted() {
        let log = Log::read(LOG).unwrap();
        let nodes = log.nodes().unwrap();
        assert_eq!((nodes.len(), nodes[0].allocatable["cpu"]), (4, 2_000));
        let trace = log.trace(&nodes, Parts::Nodes);
        insta::assert_yaml_snapshot!(trace.notes);
        let of = |name: &str| trace.jobs.iter().find(|job| job.name == name).unwrap();
        assert_eq!(trace.jobs.len(), 2);
        let (first, second) = (of("j1"), of("j2"));
        assert_eq!((first.submit_ms, first.run_ms, first.limit_ms, first.pods), (0, 1_000, None, 1));
        assert_eq!((&*first.user, &*first.queue, &*first.profile), ("unknown", "default", ""));
        assert_eq!((second.submit_ms, second.run_ms, second.limit_ms), (20_000, 100_000, Some(60_000)));
        assert_eq!((second.pods, second.min, second.requests["cpu"]), (3, 3, 1_667));
        assert_eq!((&*second.user, &*second.queue, &*second.profile), ("u7", "q2", "x3"));
        assert_eq!(second.held_ms(), 60_000);
    }

    #[test]
    fn a_pod_for_each_processor_where_that_is_wanted() {
        let log = Log::read(LOG).unwrap();
        let nodes = nodes::parse("2x16cpu,1Gi").unwrap();
        let trace = log.trace(&nodes, Parts::Cores);
        assert_eq!((trace.jobs[1].pods, trace.jobs[1].requests["cpu"]), (5, 1_000));
        assert_eq!(trace.jobs[0].requests["memory"], 2 << 20);
    }

    #[test]
    fn a_log_without_a_machine_says_so() {
        assert_eq!(Log::read("1 2 3 4 5").unwrap().nodes().unwrap_err(), SwfError::NoMachine);
        let huge = Log::read("; MaxNodes: 9223372036854775807").unwrap();
        assert!(matches!(huge.nodes(), Err(SwfError::Machine(_))));
        assert_eq!(Log::read("; MaxProcs: 7\n; MaxNodes: -1").unwrap().nodes().unwrap().len(), 7);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-;0-9. eEx\n:MaxNodesProc]{0,200}") {
            let log = Log::read(&text).unwrap();
            let nodes = log.nodes().unwrap_or_default();
            let trace = log.trace(&nodes, Parts::Nodes);
            prop_assert!(trace.jobs.iter().all(|job| job.pods > 0 && job.run_ms > 0 && job.submit_ms >= 0));
        }
    }
}
