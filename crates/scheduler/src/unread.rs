//! Queues that name a `deserved` which no plugin of the configuration reads: `proportion` divides by weight alone.
//!
//! Invariant: each is told of once, and again once it has been without or the configuration has read it meanwhile. Pure;
//! owned by the loop.

use std::collections::BTreeMap;

use pumice_engine::Delta;

/// What is told of such a queue.
pub(crate) const MESSAGE: &str = "spec.deserved has no effect: no plugin of the scheduler's configuration reads it; \
                                  proportion divides by spec.weight, capacity by spec.deserved";

#[derive(Debug, Default)]
pub(crate) struct Unread {
    /// Queues that name one, with their uid, and whether they were told.
    queues: BTreeMap<String, (String, bool)>,
}

impl Unread {
    /// Follows what queues name.
    pub(crate) fn follow(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            match delta {
                Delta::QueueUpsert(facts) if facts.deserved.is_empty() => drop(self.queues.remove(&facts.name)),
                Delta::QueueUpsert(facts) => {
                    self.queues.entry(facts.name.clone()).or_insert_with(|| (facts.uid.clone(), false));
                }
                Delta::QueueRemove(name) => drop(self.queues.remove(name)),
                _ => {}
            }
        }
    }

    /// Names and uids of those that are to be told now. O(queues that name one).
    pub(crate) fn take(&mut self, is_read: bool) -> Vec<(String, String)> {
        let mut new = Vec::new();
        for (name, (uid, told)) in &mut self.queues {
            if !is_read && !*told {
                new.push((name.clone(), uid.clone()));
            }
            *told = !is_read;
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use pumice_engine::QueueFacts;

    use super::*;

    fn queue(name: &str, cpu_milli: i64) -> Delta {
        let deserved = [("cpu".to_owned(), cpu_milli)].into_iter().filter(|(_, amount)| *amount > 0).collect();
        Delta::QueueUpsert(QueueFacts {
            name: name.into(),
            uid: format!("uid-{name}"),
            deserved,
            ..QueueFacts::default()
        })
    }

    #[test]
    fn each_queue_is_told_of_once() {
        let mut unread = Unread::default();
        let names = |unread: &mut Unread, is_read: bool| -> Vec<String> {
            unread.take(is_read).into_iter().map(|(name, _)| name).collect()
        };
        unread.follow(&[queue("a", 1_000), queue("b", 0), queue("c", 1_000)]);
        assert_eq!(names(&mut unread, false), ["a", "c"]);
        unread.follow(&[queue("a", 2_000)]);
        assert_eq!(names(&mut unread, false), [""; 0], "a change of the amount is no news");
        unread.follow(&[queue("a", 0), queue("b", 1_000), Delta::QueueRemove("c".into())]);
        assert_eq!(names(&mut unread, false), ["b"]);
        unread.follow(&[queue("a", 1_000)]);
        assert_eq!(names(&mut unread, false), ["a"]);
        assert_eq!(names(&mut unread, true), [""; 0], "capacity came");
        assert_eq!(names(&mut unread, false), ["a", "b"], "and went");
    }
}
