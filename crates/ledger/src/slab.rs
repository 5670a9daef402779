//! Rows by id, of which there are millions: jobs and runs.
//!
//! A map has room for up to twice as many as are in it, and moves all of them when it grows. So the rows stand in pages that
//! stay where they are, and what is hashed is only the numbers of their places.

use std::hash::{BuildHasher, Hash};
use std::ops::Index;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// Rows of a page.
const PAGE: usize = 1_024;

type Pages<K, V> = Vec<Vec<Option<(K, V)>>>;

#[derive(Debug, Clone)]
pub(crate) struct Slab<K, V> {
    pages: Pages<K, V>,
    free: Vec<u32>,
    /// By the hashes of their ids.
    places: HashTable<u32>,
}

impl<K, V> Default for Slab<K, V> {
    fn default() -> Self {
        Self { pages: Vec::new(), free: Vec::new(), places: HashTable::new() }
    }
}

fn hash<K: Hash>(id: &K) -> u64 {
    FxBuildHasher.hash_one(id)
}

fn at<K, V>(pages: &Pages<K, V>, place: u32) -> Option<&(K, V)> {
    let place = place as usize;
    pages.get(place / PAGE)?.get(place % PAGE)?.as_ref()
}

/// The hash of whatever stands at a place.
fn hash_at<K: Hash, V>(pages: &Pages<K, V>, place: u32) -> u64 {
    at(pages, place).map_or(0, |(id, _)| hash(id))
}

impl<K: Hash + Eq, V> Slab<K, V> {
    fn index_of(&self, id: &K) -> Option<u32> {
        let is = |place: &u32| at(&self.pages, *place).is_some_and(|(other, _)| other == id);
        self.places.find(hash(id), is).copied()
    }

    fn slot(&mut self, place: u32) -> &mut Option<(K, V)> {
        let place = place as usize;
        &mut self.pages[place / PAGE][place % PAGE]
    }

    pub(crate) fn contains_key(&self, id: &K) -> bool {
        self.index_of(id).is_some()
    }

    pub(crate) fn get(&self, id: &K) -> Option<&V> {
        at(&self.pages, self.index_of(id)?).map(|(_, row)| row)
    }

    pub(crate) fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        let place = self.index_of(id)?;
        self.slot(place).as_mut().map(|(_, row)| row)
    }

    /// Keeps a row that is not there yet.
    pub(crate) fn insert(&mut self, id: K, row: V) {
        debug_assert!(!self.contains_key(&id), "a row is kept once");
        let place = self.free.pop().unwrap_or_else(|| {
            if self.pages.last().is_none_or(|page| page.len() == PAGE) {
                self.pages.push(Vec::with_capacity(PAGE));
            }
            let pages = self.pages.len();
            let page = &mut self.pages[pages - 1];
            page.push(None);
            u32::try_from((pages - 1) * PAGE + page.len() - 1).expect("fewer than 2^32 rows")
        });
        let hash = hash(&id);
        *self.slot(place) = Some((id, row));
        self.places.insert_unique(hash, place, |place| hash_at(&self.pages, *place));
    }

    pub(crate) fn remove(&mut self, id: &K) -> Option<V> {
        let is = |place: &u32| at(&self.pages, *place).is_some_and(|(other, _)| other == id);
        let (place, _) = self.places.find_entry(hash(id), is).ok()?.remove();
        self.free.push(place);
        self.slot(place).take().map(|(_, row)| row)
    }

    /// Makes room for so many more.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.places.reserve(more, |place| hash_at(&self.pages, *place));
    }

    /// All rows with their keys, in no order. O(rows there ever were at once).
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.pages.iter().flatten().flatten().map(|(id, row)| (id, row))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(id, _)| id)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, row)| row)
    }
}

impl<K: Hash + Eq, V> Index<&K> for Slab<K, V> {
    type Output = V;

    fn index(&self, id: &K) -> &V {
        self.get(id).expect("only a row that is known to be there is taken by its id alone")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::ids::JobId;

    proptest! {
        #[test]
        fn they_are_kept_as_in_a_map(steps in prop::collection::vec((0..40_u128, any::<bool>(), any::<u32>()), 1..200)) {
            let (mut rows, mut map) = (Slab::default(), BTreeMap::new());
            for (id, leaves, row) in steps {
                let id = JobId(id);
                if leaves {
                    prop_assert_eq!(rows.remove(&id), map.remove(&id));
                } else if let Some(known) = rows.get_mut(&id) {
                    *known = row;
                    map.insert(id, row);
                } else {
                    rows.insert(id, row);
                    map.insert(id, row);
                }
                let all: BTreeMap<JobId, u32> = rows.iter().map(|(id, row)| (*id, *row)).collect();
                prop_assert_eq!(&all, &map);
                prop_assert!((0..40).map(JobId).all(|id| rows.get(&id) == map.get(&id)));
            }
        }
    }

    #[test]
    fn many_pages_are_found_and_places_used_again() {
        let mut rows = Slab::default();
        let many = 3 * PAGE as u32 + 7;
        let id = |number: u32| JobId(u128::from(number) << 70 | 5);
        (0..many).for_each(|number| rows.insert(id(number), number));
        assert!((0..many).all(|number| rows[&id(number)] == number));
        let even = (0..many).step_by(2);
        even.clone().for_each(|number| assert_eq!(rows.remove(&id(number)), Some(number)));
        even.for_each(|number| rows.insert(id(many + number), number));
        assert_eq!((rows.pages.len(), rows.keys().count(), rows.values().count()), (4, many as usize, many as usize));
        assert!((0..many).all(|number| rows.contains_key(&id(number)) == (number % 2 == 1)));
    }
}
