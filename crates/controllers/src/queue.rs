//! Queues: the shell around the Queue machine.
//!
//! Invariant: one plan for a queue at a time; a wish is gone once its plan was carried out. Each wish is a Command's.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client};
use pumice_api::bus::Action;
use pumice_api::names;
use pumice_api::scheduling::{Queue, QueueState};
use pumice_clock as clock;
use pumice_cluster::events::{Occurrence, Severity};
use pumice_cluster::{EventRecorder, Failure, failure, write};
use pumice_machines::queue::{GroupCounts, QueueEffect, QueueView, counts_differ, step};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::backoff;
use crate::index::{DirtyKey, Index};
use crate::ticket::Ticket;

/// Least time between two writes of counts: phases of groups change by the thousands.
const COUNTS_WAIT: Duration = Duration::from_secs(1);

/// An action that is wanted, and the Command that asks for it.
struct Wish {
    action: Action,
    ticket: Ticket,
}

#[derive(Default)]
struct Entry {
    wishes: VecDeque<Wish>,
    busy: bool,
    again: bool,
    failures: u32,
    /// When counts may be written again.
    count_at: Option<Instant>,
}

/// What comes next for a queue.
pub(crate) enum Begin {
    Nothing,
    Wait(Instant),
    Carry(QueuePlan),
}

/// Queues that are being worked on.
#[derive(Default)]
pub(crate) struct QueueWork {
    entries: HashMap<String, Entry>,
    /// Commands that were carried out, or are for queues that are gone.
    done: Vec<Ticket>,
}

/// Effects to carry out for a queue.
pub(crate) struct QueuePlan {
    name: String,
    effects: Vec<QueueEffect>,
    failures: u32,
    /// Whether the plan carries out the wish at the head of the line.
    wish: bool,
}

/// What came of it.
pub(crate) struct Answer {
    name: String,
    queues: Vec<Queue>,
    wish: bool,
    done: bool,
}

impl Answer {
    /// Whether all of the plan was carried out.
    pub fn is_done(&self) -> bool {
        self.done
    }
}

impl QueueWork {
    /// Notes the wish of a Command for a queue.
    pub fn wish(&mut self, name: &str, action: Action, ticket: Ticket) {
        self.entries.entry(name.to_owned()).or_default().wishes.push_back(Wish { action, ticket });
    }

    /// Commands to delete, since the last call.
    pub fn done(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.done)
    }

    /// Decides what to do about a queue, if nothing is under way.
    pub fn begin(&mut self, name: &str, index: &Index, recorder: &EventRecorder) -> Begin {
        let Some(queue) = index.queues.get(name) else {
            let wishes = self.entries.remove(name).map(|entry| entry.wishes);
            self.done.extend(wishes.into_iter().flatten().map(|wish| wish.ticket));
            return Begin::Nothing;
        };
        let entry = self.entries.entry(name.to_owned()).or_default();
        if entry.busy {
            entry.again = true;
            return Begin::Nothing;
        }
        let now = Instant::now();
        let held = entry.count_at.filter(|at| *at > now);
        let parent_name = if queue.spec.parent.is_empty() { names::ROOT_QUEUE } else { &queue.spec.parent };
        let view = QueueView {
            queue,
            groups: index.groups_in(name),
            may_count: held.is_none(),
            parent: if name == names::ROOT_QUEUE { None } else { index.queues.get(parent_name) },
            action: entry.wishes.front().map(|wish| &wish.action),
        };
        let (warnings, effects): (Vec<_>, Vec<_>) =
            step(&view).into_iter().partition(|effect| matches!(effect, QueueEffect::Warn { .. }));
        for warning in warnings {
            if let QueueEffect::Warn { reason, message } = warning {
                recorder.record(Occurrence {
                    about: reference(queue),
                    severity: Severity::Warning,
                    reason: reason.to_owned(),
                    message,
                    at: clock::now(),
                });
            }
        }
        if effects.is_empty() {
            let wait = match held {
                Some(until) if counts_differ(&view) => Begin::Wait(until),
                _ => Begin::Nothing,
            };
            let Some(wish) = entry.wishes.pop_front() else { return wait };
            let more = !entry.wishes.is_empty();
            self.done.push(wish.ticket);
            return if more { self.begin(name, index, recorder) } else { wait };
        }
        if effects.iter().any(|effect| matches!(effect, QueueEffect::WriteStatus(..))) {
            entry.count_at = Some(now + COUNTS_WAIT);
        }
        entry.busy = true;
        let wish = !entry.wishes.is_empty();
        Begin::Carry(QueuePlan { name: name.to_owned(), effects, failures: entry.failures, wish })
    }

    /// Takes in what came of a plan.
    pub fn answered(&mut self, answer: Answer, index: &mut Index, touched: &mut Vec<DirtyKey>) {
        let entry = self.entries.entry(answer.name.clone()).or_default();
        entry.busy = false;
        if answer.done {
            entry.failures = 0;
            // One that came meanwhile has its turn.
            let wish = entry.wishes.pop_front_if(|_| answer.wish);
            self.done.extend(wish.map(|wish| wish.ticket));
        } else {
            entry.failures = entry.failures.saturating_add(1);
        }
        if !answer.done || entry.again || !entry.wishes.is_empty() {
            entry.again = false;
            touched.push(DirtyKey::Queue(answer.name));
        }
        for queue in answer.queues {
            index.queue_answered(queue, touched);
        }
    }

    /// A plan crashed: the queue waits for its next change.
    pub fn crashed(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.busy = false;
            self.done.extend(entry.wishes.drain(..).map(|wish| wish.ticket));
        }
    }
}

/// Carries a plan out, in order; waits first if the one before failed.
pub(crate) async fn carry_out(client: Client, plan: QueuePlan) -> Answer {
    if plan.failures > 0 {
        tokio::time::sleep(backoff::wait(Failure::Unavailable, plan.failures)).await;
    }
    let api: Api<Queue> = Api::all(client);
    let mut answer = Answer { name: plan.name.clone(), queues: Vec::new(), wish: plan.wish, done: true };
    for effect in plan.effects {
        let result = match effect {
            QueueEffect::SetParentRoot => {
                write::merge(&api, &plan.name, &json!({"spec": {"parent": names::ROOT_QUEUE}})).await
            }
            QueueEffect::WriteStatus(state, counts) => {
                write::merge_status(&api, &plan.name, &status_patch(&state, &counts)).await
            }
            QueueEffect::MarkClosedByParent(closed) => {
                let annotations = json!({names::CLOSED_BY_PARENT: closed.to_string()});
                write::merge(&api, &plan.name, &json!({"metadata": {"annotations": annotations}})).await
            }
            QueueEffect::Warn { .. } => continue,
        };
        match result {
            Ok(queue) => answer.queues.push(queue),
            Err(error) if failure(&error) == Failure::NotFound => {}
            Err(error) => {
                tracing::warn!(queue = plan.name, %error, "cannot write a queue, will try again");
                answer.done = false;
                break;
            }
        }
    }
    answer
}

/// Counts of zero are left out of the object.
fn status_patch(state: &QueueState, counts: &GroupCounts) -> Value {
    let count = |count: i32| if count == 0 { Value::Null } else { count.into() };
    json!({"status": {
        "state": state,
        "pending": count(counts.pending),
        "inqueue": count(counts.inqueue),
        "running": count(counts.running),
        "unknown": count(counts.unknown),
        "completed": count(counts.completed),
    }})
}

fn reference(queue: &Queue) -> ObjectReference {
    ObjectReference {
        api_version: Some("scheduling.volcano.sh/v1beta1".to_owned()),
        kind: Some("Queue".to_owned()),
        name: queue.metadata.name.clone(),
        uid: queue.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}
