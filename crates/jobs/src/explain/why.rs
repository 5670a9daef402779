//! Why a job waits: the scheduler's structured answer, else what its objects say.
//!
//! Invariant: one shape whatever the server is: a stage, reasons, and a text for people. Called by
//! `jobctl why`, and by `run` while a job is Pending.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use pumice_api::batch::{Job, JobPhase};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::error::Error;
use crate::explain::job_end::{self, EndReport};
use crate::job::{JobEnd, JobRef, end_of};
use crate::json::text_at;
use crate::lookup::events::{self, Wanted};
use crate::lookup::{self, pods};
use crate::names;
use crate::output::table::Tint;
use crate::platform::call::{self, FailureClass, Pages};
use crate::platform::connection::Connection;
use crate::platform::watch::Collection;

/// Characters of a queue's or node's name.
const NAME_MAX: usize = 253;
/// Pods named in the fallback's text.
const PODS_SHOWN: usize = 5;
/// Waiting pods that are looked at for it.
const PODS_READ: usize = 500;
/// How long the first word about a new job may take before people are told that there is none.
const FIRST_WORD_MAX: Duration = Duration::from_secs(5);
/// Between two questions until then.
const FIRST_WORD_AGAIN: Duration = Duration::from_millis(200);

/// Why a job is where it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Why {
    /// Where it is held up, in one word.
    #[serde(default)]
    pub stage: String,
    /// The reasons with their numbers, as the server structures them.
    #[serde(default)]
    pub reasons: Vec<Value>,
    /// The same for people.
    #[serde(default)]
    pub text: String,
    /// What else the server structures: its place in the line, who holds what is short, what would let it start.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
}

impl Why {
    /// The text for a terminal that has colours: what decides, what would help, and the branches apart from what they say.
    pub fn painted(&self) -> String {
        let mut helps = false;
        let lines = self.text.trim_end().lines().enumerate().map(|(number, line)| {
            let said = line.trim_start_matches(['│', '├', '└', '─', ' ']);
            let (branch, deep) = (&line[..line.len() - said.len()], line.starts_with(['│', ' ']));
            helps = said.starts_with("could start now") || deep && helps;
            let said = match (number, helps) {
                (0, _) => Tint::Waits.paint(said),
                (_, true) => Tint::Good.paint(said),
                _ => said.to_owned(),
            };
            if branch.is_empty() { said } else { format!("{}{said}", Tint::Faint.paint(branch)) }
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Whether nobody has looked at the job yet: it waits, and neither the scheduler nor its objects give a reason.
    fn is_unsaid(&self) -> bool {
        ["New", "Pending"].contains(&self.stage.as_str()) && self.reasons.is_empty() && self.more.is_empty()
    }

    /// The deciding reason in one line: the first line of the text, where the rest are its details.
    pub fn one_line(&self) -> String {
        let text = if self.text.trim().is_empty() { &self.stage } else { &self.text };
        text.trim().lines().next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// [`fetch`] for a person who asks once: where nobody has looked at the job yet, as it was submitted a moment ago, the
/// first word is waited for, 5 s at most.
pub async fn fetch_first_word(connection: &Connection, job: &JobRef) -> Result<Why, Error> {
    let given_up = Instant::now() + FIRST_WORD_MAX;
    loop {
        let why = fetch(connection, job).await?;
        if !why.is_unsaid() || Instant::now() >= given_up {
            return Ok(why);
        }
        sleep(FIRST_WORD_AGAIN).await;
    }
}

/// What the scheduler says of a job whose pods are not there.
const WITHOUT_PODS: &str = "waits for its pods to be made";

/// Why the pods of a job can't be made, where the API server refused the last that was tried. Who may not read events learns nothing of it.
async fn refusal(connection: &Connection, job: &JobRef) -> Option<String> {
    let wanted = Wanted { namespace: &job.namespace, kind: "Job", name: &job.name, reason: "FailedCreate" };
    let found = events::of_reason(connection, wanted).await.unwrap_or_default();
    found.last().map(|event| format!("its pods can't be made: {}", event.message))
}

/// Asks the platform, or reads the job's group and pods where the platform has no such answer.
pub async fn fetch(connection: &Connection, job: &JobRef) -> Result<Why, Error> {
    let path = format!("/apis/why.pumice.sh/v1alpha1/namespaces/{}/jobs/{}", job.namespace, job.name);
    match call::get(connection, &path, &format!("ask why job {} waits", job.name)).await {
        Ok(answer) => match Why::deserialize(&answer) {
            Ok(mut why) => {
                why.more.retain(|key, _| !["apiVersion", "kind", "metadata"].contains(&key.as_str()));
                if why.text.contains(WITHOUT_PODS)
                    && let Some(refusal) = refusal(connection, job).await
                {
                    why.text = format!("{refusal}\n{}", why.text);
                }
                Ok(why)
            }
            Err(error) => Err(call::CallError::unreadable("ask why a job waits", connection.url(), error).into()),
        },
        Err(error) if error.class() == FailureClass::NotFound => from_objects(connection, job).await,
        Err(error) => Err(error.into()),
    }
}

/// What may be asked of the scheduler besides jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// A queue: what it holds and waits for.
    Queue,
    /// A node: why it takes no more.
    Node,
}

/// How a queue or a node stands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Explanation {
    /// As the scheduler structures it.
    #[serde(default)]
    pub status: Value,
    /// The same for people.
    #[serde(default)]
    pub text: String,
}

/// Asks the scheduler how a queue or a node stands.
pub async fn of(connection: &Connection, about: About, name: &str) -> Result<Explanation, Error> {
    let (word, resource) = match about {
        About::Queue => ("queue", "queues"),
        About::Node => ("node", "nodes"),
    };
    names::check(word, name, NAME_MAX)?;
    let doing = format!("ask how {word} {name} stands");
    let answer = call::get(connection, &format!("/apis/why.pumice.sh/v1alpha1/{resource}/{name}"), &doing).await?;
    Explanation::deserialize(&answer)
        .map_err(|error| call::CallError::unreadable(doing, connection.url(), error).into())
}

async fn from_objects(connection: &Connection, job: &JobRef) -> Result<Why, Error> {
    let object = lookup::get(connection, job).await?;
    let typed = lookup::typed(connection, &object)?;
    if end_of(&typed).is_some_and(|end| end != JobEnd::Aborted) {
        return Ok(ended(&job.name, &typed, &job_end::fetch(connection, job, &typed).await?));
    }
    if let Some(why) = not_waiting(&typed) {
        return Ok(why);
    }
    let uid = typed.metadata.uid.clone().unwrap_or_default();
    let path = format!(
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups/{}",
        job.namespace,
        pumice_api::names::pod_group_name(&job.name, &uid),
    );
    let group = match call::get(connection, &path, "read the job's group").await {
        Ok(group) => Some(group),
        Err(error) if error.class() == FailureClass::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let pods = if group.is_some() { some_waiting(connection, job).await? } else { Vec::new() };
    Ok(explain(&typed, group.as_ref(), &pods))
}

/// Pods that have not begun, as many as can matter: a job may have 100,000.
async fn some_waiting(connection: &Connection, job: &JobRef) -> Result<Vec<Pod>, Error> {
    let waiting = Collection { fields: "status.phase=Pending".to_owned(), ..pods::pods_of(job) };
    let doing = format!("list the pods of job {}", job.name);
    let mut pages = Pages::new(connection, &waiting.path, &waiting.query(), &doing);
    let mut pods: Vec<Pod> = pages.next_items().await?.unwrap_or_default();
    pods.truncate(PODS_READ);
    Ok(pods)
}

/// The answer for a job that runs, or is on its way to its end or to being suspended.
fn not_waiting(job: &Job) -> Option<Why> {
    let phase = job.status.state.phase.as_ref()?;
    let text = match phase {
        JobPhase::Pending | JobPhase::Restarting | JobPhase::Other(_) => return None,
        JobPhase::Aborted => "the job is suspended: it waits until somebody resumes it".to_owned(),
        phase => format!("the job does not wait: it is {phase}"),
    };
    Some(Why { text, stage: phase.to_string(), ..Why::default() })
}

/// The answer for a job that has ended: how, and why. Pure.
pub fn ended(name: &str, job: &Job, report: &EndReport) -> Why {
    let phase = job.status.state.phase.as_ref().map(ToString::to_string).unwrap_or_default();
    let word = end_of(job).map_or("ended", JobEnd::word);
    let because = report.because.as_ref().map(|because| format!(": {because}")).unwrap_or_default();
    let rest = EndReport { because: None, ..report.clone() }.lines(name, PODS_SHOWN);
    let lines: Vec<String> = std::iter::once(format!("the job {word}{because}")).chain(rest).collect();
    let reason = json!({"about": "job", "reason": job.status.state.reason, "message": report.because});
    Why { stage: phase, reasons: vec![reason], text: lines.join("\n"), ..Why::default() }
}

/// Puts together what the objects say. Pure.
pub fn explain(job: &Job, group: Option<&Value>, pods: &[Pod]) -> Why {
    if let Some(why) = not_waiting(job) {
        return why;
    }
    let state = &job.status.state;
    let Some(group) = group else {
        // It waits for something before it has a group, and says so.
        if !state.reason.is_empty() && !state.message.is_empty() {
            let reason = json!({"about": "job", "reason": state.reason, "message": state.message});
            let text = state.message.clone();
            return Why { stage: state.reason.clone(), reasons: vec![reason], text, ..Why::default() };
        }
        let text = "the job controller has not made the job's group yet".to_owned();
        return Why { stage: "New".to_owned(), text, ..Why::default() };
    };
    let stage = match text_at(group, "/status/phase") {
        "" => "Pending".to_owned(),
        phase => phase.to_owned(),
    };
    let mut reasons = Vec::new();
    let conditions = group.pointer("/status/conditions").and_then(Value::as_array);
    for condition in conditions.into_iter().flatten() {
        let [kind, status, reason, message] =
            ["/type", "/status", "/reason", "/message"].map(|p| text_at(condition, p));
        // Volcano writes `Unschedulable: True` and leaves an older `Scheduled` beside it.
        if kind == "Unschedulable" && status == "True" {
            reasons.push(json!({"about": "group", "reason": reason, "message": message}));
        }
    }
    reasons.extend(pods.iter().filter_map(pod_reason));
    let mut lines: Vec<String> = reasons.iter().take(PODS_SHOWN + 1).map(sentence).collect();
    if reasons.len() > lines.len() {
        let more = reasons.len() - lines.len();
        lines.push(if pods.len() < PODS_READ { format!("and {more} more") } else { "and more".to_owned() });
    }
    if lines.is_empty() {
        lines.push(match stage.as_str() {
            "Pending" => "the job waits to be let into its queue".to_owned(),
            "Inqueue" => "the job is in its queue and waits for its pods to be placed".to_owned(),
            _ => format!("the job's group is {stage}"),
        });
    }
    Why { stage, reasons, text: lines.join("\n"), ..Why::default() }
}

fn pod_reason(pod: &Pod) -> Option<Value> {
    let status = pod.status.as_ref()?;
    if status.phase.as_deref() != Some("Pending") {
        return None;
    }
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let unscheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    if let Some(condition) = unscheduled {
        let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref());
        return Some(json!({"about": "pod", "pod": name, "reason": reason, "message": message}));
    }
    let waiting = status.container_statuses.iter().flatten().find_map(|c| c.state.as_ref()?.waiting.as_ref())?;
    let (reason, message) = (waiting.reason.as_deref(), waiting.message.as_deref());
    // Every pod passes through this; it explains nothing.
    if reason == Some("ContainerCreating") && message.is_none() {
        return None;
    }
    Some(json!({"about": "pod", "pod": name, "reason": reason, "message": message}))
}

fn sentence(reason: &Value) -> String {
    let [pod, word, message] = ["/pod", "/reason", "/message"].map(|p| text_at(reason, p));
    let cause = if message.is_empty() { word } else { message };
    if pod.is_empty() { cause.to_owned() } else { format!("pod {pod}: {cause}") }
}
