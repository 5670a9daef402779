//! Plugin `extender`: asks an HTTP server, one POST a question, as Volcano's does.
//!
//! Invariant: an answer takes at most its time and 10 MB; after a call that got none nothing more is asked until the
//! next cycle, so that a dead server costs a cycle one timeout. What an unanswered question means follows from
//! `extender.ignorable`: no opinion, or no. Registered by `plugins`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pumice_engine::plugin::{
    ArgumentError, Counting, GroupId, Missing, Move, NodeId, Plugin, QueueId, Registry, Tables, TaskId, TaskState,
    TimeMs, Vote,
};
use pumice_engine::{Argument, Check, PluginConfig, Reason};
use pumice_units::GoDuration;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

mod call;
mod wire;

use call::{CallError, Caller};

/// Its name in configurations.
pub(crate) const NAME: &str = pumice_recording::EXTENDER;
/// How long an answer may take where the configuration does not say.
const TIMEOUT: Duration = Duration::from_secs(1);
/// And where it asks for more than this.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// The questions, by the argument that names the server's path for each.
const VERBS: &[&str] = &[
    "onSessionOpenVerb",
    "onSessionCloseVerb",
    "predicateVerb",
    "prioritizeVerb",
    "preemptableVerb",
    "reclaimableVerb",
    "queueOverusedVerb",
    "jobEnqueueableVerb",
    "jobEnqueuedVerb",
    "jobReadyVerb",
    "allocateFuncVerb",
    "deallocateFuncVerb",
];

/// Adds the plugin, with the keys that its arguments may have in the configuration.
pub(crate) fn register(plugins: &mut Registry) {
    let names: Vec<String> = ["urlPrefix", "httpTimeout", "ignorable", "managedResources"]
        .iter()
        .chain(VERBS)
        .map(|name| format!("{NAME}.{name}"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    plugins.add(NAME, &names, |config| Ok(Box::new(Extender::new(config)?)));
}

#[derive(Debug)]
struct Extender {
    /// Absent where nothing is asked.
    caller: Option<Caller>,
    /// The server's paths, by question.
    verbs: BTreeMap<&'static str, String>,
    ignorable: bool,
    /// Pods that ask for none of these are not asked about; with none named all are.
    managed: Vec<String>,
    /// A call of this cycle got no answer.
    down: AtomicBool,
    /// A session was opened, and its end not told yet.
    session: bool,
    /// Pods that the server was told have room.
    reported: BTreeSet<TaskId>,
}

impl Extender {
    fn new(config: &PluginConfig) -> Result<Self, ArgumentError> {
        let verb = |name: &&'static str| Some((*name, text(config, name)?.to_owned()));
        let verbs: BTreeMap<&'static str, String> = VERBS.iter().filter_map(verb).collect();
        let fault = |argument: &str, wanted: String| ArgumentError { argument: format!("{NAME}.{argument}"), wanted };
        let timeout = match text(config, "httpTimeout") {
            Some(timeout) => timeout
                .parse::<GoDuration>()
                .ok()
                .and_then(|timeout| u64::try_from(timeout.as_millis()).ok().filter(|timeout| *timeout > 0))
                .ok_or_else(|| fault("httpTimeout", "must be a duration such as 100ms".to_owned()))?
                .min(TIMEOUT_MAX.as_millis() as u64),
            None => TIMEOUT.as_millis() as u64,
        };
        let prefix = text(config, "urlPrefix").unwrap_or_default();
        let caller = match verbs.is_empty() {
            true => None,
            false => Some(
                Caller::new(prefix, Duration::from_millis(timeout))
                    .map_err(|error| fault("urlPrefix", error.to_string()))?,
            ),
        };
        Ok(Self {
            caller,
            verbs,
            ignorable: config.bool(&format!("{NAME}.ignorable"), false),
            managed: managed(config),
            down: AtomicBool::new(false),
            session: false,
            reported: BTreeSet::new(),
        })
    }

    fn asks(&self, verb: &str) -> bool {
        self.verbs.contains_key(verb)
    }

    /// Asks, and reads the answer. `None` where the question is not configured.
    fn ask<T: DeserializeOwned>(&self, verb: &str, question: &Value) -> Option<Result<T, CallError>> {
        let (path, caller) = (self.verbs.get(verb)?, self.caller.as_ref()?);
        if self.down.load(Ordering::Relaxed) {
            return Some(Err(CallError::Down));
        }
        let answer = caller.call(path, question);
        let read = answer.and_then(|body| serde_json::from_slice(&body).map_err(CallError::Answer));
        Some(read.inspect_err(|error| {
            self.down.store(error.is_silence(), Ordering::Relaxed);
            tracing::warn!(verb, %error, ignorable = self.ignorable, "the extender gave no answer");
        }))
    }

    /// Tells, and reads no answer.
    fn tell(&self, verb: &str, what: &Value) {
        if let (Some(path), Some(caller)) = (self.verbs.get(verb), &self.caller)
            && !self.down.load(Ordering::Relaxed)
            && let Err(error) = caller.call(path, what)
        {
            self.down.store(error.is_silence(), Ordering::Relaxed);
            tracing::warn!(verb, %error, "the extender could not be told");
        }
    }

    fn manages(&self, tables: &Tables, task: TaskId) -> bool {
        let requests = || tables.requests(task);
        self.managed.is_empty() || self.managed.iter().any(|name| requests().contains_key(name))
    }

    fn victims(&self, verb: &str, tables: &Tables, evictor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        if !self.manages(tables, evictor) {
            return None;
        }
        let evictees: Vec<Value> = candidates.iter().map(|task| wire::task(tables, *task)).collect();
        let question = json!({ "evictor": wire::task(tables, evictor), "evictees": evictees });
        match self.ask::<Victims>(verb, &question)? {
            Ok(Victims { status: 0, .. }) => None,
            Ok(answer) => {
                let names: BTreeSet<String> =
                    answer.victims.unwrap_or_default().into_iter().map(|victim| victim.uid).collect();
                let named = |task: &&TaskId| names.contains(tables.task(**task).uid());
                Some(candidates.iter().filter(named).copied().collect())
            }
            Err(_) if self.ignorable => None,
            Err(_) => Some(Vec::new()),
        }
    }
}

impl Plugin for Extender {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        if self.caller.is_none() {
            return;
        }
        *self.down.get_mut() = false;
        // A session ends when the next one begins: nothing is called after the last action of a cycle.
        if std::mem::replace(&mut self.session, true) {
            self.tell("onSessionCloseVerb", &json!({}));
        }
        self.reported.clear();
        if self.asks("onSessionOpenVerb") {
            self.tell("onSessionOpenVerb", &wire::session(tables));
        }
    }

    fn follows_moves(&self) -> bool {
        self.asks("allocateFuncVerb") || self.asks("deallocateFuncVerb")
    }

    fn moved(&mut self, tables: &Tables, change: Move) {
        let state = tables.task(change.task).state();
        let has_room = matches!(state, TaskState::Allocated | TaskState::Pipelined | TaskState::Binding);
        if has_room && self.reported.insert(change.task) {
            self.tell("allocateFuncVerb", &json!({ "task": wire::task(tables, change.task) }));
        } else if !has_room && (self.reported.remove(&change.task) || state == TaskState::Releasing) {
            self.tell("deallocateFuncVerb", &json!({ "task": wire::task(tables, change.task) }));
        }
    }

    fn is_specific(&self, tables: &Tables, task: TaskId) -> bool {
        (self.asks("predicateVerb") || self.asks("prioritizeVerb")) && self.manages(tables, task)
    }

    fn check_task(&self, tables: &Tables, task: TaskId, node: NodeId) -> Option<Check> {
        if !self.manages(tables, task) {
            return None;
        }
        let question = json!({ "task": wire::task(tables, task), "node": wire::node(tables, node) });
        let refused = match self.ask::<Fit>("predicateVerb", &question)? {
            // A message refuses whatever the code; 0 stands for an error there.
            Ok(answer) => !answer.status.unwrap_or_default().is_empty(),
            Err(_) => !self.ignorable,
        };
        refused.then_some(Check::Refused)
    }

    fn score_task(&self, tables: &Tables, task: TaskId, nodes: &[NodeId], scores: &mut [i64]) {
        if !self.asks("prioritizeVerb") || !self.manages(tables, task) {
            return;
        }
        let all: Vec<Value> = nodes.iter().map(|node| wire::node(tables, *node)).collect();
        let question = json!({ "task": wire::task(tables, task), "nodes": all });
        let Some(Ok(answer)) = self.ask::<Scores>("prioritizeVerb", &question) else { return };
        if !answer.error_message.unwrap_or_default().is_empty() {
            return;
        }
        let given = answer.node_score.unwrap_or_default();
        for (node, score) in nodes.iter().zip(scores) {
            // `as` saturates; what is no number counts as 0.
            let more = given.get(tables.node(*node).name()).map_or(0, |more| more.round() as i64);
            *score = score.saturating_add(more);
        }
    }

    fn preemptable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        self.victims("preemptableVerb", tables, preemptor, candidates)
    }

    fn reclaimable(&self, tables: &Tables, preemptor: TaskId, candidates: &[TaskId]) -> Option<Vec<TaskId>> {
        self.victims("reclaimableVerb", tables, preemptor, candidates)
    }

    fn overused(&self, tables: &Tables, queue: QueueId) -> Option<Reason> {
        let question = json!({ "queue": wire::queue(tables, queue) });
        let overused = match self.ask::<Overused>("queueOverusedVerb", &question)? {
            Ok(answer) => answer.overused,
            Err(_) => !self.ignorable,
        };
        overused.then(|| refused(format!("queue {} has all that it may take", tables.queue(queue).name())))
    }

    fn job_enqueueable(&self, tables: &Tables, group: GroupId, _missing: &Missing) -> Result<Vote, Reason> {
        let question = json!({ "job": wire::job(tables, group) });
        match self.ask::<VoteAnswer>("jobEnqueueableVerb", &question) {
            None | Some(Ok(VoteAnswer { status: 0 })) => Ok(Vote::Abstain),
            Some(Ok(answer)) if answer.status > 0 => Ok(Vote::Permit),
            Some(Err(_)) if self.ignorable => Ok(Vote::Permit),
            Some(Ok(_)) => Err(refused("the group is not admitted".to_owned())),
            Some(Err(_)) => Err(refused("the server does not answer".to_owned())),
        }
    }

    fn job_enqueued(&mut self, tables: &Tables, group: GroupId, _missing: &Missing) {
        if self.asks("jobEnqueuedVerb") {
            self.tell("jobEnqueuedVerb", &json!({ "job": wire::job(tables, group) }));
        }
    }

    fn job_ready(&self, tables: &Tables, group: GroupId, _counting: Counting) -> bool {
        if !self.asks("jobReadyVerb") {
            return true;
        }
        match self.ask::<Ready>("jobReadyVerb", &json!({ "job": wire::job(tables, group) })) {
            None => true,
            Some(Ok(answer)) => answer.status,
            Some(Err(_)) => self.ignorable,
        }
    }
}

#[derive(Deserialize)]
struct Fit {
    /// Why the node does not fit; Volcano calls the message so.
    #[serde(default, alias = "errorMessage")]
    status: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scores {
    node_score: Option<BTreeMap<String, f64>>,
    error_message: Option<String>,
}

#[derive(Deserialize)]
struct Victims {
    #[serde(default)]
    status: i64,
    victims: Option<Vec<Victim>>,
}

#[derive(Deserialize)]
struct Victim {
    #[serde(rename = "UID")]
    uid: String,
}

#[derive(Deserialize)]
struct Overused {
    #[serde(default)]
    overused: bool,
}

#[derive(Deserialize)]
struct VoteAnswer {
    #[serde(default)]
    status: i64,
}

#[derive(Deserialize)]
struct Ready {
    #[serde(default)]
    status: bool,
}

fn refused(message: String) -> Reason {
    Reason::Refused { plugin: NAME.to_owned(), message }
}

fn text<'a>(config: &'a PluginConfig, name: &str) -> Option<&'a str> {
    match config.arguments.get(&format!("{NAME}.{name}")) {
        Some(Argument::Text(text)) if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// A list, or names with commas between them.
fn managed(config: &PluginConfig) -> Vec<String> {
    match config.arguments.get(&format!("{NAME}.managedResources")) {
        Some(Argument::Text(text)) => {
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        }
        Some(Argument::List(items)) => {
            let name = |item: &Argument| match item {
                Argument::Text(name) => Some(name.clone()),
                _ => None,
            };
            items.iter().filter_map(name).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
