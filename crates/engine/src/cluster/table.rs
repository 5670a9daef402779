//! `Table`: rows of one kind with stable ids, found by key, whose freed places are used again.
//! Ids are given out deterministically, so the same deltas give the same ids. Used by the world's tables.

use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

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

    fn slot_mut(&mut self, index: usize) -> &mut Option<T> {
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

/// A row that is found by a key. The key stays what it is as long as the row is in its table.
pub(crate) trait Keyed {
    fn found_by(&self) -> &str;
}

impl Keyed for Arc<str> {
    fn found_by(&self) -> &str {
        self
    }
}

/// Where the row of a key is. Of the key there is only a part of its hash, so that a table that grows reads no rows.
#[derive(Debug, Clone, Copy)]
struct HashEntry {
    hash: u32,
    index: u32,
}

impl HashEntry {
    /// The table takes some bits from above and some from below.
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

fn hash(key: &str) -> u32 {
    (FxBuildHasher.hash_one(key) >> 32) as u32
}

fn note(entries: &mut HashTable<HashEntry>, key: &str, index: usize) {
    let entry = HashEntry { hash: hash(key), index: u32::try_from(index).expect("fewer than 2^32 rows") };
    entries.insert_unique(HashEntry::spread(entry.hash), entry, |entry| HashEntry::spread(entry.hash));
}

#[derive(Debug)]
pub(crate) struct Table<I, T> {
    rows: Pages<T>,
    free: Vec<usize>,
    entries: HashTable<HashEntry>,
    ids: PhantomData<I>,
}

impl<I: From<usize> + Copy, T: Keyed> Table<I, T> {
    pub(crate) fn new() -> Self {
        Self { rows: Pages::default(), free: Vec::new(), entries: HashTable::new(), ids: PhantomData }
    }

    fn holds(&self, entry: &HashEntry, hash: u32, key: &str) -> bool {
        entry.hash == hash && self.rows.get(entry.index as usize).is_some_and(|row| row.found_by() == key)
    }

    pub(crate) fn find(&self, key: &str) -> Option<I> {
        let hash = hash(key);
        let entry = self.entries.find(HashEntry::spread(hash), |entry| self.holds(entry, hash, key))?;
        Some(I::from(entry.index as usize))
    }

    /// Makes room for so many more.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.entries.reserve(more, |entry| HashEntry::spread(entry.hash));
    }

    /// Keeps a row whose key is not there yet.
    pub(crate) fn insert(&mut self, row: T) -> I {
        debug_assert!(self.find(row.found_by()).is_none(), "{} is there already", row.found_by());
        let index = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            self.rows.len() - 1
        });
        note(&mut self.entries, row.found_by(), index);
        *self.rows.slot_mut(index) = Some(row);
        I::from(index)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<T> {
        let hash = hash(key);
        let rows = &self.rows;
        let holds = |entry: &HashEntry| {
            entry.hash == hash && rows.get(entry.index as usize).is_some_and(|row| row.found_by() == key)
        };
        let (entry, _) = self.entries.find_entry(HashEntry::spread(hash), holds).ok()?.remove();
        self.free.push(entry.index as usize);
        self.rows.slot_mut(entry.index as usize).take()
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
        self.rows.slot_mut(index).as_mut().expect("an id held by the world names a live row")
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.rows.iter().enumerate().filter_map(|(index, row)| Some((I::from(index), row.as_ref()?)))
    }
}

impl<I: From<usize> + Copy, T: Save + Keyed> Save for Table<I, T> {
    fn save(&self, out: &mut Vec<u8>) {
        self.rows.save(out);
        self.free.save(out);
    }

    fn load(from: &mut Source<'_>) -> Result<Self, LoadError> {
        let (rows, free): (Pages<T>, _) = (Save::load(from)?, Save::load(from)?);
        let mut entries = HashTable::with_capacity(rows.len());
        for (index, row) in rows.iter().enumerate() {
            if let Some(row) = row {
                note(&mut entries, row.found_by(), index);
            }
        }
        Ok(Self { rows, free, entries, ids: PhantomData })
    }
}

/// The key of an object of a namespace.
pub(crate) fn key_of(namespace: &str, name: &str) -> String {
    [namespace, "/", name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TaskId;

    #[test]
    fn places_are_used_again_and_rows_of_all_pages_are_found() {
        let mut table: Table<TaskId, Arc<str>> = Table::new();
        let text = |row: usize| Arc::from(row.to_string());
        let many = 3 * PAGE + 7;
        for row in 0..many {
            assert_eq!(table.insert(text(row)), TaskId::from(row));
        }
        assert_eq!((table.span(), table.iter().count(), table.row(PAGE)), (many, many, &text(PAGE)));
        assert!((0..many).all(|row| table.find(&row.to_string()) == Some(TaskId::from(row))));
        assert_eq!((table.remove("300"), table.remove("300")), (Some(text(300)), None));
        assert_eq!((table.get(300), table.get(many), table.find("300")), (None, None, None));
        let mut bytes = Vec::new();
        table.save(&mut bytes);
        let mut loaded: Table<TaskId, Arc<str>> = Save::load(&mut bytes.as_slice().into()).unwrap();
        assert_eq!(loaded.iter().collect::<Vec<_>>(), table.iter().collect::<Vec<_>>());
        for table in [&mut table, &mut loaded] {
            assert_eq!((table.find("301"), table.find("300")), (Some(TaskId::from(301)), None));
            assert_eq!(table.insert("again".into()), TaskId::from(300));
            assert_eq!((table.span(), &*table.row_mut(many - 1)), (many, &text(many - 1)));
        }
    }
}
