//! Jobs that begin when other jobs have ended: annotation `pumice.sh/after` of a Job, `ok:JOB,any:JOB,failed:JOB`.
//!
//! Invariant: before a job has a group it waits until each job that it names has ended as it says, and ends itself, Failed, when
//! one has ended otherwise. An end that was seen is written down and not asked for again, so the job that ended may go. What
//! can't be read is waited for, too: to begin too early would be the worse mistake. Called before anything is made of a job, by
//! the shell, which must know who waits for whom, and by admission.

use std::collections::BTreeSet;

use pumice_api::batch::{Job, JobPhase};
use pumice_api::names::{AFTER, AFTER_MET};
use serde_json::{Value, json};

use crate::job::StepContext;
use crate::job::plan::{Effect, Plan};
use crate::job::status::phase_rules::Verdict;
use crate::job_object;

/// `status.state.reason` of a job that waits.
pub(in crate::job) const WAITS: &str = "WaitsForJobs";
/// `status.state.reason` of a job that has waited for nothing.
const UNMET: &str = "DependencyNotMet";
/// Longest text, in bytes.
const TEXT_MAX: usize = 8 * 1024;
/// Longest name of a job.
const NAME_MAX: usize = 253;
/// Jobs named in a message.
const TOLD_MAX: usize = 5;

/// How another job is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Ok,
    /// Failed, Aborted or Terminated.
    Failed,
    Any,
}

/// One job that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dependency {
    end: End,
    job: String,
}

/// The jobs that a job waits for, all in its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct After(Vec<Dependency>);

/// What is wrong with an annotation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AfterError {
    /// More than is read.
    #[error(
        "annotation {AFTER} is longer than {TEXT_MAX} bytes; let one job wait for the others, and wait for that one"
    )]
    TooLong,
    /// A part that is none.
    #[error("annotation {AFTER}: {0:?} is none of ok:JOB, failed:JOB and any:JOB, separated by commas")]
    Part(String),
    /// A job that is named more than once.
    #[error("annotation {AFTER} names job {0} twice; leave one of them out")]
    Twice(String),
}

impl After {
    /// Reads an annotation's value.
    ///
    /// # Errors
    /// When it says something else, too much, or the same job twice.
    pub fn read(text: &str) -> Result<Self, AfterError> {
        if text.len() > TEXT_MAX {
            return Err(AfterError::TooLong);
        }
        let mut names = BTreeSet::new();
        let mut all = Vec::new();
        for part in text.split(',').map(str::trim) {
            let dependency = Dependency::read(part).ok_or_else(|| AfterError::Part(part.to_owned()))?;
            if !names.insert(dependency.job.clone()) {
                return Err(AfterError::Twice(dependency.job));
            }
            all.push(dependency);
        }
        Ok(Self(all))
    }

    /// What a job says, if it says anything.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn of(job: &Job) -> Result<Option<Self>, AfterError> {
        let annotations = job.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(AFTER)).map(|text| Self::read(text)).transpose()
    }

    /// The names of the jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|dependency| dependency.job.as_str())
    }
}

impl Dependency {
    fn read(part: &str) -> Option<Self> {
        let (word, job) = part.split_once(':')?;
        let end = match word {
            "ok" => End::Ok,
            "failed" => End::Failed,
            "any" => End::Any,
            _ => return None,
        };
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let is_name = (1..=NAME_MAX).contains(&job.len()) && job.bytes().all(is_part);
        is_name.then(|| Self { end, job: job.to_owned() })
    }

    fn write(&self) -> String {
        let word = match self.end {
            End::Ok => "ok",
            End::Failed => "failed",
            End::Any => "any",
        };
        format!("{word}:{}", self.job)
    }

    /// Whether a job of this phase has ended as wanted; `None` while it may still. A suspended job may be resumed, so it has not
    /// failed for those who wait for its success.
    fn is_met(&self, phase: &JobPhase) -> Option<bool> {
        match (phase, self.end) {
            (JobPhase::Aborted, End::Ok) => None,
            (JobPhase::Completed, end) => Some(end != End::Failed),
            (JobPhase::Failed | JobPhase::Terminated | JobPhase::Aborted, end) => Some(end != End::Ok),
            _ => None,
        }
    }

    fn wish(&self) -> String {
        let verb = match self.end {
            End::Ok => "succeed",
            End::Failed => "fail",
            End::Any => "end",
        };
        format!("job {} to {verb}", self.job)
    }
}

/// Ends that were seen, as the annotation spells them.
fn met(job: &Job) -> BTreeSet<String> {
    let text = job_object::annotation(job, AFTER_MET);
    let value: Option<Value> =
        text.filter(|text| text.len() <= 2 * TEXT_MAX).and_then(|text| serde_json::from_str(text).ok());
    let ours = value.filter(|value| value["uid"] == job_object::uid(job));
    let list = ours.as_ref().and_then(|value| value["met"].as_array());
    list.into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

impl StepContext<'_> {
    /// What to do about a job that has not begun and waits for others; nothing when it may begin, or has.
    pub(in crate::job) fn wait_for_jobs(&self) -> Option<Plan> {
        let view = self.view;
        if view.group.is_some() || !view.pods.is_empty() {
            return None;
        }
        let after = match After::of(view.job) {
            Ok(after) => after?,
            Err(error) => return Some(self.waiting(error.to_string())),
        };
        let before = met(view.job);
        let mut now_met = before.clone();
        let mut waits = Vec::new();
        for dependency in after.0.iter().filter(|dependency| !before.contains(&dependency.write())) {
            let phase = view.awaited.get(&dependency.job);
            match phase.map(|phase| (phase, dependency.is_met(phase))) {
                Some((_, Some(true))) => drop(now_met.insert(dependency.write())),
                Some((phase, Some(false))) => return Some(self.unmet(dependency, phase)),
                Some((JobPhase::Aborted, None)) => waits.push(format!("{}, which is suspended", dependency.wish())),
                Some((_, None)) => waits.push(dependency.wish()),
                None => waits.push(format!("{}, which does not exist", dependency.wish())),
            }
        }
        let mut plan = match waits.len() {
            0 if now_met == before => return None,
            0 => Plan::default(),
            count => {
                let more = count.saturating_sub(TOLD_MAX);
                waits.truncate(TOLD_MAX);
                let more = if more > 0 { format!("; and for {more} more") } else { String::new() };
                self.waiting(format!("waits for {}{more}", waits.join("; ")))
            }
        };
        if now_met != before {
            let text = json!({"uid": job_object::uid(view.job), "met": now_met}).to_string();
            plan.stages.insert(0, vec![Effect::Annotate { key: AFTER_MET, value: Some(text) }]);
        }
        Some(plan)
    }

    fn waiting(&self, message: String) -> Plan {
        let mut draft = self.draft();
        draft.begin(self.now);
        draft.say(WAITS, Some(&message));
        Plan::only(draft.write(self.now).into_iter().chain([Effect::normal(WAITS, message)]).collect())
    }

    fn unmet(&self, dependency: &Dependency, phase: &JobPhase) -> Plan {
        let message = format!("waited for {}, which is {phase}", dependency.wish());
        let mut draft = self.draft();
        draft.begin(self.now);
        draft.goto(&Verdict { phase: JobPhase::Failed, reason: UNMET, message: message.clone() }, self.now);
        Plan::only(draft.write(self.now).into_iter().chain([Effect::warning(UNMET, message)]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_strictly() {
        let read = |text: &str| After::read(text).map(|after| after.jobs().collect::<Vec<_>>().join(" "));
        assert_eq!(read("ok:a"), Ok("a".to_owned()));
        assert_eq!(read("ok:a, any:b.c ,failed:d-1"), Ok("a b.c d-1".to_owned()));
        for text in ["", "a", "ok:", "ok:a,", "good:a", "ok:A", "ok:a b", "ok:a/b", "OK:a"] {
            assert!(matches!(read(text), Err(AfterError::Part(_))), "{text}");
        }
        assert_eq!(read("ok:a,any:a"), Err(AfterError::Twice("a".to_owned())));
        assert_eq!(read(&"ok:a,".repeat(TEXT_MAX)), Err(AfterError::TooLong));
        assert!(matches!(read(&format!("ok:{}", "a".repeat(NAME_MAX + 1))), Err(AfterError::Part(_))));
    }

    #[test]
    fn each_phase_means_one_thing_for_each_wish() {
        use JobPhase as P;
        let cases = [
            (P::Completed, [Some(true), Some(false), Some(true)]),
            (P::Failed, [Some(false), Some(true), Some(true)]),
            (P::Terminated, [Some(false), Some(true), Some(true)]),
            (P::Aborted, [None, Some(true), Some(true)]),
            (P::Pending, [None; 3]),
            (P::Running, [None; 3]),
            (P::Restarting, [None; 3]),
            (P::Aborting, [None; 3]),
            (P::Terminating, [None; 3]),
            (P::Completing, [None; 3]),
        ];
        for (phase, expected) in cases {
            let met =
                [End::Ok, End::Failed, End::Any].map(|end| Dependency { end, job: "a".to_owned() }.is_met(&phase));
            assert_eq!(met, expected, "{phase}");
        }
    }
}
