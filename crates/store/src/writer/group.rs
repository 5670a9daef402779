//! A group of requests on its way to one commit.
//!
//! Invariant: the overlay plus the index is the state after every request staged so far; a
//! refused request leaves no trace in it. Made and answered by the writer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::ApplyError;
use crate::index::{EventKind, Index, WatchEvent};
use crate::key::Key;
use crate::object::{Change, Expect, Object};
use crate::options::Options;
use crate::writer::ApplyAnswer;

type Overlay = BTreeMap<Key, Option<Arc<Object>>>;

/// Requests staged for one commit.
pub(super) struct Group {
    revision: u64,
    overlay: Overlay,
    events: Vec<WatchEvent>,
    durable: bool,
    volatile: bool,
    outcomes: Vec<(Outcome, ApplyAnswer)>,
}

enum Outcome {
    Done(Vec<Arc<Object>>),
    /// Refused for what is visible already: true whether or not the commit succeeds.
    Refused(ApplyError),
    /// Refused for an earlier change of the group: true only if the commit succeeds.
    RefusedByGroup(ApplyError),
}

impl Group {
    pub(super) fn new(revision: u64) -> Self {
        Self {
            revision,
            overlay: Overlay::new(),
            events: Vec::new(),
            durable: false,
            volatile: false,
            outcomes: Vec::new(),
        }
    }

    /// The last revision used by the group, or the one it began with.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Whether any change must be on disk before it is answered.
    pub(super) fn is_durable(&self) -> bool {
        self.durable
    }

    /// Whether any change may be answered before it is on disk.
    pub(super) fn has_volatile(&self) -> bool {
        self.volatile
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.overlay.keys()
    }

    pub(super) fn writes(&self) -> &Overlay {
        &self.overlay
    }

    pub(super) fn take_events(&mut self) -> Vec<WatchEvent> {
        std::mem::take(&mut self.events)
    }

    /// Checks `changes` against the state so far and, if all hold, adds them.
    pub(super) fn stage(&mut self, index: &Index, options: &Options, changes: Vec<Change>, answer: ApplyAnswer) {
        let mut staged = Overlay::new();
        let mut events = Vec::with_capacity(changes.len());
        let mut revision = self.revision;
        for change in &changes {
            let key = change.key();
            let grouped = self.overlay.get(key);
            let current = match staged.get(key).or(grouped) {
                Some(state) => state.clone(),
                None => index.get(key).cloned(),
            };
            if let Err(error) = check(change, current.as_ref()) {
                let outcome = match grouped {
                    Some(_) => Outcome::RefusedByGroup(error),
                    None => Outcome::Refused(error),
                };
                self.outcomes.push((outcome, answer));
                return;
            }
            revision += 1;
            events.push(event(change, current, revision));
            let state = match change {
                Change::Put { .. } => events.last().map(|event| event.object.clone()),
                Change::Delete { .. } => None,
            };
            staged.insert(key.clone(), state);
        }
        for key in staged.keys() {
            let is_volatile = options.is_volatile(&key.resource);
            self.volatile |= is_volatile;
            self.durable |= !is_volatile;
        }
        let objects = events.iter().map(|event| event.object.clone()).collect();
        self.revision = revision;
        self.overlay.extend(staged);
        self.events.extend(events);
        self.outcomes.push((Outcome::Done(objects), answer));
    }

    /// Tells every caller how its request went, given how the commit did.
    pub(super) fn answer(self, written: &Result<(), ApplyError>) {
        for (outcome, answer) in self.outcomes {
            let result = match (outcome, written) {
                (Outcome::Refused(error), _) => Err(error),
                (_, Err(error)) => Err(error.clone()),
                (Outcome::Done(objects), Ok(())) => Ok(objects),
                (Outcome::RefusedByGroup(error), Ok(())) => Err(error),
            };
            // A caller that no longer listens is no failure.
            let _ = answer.send(result);
        }
    }
}

fn check(change: &Change, current: Option<&Arc<Object>>) -> Result<(), ApplyError> {
    let absent_delete = matches!(change, Change::Delete { .. }) && current.is_none();
    match (change.expect(), current) {
        (Expect::Absent, Some(object)) => Err(ApplyError::AlreadyExists(object.clone())),
        (Expect::Absent, None) if absent_delete => Err(ApplyError::NotFound(change.key().clone())),
        (Expect::Revision(_) | Expect::Any, None) => Err(ApplyError::NotFound(change.key().clone())),
        (Expect::Revision(wanted), Some(object)) if wanted != object.revision => {
            Err(ApplyError::Conflict(object.clone()))
        }
        _ => Ok(()),
    }
}

fn event(change: &Change, previous: Option<Arc<Object>>, revision: u64) -> WatchEvent {
    let kind = match (change, &previous) {
        (Change::Delete { .. }, _) => EventKind::Deleted,
        (Change::Put { .. }, None) => EventKind::Added,
        (Change::Put { .. }, Some(_)) => EventKind::Modified,
    };
    let object = Object { key: change.key().clone(), revision, body: change.draft().render(revision) };
    WatchEvent { kind, object: Arc::new(object), previous }
}
