//! Commands: wishes of users for a job or queue.
//!
//! Invariant: a Command is deleted before it is carried out, by uid, so of several controllers only one gets it and it is
//! carried out at most once. What it is for is then asked for: the watch of Commands may be ahead of that of Jobs.

use std::collections::HashSet;

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

/// Deletes a Command and looks up what it is for; `None` if somebody else deleted it, or if there is nothing to do.
pub(crate) async fn take_off_the_bus(client: Client, command: Command) -> Option<Box<Wish>> {
    let namespace = command.metadata.namespace.as_deref().unwrap_or_default();
    let name = command.metadata.name.clone().unwrap_or_default();
    let commands: Api<Command> = Api::namespaced(client.clone(), namespace);
    let preconditions = Preconditions { uid: command.metadata.uid.clone(), ..Preconditions::default() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    insist(&name, || commands.delete(&name, &parameters)).await?;
    let kind = kind(&command)?;
    let wanted = command.target.map(|target| target.name)?;
    let target = match kind {
        Kind::Job => {
            let jobs: Api<Job> = Api::namespaced(client, namespace);
            Target::Job(Box::new(insist(&name, || jobs.get(&wanted)).await?))
        }
        Kind::Queue => {
            let queues: Api<Queue> = Api::all(client);
            Target::Queue(Box::new(insist(&name, || queues.get(&wanted)).await?))
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
