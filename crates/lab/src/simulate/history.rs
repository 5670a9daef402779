//! What became of a trace under one policy: who held what when, and how each job fared.
//!
//! Invariant: no hold outlives its job, and the holds of any moment fit on the nodes: whoever fills a history asserts
//! it. Filled by the virtual cluster and by the baselines, read by the figures and the pictures.

/// Pods of one job that were on nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The job, by its place in the trace.
    pub job: u32,
    /// How many of its pods.
    pub pods: u32,
    pub from_ms: i64,
    /// Until when.
    pub to_ms: i64,
}

/// How one job fared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When its minimum first ran.
    pub started_ms: Option<i64>,
    /// When its last pod ended.
    pub ended_ms: Option<i64>,
    /// Pods of it that were told to leave.
    pub evicted: u32,
    /// Milli-cores held in vain, times milliseconds: what ran before an eviction.
    pub lost_core_ms: i128,
    /// Why it did not start, where the policy says so.
    pub why: Option<String>,
}

/// What was said of a job that waits when it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The job, by its place in the trace.
    pub job: u32,
    pub at_ms: i64,
    /// When it was submitted, not later.
    pub first: bool,
    /// What was said; nothing where nobody could tell.
    pub answer: Option<Answer>,
}

/// When a job is expected to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub start_ms: i64,
    /// One of ten starts before it.
    pub early_ms: i64,
    /// One of ten starts after it.
    pub late_ms: i64,
}

/// How long a job was expected to run when it was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guessed {
    /// As jobs like it typically ran.
    pub typical_ms: i64,
    /// As nearly all like it were over.
    pub most_ms: i64,
}

/// All that happened in one run of a trace. Times are in milliseconds since the trace began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// By the job's place in the trace.
    pub outcomes: Vec<Outcome>,
    /// In the order of their ends.
    pub holds: Vec<Hold>,
    /// What was said of when jobs start, in the order in which it was asked; empty where nobody asked.
    pub questions: Vec<Question>,
    /// What was said of how long jobs run, by the job's place in the trace; empty where nobody asked.
    pub guessed: Vec<Option<Guessed>>,
    /// Decisions taken: cycles of the engine, passes of a baseline.
    pub cycles: u64,
    /// When the last thing happened.
    pub ended_ms: i64,
}

impl History {
    pub(crate) fn of(jobs: usize) -> Self {
        Self { outcomes: vec![Outcome::default(); jobs], ..Self::default() }
    }
}
