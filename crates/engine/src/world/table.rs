//! `Table`: rows of one kind with stable ids, found by key, whose freed places are used again.
//! Ids are given out deterministically, so the same deltas give the same ids. Used by the world's tables.

use std::marker::PhantomData;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::save::{LoadError, Save, Source};

/// Rows of a page.
const PAGE: usize = 256;

/// Places for rows, in pages: growing moves no row but those of the first page, and leaves less than a page unused.
#[derive(Debug)]
struct Pages<T>(Vec<Vec<Option<T>>>);

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Pages<T> {
    fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * PAGE + last.len())
    }

    fn push(&mut self, row: Option<T>) {
        match self.0.last_mut() {
            Some(last) if last.len() < PAGE => last.push(row),
            // Most tables are small.
            None => self.0.push(vec![row]),
            Some(_) => {
                let mut page = Vec::with_capacity(PAGE);
                page.push(row);
                self.0.push(page);
            }
        }
    }

    fn get(&self, index: usize) -> Option<&T> {
        self.0.get(index / PAGE)?.get(index % PAGE)?.as_ref()
    }

    fn place(&mut self, index: usize) -> &mut Option<T> {
        &mut self.0[index / PAGE][index % PAGE]
    }

    fn iter(&self) -> impl Iterator<Item = &Option<T>> {
        self.0.iter().flatten()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flatten().flatten()
    }
}

impl<T: Save> Save for Pages<T> {
    fn save(&self, out: &mut Vec<u8>) {
        self.len().save(out);
        self.iter().for_each(|row| row.save(out));
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        let rows: Vec<Option<T>> = Save::load(from)?;
        let mut pages = Self::default();
        rows.into_iter().for_each(|row| pages.push(row));
        Ok(pages)
    }
}

#[derive(Debug)]
pub(crate) struct Table<I, T> {
    rows: Pages<T>,
    free: Vec<usize>,
    keys: FxHashMap<Arc<str>, usize>,
    ids: PhantomData<I>,
}

impl<I: From<usize> + Copy, T> Table<I, T> {
    pub(crate) fn new() -> Self {
        Self { rows: Pages::default(), free: Vec::new(), keys: FxHashMap::default(), ids: PhantomData }
    }

    pub(crate) fn find(&self, key: &str) -> Option<I> {
        self.keys.get(key).map(|index| I::from(*index))
    }

    /// Makes room for the keys of so many in all.
    pub(crate) fn reserve(&mut self, rows: usize) {
        self.keys.reserve(rows.saturating_sub(self.keys.len()));
    }

    pub(crate) fn insert(&mut self, key: Arc<str>, row: T) -> I {
        let index = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            self.rows.len() - 1
        });
        *self.rows.place(index) = Some(row);
        self.keys.insert(key, index);
        I::from(index)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<T> {
        let index = self.keys.remove(key)?;
        self.free.push(index);
        self.rows.place(index).take()
    }

    /// One more than the greatest index ever used.
    pub(crate) fn span(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.rows.get(index)
    }

    pub(crate) fn row(&self, index: usize) -> &T {
        self.rows.get(index).expect("an id held by the world names a live row")
    }

    pub(crate) fn row_mut(&mut self, index: usize) -> &mut T {
        self.rows.place(index).as_mut().expect("an id held by the world names a live row")
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.rows.iter().enumerate().filter_map(|(index, row)| Some((I::from(index), row.as_ref()?)))
    }
}

crate::save::saved_generic!([I: From<usize> + Copy, T: Save] Table<I, T> { rows, free, keys } except { ids: PhantomData });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TaskId;

    #[test]
    fn places_are_used_again_and_rows_of_all_pages_are_found() {
        let mut table: Table<TaskId, usize> = Table::new();
        let many = 3 * PAGE + 7;
        for row in 0..many {
            assert_eq!(table.insert(row.to_string().into(), row), TaskId::from(row));
        }
        assert_eq!((table.span(), table.iter().count(), *table.row(PAGE)), (many, many, PAGE));
        assert_eq!(table.remove("300"), Some(300));
        assert_eq!((table.get(300), table.get(many), table.find("300")), (None, None, None));
        table.iter_mut().for_each(|row| *row += 1);
        let mut bytes = Vec::new();
        table.save(&mut bytes);
        let mut loaded: Table<TaskId, usize> = Save::load(&mut bytes.as_slice().into()).unwrap();
        assert_eq!(loaded.iter().collect::<Vec<_>>(), table.iter().collect::<Vec<_>>());
        for table in [&mut table, &mut loaded] {
            assert_eq!(table.insert("again".into(), 0), TaskId::from(300));
            assert_eq!((table.span(), *table.row_mut(many - 1)), (many, many));
        }
    }
}
