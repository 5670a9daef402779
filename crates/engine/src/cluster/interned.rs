//! `Interned`: rows found by a value of their own, counted by how many refer to them, freed by the last.
//!
//! Ids are small and given out again; equal histories give equal ids. Used by the constraints between pods.

use std::borrow::Borrow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::save::Save;

#[derive(Debug)]
struct Entry<K, T> {
    key: K,
    refs: u32,
    row: T,
}

#[derive(Debug)]
pub(crate) struct Interned<K, T> {
    ids: FxHashMap<K, u32>,
    rows: Vec<Option<Entry<K, T>>>,
    free: Vec<u32>,
}

impl<K, T> Default for Interned<K, T> {
    fn default() -> Self {
        Self { ids: FxHashMap::default(), rows: Vec::new(), free: Vec::new() }
    }
}

impl<K: Hash + Eq + Clone, T> Interned<K, T> {
    pub(crate) fn find<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<u32>
    where
        K: Borrow<Q>,
    {
        self.ids.get(key).copied()
    }

    /// One more reference to the row of `key`; true if it is new, made by `make`.
    pub(crate) fn acquire(&mut self, key: K, make: impl FnOnce() -> T) -> (u32, bool) {
        if let Some(id) = self.find(&key) {
            self.hold(id);
            return (id, false);
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).expect("fewer than 2^32 rows")
        });
        self.rows[id as usize] = Some(Entry { key: key.clone(), refs: 1, row: make() });
        self.ids.insert(key, id);
        (id, true)
    }

    pub(crate) fn hold(&mut self, id: u32) {
        self.entry_mut(id).refs += 1;
    }

    /// One reference less; the last one frees the row and hands it out.
    pub(crate) fn release(&mut self, id: u32) -> Option<(K, T)> {
        let entry = self.entry_mut(id);
        entry.refs -= 1;
        if entry.refs > 0 {
            return None;
        }
        let entry = self.rows[id as usize].take().expect("it was there just now");
        self.ids.remove(&entry.key);
        self.free.push(id);
        Some((entry.key, entry.row))
    }

    pub(crate) fn key(&self, id: u32) -> &K {
        &self.entry(id).key
    }

    pub(crate) fn row(&self, id: u32) -> &T {
        &self.entry(id).row
    }

    pub(crate) fn row_mut(&mut self, id: u32) -> &mut T {
        &mut self.entry_mut(id).row
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &K, &T)> {
        self.rows.iter().enumerate().filter_map(|(id, entry)| {
            let entry = entry.as_ref()?;
            Some((u32::try_from(id).ok()?, &entry.key, &entry.row))
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &K, &mut T)> {
        self.rows.iter_mut().enumerate().filter_map(|(id, entry)| {
            let entry = entry.as_mut()?;
            Some((u32::try_from(id).ok()?, &entry.key, &mut entry.row))
        })
    }

    fn entry(&self, id: u32) -> &Entry<K, T> {
        self.rows[id as usize].as_ref().expect("a row is held by those who name it")
    }

    fn entry_mut(&mut self, id: u32) -> &mut Entry<K, T> {
        self.rows[id as usize].as_mut().expect("a row is held by those who name it")
    }
}

crate::save::saved_generic!([K: Save, T: Save] Entry<K, T> { key, refs, row });
crate::save::saved_generic!([K: Save + Hash + Eq + Clone, T: Save] Interned<K, T> { rows, free } except { ids: {
    let rows: &Vec<Option<Entry<K, T>>> = &rows;
    index(rows)
} });

/// The ids by their values, as `acquire` puts them.
fn index<K: Hash + Eq + Clone, T>(rows: &[Option<Entry<K, T>>]) -> FxHashMap<K, u32> {
    let there = (0_u32..).zip(rows).filter_map(|(id, entry)| Some((entry.as_ref()?.key.clone(), id)));
    there.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_lives_as_long_as_it_is_named() {
        let mut rows: Interned<&str, i32> = Interned::default();
        assert_eq!(rows.acquire("a", || 1), (0, true));
        assert_eq!(rows.acquire("a", || 2), (0, false));
        assert_eq!(rows.acquire("b", || 3), (1, true));
        assert_eq!(rows.release(0), None);
        assert_eq!(rows.release(0), Some(("a", 1)));
        assert_eq!(rows.find("a"), None);
        assert_eq!(rows.acquire("c", || 4), (0, true), "the freed place is used again");
        assert_eq!(rows.iter().map(|(id, key, row)| (id, *key, *row)).collect::<Vec<_>>(), [(0, "c", 4), (1, "b", 3)]);
    }
}
