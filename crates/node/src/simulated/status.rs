//! The status that a simulated node writes, as the text of a merge patch.
//!
//! Invariant: what a kubelet would write of a pod whose containers all start at once and end together, kept short: a
//! patch of each pod is two of the few writes that a job costs. Conditions of others are kept. Pure.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::capacity::Shortage;
use super::order::Template;

/// What is to be told of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Running,
    Ended {
        at_seconds: i64,
        exit_code: i32,
        oom: bool,
    },
    /// The node does not take it.
    Refused(Refusal),
}

/// Why a node does not take a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is over what the node has.
    Short(Shortage),
    /// A fault that was asked for.
    Fault,
}

/// What the status is rendered from.
pub(crate) struct Facts<'a> {
    pub uid: Uuid,
    pub template: &'a Template,
    /// When the node took it on.
    pub started_seconds: i64,
    /// Conditions that others wrote, as [`others`] gives them.
    pub conditions: &'a str,
}

const OWN_CONDITIONS: [&str; 3] = ["Initialized", "ContainersReady", "Ready"];

/// The conditions that a node does not write itself, as JSON text: it has to keep them as they are.
pub(crate) fn others(conditions: &[Value]) -> Box<str> {
    let own = |condition: &&Value| condition["type"].as_str().is_some_and(|kind| OWN_CONDITIONS.contains(&kind));
    let others: Vec<&Value> = conditions.iter().filter(|condition| !own(condition)).collect();
    serde_json::to_string(&others).unwrap_or_default().into()
}

#[derive(Serialize)]
struct Patch<'a> {
    metadata: Metadata,
    status: Status<'a>,
}

#[derive(Serialize)]
struct Metadata {
    uid: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    phase: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    start_time: &'a str,
    conditions: Vec<Condition<'a>>,
    container_statuses: Vec<ContainerStatus<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Condition<'a> {
    Others(Value),
    #[serde(rename_all = "camelCase")]
    Own {
        r#type: &'a str,
        status: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
        last_transition_time: &'a str,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus<'a> {
    name: &'a str,
    image: &'a str,
    #[serde(rename = "imageID")]
    image_id: &'a str,
    ready: bool,
    started: bool,
    restart_count: u32,
    state: State<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum State<'a> {
    #[serde(rename_all = "camelCase")]
    Running { started_at: &'a str },
    #[serde(rename_all = "camelCase")]
    Terminated { exit_code: i32, reason: &'a str, started_at: &'a str, finished_at: &'a str },
}

/// The body of a merge patch of the pod's status, for this very pod and no later one of its name.
pub(crate) fn patch(facts: &Facts<'_>, outcome: &Outcome) -> Vec<u8> {
    let started = wire_time(facts.started_seconds);
    let (phase, changed) = match outcome {
        Outcome::Running => ("Running", started.clone()),
        Outcome::Ended { exit_code: 0, at_seconds, .. } => ("Succeeded", wire_time(*at_seconds)),
        Outcome::Ended { at_seconds, .. } => ("Failed", wire_time(*at_seconds)),
        Outcome::Refused(_) => ("Failed", started.clone()),
    };
    let (reason, message) = match outcome {
        Outcome::Refused(refusal) => {
            let (reason, message) = refusal.text();
            (Some(reason), Some(message))
        }
        _ => (None, None),
    };
    let status = Status {
        phase,
        reason,
        message,
        start_time: &started,
        conditions: conditions(facts, outcome, phase, &changed),
        container_statuses: containers(facts, outcome, &started, &changed),
    };
    // Strings and numbers only: nothing of it can fail to be written.
    serde_json::to_vec(&Patch { metadata: Metadata { uid: facts.uid.to_string() }, status }).unwrap_or_default()
}

impl Refusal {
    fn text(&self) -> (String, String) {
        match self {
            Refusal::Short(short) => {
                let Shortage { resource, requested, used, capacity } = short;
                let reason = format!("OutOf{resource}");
                let message = format!(
                    "Pod was rejected: Node didn't have enough resource: {resource}, requested: {requested}, \
                     used: {used}, capacity: {capacity}"
                );
                (reason, message)
            }
            Refusal::Fault => {
                let message = "Pod was rejected: a fault that was asked for".to_owned();
                ("UnexpectedAdmissionError".to_owned(), message)
            }
        }
    }
}

fn conditions<'a>(facts: &Facts<'a>, outcome: &Outcome, phase: &str, changed: &'a str) -> Vec<Condition<'a>> {
    let others: Vec<Value> = serde_json::from_str(facts.conditions).unwrap_or_default();
    let mut all: Vec<Condition<'a>> = others.into_iter().map(Condition::Others).collect();
    if matches!(outcome, Outcome::Refused(_)) {
        return all;
    }
    let ready = *outcome == Outcome::Running;
    let reason = match phase {
        "Running" => None,
        "Succeeded" => Some("PodCompleted"),
        _ => Some("PodFailed"),
    };
    let own = |kind: &'static str, holds: bool| Condition::Own {
        r#type: kind,
        status: if holds { "True" } else { "False" },
        reason: if holds { None } else { reason },
        last_transition_time: changed,
    };
    all.extend([own("Initialized", true), own("ContainersReady", ready), own("Ready", ready)]);
    all
}

fn containers<'a>(
    facts: &Facts<'a>,
    outcome: &Outcome,
    started: &'a str,
    changed: &'a str,
) -> Vec<ContainerStatus<'a>> {
    let state = |first: bool| match outcome {
        Outcome::Running => Some(State::Running { started_at: started }),
        Outcome::Refused(_) => None,
        Outcome::Ended { exit_code, oom, .. } => {
            // The others end well, as far as anybody knows.
            let exit_code = if first { *exit_code } else { 0 };
            let reason = match (exit_code, *oom) {
                (0, _) => "Completed",
                (_, true) => "OOMKilled",
                (_, false) => "Error",
            };
            Some(State::Terminated { exit_code, reason, started_at: started, finished_at: changed })
        }
    };
    let shown = facts.template.containers.iter().enumerate().filter_map(|(index, container)| {
        Some(ContainerStatus {
            name: &container.name,
            image: &container.image,
            image_id: "",
            ready: *outcome == Outcome::Running,
            started: *outcome == Outcome::Running,
            restart_count: 0,
            state: state(index == 0)?,
        })
    });
    shown.collect()
}

/// Seconds since 1970 as objects show them.
pub(crate) fn wire_time(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::capacity::NodeShape;
    use crate::simulated::order::Container;
    use k8s_openapi::api::core::v1::PodStatus;
    use serde_json::json;

    fn rendered(outcome: &Outcome) -> (Value, PodStatus) {
        let shape: NodeShape = "cpu=1".parse().unwrap();
        let container = |name: &str| Container { name: name.into(), image: "i".into() };
        let containers = [container("a"), container("b\"")].into();
        let template = Template { containers, request: shape.request(&[].into()) };
        let conditions =
            others(&[json!({"type": "PodScheduled", "status": "True"}), json!({"type": "Ready", "status": "X"})]);
        let facts =
            Facts { uid: Uuid::from_u128(7), template: &template, started_seconds: 10, conditions: &conditions };
        let body: Value = serde_json::from_slice(&patch(&facts, outcome)).unwrap();
        (body.clone(), serde_json::from_value(body["status"].clone()).unwrap())
    }

    #[test]
    fn a_running_pod_is_ready_and_keeps_the_conditions_of_others() {
        let (body, status) = rendered(&Outcome::Running);
        assert_eq!(body["metadata"]["uid"], "00000000-0000-0000-0000-000000000007");
        assert_eq!(status.phase.as_deref(), Some("Running"));
        let conditions: Vec<_> =
            status.conditions.unwrap().into_iter().map(|c| format!("{}={}", c.type_, c.status)).collect();
        assert_eq!(conditions, ["PodScheduled=True", "Initialized=True", "ContainersReady=True", "Ready=True"]);
        let containers = status.container_statuses.unwrap();
        assert!(containers.iter().all(|c| c.ready && c.state.as_ref().unwrap().running.is_some()));
        assert_eq!(containers[1].name, "b\"");
    }

    #[test]
    fn an_end_is_told_with_the_code_of_the_first_container() {
        let cases =
            [(0, false, "Succeeded", "Completed"), (3, false, "Failed", "Error"), (137, true, "Failed", "OOMKilled")];
        for (exit_code, oom, phase, reason) in cases {
            let (_, status) = rendered(&Outcome::Ended { at_seconds: 20, exit_code, oom });
            assert_eq!(status.phase.as_deref(), Some(phase));
            let ends: Vec<_> = status
                .container_statuses
                .unwrap()
                .into_iter()
                .map(|c| c.state.unwrap().terminated.unwrap())
                .map(|end| (end.exit_code, end.reason.unwrap()))
                .collect();
            assert_eq!(ends, [(exit_code, reason.to_owned()), (0, "Completed".to_owned())]);
        }
    }

    #[test]
    fn a_refusal_says_what_is_short() {
        let short = Shortage { resource: "cpu".into(), requested: 2, used: 3, capacity: 4 };
        let (_, status) = rendered(&Outcome::Refused(Refusal::Short(short)));
        assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("OutOfcpu")));
        assert!(status.message.unwrap().ends_with("cpu, requested: 2, used: 3, capacity: 4"));
        let (_, status) = rendered(&Outcome::Refused(Refusal::Fault));
        assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    }
}
