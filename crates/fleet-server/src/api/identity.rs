//! Who asks, and what they may.

use std::collections::BTreeSet;
use std::sync::Arc;

use pumice_ledger::{Queue, SubjectKind, Verb};

use super::Error;

/// The group that everybody is in.
pub const EVERYONE: &str = "everyone";

/// Somebody whom a listener knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Who {
    /// The name, which is that of the owner of what they submit.
    pub name: String,
    /// Groups, [`EVERYONE`] understood.
    pub groups: BTreeSet<String>,
    /// What they may do everywhere.
    pub permissions: BTreeSet<Permission>,
    /// They may read specifications and reports of jobs in all queues, as everybody may in Armada.
    pub reads_all: bool,
}

macro_rules! permissions {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)*) => {
        /// What one may do everywhere.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Permission {
            $($(#[$doc])* $variant,)*
        }

        impl Permission {
            /// All permissions, in the order in which they stand here.
            pub const ALL: &[Permission] = &[$(Permission::$variant,)*];

            /// Its name in Armada's configuration.
            pub fn word(self) -> &'static str {
                match self {
                    $(Permission::$variant => $word,)*
                }
            }
        }
    };
}

permissions! {
    /// Submit jobs to any queue.
    SubmitAnyJobs = "submit_any_jobs",
    /// Cancel anybody's jobs.
    CancelAnyJobs = "cancel_any_jobs",
    /// Preempt anybody's jobs.
    PreemptAnyJobs = "preempt_any_jobs",
    /// Change the place of anybody's jobs.
    ReprioritizeAnyJobs = "reprioritize_any_jobs",
    /// Watch all job sets.
    WatchAllEvents = "watch_all_events",
    /// Make and change queues.
    CreateQueue = "create_queue",
    /// Remove queues.
    DeleteQueue = "delete_queue",
    /// Cordon queues.
    CordonQueue = "cordon_queue",
    /// Cordon nodes.
    CordonNodes = "cordon_nodes",
    /// Be an executor.
    ExecuteJobs = "execute_jobs",
    /// Cordon executors.
    UpdateExecutorSettings = "update_executor_settings",
    /// Make retry policies.
    CreateRetryPolicy = "create_retry_policy",
    /// Change retry policies.
    UpdateRetryPolicy = "update_retry_policy",
    /// Remove retry policies.
    DeleteRetryPolicy = "delete_retry_policy",
}

impl Permission {
    /// The permission of a name.
    pub fn parse(word: &str) -> Option<Permission> {
        Permission::ALL.iter().copied().find(|permission| permission.word() == word)
    }

    /// What allows everywhere what the verb allows in a queue.
    fn of(verb: Verb) -> Permission {
        match verb {
            Verb::Submit => Permission::SubmitAnyJobs,
            Verb::Cancel => Permission::CancelAnyJobs,
            Verb::Preempt => Permission::PreemptAnyJobs,
            Verb::Reprioritize => Permission::ReprioritizeAnyJobs,
            Verb::Watch => Permission::WatchAllEvents,
        }
    }
}

/// The verb's name in Armada's API.
pub(super) fn verb_word(verb: Verb) -> &'static str {
    match verb {
        Verb::Submit => "submit",
        Verb::Cancel => "cancel",
        Verb::Preempt => "preempt",
        Verb::Reprioritize => "reprioritize",
        Verb::Watch => "watch",
    }
}

impl Who {
    /// Who makes a request.
    ///
    /// # Errors
    /// Where no listener said it.
    pub fn of<T>(request: &tonic::Request<T>) -> Result<Arc<Who>, Error> {
        request.extensions().get::<Arc<Who>>().cloned().ok_or(Error::Nobody)
    }

    /// Refuses what takes a permission that they don't have.
    pub(super) fn need(&self, permission: Permission, what: &str) -> Result<(), Error> {
        if self.permissions.contains(&permission) {
            return Ok(());
        }
        let (user, what, permission) = (self.name.clone(), what.to_owned(), permission.word());
        Err(Error::Denied { user, what, permission, or: String::new() })
    }

    /// Refuses what they may neither do everywhere nor in this queue.
    pub(super) fn need_verb(&self, queue: &Queue, verb: Verb) -> Result<(), Error> {
        let permission = Permission::of(verb);
        if self.permissions.contains(&permission) || self.may(queue, verb) {
            return Ok(());
        }
        let word = verb_word(verb);
        Err(Error::Denied {
            user: self.name.clone(),
            what: format!("{word} in queue {}", queue.name),
            permission: permission.word(),
            or: format!(", and the verb {word} of the queue does"),
        })
    }

    /// Whether they may read specifications and reports of jobs in every queue.
    pub(super) fn may_read_all(&self) -> bool {
        self.reads_all || self.permissions.contains(&Permission::WatchAllEvents)
    }

    /// Whether the queue's definition allows it.
    pub fn may(&self, queue: &Queue, verb: Verb) -> bool {
        let is_in = |group: &String| group == EVERYONE || self.groups.contains(group);
        let owns = queue.user_owners.contains(&self.name) || queue.group_owners.iter().any(is_in);
        owns || queue.permissions.iter().any(|permission| {
            let mut subjects = permission.subjects.iter();
            permission.verbs.contains(&verb)
                && subjects.any(|subject| match subject.kind {
                    SubjectKind::User => subject.name == self.name,
                    SubjectKind::Group => is_in(&subject.name),
                })
        })
    }
}

#[cfg(test)]
mod tests {
    use pumice_ledger::{Permission as Granted, Subject};

    use super::*;

    fn who(name: &str, group: &str) -> Who {
        Who { name: name.to_owned(), groups: [group.to_owned()].into(), ..Who::default() }
    }

    #[test]
    fn owners_may_everything_and_others_what_is_granted() {
        let subject = |kind, name: &str| Subject { kind, name: name.to_owned() };
        let granted = |kind, name, verb| Granted { subjects: vec![subject(kind, name)], verbs: vec![verb] };
        let queue = Queue {
            user_owners: vec!["ada".to_owned()],
            group_owners: vec!["owners".to_owned()],
            permissions: vec![
                granted(SubjectKind::User, "bob", Verb::Submit),
                granted(SubjectKind::Group, "ops", Verb::Cancel),
                granted(SubjectKind::Group, EVERYONE, Verb::Watch),
            ],
            ..Queue::default()
        };
        for (who, verb, allowed) in [
            (who("ada", ""), Verb::Preempt, true),
            (who("x", "owners"), Verb::Submit, true),
            (who("bob", ""), Verb::Submit, true),
            (who("bob", ""), Verb::Cancel, false),
            (who("x", "bob"), Verb::Submit, false),
            (who("ops", ""), Verb::Cancel, false),
            (who("x", "ops"), Verb::Cancel, true),
            (who("x", ""), Verb::Watch, true),
            (who("everyone", ""), Verb::Submit, false),
        ] {
            assert_eq!(who.may(&queue, verb), allowed, "{who:?} {verb:?}");
            assert_eq!(who.need_verb(&queue, verb).is_ok(), allowed);
            let permissions = [Permission::of(verb)].into();
            assert!(Who { permissions, ..who }.need_verb(&queue, verb).is_ok());
        }
    }

    #[test]
    fn permissions_are_found_by_their_names() {
        for permission in Permission::ALL {
            assert_eq!(Permission::parse(permission.word()), Some(*permission));
        }
        assert_eq!(Permission::parse("all"), None);
    }
}
