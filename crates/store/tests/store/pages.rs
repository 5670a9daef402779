//! Laws of pages: together they are the list at the revision of the first, whatever is written between them.

use std::sync::Arc;

use proptest::prelude::*;
use pumice_store::{Expect, Listing, Object, Options, Range, Store, WatchError};

use crate::stream::{NAMESPACES, perform, steps};
use crate::support::{block_on, create, delete, key, pod};

/// A client that reads a list in pages.
struct Reader {
    namespace: Option<&'static str>,
    limit: usize,
    /// The list as it was when the first page was read.
    wanted: Listing,
    read: Vec<Arc<Object>>,
}

#[derive(Debug, PartialEq)]
enum Read {
    More,
    Whole,
    Expired,
}

impl Reader {
    fn new(store: &Store, namespace: Option<&'static str>, limit: usize) -> Self {
        Self { namespace, limit, wanted: store.list("pods", namespace), read: Vec::new() }
    }

    fn next(&mut self, store: &Store) -> Read {
        let after = self.read.last().map(|object| (&*object.key.namespace, &*object.key.name));
        let range = Range { namespace: self.namespace, after, revision: Some(self.wanted.revision) };
        let page = match store.page("pods", range, self.limit) {
            Ok(page) => page,
            Err(WatchError::Expired { oldest, .. }) => {
                assert!(self.wanted.revision < oldest);
                return Read::Expired;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(page.revision, self.wanted.revision);
        assert_eq!(page.total, after.is_none().then_some(self.wanted.items.len()));
        assert!(page.items.len() <= self.limit && (page.items.len() == self.limit || !page.more));
        self.read.extend(page.items);
        assert_eq!(self.read, self.wanted.items[..self.read.len()]);
        assert_eq!(page.more, self.read.len() < self.wanted.items.len());
        if page.more { Read::More } else { Read::Whole }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_together_are_the_list_at_the_first(steps in steps(), window in 1usize..100, limit in 1usize..5, slow in 0usize..6) {
        let store = Store::in_memory(Options { window_events_max: window, ..Options::default() }).unwrap();
        block_on(async {
            let spaces = || std::iter::once(None).chain(NAMESPACES.map(Some));
            let mut readers: Vec<(usize, Reader)> = Vec::new();
            let mut oldest_whole = None;
            for (number, step) in steps.iter().enumerate() {
                readers.extend(spaces().map(|namespace| (number, Reader::new(&store, namespace, limit))));
                perform(&store, step).await;
                readers.retain_mut(|(since, reader)| {
                    let waits = (number - *since) % (slow + 1) > 0;
                    waits || reader.next(&store) == Read::More
                });
            }
            for (_, reader) in &mut readers {
                let end = loop {
                    let read = reader.next(&store);
                    if read != Read::More {
                        break read;
                    }
                };
                match end {
                    Read::Expired => assert_eq!(oldest_whole, None, "a newer list expired before an older one"),
                    _ => oldest_whole = Some(reader.wanted.revision),
                }
            }
        });
    }
}

#[test]
fn the_last_object_of_a_page_may_go() {
    let store = Store::in_memory(Options::default()).unwrap();
    block_on(async {
        for name in ["a", "b", "c"] {
            store.apply(create(&pod(name), "1")).await.unwrap();
        }
        store.apply(delete(&pod("b"), Expect::Any)).await.unwrap();
        let range = Range { after: Some(("default", "b")), ..Range::default() };
        let page = store.page("pods", range, 10).unwrap();
        assert_eq!((page.revision, page.items.len(), page.total), (store.revision(), 1, None));
    });
}

#[test]
fn what_has_not_happened_or_is_not_there_has_no_pages() {
    let store = Store::in_memory(Options::default()).unwrap();
    block_on(async {
        store.apply(create(&key("nodes", "", "n"), "1")).await.unwrap();
        let current = store.revision();
        let ahead = Range { revision: Some(current + 1), ..Range::default() };
        assert_eq!(store.page("pods", ahead, 1).unwrap_err(), WatchError::Ahead { requested: current + 1, current });
        let page = store.page("pods", Range::default(), 1).unwrap();
        assert!(page.items.is_empty() && !page.more && page.total == Some(0));
    });
}
