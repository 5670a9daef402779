//! Commands: wishes of users for a job or queue.
//!
//! Invariant: a Command is carried out first and deleted after, by uid, so that a controller that stops in between finds it
//! again; carried out twice it does what it did once, because meanwhile its job is left alone. What it is for is asked for:
//! the watch of Commands may be ahead of that of Jobs. Commands for the same thing are carried out one after another, in the
//! order in which they were given.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use pumice_api::batch::Job;
use pumice_api::bus::{Action, Command};
use pumice_api::scheduling::Queue;
use pumice_cluster::{Change, Failure, failure};

use crate::backoff;
use crate::index::{self, DirtyKey, Index};
use crate::job::JobWork;
use crate::queue::QueueWork;
use crate::ticket::{CommandKey, Kind, Ticket, Wish};

/// What a Command is for, as it was when somebody asked.
enum Target {
    Job(Box<Job>),
    Queue(Box<Queue>),
}

/// How far a Command is.
#[derive(Debug, PartialEq)]
enum Step {
    /// What it is for is being looked up.
    Asking,
    /// It waits for its job or queue, or is being carried out.
    Acting,
    /// It was carried out and is being deleted.
    Deleting,
}

/// The Commands for one thing.
#[derive(Debug)]
struct Line {
    step: Step,
    later: VecDeque<Command>,
}

/// The Commands that are known.
#[derive(Default)]
pub(crate) struct Commands {
    seen: HashSet<String>,
    lines: HashMap<CommandKey, Line>,
}

impl Commands {
    /// Commands to begin with now.
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
        match self.lines.entry(key) {
            Entry::Occupied(mut line) => {
                line.get_mut().later.push_back(command);
                None
            }
            Entry::Vacant(free) => {
                free.insert(Line { step: Step::Asking, later: VecDeque::new() });
                Some(command)
            }
        }
    }

    /// Notes that a Command is gone; gives the next one for the same thing, and what may go on.
    pub fn next(&mut self, key: &CommandKey) -> (Option<Command>, DirtyKey) {
        let next = self.lines.get_mut(key).and_then(|line| {
            line.step = Step::Asking;
            line.later.pop_front()
        });
        if next.is_none() {
            self.lines.remove(key);
        }
        let touched = match key.kind {
            Kind::Job => DirtyKey::Job((key.namespace.clone(), key.name.clone())),
            Kind::Queue => DirtyKey::Queue(key.name.clone()),
        };
        (next, touched)
    }

    /// Whether a job must be left as it is: a Command for it may have been carried out already and be there still.
    pub fn holds(&self, job: &index::Key) -> bool {
        if self.lines.is_empty() {
            return false;
        }
        let key = CommandKey { kind: Kind::Job, namespace: job.0.clone(), name: job.1.clone() };
        let line = self.lines.get(&key);
        line.is_some_and(|line| line.step != Step::Acting)
    }

    /// Hands a Command to whom it is for; gives it back if that is gone.
    pub fn deliver(
        &mut self,
        looked_up: LookedUp,
        index: &mut Index,
        jobs: &mut JobWork,
        queues: &mut QueueWork,
        touched: &mut Vec<DirtyKey>,
    ) -> Option<Ticket> {
        if let Some(line) = self.lines.get_mut(&looked_up.ticket.key) {
            line.step = Step::Acting;
        }
        let (Some(action), Some(target)) = (looked_up.action, looked_up.target) else { return Some(looked_up.ticket) };
        let wish = Wish { action, ticket: looked_up.ticket };
        match target {
            Target::Job(job) => {
                let key = index::key(&job.metadata);
                index.job_answered(*job, touched);
                touched.push(DirtyKey::Job(key.clone()));
                jobs.wish(&key, index, wish)
            }
            Target::Queue(queue) => {
                let name = queue.metadata.name.clone().unwrap_or_default();
                index.queue_answered(*queue, touched);
                let ours = matches!(wish.action, Action::OpenQueue | Action::CloseQueue);
                if !ours || !index.queues.contains_key(&name) {
                    return Some(wish.ticket);
                }
                queues.wish(&name, wish.action, wish.ticket);
                touched.push(DirtyKey::Queue(name));
                None
            }
        }
    }

    /// Notes that a Command was carried out.
    pub fn done(&mut self, ticket: &Ticket) {
        if let Some(line) = self.lines.get_mut(&ticket.key) {
            line.step = Step::Deleting;
        }
    }
}

/// `None` for a Command that is not ours, or was carried out already.
fn key(command: &Command) -> Option<CommandKey> {
    if command.metadata.deletion_timestamp.is_some() {
        return None;
    }
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
    Some(CommandKey { kind, namespace, name: target.name.clone() })
}

/// A Command with what it is for, if that is there.
pub(crate) struct LookedUp {
    ticket: Ticket,
    action: Option<Action>,
    target: Option<Target>,
}

/// Looks up what a Command is for.
pub(crate) async fn look_up(client: Client, command: Command) -> Option<LookedUp> {
    let key = key(&command)?;
    let name = command.metadata.name.clone().unwrap_or_default();
    let namespace = command.metadata.namespace.clone().unwrap_or_default();
    let target = match key.kind {
        Kind::Job => {
            let jobs: Api<Job> = Api::namespaced(client, &namespace);
            insist(&name, || jobs.get(&key.name)).await.map(|job| Target::Job(Box::new(job)))
        }
        Kind::Queue => {
            let queues: Api<Queue> = Api::all(client);
            insist(&name, || queues.get(&key.name)).await.map(|queue| Target::Queue(Box::new(queue)))
        }
    };
    let ticket = Ticket { key, namespace, name, uid: command.metadata.uid };
    Some(LookedUp { ticket, action: command.action, target })
}

/// Deletes a Command that was carried out; gives back what it was for.
pub(crate) async fn delete(client: Client, ticket: Ticket) -> CommandKey {
    let commands: Api<Command> = Api::namespaced(client, &ticket.namespace);
    let preconditions = Preconditions { uid: ticket.uid, ..Preconditions::default() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    insist(&ticket.name, || commands.delete(&ticket.name, &parameters)).await;
    ticket.key
}

/// Repeats a call for as long as the API server is away; `None` if its object is gone, or it is not allowed.
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
        tracing::warn!(command, %error, failures, "cannot look up what a command is for, or delete it");
        if matches!(kind, Failure::Forbidden | Failure::Invalid) {
            // The job must go on; the Command stays until somebody deletes it.
            return None;
        }
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
    fn commands_for_one_job_are_carried_out_in_order_and_once() {
        let mut commands = Commands::default();
        let uids = |some: Vec<Command>| some.into_iter().filter_map(|one| one.metadata.uid).collect::<Vec<_>>();
        let listed = Change::Replace(vec![
            command("resume", 10, "a", "ResumeJob"),
            command("abort", 9, "a", "AbortJob"),
            command("other", 11, "b", "AbortJob"),
        ]);
        assert_eq!(uids(commands.new_ones(listed)), ["abort", "other"]);
        assert_eq!(uids(commands.new_ones(Change::Applied(command("resume", 10, "a", "ResumeJob")))), [""; 0]);
        let a = CommandKey { kind: Kind::Job, namespace: "ns".to_owned(), name: "a".to_owned() };
        assert!(commands.holds(&("ns".into(), "a".into())), "nothing is decided before it is known what it is for");
        assert!(!commands.holds(&("ns".into(), "c".into())));
        assert_eq!(uids(commands.next(&a).0.into_iter().collect()), ["resume"]);
        assert_eq!(commands.next(&a).0, None);
        assert!(!commands.holds(&("ns".into(), "a".into())));
        assert_eq!(uids(commands.new_ones(Change::Applied(command("last", 12, "a", "AbortJob")))), ["last"]);
    }

    #[test]
    fn a_command_that_is_being_deleted_was_carried_out() {
        let mut gone = command("gone", 7, "a", "AbortJob");
        gone.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(Commands::default().new_ones(Change::Applied(gone)), []);
    }
}
