//! `Table`: rows of one kind with stable ids, found by key, whose freed places are used again.
//! Ids are given out deterministically, so the same deltas give the same ids. Used by the world's tables.

use std::marker::PhantomData;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::save::Save;

#[derive(Debug)]
pub(crate) struct Table<I, T> {
    rows: Vec<Option<T>>,
    free: Vec<usize>,
    keys: FxHashMap<Arc<str>, usize>,
    ids: PhantomData<I>,
}

impl<I: From<usize> + Copy, T> Table<I, T> {
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new(), free: Vec::new(), keys: FxHashMap::default(), ids: PhantomData }
    }

    pub(crate) fn find(&self, key: &str) -> Option<I> {
        self.keys.get(key).map(|index| I::from(*index))
    }

    pub(crate) fn insert(&mut self, key: Arc<str>, row: T) -> I {
        let index = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            self.rows.len() - 1
        });
        self.rows[index] = Some(row);
        self.keys.insert(key, index);
        I::from(index)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<T> {
        let index = self.keys.remove(key)?;
        self.free.push(index);
        self.rows[index].take()
    }

    /// One more than the greatest index ever used.
    pub(crate) fn span(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.rows.get(index).and_then(Option::as_ref)
    }

    pub(crate) fn row(&self, index: usize) -> &T {
        self.rows[index].as_ref().expect("an id held by the world names a live row")
    }

    pub(crate) fn row_mut(&mut self, index: usize) -> &mut T {
        self.rows[index].as_mut().expect("an id held by the world names a live row")
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().flatten()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.rows.iter().enumerate().filter_map(|(index, row)| Some((I::from(index), row.as_ref()?)))
    }
}

crate::save::saved_generic!([I: From<usize> + Copy, T: Save] Table<I, T> { rows, free, keys } except { ids: PhantomData });
