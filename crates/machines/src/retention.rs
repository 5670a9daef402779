//! Which finished work leaves: what is older than a time, and the oldest of what is more than a number.
//!
//! Invariant: only what has ended and nobody needs is ever a candidate ([`class`]). What leaves is always the oldest of its class
//! and namespace, so nothing goes before what ended earlier, and what is left keeps to both bounds. Called by the retention
//! controller, which knows what there is and carries the removals out.

mod work;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pumice_api::retention::{NumberBound, Retention, TimeBound};

pub use work::{Controller, JobTerms, Work, batch_job, flow, job, pod};

/// What is bounded by itself in each namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    Job,
    /// Volcano Jobs that record results, which go by number alone: who asks for results asks for the Job.
    JobWithResults,
    /// Jobs of `batch/v1`.
    BatchJob,
    /// JobFlows, with the Jobs that they made.
    JobFlow,
    /// Pods without an owner.
    Pod,
    /// Pods of finished Jobs and of other owners, which go by number alone: in time they go with their owner.
    OwnedPod,
}

/// The kind of an object that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Job,
    /// A Job of `batch/v1`.
    BatchJob,
    JobFlow,
    Pod,
}

/// What is known of what surrounds an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// A Job that has not ended names it as one that it waits for.
    pub is_awaited: bool,
    /// Of a pod that a Job controls: whether that Job has ended; none if the Job isn't known.
    pub owner_ended: Option<bool>,
}

/// Finished work, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finished {
    pub ended_at: Timestamp,
    /// Its name, unique in its class and namespace.
    pub name: Arc<str>,
}

/// Why finished work leaves; the removal is counted and told under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It ended longer ago than such work is kept.
    Age,
    /// There is more than is kept, and it is the oldest.
    Number,
}

/// What to do about a class of a namespace now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What leaves, oldest first; at most as many as were asked for.
    pub leaving: Vec<(Finished, Reason)>,
    /// When the next one leaves by age if nothing else happens.
    pub wake_at: Option<Timestamp>,
}

/// The bounds of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// After this time.
    pub ttl: TimeBound,
    pub count_max: NumberBound,
}

impl Kind {
    /// As metrics name it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Job => "Job",
            Kind::BatchJob => "batch/Job",
            Kind::JobFlow => "JobFlow",
            Kind::Pod => "Pod",
        }
    }
}

impl Reason {
    /// As metrics name it.
    pub fn word(self) -> &'static str {
        match self {
            Reason::Age => "age",
            Reason::Number => "number",
        }
    }
}

impl Class {
    /// The bounds of this class in a namespace where finished work stays so long.
    pub fn bounds(self, retention: &Retention) -> Bounds {
        let Retention { ttl, jobs_max, pods_max } = *retention;
        match self {
            Class::Job | Class::BatchJob | Class::JobFlow => Bounds { ttl, count_max: jobs_max },
            Class::JobWithResults => Bounds { ttl: TimeBound(None), count_max: jobs_max },
            Class::Pod => Bounds { ttl, count_max: pods_max },
            Class::OwnedPod => Bounds { ttl: TimeBound(None), count_max: pods_max },
        }
    }

    /// The kind of its objects.
    pub fn kind(self) -> Kind {
        match self {
            Class::Job | Class::JobWithResults => Kind::Job,
            Class::BatchJob => Kind::BatchJob,
            Class::JobFlow => Kind::JobFlow,
            Class::Pod | Class::OwnedPod => Kind::Pod,
        }
    }
}

/// The class in which an object may leave, if it may at all: it has ended, is not leaving already, and nobody needs it. What has
/// a time to live of its own is removed by that alone, and what an owner made goes as its owner wants.
pub fn class(kind: Kind, work: &Work, around: Surroundings) -> Option<Class> {
    if work.ended_at.is_none() || work.is_leaving {
        return None;
    }
    let of_jobs = match kind {
        Kind::Pod => {
            return match &work.controller {
                None => Some(Class::Pod),
                Some(Controller::Other) => Some(Class::OwnedPod),
                // A Job that runs counts its pods. Pods whose Job is gone are the garbage collector's.
                Some(Controller::Job { .. }) => (around.owner_ended == Some(true)).then_some(Class::OwnedPod),
            };
        }
        Kind::Job if work.records_results => Class::JobWithResults,
        Kind::Job => Class::Job,
        Kind::BatchJob => Class::BatchJob,
        Kind::JobFlow => Class::JobFlow,
    };
    let stays = work.has_own_ttl || work.controller.is_some() || around.is_awaited;
    (!stays).then_some(of_jobs)
}

/// Decides what of a class and namespace leaves now, at most `leaving_max`. `O(leaving)`.
pub fn decide(oldest_first: &BTreeSet<Finished>, bounds: Bounds, now: Timestamp, leaving_max: usize) -> Decision {
    let surplus = bounds.count_max.0.map_or(0, |count_max| oldest_first.len().saturating_sub(count_max));
    let ttl = bounds.ttl.0.and_then(|ttl| SignedDuration::try_from(ttl).ok());
    let leaves_at = |finished: &Finished| finished.ended_at.checked_add(ttl?).ok();
    let mut decision = Decision::default();
    for (place, finished) in oldest_first.iter().enumerate() {
        let at = leaves_at(finished);
        let reason = match at {
            Some(at) if at <= now => Reason::Age,
            _ if place < surplus => Reason::Number,
            _ => {
                decision.wake_at = at;
                break;
            }
        };
        if decision.leaving.len() == leaving_max {
            break;
        }
        decision.leaving.push((finished.clone(), reason));
    }
    decision
}

#[cfg(test)]
mod tests;
