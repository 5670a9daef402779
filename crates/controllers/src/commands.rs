//! Commands: wishes of users for a job or queue.
//!
//! Invariant: a Command is deleted before it is carried out, by uid, so of several controllers only one gets it and it is
//! carried out at most once. What it is for is then asked for: the watch of Commands may be ahead of that of Jobs. Commands for
//! the same thing are taken one after another, in the order in which they were given.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use pumice_api::batch::Job;
use pumice_api::bus::{Action, Command};
use pumice_api::scheduling::Queue;
use pumice_cluster::{Change, Failure, failure};

use crate::backoff;
use crate::index::{self, Index, Touched};
use crate::job::JobWork;
use crate::queue::QueueWork;

/// A Command that is ours to carry out.
pub(crate) struct Wish {
    action: Action,
    target: Target,
}

/// What a Command is for, as it was after the Command was taken.
enum Target {
    Job(Box<Job>),
    Queue(Box<Queue>),
}

/// The Commands being taken off the bus.
#[derive(Default)]
pub(crate) struct Commands {
    seen: HashSet<String>,
    /// Of each thing that a Command is being taken for, those that come after it.
    waiting: HashMap<Key, VecDeque<Command>>,
}

/// What a Command is for: its kind and name, and the Command's namespace.
type Key = (Kind, String, String);

impl Commands {
    /// Commands to take off the bus now.
    pub fn new_ones(&mut self, change: Change<Command>) -> Vec<Command> {
        let candidates = match change {
            Change::Applied(command) => vec![command],
            Change::Deleted(command) => {
                self.seen.remove(command.metadata.uid.as_deref().unwrap_or_default());
                return Vec::new();
            }
            Change::Replace(mut all) => {
                all.sort_by_key(|command| index::version(&command.metadata));
                let there: HashSet<&str> = all.iter().filter_map(|one| one.metadata.uid.as_deref()).collect();
                self.seen.retain(|uid| there.contains(uid.as_str()));
                all
            }
        };
        candidates.into_iter().filter_map(|command| self.start(command)).collect()
    }

    /// Gives a Command back if it is for our kinds, was not seen before and has none before it.
    fn start(&mut self, command: Command) -> Option<Command> {
        let key = key(&command)?;
        if !self.seen.insert(command.metadata.uid.clone().unwrap_or_default()) {
            return None;
        }
        match self.waiting.entry(key) {
            Entry::Occupied(mut taking) => {
                taking.get_mut().push_back(command);
                None
            }
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                Some(command)
            }
        }
    }

    /// Notes that a Command for this was taken; gives the next one.
    pub fn next(&mut self, key: &Key) -> Option<Command> {
        let next = self.waiting.get_mut(key)?.pop_front();
        if next.is_none() {
            self.waiting.remove(key);
        }
        next
    }

    /// Hands a wish to whom it is for; one for something that is gone is dropped.
    pub fn deliver(wish: Wish, index: &mut Index, jobs: &mut JobWork, queues: &mut QueueWork) -> Vec<Touched> {
        let mut touched = Vec::new();
        match wish.target {
            Target::Job(job) => {
                let key = index::key(&job.metadata);
                index.job_answered(*job, &mut touched);
                jobs.wish(&key, index, wish.action);
                touched.push(Touched::Job(key));
            }
            Target::Queue(queue) => {
                let name = queue.metadata.name.clone().unwrap_or_default();
                index.queue_answered(*queue, &mut touched);
                if index.queues.contains_key(&name) && matches!(wish.action, Action::OpenQueue | Action::CloseQueue) {
                    queues.wish(&name, wish.action);
                    touched.push(Touched::Queue(name));
                }
            }
        }
        touched
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Job,
    Queue,
}

/// `None` for a Command that is not ours.
fn key(command: &Command) -> Option<Key> {
    let target = command.target.as_ref()?;
    let kind = match (target.api_version.split('/').next()?, target.kind.as_str()) {
        ("batch.volcano.sh", "Job") => Kind::Job,
        ("scheduling.volcano.sh", "Queue") => Kind::Queue,
        _ => return None,
    };
    // A queue's Commands may come from any namespace.
    let namespace = match kind {
        Kind::Job => command.metadata.namespace.clone().unwrap_or_default(),
        Kind::Queue => String::new(),
    };
    Some((kind, namespace, target.name.clone()))
}

/// A Command that was taken, with what it was for.
pub(crate) struct Taken {
    pub key: Key,
    /// `None` if somebody else has taken it, or if there is nothing to do.
    pub wish: Option<Box<Wish>>,
}

/// Deletes a Command and looks up what it is for.
pub(crate) async fn take_off_the_bus(client: Client, command: Command) -> Option<Taken> {
    let key = key(&command)?;
    let wish = take(client, command, key.0, &key.2).await;
    Some(Taken { key, wish })
}

async fn take(client: Client, command: Command, kind: Kind, wanted: &str) -> Option<Box<Wish>> {
    let namespace = command.metadata.namespace.as_deref().unwrap_or_default();
    let name = command.metadata.name.clone().unwrap_or_default();
    let commands: Api<Command> = Api::namespaced(client.clone(), namespace);
    let preconditions = Preconditions { uid: command.metadata.uid.clone(), ..Preconditions::default() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    insist(&name, || commands.delete(&name, &parameters)).await?;
    let target = match kind {
        Kind::Job => {
            let jobs: Api<Job> = Api::namespaced(client, namespace);
            Target::Job(Box::new(insist(&name, || jobs.get(wanted)).await?))
        }
        Kind::Queue => {
            let queues: Api<Queue> = Api::all(client);
            Target::Queue(Box::new(insist(&name, || queues.get(wanted)).await?))
        }
    };
    Some(Box::new(Wish { action: command.action?, target }))
}

/// Repeats a call for as long as the API server is away; `None` if its object is gone.
async fn insist<T, F>(command: &str, call: impl Fn() -> F) -> Option<T>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut failures = 0_u32;
    loop {
        let error = match call().await {
            Ok(answer) => return Some(answer),
            Err(error) => error,
        };
        let kind = failure(&error);
        if matches!(kind, Failure::NotFound | Failure::Conflict) {
            return None;
        }
        failures = failures.saturating_add(1);
        tracing::warn!(command, %error, failures, "cannot take a command off the bus");
        tokio::time::sleep(backoff::wait(kind, failures)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(uid: &str, version: u32, target: &str, action: &str) -> Command {
        serde_json::from_value(json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()},
            "action": action,
            "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": target, "uid": ""},
        }))
        .unwrap()
    }

    #[test]
    fn commands_for_one_job_are_taken_in_order_and_once() {
        let mut commands = Commands::default();
        let uids = |taken: Vec<Command>| taken.into_iter().filter_map(|one| one.metadata.uid).collect::<Vec<_>>();
        let listed = Change::Replace(vec![
            command("resume", 10, "a", "ResumeJob"),
            command("abort", 9, "a", "AbortJob"),
            command("other", 11, "b", "AbortJob"),
        ]);
        assert_eq!(uids(commands.new_ones(listed)), ["abort", "other"]);
        assert_eq!(uids(commands.new_ones(Change::Applied(command("resume", 10, "a", "ResumeJob")))), [""; 0]);
        let a = (Kind::Job, "ns".to_owned(), "a".to_owned());
        assert_eq!(uids(commands.next(&a).into_iter().collect()), ["resume"]);
        assert_eq!(commands.next(&a), None);
        assert_eq!(uids(commands.new_ones(Change::Applied(command("last", 12, "a", "AbortJob")))), ["last"]);
    }
}
