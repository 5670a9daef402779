//! The jobs that have not ended, by id.
//!
//! There are millions of them. A map has room for up to twice as many as are in it, and moves all of them when it grows; so
//! the jobs stand in pages that stay where they are, and what is hashed is only the numbers of their places.

use std::hash::BuildHasher;
use std::ops::Index;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::ids::JobId;
use crate::job::Job;

/// Jobs of a page.
const PAGE: usize = 1_024;

type Pages = Vec<Vec<Option<(JobId, Job)>>>;

#[derive(Debug, Clone, Default)]
pub(crate) struct Jobs {
    pages: Pages,
    free: Vec<u32>,
    /// By the hashes of their ids.
    places: HashTable<u32>,
}

fn hash(id: &JobId) -> u64 {
    FxBuildHasher.hash_one(id)
}

fn at(pages: &Pages, place: u32) -> Option<&(JobId, Job)> {
    let place = place as usize;
    pages.get(place / PAGE)?.get(place % PAGE)?.as_ref()
}

/// The hash of whatever stands at a place.
fn hash_at(pages: &Pages, place: u32) -> u64 {
    at(pages, place).map_or(0, |(id, _)| hash(id))
}

impl Jobs {
    fn place(&self, id: &JobId) -> Option<u32> {
        let is = |place: &u32| at(&self.pages, *place).is_some_and(|(other, _)| other == id);
        self.places.find(hash(id), is).copied()
    }

    fn slot(&mut self, place: u32) -> &mut Option<(JobId, Job)> {
        let place = place as usize;
        &mut self.pages[place / PAGE][place % PAGE]
    }

    pub(crate) fn contains_key(&self, id: &JobId) -> bool {
        self.place(id).is_some()
    }

    pub(crate) fn get(&self, id: &JobId) -> Option<&Job> {
        at(&self.pages, self.place(id)?).map(|(_, job)| job)
    }

    pub(crate) fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        let place = self.place(id)?;
        self.slot(place).as_mut().map(|(_, job)| job)
    }

    /// Keeps a job that is not there yet.
    pub(crate) fn insert(&mut self, id: JobId, job: Job) {
        debug_assert!(!self.contains_key(&id), "a job is kept once");
        let place = self.free.pop().unwrap_or_else(|| {
            if self.pages.last().is_none_or(|page| page.len() == PAGE) {
                self.pages.push(Vec::with_capacity(PAGE));
            }
            let pages = self.pages.len();
            let page = &mut self.pages[pages - 1];
            page.push(None);
            u32::try_from((pages - 1) * PAGE + page.len() - 1).expect("fewer than 2^32 jobs")
        });
        *self.slot(place) = Some((id, job));
        self.places.insert_unique(hash(&id), place, |place| hash_at(&self.pages, *place));
    }

    pub(crate) fn remove(&mut self, id: &JobId) -> Option<Job> {
        let is = |place: &u32| at(&self.pages, *place).is_some_and(|(other, _)| other == id);
        let (place, _) = self.places.find_entry(hash(id), is).ok()?.remove();
        self.free.push(place);
        self.slot(place).take().map(|(_, job)| job)
    }

    /// Makes room for so many more.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.places.reserve(more, |place| hash_at(&self.pages, *place));
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobId, &Job)> {
        self.pages.iter().flatten().flatten().map(|(id, job)| (id, job))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Job> {
        self.iter().map(|(_, job)| job)
    }
}

impl Index<&JobId> for Jobs {
    type Output = Job;

    fn index(&self, id: &JobId) -> &Job {
        self.get(id).expect("only a job that is known to be there is taken by its id alone")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::ids::{Digest, TimeMs};
    use crate::job::Phase;
    use crate::lines::{QueueIx, SetIx, ShapeIx};

    fn job(priority: u32) -> Job {
        Job {
            queue: QueueIx(0),
            set: SetIx(0),
            shape: ShapeIx(0),
            gang: None,
            spec: Digest(0),
            priority,
            submitted: TimeMs(0),
            phase: Phase::Queued,
            fail_fast: false,
            attempts: 0,
            returned: 0,
            failed: 0,
            asked: None,
            avoid: Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn they_are_kept_as_in_a_map(steps in prop::collection::vec((0..40_u128, any::<bool>(), any::<u32>()), 1..200)) {
            let (mut jobs, mut map) = (Jobs::default(), BTreeMap::new());
            for (id, leaves, priority) in steps {
                let id = JobId(id);
                if leaves {
                    prop_assert_eq!(jobs.remove(&id).map(|job| job.priority), map.remove(&id));
                } else if let Some(known) = jobs.get_mut(&id) {
                    known.priority = priority;
                    map.insert(id, priority);
                } else {
                    jobs.insert(id, job(priority));
                    map.insert(id, priority);
                }
                let all: BTreeMap<JobId, u32> = jobs.iter().map(|(id, job)| (*id, job.priority)).collect();
                prop_assert_eq!(&all, &map);
                prop_assert!((0..40).all(|id| jobs.get(&JobId(id)).map(|job| job.priority) == map.get(&JobId(id)).copied()));
            }
        }
    }

    #[test]
    fn many_pages_are_found_and_places_used_again() {
        let mut jobs = Jobs::default();
        let many = 3 * PAGE as u32 + 7;
        let id = |number: u32| JobId(u128::from(number) << 70 | 5);
        (0..many).for_each(|number| jobs.insert(id(number), job(number)));
        assert!((0..many).all(|number| jobs[&id(number)].priority == number));
        (0..many).step_by(2).for_each(|number| assert!(jobs.remove(&id(number)).is_some()));
        (many..many + many / 2).for_each(|number| jobs.insert(id(number), job(number)));
        assert_eq!(
            (jobs.pages.len(), jobs.values().count()),
            (4, many as usize - many.div_ceil(2) as usize + many as usize / 2)
        );
        assert!((0..many).all(|number| jobs.contains_key(&id(number)) == (number % 2 == 1)));
    }
}
