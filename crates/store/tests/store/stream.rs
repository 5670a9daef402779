//! Laws of watches: what a watch tells, laid over a list, is the store.

use std::collections::BTreeMap;

use proptest::prelude::*;
use pumice_store::{EventKind, Expect, Key, Listing, Options, Store, Watch, WatchError, WatchEvent};

use crate::support::{block_on, create, delete, key, pod, put};

/// A client's copy of a resource, as an informer keeps it.
#[derive(Debug, Default, PartialEq)]
struct Copy {
    items: BTreeMap<Key, u64>,
}

impl Copy {
    fn of(listing: &Listing) -> Self {
        Self { items: listing.items.iter().map(|object| (object.key.clone(), object.revision)).collect() }
    }

    /// Applies an event, which must fit what the copy holds.
    fn apply(&mut self, event: &WatchEvent) {
        let held = self.items.get(&event.object.key).copied();
        assert_eq!(held, event.previous.as_ref().map(|object| object.revision), "{event:?}");
        assert_eq!(held.is_none(), event.kind == EventKind::Added, "{event:?}");
        if event.kind == EventKind::Deleted {
            self.items.remove(&event.object.key);
        } else {
            self.items.insert(event.object.key.clone(), event.object.revision);
        }
    }
}

struct Informer {
    namespace: Option<&'static str>,
    copy: Copy,
    watch: Watch,
    last: u64,
}

impl Informer {
    fn start(store: &Store, namespace: Option<&'static str>) -> Self {
        let listing = store.list("pods", namespace);
        let watch = store.watch("pods", namespace, Some(listing.revision)).unwrap();
        Self { namespace, copy: Copy::of(&listing), watch, last: listing.revision }
    }

    /// Reads what there is; starts over if the window has moved on. True if it did.
    fn catch_up(&mut self, store: &Store) -> bool {
        loop {
            match self.watch.try_next() {
                Ok(Some(event)) => {
                    assert!(event.object.revision > self.last, "not in order");
                    self.last = event.object.revision;
                    self.copy.apply(&event);
                }
                Ok(None) => {
                    assert_eq!(self.watch.progress().unwrap(), store.revision());
                    return false;
                }
                Err(WatchError::Expired { .. }) => {
                    *self = Self::start(store, self.namespace);
                    return true;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// What the world does to a store.
#[derive(Clone, Debug)]
pub enum Step {
    Toggle { namespace: usize, name: u8 },
    Replace { namespace: usize, name: u8 },
    Other,
    CatchUp,
}

pub const NAMESPACES: [&str; 3] = ["a", "a-b", "b"];

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3usize, 0..4u8).prop_map(|(namespace, name)| Step::Toggle { namespace, name }),
        3 => (0..3usize, 0..4u8).prop_map(|(namespace, name)| Step::Replace { namespace, name }),
        1 => Just(Step::Other),
        2 => Just(Step::CatchUp),
    ];
    proptest::collection::vec(step, 1..120)
}

pub async fn perform(store: &Store, step: &Step) {
    let (namespace, name, replace) = match step {
        Step::Toggle { namespace, name } => (namespace, name, false),
        Step::Replace { namespace, name } => (namespace, name, true),
        Step::Other => {
            let other = key("nodes", "", "n");
            let expect = if store.get(&other).is_some() { Expect::Any } else { Expect::Absent };
            store.apply(put(&other, "1", expect)).await.unwrap();
            return;
        }
        Step::CatchUp => return,
    };
    let key = key("pods", NAMESPACES[*namespace], &format!("p{name}"));
    let change = match (store.get(&key), replace) {
        (None, _) => create(&key, "1"),
        (Some(object), true) => put(&key, "2", Expect::Revision(object.revision)),
        (Some(_), false) => delete(&key, Expect::Any),
    };
    store.apply(change).await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_over_a_list_give_the_store(steps in steps(), window in 1usize..200) {
        let options = Options { window_events_max: window, ..Options::default() };
        let store = Store::in_memory(options).unwrap();
        block_on(async {
            let mut quick = [Informer::start(&store, None), Informer::start(&store, Some("a"))];
            let mut slow = [Informer::start(&store, None), Informer::start(&store, Some("b"))];
            for step in &steps {
                perform(&store, step).await;
                for informer in &mut quick {
                    let lapped = informer.catch_up(&store);
                    assert!(!lapped, "one step cannot leave a window of {window}");
                }
                if matches!(step, Step::CatchUp) {
                    for informer in &mut slow {
                        informer.catch_up(&store);
                    }
                }
            }
            for informer in quick.iter_mut().chain(&mut slow) {
                informer.catch_up(&store);
                assert_eq!(informer.copy, Copy::of(&store.list("pods", informer.namespace)));
            }
        });
    }
}

#[test]
fn a_watch_wakes_for_its_own_namespace_only() {
    let store = Store::in_memory(Options::default()).unwrap();
    block_on(async {
        let mut watch = store.watch("pods", Some("b"), None).unwrap();
        let writes = async {
            tokio::task::yield_now().await;
            store.apply(create(&key("pods", "a", "x"), "1")).await.unwrap();
            store.apply(create(&key("nodes", "", "x"), "1")).await.unwrap();
            store.apply(create(&key("pods", "b", "x"), "1")).await.unwrap()
        };
        let (event, written) = tokio::join!(watch.next(), writes);
        assert_eq!(event.unwrap().object, written);
        assert_eq!(watch.try_next().unwrap(), None);
        let node = store.apply(put(&key("nodes", "", "x"), "2", Expect::Any)).await.unwrap();
        assert_eq!(watch.progress().unwrap(), node.revision);
    });
}

// INV-4
#[test]
fn a_slow_watch_expires_and_never_holds_up_the_writer() {
    let store = Store::in_memory(Options { window_events_max: 10, ..Options::default() }).unwrap();
    block_on(async {
        let from = store.revision();
        let mut watch = store.watch("pods", None, Some(from)).unwrap();
        store.apply(create(&pod("a"), "0")).await.unwrap();
        for number in 0..1_000 {
            store.apply(put(&pod("a"), &number.to_string(), Expect::Any)).await.unwrap();
        }
        let oldest = store.revision() - 10;
        assert_eq!(watch.next().await, Err(WatchError::Expired { requested: from, oldest }));
        assert!(store.watch("pods", None, Some(oldest)).is_ok());
        let current = store.revision();
        let error = store.watch("pods", None, Some(current + 1)).unwrap_err();
        assert_eq!(error, WatchError::Ahead { requested: current + 1, current });
    });
}

#[test]
fn the_window_is_bounded_in_bytes() {
    let store = Store::in_memory(Options { window_bytes_max: 1_000, ..Options::default() }).unwrap();
    block_on(async {
        let from = store.revision();
        store.apply(create(&pod("a"), &format!("\"{}\"", "x".repeat(900)))).await.unwrap();
        assert!(store.watch("pods", None, Some(from)).is_ok());
        store.apply(create(&pod("b"), &format!("\"{}\"", "x".repeat(900)))).await.unwrap();
        assert!(store.watch("pods", None, Some(from)).is_err());
    });
}

#[test]
fn a_volatile_resource_has_a_window_of_its_own() {
    let store = Store::in_memory(Options { volatile_window_events_max: 10, ..Options::default() }).unwrap();
    block_on(async {
        let from = store.revision();
        for number in 0..20 {
            store.apply(create(&key("events", "a", &format!("e{number}")), "1")).await.unwrap();
            store.apply(create(&pod(&format!("p{number}")), "1")).await.unwrap();
        }
        assert!(store.watch("pods", None, Some(from)).is_ok());
        assert!(matches!(store.watch("events", None, Some(from)), Err(WatchError::Expired { .. })));
    });
}

/// Events more than one buffer holds come all, once, in order.
#[test]
fn a_long_backlog_is_read_in_pieces() {
    let store = Store::in_memory(Options::default()).unwrap();
    block_on(async {
        let from = store.revision();
        let changes = (0..1_000).map(|number| create(&pod(&format!("p{number:04}")), "1")).collect();
        store.apply_all(changes).await.unwrap();
        let mut watch = store.watch("pods", None, Some(from)).unwrap();
        for number in 1..=1_000 {
            assert_eq!(watch.next().await.unwrap().object.revision, from + number);
            assert_eq!(watch.progress().unwrap(), from + number);
        }
        assert_eq!(watch.try_next().unwrap(), None);
    });
}
