//! Commands: wishes of users for a job or queue.
//!
//! Invariant: a Command is deleted before it is carried out, by uid, so of several controllers only one gets it and it is
//! carried out at most once.

use std::collections::HashSet;

use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use pumice_api::bus::{Action, Command};
use pumice_cluster::{Change, Failure, failure};

use crate::backoff;
use crate::index::{Index, Touched};
use crate::job::JobWork;
use crate::queue::QueueWork;

/// A Command that is ours to carry out.
pub(crate) struct Wish {
    command: Command,
}

/// The Commands being taken off the bus.
#[derive(Default)]
pub(crate) struct Commands {
    seen: HashSet<String>,
}

impl Commands {
    /// Commands for our kinds that were not seen before.
    pub fn new_ones(&mut self, change: Change<Command>) -> Vec<Command> {
        let candidates = match change {
            Change::Applied(command) => vec![command],
            Change::Deleted(command) => {
                self.seen.remove(command.metadata.uid.as_deref().unwrap_or_default());
                return Vec::new();
            }
            Change::Replace(all) => {
                let there: HashSet<&str> = all.iter().filter_map(|one| one.metadata.uid.as_deref()).collect();
                self.seen.retain(|uid| there.contains(uid.as_str()));
                all
            }
        };
        let ours = candidates.into_iter().filter(|command| kind(command).is_some());
        ours.filter(|command| self.seen.insert(command.metadata.uid.clone().unwrap_or_default())).collect()
    }

    /// Hands a wish to whom it is for; one for something that is not there is dropped.
    pub fn deliver(&self, wish: Wish, index: &Index, jobs: &mut JobWork, queues: &mut QueueWork) -> Option<Touched> {
        let command = wish.command;
        let (kind, action) = kind(&command).zip(command.action.clone())?;
        let target = command.target.map(|target| target.name).unwrap_or_default();
        match kind {
            Kind::Job => {
                let key = (command.metadata.namespace.unwrap_or_default(), target);
                let known = index.jobs.contains_key(&key);
                known.then(|| {
                    jobs.wish(&key, index, action);
                    Touched::Job(key)
                })
            }
            Kind::Queue => {
                let known = index.queues.contains_key(&target);
                (known && matches!(action, Action::OpenQueue | Action::CloseQueue)).then(|| {
                    queues.wish(&target, action);
                    Touched::Queue(target)
                })
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Job,
    Queue,
}

fn kind(command: &Command) -> Option<Kind> {
    let target = command.target.as_ref()?;
    match (target.api_version.split('/').next()?, target.kind.as_str()) {
        ("batch.volcano.sh", "Job") => Some(Kind::Job),
        ("scheduling.volcano.sh", "Queue") => Some(Kind::Queue),
        _ => None,
    }
}

/// Deletes a Command; `None` if somebody else did. Repeats for as long as the API server is away.
pub(crate) async fn take_off_the_bus(client: Client, command: Command) -> Option<Box<Wish>> {
    let namespace = command.metadata.namespace.as_deref().unwrap_or_default();
    let name = command.metadata.name.clone().unwrap_or_default();
    let commands: Api<Command> = Api::namespaced(client, namespace);
    let preconditions = Preconditions { uid: command.metadata.uid.clone(), ..Preconditions::default() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let mut failures = 0_u32;
    loop {
        let error = match commands.delete(&name, &parameters).await {
            Ok(_) => return Some(Box::new(Wish { command })),
            Err(error) => error,
        };
        let kind = failure(&error);
        if matches!(kind, Failure::NotFound | Failure::Conflict) {
            return None;
        }
        failures = failures.saturating_add(1);
        tracing::warn!(namespace, command = name, %error, failures, "cannot take a command off the bus");
        tokio::time::sleep(backoff::wait(kind, failures)).await;
    }
}
