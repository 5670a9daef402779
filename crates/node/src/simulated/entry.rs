//! One pod as the fleet keeps it.
//!
//! Invariant: a stage only goes forward; a pod holds its share of the node while its stage is active. A few hundred
//! bytes with all it points to.

use std::sync::Arc;

use uuid::Uuid;

use super::order::{Plan, Template};
use super::status::{Outcome, Refusal};
use super::wheel::TimerId;

/// How far a pod is on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    Starting,
    Running,
    /// It ran to its end.
    Ended {
        at_seconds: i64,
    },
    /// The node does not take it.
    Refused(Box<Refusal>),
    /// It is being deleted and takes its time.
    Stopping,
    /// It was deleted and nothing of it is left.
    Stopped,
}

impl Stage {
    /// Whether it uses what it asked for.
    pub(super) fn is_active(&self) -> bool {
        matches!(self, Stage::Starting | Stage::Running | Stage::Stopping)
    }
}

/// What the API server was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Written {
    Nothing,
    Running,
    End,
    Removed,
}

/// What the API server is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    Tell(Outcome),
    Remove,
}

impl Wish {
    /// What it has been told then.
    pub(super) fn written(&self) -> Written {
        match self {
            Wish::Tell(Outcome::Running) => Written::Running,
            Wish::Tell(Outcome::Ended { .. } | Outcome::Refused(_)) => Written::End,
            Wish::Remove => Written::Removed,
        }
    }
}

/// What is known of one simulated pod; kept small, as there may be millions.
#[derive(Debug)]
pub(super) struct Entry {
    pub uid: Uuid,
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub template: Arc<Template>,
    /// Conditions that others wrote, as JSON text.
    pub conditions: Box<str>,
    pub plan: Plan,
    pub node: u32,
    pub started_seconds: i64,
    pub stage: Stage,
    pub written: Written,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// What the call under way tells.
    pub calling: Option<Written>,
    /// Whether it is in the queue of those that want a call.
    pub queued: bool,
    /// Calls that failed in a row.
    pub failures: u8,
    pub timer: Option<TimerId>,
    /// Its next call, after one that failed.
    pub retry: Option<TimerId>,
}

impl Entry {
    /// What there is to tell now. A pod that has ended before anybody was told that it runs is told to have ended.
    pub(super) fn wish(&self) -> Option<Wish> {
        let remove = (self.leaving && self.written < Written::Removed).then_some(Wish::Remove);
        match &self.stage {
            Stage::Starting | Stage::Stopping => None,
            Stage::Running => (self.written < Written::Running).then_some(Wish::Tell(Outcome::Running)),
            Stage::Ended { at_seconds } if self.written < Written::End => Some(Wish::Tell(Outcome::Ended {
                at_seconds: *at_seconds,
                exit_code: self.plan.exit_code,
                oom: self.plan.oom,
            })),
            Stage::Refused(refusal) if self.written < Written::End => {
                Some(Wish::Tell(Outcome::Refused((**refusal).clone())))
            }
            Stage::Ended { .. } | Stage::Refused(_) | Stage::Stopped => remove,
        }
    }
}
