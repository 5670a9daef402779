//! Small numbers for names: queues, job sets, shapes and gangs.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// A number for each of a kind of names, counted by how often it is used; free again when nobody does.
macro_rules! index {
    ($($name:ident),*) => {$(
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub u32);

        impl From<u32> for $name {
            fn from(number: u32) -> Self {
                Self(number)
            }
        }

        impl From<$name> for usize {
            fn from(index: $name) -> usize {
                index.0 as usize
            }
        }
    )*};
}
index!(QueueIx, SetIx, ShapeIx, GangIx);

/// Rows by name and by number.
#[derive(Debug, Clone)]
pub(crate) struct Interned<K, V, I> {
    rows: Vec<Option<(K, V)>>,
    by_name: FxHashMap<K, I>,
    free: Vec<u32>,
}

impl<K, V, I> Default for Interned<K, V, I> {
    fn default() -> Self {
        Self { rows: Vec::new(), by_name: FxHashMap::default(), free: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, V, I: Copy + From<u32> + Into<usize>> Interned<K, V, I> {
    pub(crate) fn find(&self, name: &K) -> Option<I> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(crate) fn intern(&mut self, name: &K, row: impl FnOnce() -> V) -> I {
        if let Some(index) = self.find(name) {
            return index;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            u32::try_from(self.rows.len() - 1).expect("fewer than 2^32 names")
        });
        self.rows[number as usize] = Some((name.clone(), row()));
        self.by_name.insert(name.clone(), number.into());
        number.into()
    }

    pub(crate) fn remove(&mut self, index: I) {
        let place = index.into();
        if let Some((name, _)) = self.rows[place].take() {
            self.by_name.remove(&name);
            self.free.push(u32::try_from(place).expect("fewer than 2^32 names"));
        }
    }

    pub(crate) fn row(&self, index: I) -> &V {
        &self.rows[index.into()].as_ref().expect("an index is only held while its row is there").1
    }

    pub(crate) fn row_mut(&mut self, index: I) -> &mut V {
        &mut self.rows[index.into()].as_mut().expect("an index is only held while its row is there").1
    }

    pub(crate) fn name(&self, index: I) -> &K {
        &self.rows[index.into()].as_ref().expect("an index is only held while its row is there").0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.rows.iter().flatten().map(|(name, row)| (name, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_free_again_with_its_name() {
        let mut names: Interned<String, u8, QueueIx> = Interned::default();
        let first = names.intern(&"a".to_owned(), || 1);
        let second = names.intern(&"b".to_owned(), || 2);
        assert_eq!((first, second), (QueueIx(0), QueueIx(1)));
        names.remove(first);
        assert_eq!(names.find(&"a".to_owned()), None);
        assert_eq!(names.intern(&"c".to_owned(), || 3), first);
        assert_eq!(names.iter().count(), 2);
    }
}
