//! Requests about more jobs than one decision may change: they are carried out a part at a time.
//!
//! Others can't append while a leader decides and writes, so no decision may be as large as what somebody may ask for.
//! Invariant: parts go through the jobs in the order of their ids, and say which they changed. Which jobs fit is seen when
//! their part is carried out. A job that was submitted after the request is not meant, whatever its id.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::event::{Entry, Event};
use crate::fold::Refusal;
use crate::ids::{JobId, TimeMs};
use crate::ledger::Ledger;

/// Jobs that one decision changes of a request's, or takes from a silent cluster: a database writes so many in some ten
/// milliseconds.
const PART: usize = 5_000;
/// Jobs that are looked at for each that may be changed.
const LOOKS: usize = 10;

/// A request that is not carried out to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedBroad {
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

impl SavedBroad {
    /// Whether a job stands among those that it is yet to be carried out for.
    fn is_ahead(&self, job: JobId) -> bool {
        self.through.is_none_or(|through| job > through) && job <= self.last
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Broad {
    pub saved: SavedBroad,
    /// Jobs that it may mean, after those that are done.
    todo: VecDeque<JobId>,
}

/// All of them, in the order in which they are carried out.
#[derive(Debug, Clone)]
pub(crate) struct Broads {
    list: VecDeque<Broad>,
    part: usize,
    /// They are not as they were when they were last saved.
    changed: bool,
}

impl Default for Broads {
    fn default() -> Self {
        Self { list: VecDeque::new(), part: PART, changed: false }
    }
}

impl Broads {
    /// Jobs that one decision changes of what concerns many.
    pub(crate) fn part(&self) -> usize {
        self.part
    }

    /// They are saved as they are.
    pub(crate) fn set_saved(&mut self) {
        self.changed = false;
    }

    /// A place among others of the same jobs comes after theirs; everything else that is asked may be done in any order.
    fn has_place_of(&self, entry: &Entry) -> bool {
        self.list.iter().map(|broad| &broad.saved.request).any(|request| {
            (&request.queue, &request.job_set) == (&entry.queue, &entry.job_set)
                && matches!(request.events[..], [Event::Reprioritised { .. }])
        })
    }
}

impl fmt::Display for Broads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.iter().try_for_each(|broad| writeln!(f, "{:?}", broad.saved))
    }
}

impl Ledger {
    /// The same, with other parts: for tests.
    #[must_use]
    pub fn in_parts_of(mut self, jobs: usize) -> Self {
        self.broads.part = jobs.max(1);
        self
    }

    /// Whether there is more to decide of what was asked.
    pub fn has_parts(&self) -> bool {
        !self.broads.list.is_empty()
    }

    /// Requests that are not carried out to their end, if they are others than when this was last asked.
    pub fn take_broads(&mut self) -> Option<Vec<SavedBroad>> {
        let changed = std::mem::take(&mut self.broads.changed);
        changed.then(|| self.broads.list.iter().map(|broad| broad.saved.clone()).collect())
    }

    /// Puts a request off that is too large for one decision, or has to come after one that is. Gives the jobs that it may
    /// mean otherwise.
    pub(crate) fn put_off(&mut self, entry: &Entry, event: &Event) -> Option<Vec<JobId>> {
        let jobs = self.may_mean(entry, event);
        let is_place = matches!(event, Event::Reprioritised { .. });
        if jobs.len() <= self.broads.part && !(is_place && self.broads.has_place_of(entry)) {
            return Some(jobs);
        }
        let mut jobs = self.may_come_to_mean(entry, event);
        jobs.sort_unstable();
        let last = *jobs.last()?;
        let mut request = Entry::new(entry.at, &entry.queue, &entry.job_set);
        request.user.clone_from(&entry.user);
        request.events.push(event.clone());
        let saved = SavedBroad { request, through: None, last, late: Vec::new() };
        self.broads.list.push_back(Broad { saved, todo: jobs.into() });
        self.broads.changed = true;
        None
    }

    pub(crate) fn restore_broads(&mut self, saved: Vec<SavedBroad>) {
        for saved in saved {
            let [event] = &saved.request.events[..] else { continue };
            let mut jobs = self.may_come_to_mean(&saved.request, event);
            jobs.retain(|job| saved.is_ahead(*job) && !saved.late.contains(job));
            jobs.sort_unstable();
            self.broads.list.push_back(Broad { saved, todo: jobs.into() });
        }
    }

    /// A job is submitted while requests are carried out.
    pub(crate) fn comes_late(&mut self, job: JobId) {
        for Broad { saved, .. } in self.broads.list.iter_mut().filter(|broad| broad.saved.is_ahead(job)) {
            saved.late.push(job);
            self.broads.changed = true;
        }
    }

    /// The next part, as an entry of now.
    pub(crate) fn next_part(&self, now: TimeMs) -> Option<Entry> {
        let Broad { saved: SavedBroad { request, last, .. }, todo } = self.broads.list.front()?;
        let event = request.events.first()?;
        // Those that have ended do not count: a ledger that was restored does not know of them.
        let mut left = todo.iter().copied().filter(|id| self.jobs.contains_key(id));
        let (mut jobs, mut through) = (Vec::new(), *last);
        for id in left.by_ref().take(self.broads.part.saturating_mul(LOOKS)) {
            through = id;
            if self.is_meant(request, event, id) {
                jobs.push(id);
                if jobs.len() == self.broads.part {
                    break;
                }
            }
        }
        let through = if left.next().is_some() { through } else { *last };
        let mut entry = Entry::new(now, &request.queue, &request.job_set);
        entry.events.push(Event::CarriedOut { asked: request.at, jobs, through });
        Some(entry)
    }

    /// Carries out the next part, if there is one; the entry that says so.
    pub(crate) fn carry_on(&mut self, now: TimeMs) -> Option<Entry> {
        let entry = self.next_part(now)?;
        entry.events.iter().for_each(|part| self.take_part(part));
        Some(entry)
    }

    /// Takes in that a part of the first request is carried out, if it is the next one.
    pub(crate) fn carry_out(&mut self, entry: &Entry, part: &Event) -> Result<(), Refusal> {
        let is_next = self.next_part(entry.at).is_some_and(|next| {
            (&next.queue, &next.job_set) == (&entry.queue, &entry.job_set) && next.events.first() == Some(part)
        });
        if !is_next {
            return Err(Refusal::NotAsked { queue: entry.queue.clone(), job_set: entry.job_set.clone() });
        }
        self.take_part(part);
        Ok(())
    }

    /// Of the first request, of which it is the next part.
    fn take_part(&mut self, part: &Event) {
        let (Event::CarriedOut { jobs, through, .. }, Some(first)) = (part, self.broads.list.front_mut()) else {
            return;
        };
        first.saved.through = Some(*through);
        let request = first.saved.request.clone();
        if *through == first.saved.last {
            self.broads.list.pop_front();
        } else {
            while first.todo.front().is_some_and(|id| id <= through) {
                first.todo.pop_front();
            }
        }
        self.broads.changed = true;
        request.events.iter().for_each(|event| self.ask_of(&request, event, jobs));
    }
}
