//! Requests about more jobs than one decision may change: they are carried out a part at a time.
//!
//! Others can't append while a leader decides and writes, so no decision may be as large as what somebody may ask for.
//! Invariant: parts go through the jobs in the order of their ids, and say which they changed. Which jobs fit is seen when
//! their part is carried out. A job that was submitted after the request is not meant, whatever its id.

use crate::bulk_operations::{BulkOperation, SavedBulkOperation};
use crate::event::{Entry, Event};
use crate::ids::{JobId, TimeMs};
use crate::ledger::Ledger;
use crate::limits::LOOKS_PER_JOB;
use crate::refusal::Refusal;

impl Ledger {
    /// The same, with other parts: for tests.
    #[must_use]
    pub fn in_parts_of(mut self, jobs: usize) -> Self {
        self.bulk_operations.part = jobs.max(1);
        self
    }

    /// Whether there is more to decide of what was asked.
    pub fn has_parts(&self) -> bool {
        !self.bulk_operations.list.is_empty()
    }

    /// Requests that are not carried out to their end, if they are others than when this was last asked.
    pub fn take_bulk_operations(&mut self) -> Option<Vec<SavedBulkOperation>> {
        if !std::mem::take(&mut self.bulk_operations.changed) {
            return None;
        }
        Some(self.bulk_operations.list.iter().map(|operation| operation.saved.clone()).collect())
    }

    /// Puts a request off that is too large for one decision, or has to come after one that is. Gives the jobs that it may
    /// mean otherwise.
    pub(crate) fn put_off(&mut self, entry: &Entry, event: &Event) -> Option<Vec<JobId>> {
        let jobs = self.may_mean(entry, event);
        let is_priority = matches!(event, Event::Reprioritised { .. });
        if jobs.len() <= self.bulk_operations.part && !(is_priority && self.bulk_operations.has_priority_of(entry)) {
            return Some(jobs);
        }
        let mut jobs = self.may_come_to_mean(entry, event);
        jobs.sort_unstable();
        let last = *jobs.last()?;
        let mut request = Entry::new(entry.at, &entry.queue, &entry.job_set);
        request.user.clone_from(&entry.user);
        request.events.push(event.clone());
        let saved = SavedBulkOperation { request, through: None, last, late: Vec::new() };
        self.bulk_operations.list.push_back(BulkOperation { saved, todo: jobs.into() });
        self.bulk_operations.changed = true;
        None
    }

    pub(crate) fn restore_bulk_operations(&mut self, saved: Vec<SavedBulkOperation>) {
        for saved in saved {
            let [event] = &saved.request.events[..] else { continue };
            let mut jobs = self.may_come_to_mean(&saved.request, event);
            jobs.retain(|job| saved.is_ahead(*job) && !saved.late.contains(job));
            jobs.sort_unstable();
            self.bulk_operations.list.push_back(BulkOperation { saved, todo: jobs.into() });
        }
    }

    /// A job is submitted while requests are carried out.
    pub(crate) fn comes_late(&mut self, job: JobId) {
        for BulkOperation { saved, .. } in
            self.bulk_operations.list.iter_mut().filter(|operation| operation.saved.is_ahead(job))
        {
            saved.late.push(job);
            self.bulk_operations.changed = true;
        }
    }

    /// The next part, as an entry of now.
    pub(crate) fn next_part(&self, now: TimeMs) -> Option<Entry> {
        let BulkOperation { saved: SavedBulkOperation { request, last, .. }, todo } =
            self.bulk_operations.list.front()?;
        let event = request.events.first()?;
        // Those that have ended do not count: a ledger that was restored does not know of them.
        let mut left = todo.iter().copied().filter(|id| self.jobs.contains_key(id));
        let (mut jobs, mut through) = (Vec::new(), *last);
        for id in left.by_ref().take(self.bulk_operations.part.saturating_mul(LOOKS_PER_JOB)) {
            through = id;
            if self.is_meant(request, event, id) {
                jobs.push(id);
                if jobs.len() == self.bulk_operations.part {
                    break;
                }
            }
        }
        let through = if left.next().is_some() { through } else { *last };
        let mut entry = Entry::new(now, &request.queue, &request.job_set);
        entry.events.push(Event::CarriedOut { requested: request.at, jobs, through });
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
        let (Event::CarriedOut { jobs, through, .. }, Some(first)) = (part, self.bulk_operations.list.front_mut())
        else {
            return;
        };
        first.saved.through = Some(*through);
        let request = first.saved.request.clone();
        if *through == first.saved.last {
            self.bulk_operations.list.pop_front();
        } else {
            while first.todo.front().is_some_and(|id| id <= through) {
                first.todo.pop_front();
            }
        }
        self.bulk_operations.changed = true;
        request.events.iter().for_each(|event| self.ask_of(&request, event, jobs));
    }
}
