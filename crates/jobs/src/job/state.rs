//! Words for the state of a job, as people type and read them.
//!
//! Invariant: every phase has the word that lists print; some have a second one that people use. Called by `lookup` and
//! by everything that prints a state.

use pumice_api::batch::JobPhase;

/// What a list says of a job that no controller has seen yet.
pub const NEW: &str = "New";

/// The word printed for a phase.
pub fn word(phase: Option<&JobPhase>) -> &str {
    phase.map_or(NEW, JobPhase::as_str)
}

/// A state, or several of them under one word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// No controller has seen it.
    New,
    Phase(JobPhase),
    /// It may still do something by itself.
    Active,
    /// It has ended; suspended jobs have not.
    Ended,
}

/// A word that is none of a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no such state; known are new, pending, running, restarting, suspended, completed, failed, terminated, and for several of \
     them active and ended"
)]
pub struct UnknownState;

impl std::str::FromStr for State {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let word = text.to_ascii_lowercase();
        let known = JobPhase::WORDS.iter().find(|known| known.eq_ignore_ascii_case(&word));
        match (word.as_str(), known) {
            (_, Some(known)) => Ok(State::Phase(JobPhase::from(*known))),
            ("new", _) => Ok(State::New),
            ("active", _) => Ok(State::Active),
            ("ended", _) => Ok(State::Ended),
            ("suspended", _) => Ok(State::Phase(JobPhase::Aborted)),
            ("succeeded", _) => Ok(State::Phase(JobPhase::Completed)),
            ("cancelled", _) => Ok(State::Phase(JobPhase::Terminated)),
            _ => Err(UnknownState),
        }
    }
}

impl State {
    /// Whether a job in `phase` is in this state.
    pub fn holds(&self, phase: Option<&JobPhase>) -> bool {
        let ended = phase.is_some_and(JobPhase::is_finished);
        match self {
            State::New => phase.is_none(),
            State::Phase(wanted) => phase == Some(wanted),
            State::Active => !ended && phase != Some(&JobPhase::Aborted),
            State::Ended => ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_phases() {
        use JobPhase::{Aborted, Completed, Failed, Pending, Running, Terminated};
        for (text, phase, holds) in [
            ("running", Some(Running), true),
            ("RUNNING", Some(Pending), false),
            ("suspended", Some(Aborted), true),
            ("aborted", Some(Aborted), true),
            ("cancelled", Some(Terminated), true),
            ("succeeded", Some(Completed), true),
            ("new", None, true),
            ("active", None, true),
            ("active", Some(Aborted), false),
            ("active", Some(Failed), false),
            ("ended", Some(Failed), true),
            ("ended", Some(Aborted), false),
        ] {
            let state: State = text.parse().unwrap();
            assert_eq!(state.holds(phase.as_ref()), holds, "{text} {phase:?}");
        }
        assert_eq!("frozen".parse::<State>(), Err(UnknownState));
        assert_eq!(word(None), "New");
    }
}
