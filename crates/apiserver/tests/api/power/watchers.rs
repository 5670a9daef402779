//! A client that follows one kind over all starts: lists, watches, and goes on from where it was.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::sync::watch;

use super::model::Written;
use super::objects::{Kind, name, revision};
use crate::harness::Server;

/// A watch without a break, from a list on.
#[derive(Debug, Default)]
struct Stretch {
    from: u64,
    events: BTreeMap<u64, String>,
}

/// What one watcher knows.
#[derive(Debug)]
pub struct Watcher {
    pub kind: Kind,
    /// Where it is; none before its first list, and after a 410.
    cursor: Option<u64>,
    pub objects: BTreeMap<String, u64>,
    stretch: Stretch,
    done: Vec<(Stretch, u64)>,
    /// Starts after which it went on, and after which it got 410.
    pub resumed: u64,
    pub expired: u64,
    pub events: u64,
    reached: watch::Sender<u64>,
}

impl Watcher {
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            cursor: None,
            objects: BTreeMap::new(),
            stretch: Stretch::default(),
            done: Vec::new(),
            resumed: 0,
            expired: 0,
            events: 0,
            reached: watch::Sender::new(0),
        }
    }

    /// Tells where it is.
    pub fn reached(&self) -> watch::Receiver<u64> {
        self.reached.subscribe()
    }

    /// Follows the kind; ends with the task.
    pub async fn run(watcher: &std::sync::Mutex<Self>, server: &Server) {
        let lock = || watcher.lock().expect("watcher");
        let kind = lock().kind;
        let mut is_resuming = lock().cursor.is_some();
        loop {
            let from = lock().cursor;
            let Some(from) = from else {
                let list = server.get(kind.path()).await.is(200).body;
                lock().listed(&list);
                continue;
            };
            let path = format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={from}", kind.path());
            let mut lines = server.watch(&path).await;
            while let Some(event) = lines.next().await {
                let mut watcher = lock();
                let is_410 = event["type"] == "ERROR";
                if std::mem::take(&mut is_resuming) {
                    *if is_410 { &mut watcher.expired } else { &mut watcher.resumed } += 1;
                }
                if is_410 {
                    assert_eq!(event["object"]["code"], 410, "{event}");
                    watcher.cursor = None;
                    break;
                }
                watcher.told(&event);
            }
        }
    }

    fn listed(&mut self, list: &Value) {
        let revision_now = revision(list);
        let end = *self.reached.borrow();
        assert!(revision_now >= end, "{:?}: a list of {revision_now} after {end} was shown", self.kind);
        let items = list["items"].as_array().expect("items");
        self.objects = items.iter().map(|item| (name(item).to_owned(), revision(item))).collect();
        self.done
            .push((std::mem::replace(&mut self.stretch, Stretch { from: revision_now, ..Stretch::default() }), end));
        self.moved(revision_now);
    }

    /// An event: nothing comes twice, out of order, or without what must have been before it.
    fn told(&mut self, event: &Value) {
        let (object, cursor) = (&event["object"], self.cursor.expect("a watch has a cursor"));
        let at = revision(object);
        if event["type"] == "BOOKMARK" {
            assert!(at >= cursor, "a bookmark went back from {cursor} to {at}");
            return self.moved(at);
        }
        assert!(at > cursor, "an event went back from {cursor}: {event}");
        let name = name(object).to_owned();
        let is_known = match event["type"].as_str() {
            Some("DELETED") => self.objects.remove(&name).is_some(),
            _ => self.objects.insert(name.clone(), at).is_some(),
        };
        assert_eq!(is_known, event["type"] != "ADDED", "{:?}: a gap before {event}", self.kind);
        self.stretch.events.insert(at, name);
        self.events += 1;
        self.moved(at);
    }

    fn moved(&mut self, to: u64) {
        self.cursor = Some(to);
        self.reached.send_replace(to);
    }

    /// Compares what it saw with what a start finds: what was shown is there, or was changed since.
    pub fn check(&self, found: &BTreeMap<String, Value>, told: &str) {
        for (name, seen) in &self.objects {
            let now = found.get(name).map(revision);
            assert!(now.is_none_or(|now| now >= *seen), "{told}: {name} was seen at {seen} and is at {now:?}");
        }
        let end = *self.reached.borrow();
        let unseen = found.iter().find(|(name, now)| revision(now) <= end && !self.objects.contains_key(*name));
        assert_eq!(unseen, None, "{told}: older than {end}, and never seen");
    }

    /// Every answered change in a stretch was told.
    pub fn check_answered(&mut self, answered: &[Written], told: &str) {
        self.done.push((std::mem::take(&mut self.stretch), *self.reached.borrow()));
        for written in answered.iter().filter(|written| written.kind == self.kind) {
            for (stretch, to) in &self.done {
                if (stretch.from + 1..=*to).contains(&written.revision) {
                    let event = stretch.events.get(&written.revision);
                    assert_eq!(event, Some(&written.name), "{told}: {written:?} was not told");
                }
            }
        }
    }
}
