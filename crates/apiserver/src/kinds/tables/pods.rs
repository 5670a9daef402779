//! The row of a pod.

use jiff::Timestamp;
use pumice_objects::table::{Column, Table};
use serde_json::{Value, json};

use super::{age_of, or_none, text};
use crate::strategies::pod::GATED;

pub(crate) fn table() -> Table {
    Table::new(vec![
        Column::name(),
        text("Ready", |pod, _| json!(ready(pod))),
        text("Status", |pod, _| json!(status(pod))),
        text("Restarts", |pod, now| json!(restarts(list(pod, "containerStatuses"), now))),
        Column::age(),
        text("IP", |pod, _| or_none(&pod["status"]["podIP"])).wide(),
        text("Node", |pod, _| or_none(&pod["spec"]["nodeName"])).wide(),
        text("Nominated Node", |pod, _| or_none(&pod["status"]["nominatedNodeName"])).wide(),
        text("Readiness Gates", |pod, _| json!(gates(pod))).wide(),
    ])
}

fn ready(pod: &Value) -> String {
    let of_init = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    let sidecars = of_init.filter(|container| container["restartPolicy"] == "Always").count();
    let total = pod["spec"]["containers"].as_array().map_or(0, Vec::len) + sidecars;
    let sidecars = list(pod, "initContainerStatuses").iter().filter(|status| runs_beside(pod, status));
    let all = list(pod, "containerStatuses").iter().chain(sidecars);
    format!("{}/{total}", all.filter(|status| status["ready"] == true).count())
}

/// Whether an init container has started that runs as long as the pod does.
fn runs_beside(pod: &Value, status: &Value) -> bool {
    let mut of_init = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    let stays = of_init.any(|one| one["name"] == status["name"] && one["restartPolicy"] == "Always");
    stays && status["started"] == true
}

/// How many of a pod's readiness gates are open.
fn gates(pod: &Value) -> String {
    let gates = pod["spec"]["readinessGates"].as_array().map_or(&[][..], Vec::as_slice);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_true = |kind: &Value| {
        list(pod, "conditions").iter().any(|condition| condition["type"] == *kind && condition["status"] == "True")
    };
    format!("{}/{}", gates.iter().filter(|gate| is_true(&gate["conditionType"])).count(), gates.len())
}

fn list<'a>(pod: &'a Value, field: &str) -> &'a [Value] {
    pod["status"][field].as_array().map_or(&[], Vec::as_slice)
}

fn restarts(statuses: &[Value], now: Timestamp) -> String {
    let count: u64 = statuses.iter().filter_map(|status| status["restartCount"].as_u64()).sum();
    let last = statuses.iter().filter_map(|status| status["lastState"]["terminated"]["finishedAt"].as_str()).max();
    match last {
        Some(last) if count > 0 => format!("{count} ({} ago)", age_of(last, now)),
        _ => count.to_string(),
    }
}

/// What kubectl prints under STATUS: the phase, unless a container or the deletion says more.
fn status(pod: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut reason = text(&pod["status"]["phase"]);
    if !text(&pod["status"]["reason"]).is_empty() {
        reason = text(&pod["status"]["reason"]);
    }
    let is_gated = |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == GATED;
    if list(pod, "conditions").iter().any(is_gated) {
        reason = GATED.to_owned();
    }
    let waits = init_reason(pod);
    if let Some(waits) = &waits {
        reason.clone_from(waits);
    } else {
        let mut running = false;
        for status in list(pod, "containerStatuses").iter().rev() {
            let state = &status["state"];
            if !text(&state["waiting"]["reason"]).is_empty() {
                reason = text(&state["waiting"]["reason"]);
            } else if state["terminated"].is_object() {
                reason = terminated(&state["terminated"]);
            } else if status["ready"] == true && state["running"].is_object() {
                running = true;
            }
        }
        if reason == "Completed" && running {
            reason = if is_ready(pod) { "Running" } else { "NotReady" }.to_owned();
        }
    }
    if pod["metadata"]["deletionTimestamp"].is_string() {
        reason = if text(&pod["status"]["reason"]) == "NodeLost" { "Unknown" } else { "Terminating" }.to_owned();
    }
    reason
}

/// `Init:1/2` and its like while an init container stands in the way.
fn init_reason(pod: &Value) -> Option<String> {
    let total = pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
    for (index, status) in list(pod, "initContainerStatuses").iter().enumerate() {
        let state = &status["state"];
        let terminated_state = &state["terminated"];
        if terminated_state["exitCode"].as_i64() == Some(0) || runs_beside(pod, status) {
            continue;
        }
        if terminated_state.is_object() {
            return Some(format!("Init:{}", terminated(terminated_state)));
        }
        return Some(match state["waiting"]["reason"].as_str() {
            Some(reason) if !reason.is_empty() && reason != "PodInitializing" => format!("Init:{reason}"),
            _ => format!("Init:{index}/{total}"),
        });
    }
    None
}

fn terminated(state: &Value) -> String {
    match (state["reason"].as_str(), state["signal"].as_i64()) {
        (Some(reason), _) if !reason.is_empty() => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", state["exitCode"].as_i64().unwrap_or_default()),
    }
}

fn is_ready(pod: &Value) -> bool {
    list(pod, "conditions").iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_says_what_kubectl_says() {
        let state = |state: Value| json!({"status": {"phase": "Running", "containerStatuses": [{"state": state}]}});
        for (pod, wanted) in [
            (json!({"status": {"phase": "Pending"}}), "Pending"),
            (state(json!({"waiting": {"reason": "ErrImageNeverPull"}})), "ErrImageNeverPull"),
            (state(json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})), "OOMKilled"),
            (state(json!({"terminated": {"exitCode": 3}})), "ExitCode:3"),
            (state(json!({"running": {}})), "Running"),
            (json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}}), "Terminating"),
            (
                json!({"spec": {"initContainers": [{}, {}]}, "status": {"phase": "Pending",
                    "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}, {"state": {"running": {}}}]}}),
                "Init:1/2",
            ),
            (
                json!({"spec": {"initContainers": [{"name": "s", "restartPolicy": "Always"}]}, "status": {"phase": "Running",
                    "initContainerStatuses": [{"name": "s", "started": true, "state": {"running": {}}}]}}),
                "Running",
            ),
            (
                json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}}),
                "SchedulingGated",
            ),
            (json!(null), ""),
        ] {
            assert_eq!(status(&pod), wanted, "{pod}");
        }
    }

    #[test]
    fn what_runs_beside_a_pods_containers_counts_and_gates_are_counted() {
        let mut pod = json!({
            "spec": {"containers": [{"name": "m"}], "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}],
                "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "once"}]},
            "status": {"conditions": [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}],
                "initContainerStatuses": [{"name": "s", "started": true, "ready": true}]},
        });
        assert_eq!((ready(&pod).as_str(), gates(&pod).as_str()), ("1/2", "1/2"));
        pod["status"]["containerStatuses"] = json!([{"name": "m", "ready": true}]);
        assert_eq!((ready(&pod).as_str(), gates(&json!({})).as_str()), ("2/2", "<none>"));
    }
}
