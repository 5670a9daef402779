//! `pumice scheduler check`: runs scheduling cases, written by hand or cut from a recording, and says how this scheduler's
//! answers compare.
//!
//! Invariant: a case goes through the same parsing, translation and engine as a live cluster. A case that can't be read
//! fails; a file that can't be read as cases is refused with its line. Called by `pumice` and by tests.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pumice_engine::plugin::Registry;

mod compare;
mod config;
mod differences;
mod file;
mod objects;
mod recorded;
mod run;
mod stubs;

use file::RawCase;
pub use recorded::check_recorded;

/// Why a file could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It is too long.
    #[error("it has {bytes} bytes, more than {bytes_max}: split it")]
    TooLong {
        /// Its length.
        bytes: usize,
        bytes_max: usize,
    },
    /// It has too many cases.
    #[error("it has {cases} cases, more than {cases_max}: split it")]
    TooMany { cases: usize, cases_max: usize },
    /// It is not the YAML of a file of cases.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line; 0 where the parser names none.
        line: u64,
        /// What the parser says.
        message: String,
    },
    /// It has another schema.
    #[error("its schemaVersion is {version}; this version reads {understood}")]
    SchemaVersion { version: u64, understood: u64 },
    /// It has no list of cases.
    #[error("it has no list named cases")]
    NoCases,
}

/// How one case went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// Not as expected, on purpose; why.
    Differs(String),
    /// Not as expected; what.
    Fails(String),
}

/// How one case went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub name: String,
    pub verdict: Verdict,
}

/// How many cases went how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    pub different: usize,
    /// Not as expected.
    pub failed: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict {
            Verdict::Pass => write!(f, "ok {}", self.name),
            Verdict::Differs(reason) => write!(f, "DIFFERS {}: {reason}", self.name),
            Verdict::Fails(what) => write!(f, "FAIL {}: {what}", self.name),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pass, {} differ on purpose, {} fail", self.passed, self.different, self.failed)
    }
}

impl Counts {
    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Pass => self.passed += 1,
            Verdict::Differs(_) => self.different += 1,
            Verdict::Fails(_) => self.failed += 1,
        }
    }
}

/// Runs the cases of a file's text, telling `each` of every one as it ends.
///
/// # Errors
/// When the text can't be read as cases.
pub fn check(text: &str, each: impl FnMut(&Outcome)) -> Result<Counts, CheckError> {
    check_with(text, &pumice_scheduler::plugins(), each)
}

/// As [`check`], with the plugins of `registry`: cases may name a third party's.
///
/// # Errors
/// When the text can't be read as cases.
pub fn check_with(text: &str, registry: &Registry, mut each: impl FnMut(&Outcome)) -> Result<Counts, CheckError> {
    let mut counts = Counts::default();
    for case in file::read(text)? {
        let outcome = judge(case, registry);
        counts.count(&outcome.verdict);
        each(&outcome);
    }
    Ok(counts)
}

/// The docs' table of cases that are answered differently on purpose.
pub fn differences_table() -> String {
    differences::table()
}

fn judge(raw: RawCase, registry: &Registry) -> Outcome {
    let (name, line) = (raw.name.clone(), raw.line);
    // One case that brings the engine down must not hide the rest.
    let verdict = catch_unwind(AssertUnwindSafe(|| verdict(raw, registry)))
        .unwrap_or_else(|_| Verdict::Fails(format!("line {line}: the engine panicked")));
    Outcome { name, verdict }
}

fn verdict(raw: RawCase, registry: &Registry) -> Verdict {
    let case = match raw.typed() {
        Ok(case) => case,
        Err(error) => return Verdict::Fails(error),
    };
    let answer = match run::run(&case, registry) {
        Ok(answer) => answer,
        Err(error) => return Verdict::Fails(error),
    };
    let wrong = compare::differences(&case.expect, &answer);
    if wrong.is_empty() {
        return Verdict::Pass;
    }
    match differences::reason(&case, &answer) {
        Some(reason) => Verdict::Differs(reason.to_owned()),
        None => Verdict::Fails(wrong.join("; ")),
    }
}
