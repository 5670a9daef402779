//! A list kept in an order that only the caller knows. Chunks, so that a change moves few ids: O(log n) comparisons
//! and O(chunk) moves for each. Used by the groups of one task class.

use std::cmp::Ordering;

use crate::ids::GroupId;

/// A chunk is cut in two beyond this.
const CHUNK_MAX: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Ordered {
    /// None is empty.
    chunks: Vec<Vec<GroupId>>,
    len: usize,
}

impl Ordered {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts `group` in its place; it must not be there yet.
    pub(crate) fn insert(&mut self, group: GroupId, order: impl Fn(GroupId, GroupId) -> Ordering) {
        self.len += 1;
        let comes_last = |last: &Vec<GroupId>| last.last().is_some_and(|other| order(*other, group).is_le());
        if let Some(last) = self.chunks.last_mut().filter(|last| comes_last(last) && last.len() < CHUNK_MAX) {
            // As a group that has just been made does.
            last.push(group);
            return;
        }
        let chunk = self.chunks.partition_point(|chunk| order(chunk[0], group).is_le()).saturating_sub(1);
        let Some(groups) = self.chunks.get_mut(chunk) else {
            self.chunks.push(vec![group]);
            return;
        };
        let at = groups.partition_point(|other| order(*other, group).is_le());
        groups.insert(at, group);
        if groups.len() > CHUNK_MAX {
            let rest = groups.split_off(CHUNK_MAX / 2);
            self.chunks.insert(chunk + 1, rest);
        }
    }

    /// Takes `group` out. Looked for where the order has it, and everywhere if its facts have changed since.
    pub(crate) fn remove(&mut self, group: GroupId, order: impl Fn(GroupId, GroupId) -> Ordering) {
        let chunk = self.chunks.partition_point(|chunk| order(chunk[0], group).is_le()).saturating_sub(1);
        let near = self.chunks.get(chunk).and_then(|groups| groups.iter().position(|other| *other == group));
        let found = near.map(|at| (chunk, at)).or_else(|| {
            let mut chunks = self.chunks.iter().enumerate();
            chunks.find_map(|(chunk, groups)| Some((chunk, groups.iter().position(|other| *other == group)?)))
        });
        let Some((chunk, at)) = found else { return };
        self.len -= 1;
        self.chunks[chunk].remove(at);
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.chunks.iter().flatten().copied()
    }

    /// The place of the first that `follows`, as all behind it do.
    pub(crate) fn first(&self, follows: impl Fn(GroupId) -> bool) -> Cursor {
        let chunk = self.chunks.partition_point(|chunk| chunk.last().is_some_and(|last| !follows(*last)));
        let at = self.chunks.get(chunk).map_or(0, |groups| groups.partition_point(|group| !follows(*group)));
        Cursor { chunk, at }
    }

    /// A place in the list, for walking it while it does not change.
    pub(crate) fn at(&self, cursor: Cursor) -> Option<GroupId> {
        self.chunks.get(cursor.chunk).map(|groups| groups[cursor.at])
    }

    pub(crate) fn after(&self, cursor: Cursor) -> Cursor {
        match self.chunks.get(cursor.chunk) {
            Some(groups) if cursor.at + 1 < groups.len() => Cursor { at: cursor.at + 1, ..cursor },
            _ => Cursor { chunk: cursor.chunk + 1, at: 0 },
        }
    }
}

/// A place in an `Ordered`; the default is its beginning.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    chunk: usize,
    at: usize,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn walk(list: &Ordered) -> Vec<GroupId> {
        let (mut found, mut cursor) = (Vec::new(), Cursor::default());
        while let Some(group) = list.at(cursor) {
            found.push(group);
            cursor = list.after(cursor);
        }
        found
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_list(changes in proptest::collection::vec((0..3000_usize, any::<bool>()), 0..4000)) {
            // Ordered by a key that is not the id, with ties broken by the id.
            let order = |left: GroupId, right: GroupId| (left.index() % 7, left).cmp(&(right.index() % 7, right));
            let (mut list, mut model) = (Ordered::default(), Vec::new());
            for (id, insert) in changes {
                let group = GroupId::from(id);
                match (insert, model.contains(&group)) {
                    (true, false) => {
                        list.insert(group, order);
                        model.push(group);
                    }
                    (false, _) => {
                        list.remove(group, order);
                        model.retain(|other| *other != group);
                    }
                    _ => {}
                }
            }
            model.sort_by(|left, right| order(*left, *right));
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), model.clone());
            prop_assert_eq!(walk(&list), model.clone());
            prop_assert_eq!(list.is_empty(), model.is_empty());
        }
    }
}
