//! Which occurrences are one event, and when it is written.
//!
//! Pure. An occurrence that has been told before counts into the event that tells of it; the more often, the rarer that is
//! written. Different messages of one object and reason become one event when there are many, as client-go's correlator has it:
//! <https://pkg.go.dev/k8s.io/client-go/tools/record>. Invariant: what is kept is bounded, and so is what is written for an object
//! and a reason; what was forgotten is told anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::{Occurrence, Severity};

/// Events remembered at most.
const KNOWN_MAX: usize = 2048;
/// An occurrence so long after the one before is a new event.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
/// Messages of one object and reason that have an event of their own.
const SIMILAR_MAX: usize = 10;
/// Between two writes of one event: at first, doubled with each, and at last.
const WRITE_AGAIN_FIRST: Duration = Duration::from_secs(1);
const WRITE_AGAIN_LONGEST: Duration = Duration::from_secs(300);

/// What has to be written of an event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Due {
    /// Which event, for [`Correlator::written`].
    pub id: u64,
    pub occurrence: Occurrence,
    pub count: i32,
    /// The name of the Event that is there already.
    pub name: Option<String>,
}

/// Events that were told lately, and those to be told.
#[derive(Debug, Default)]
pub(super) struct Correlator {
    next_id: u64,
    /// By the order in which they were first seen.
    known: BTreeMap<u64, Known>,
    groups: HashMap<Group, Vec<u64>>,
    due: BTreeSet<(Instant, u64)>,
}

/// What events have to share to be similar.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Group {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    reason: String,
    severity: Severity,
}

#[derive(Debug)]
struct Known {
    occurrence: Occurrence,
    count: i32,
    name: Option<String>,
    /// Whether it stands for different messages.
    combined: bool,
    seen: Instant,
    /// When the next write may be, and the time from that to the one after.
    write_at: Instant,
    write_again: Duration,
    is_due: bool,
}

impl Group {
    fn of(occurrence: &Occurrence) -> Group {
        Group {
            namespace: occurrence.about.namespace.clone(),
            name: occurrence.about.name.clone(),
            uid: occurrence.about.uid.clone(),
            reason: occurrence.reason.clone(),
            severity: occurrence.severity,
        }
    }
}

impl Correlator {
    /// Counts an occurrence. `O(log events)`.
    pub(super) fn take(&mut self, occurrence: Occurrence, now: Instant) {
        let group = Group::of(&occurrence);
        self.forget_old(&group, now);
        let ids = self.groups.get(&group).map(Vec::as_slice).unwrap_or_default();
        let of = |id: &u64| self.known.get(id);
        let same = |known: &Known| {
            !known.combined
                && known.occurrence.message == occurrence.message
                && known.occurrence.about == occurrence.about
        };
        let combines = ids.len() >= SIMILAR_MAX;
        let found = ids.iter().copied().find(|id| of(id).is_some_and(same));
        let found = found.or_else(|| ids.iter().copied().find(|id| of(id).is_some_and(|known| known.combined)));
        match found {
            Some(id) => self.count(id, occurrence, now),
            None => self.add(group, occurrence, combines, now),
        }
    }

    fn count(&mut self, id: u64, occurrence: Occurrence, now: Instant) {
        let Some(known) = self.known.get_mut(&id) else { return };
        known.occurrence = if known.combined { combined(occurrence) } else { occurrence };
        known.count = known.count.saturating_add(1);
        known.seen = now;
        if !known.is_due {
            known.is_due = true;
            self.due.insert((known.write_at, id));
        }
    }

    fn add(&mut self, group: Group, occurrence: Occurrence, combines: bool, now: Instant) {
        if self.known.len() >= KNOWN_MAX
            && let Some(oldest) = self.known.keys().next().copied()
        {
            self.forget(oldest);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.groups.entry(group).or_default().push(id);
        self.due.insert((now, id));
        let occurrence = if combines { combined(occurrence) } else { occurrence };
        let known = Known {
            occurrence,
            count: 1,
            name: None,
            combined: combines,
            seen: now,
            write_at: now,
            write_again: WRITE_AGAIN_FIRST,
            is_due: true,
        };
        self.known.insert(id, known);
    }

    /// Forgets those of a group that nobody has told of for long.
    fn forget_old(&mut self, group: &Group, now: Instant) {
        let ids = self.groups.get(group).map(Vec::as_slice).unwrap_or_default();
        let is_old = |id: &u64| {
            self.known.get(id).is_none_or(|known| now.saturating_duration_since(known.seen) >= FORGOTTEN_AFTER)
        };
        let old: Vec<u64> = ids.iter().copied().filter(is_old).collect();
        old.into_iter().for_each(|id| self.forget(id));
    }

    fn forget(&mut self, id: u64) {
        let Some(known) = self.known.remove(&id) else { return };
        self.due.remove(&(known.write_at, id));
        let group = Group::of(&known.occurrence);
        if let Some(ids) = self.groups.get_mut(&group) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    /// When there is something to write next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes one event that is to be written by now.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Due> {
        let (_, id) = self.due.first().copied().filter(|(at, _)| *at <= now)?;
        self.due.pop_first();
        let known = self.known.get_mut(&id)?;
        known.is_due = false;
        known.write_at = now + known.write_again;
        known.write_again = (known.write_again * 2).min(WRITE_AGAIN_LONGEST);
        Some(Due { id, occurrence: known.occurrence.clone(), count: known.count, name: known.name.clone() })
    }

    /// The Event that tells of `id` from now on.
    pub(super) fn written(&mut self, id: u64, name: Option<String>) {
        if let Some(known) = self.known.get_mut(&id) {
            known.name = name;
        }
    }
}

/// One that stands for many.
fn combined(mut occurrence: Occurrence) -> Occurrence {
    occurrence.message.insert_str(0, "(combined from similar events): ");
    occurrence
}

#[cfg(test)]
mod tests {
    use super::super::tests::occurrence;
    use super::*;

    /// A write of an Event, or into one that is there.
    #[derive(Debug, PartialEq, Eq)]
    struct Written {
        about: String,
        message: String,
        count: i32,
        is_there: bool,
    }

    /// What is written by a time.
    fn written(correlator: &mut Correlator, now: Instant) -> Vec<Written> {
        let mut out = Vec::new();
        while let Some(Due { id, occurrence, count, name }) = correlator.take_due(now) {
            correlator.written(id, Some(format!("event-{id}")));
            let about = occurrence.about.name.unwrap_or_default();
            out.push(Written { about, message: occurrence.message, count, is_there: name.is_some() });
        }
        out
    }

    fn row(name: &str, message: &str, count: i32, is_there: bool) -> Written {
        Written { about: name.to_owned(), message: message.to_owned(), count, is_there }
    }

    #[test]
    fn the_same_occurrence_is_counted_not_repeated() {
        let (mut correlator, now) = (Correlator::default(), Instant::now());
        for (name, second) in [("a", 1), ("b", 2), ("a", 3)] {
            correlator.take(occurrence(name, "m", second), now);
        }
        assert_eq!(written(&mut correlator, now), [row("a", "m", 2, false), row("b", "m", 1, false)]);
        assert_eq!(correlator.next(), None);
        correlator.take(occurrence("a", "m", 4), now + Duration::from_secs(5));
        assert_eq!(written(&mut correlator, now + Duration::from_secs(5)), [row("a", "m", 3, true)]);
    }

    #[test]
    fn what_goes_on_for_long_is_written_ever_more_rarely() {
        let (mut correlator, start) = (Correlator::default(), Instant::now());
        let mut writes = Vec::new();
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            correlator.take(occurrence("a", "m", 0), now);
            if !written(&mut correlator, now).is_empty() {
                writes.push(second);
            }
        }
        assert_eq!(writes, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811]);
        assert_eq!(correlator.next(), Some(start + Duration::from_secs(1111)), "the last count is not lost");
    }

    #[test]
    fn many_messages_of_one_reason_become_one_event() {
        let (mut correlator, start) = (Correlator::default(), Instant::now());
        for message in 0..SIMILAR_MAX + 3 {
            correlator.take(occurrence("a", &message.to_string(), 0), start);
        }
        correlator.take(occurrence("b", "other", 0), start);
        let rows = written(&mut correlator, start);
        assert_eq!(rows.len(), SIMILAR_MAX + 2);
        assert_eq!(rows[SIMILAR_MAX], row("a", "(combined from similar events): 12", 3, false));
        assert_eq!(rows[SIMILAR_MAX + 1], row("b", "other", 1, false));
        let later = start + FORGOTTEN_AFTER;
        correlator.take(occurrence("a", "20", 0), later);
        assert_eq!(written(&mut correlator, later), [row("a", "20", 1, false)], "what is long ago is forgotten");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let (mut correlator, now) = (Correlator::default(), Instant::now());
        for object in 0..KNOWN_MAX + 10 {
            correlator.take(occurrence(&object.to_string(), "m", 0), now);
        }
        let sizes = (correlator.known.len(), correlator.groups.len(), correlator.due.len());
        assert_eq!(sizes, (KNOWN_MAX, KNOWN_MAX, KNOWN_MAX));
        assert_eq!(written(&mut correlator, now).len(), KNOWN_MAX);
    }
}
