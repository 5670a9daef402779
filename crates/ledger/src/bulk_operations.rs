//! Requests about more jobs than one decision may change, and what is still to be done of them.
//!
//! [`crate::Ledger`] carries them out a part at a time. Called by whoever folds requests.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::{Entry, Event};
use crate::ids::JobId;
use crate::limits::JOBS_PER_DECISION;

/// Jobs that got another place with all of their set, and are to be told so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PriorityNotice {
    /// Their queue and job set.
    pub owner: (String, String),
    pub jobs: Vec<JobId>,
    pub priority: u32,
    pub requestor: String,
}

/// A request that is not carried out to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedBulkOperation {
    /// An entry with this event alone.
    pub request: Entry,
    /// Up to which job it is carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<JobId>,
    /// The last job that it may mean.
    pub last: JobId,
    /// Jobs with ids of before that were submitted after it, as where clocks of servers differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late: Vec<JobId>,
}

impl SavedBulkOperation {
    /// Whether a job stands among those that it is yet to be carried out for.
    pub(crate) fn is_ahead(&self, job: JobId) -> bool {
        self.through.is_none_or(|through| job > through) && job <= self.last
    }
}

#[derive(Debug, Clone)]
pub(crate) struct BulkOperation {
    pub saved: SavedBulkOperation,
    /// Jobs that it may mean, after those that are done.
    pub todo: VecDeque<JobId>,
}

/// All of them, in the order in which they are carried out.
#[derive(Debug, Clone)]
pub(crate) struct BulkOperations {
    pub list: VecDeque<BulkOperation>,
    pub part: usize,
    /// They are not as they were when they were last saved.
    pub changed: bool,
}

impl Default for BulkOperations {
    fn default() -> Self {
        Self { list: VecDeque::new(), part: JOBS_PER_DECISION, changed: false }
    }
}

impl BulkOperations {
    /// Jobs that one decision changes of what concerns many.
    pub(crate) fn part(&self) -> usize {
        self.part
    }

    /// They are saved as they are.
    pub(crate) fn set_saved(&mut self) {
        self.changed = false;
    }

    /// A place among others of the same jobs comes after theirs; everything else that is asked may be done in any order.
    pub(crate) fn has_priority_of(&self, entry: &Entry) -> bool {
        self.list.iter().map(|operation| &operation.saved.request).any(|request| {
            (&request.queue, &request.job_set) == (&entry.queue, &entry.job_set)
                && matches!(request.events[..], [Event::Reprioritised { .. }])
        })
    }
}

impl fmt::Display for BulkOperations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.iter().try_for_each(|operation| writeln!(f, "{:?}", operation.saved))
    }
}
