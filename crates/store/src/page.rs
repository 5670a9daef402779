//! A part of a list, as it was at a revision.
//!
//! Invariant: pages read one after the other at one revision, each after the last object of the one before, are together
//! the list at that revision. Read by the store under its lock, so a page costs its own objects and the changes since,
//! not the objects before it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::index::ResourceIndex;
use crate::object::Object;

/// Namespace and name of an object of a resource: its place in a list.
pub(crate) type Position<'p> = (&'p str, &'p str);

/// Objects that follow each other in the list of one moment.
#[derive(Clone, Debug)]
pub struct Page {
    pub revision: u64,
    /// The objects, ordered by namespace and name.
    pub items: Vec<Arc<Object>>,
    /// Whether the list goes on after them.
    pub more: bool,
    /// How many objects the whole list has. Known where the page is its beginning.
    pub total: Option<usize>,
}

/// Which part of a list to read; by default all of it, as it is now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range<'r> {
    /// The namespace; none for all of them.
    pub namespace: Option<&'r str>,
    /// Namespace and name of the object to begin after; none for the beginning. It need not exist.
    pub after: Option<(&'r str, &'r str)>,
    /// The moment; none for now.
    pub revision: Option<u64>,
}

impl ResourceIndex {
    /// At most `limit` objects as they were at `revision`, which must not be below the floor.
    /// O(limit + events since).
    pub(crate) fn page(&self, range: Range<'_>, revision: u64, limit: usize) -> Page {
        let before = self.before(range, revision);
        let total = if range.after.is_none() { Some(self.count_at(range.namespace, &before)) } else { None };
        let mut then = merge(self.from(range), before);
        let items: Vec<_> = then.by_ref().take(limit).cloned().collect();
        Page { revision, items, more: then.next().is_some(), total }
    }

    /// What was, at `revision`, in each place of the range where something has changed since.
    fn before(&self, range: Range<'_>, revision: u64) -> BTreeMap<Position<'_>, Option<&Arc<Object>>> {
        let mut before = BTreeMap::new();
        for event in self.events_after(revision) {
            let key = &event.object.key;
            let place: Position<'_> = (&key.namespace, &key.name);
            if range.namespace.is_none_or(|wanted| wanted == place.0) && range.after.is_none_or(|after| after < place) {
                // The oldest change since says it.
                before.entry(place).or_insert(event.previous.as_ref());
            }
        }
        before
    }

    /// Objects as they are now, from the beginning of the range.
    fn from<'s>(&'s self, range: Range<'s>) -> impl Iterator<Item = &'s Arc<Object>> {
        let first = range.namespace.max(range.after.map(|(namespace, _)| namespace)).unwrap_or_default();
        let names = self.items.range::<str, _>((Bound::Included(first), Bound::Unbounded));
        let names =
            names.take_while(move |(namespace, _)| range.namespace.is_none_or(|wanted| wanted == &***namespace));
        names.flat_map(move |(namespace, names)| {
            let start = match range.after {
                Some((last, name)) if last == &**namespace => Bound::Excluded(name),
                _ => Bound::Unbounded,
            };
            names.range::<str, _>((start, Bound::Unbounded)).map(|(_, object)| object)
        })
    }

    fn count_at(&self, namespace: Option<&str>, before: &BTreeMap<Position<'_>, Option<&Arc<Object>>>) -> usize {
        let was = before.values().flatten().count();
        let is = before.keys().filter(|(namespace, name)| self.get(namespace, name).is_some()).count();
        self.count(namespace) - is + was
    }
}

/// What is, with what was where it has changed: both in the order of places.
fn merge<'s>(
    now: impl Iterator<Item = &'s Arc<Object>>,
    before: BTreeMap<Position<'s>, Option<&'s Arc<Object>>>,
) -> impl Iterator<Item = &'s Arc<Object>> {
    let place = |object: &&'s Arc<Object>| -> Position<'s> { (&object.key.namespace, &object.key.name) };
    let (mut now, mut before) = (now.peekable(), before.into_iter().peekable());
    std::iter::from_fn(move || {
        loop {
            match (now.peek().map(place), before.peek().map(|(place, _)| *place)) {
                (None, None) => return None,
                (Some(is), Some(was)) if was <= is => {
                    if was == is {
                        now.next();
                    }
                }
                (None, Some(_)) => {}
                (Some(_), _) => return now.next(),
            }
            if let Some((_, Some(object))) = before.next() {
                return Some(object);
            }
        }
    })
}
