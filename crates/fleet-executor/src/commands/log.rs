//! Reads a part of a pod's log.

use futures::{AsyncBufRead, AsyncBufReadExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::api::LogParams;
use kube::{Api, Client};
use pumice_wire::executor::{ErrandProblem, LogPart, ReadLog};

use super::Refused;
use super::lines::Lines;
use crate::labels::RUN_LABEL;

/// Bytes of a part, whatever the server asks for.
const BYTES_MAX: u32 = 1 << 20;
/// Names the container that is meant where none is.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
const NANOS: i64 = 1_000_000_000;

/// Which container is read, and whether it has ended.
#[derive(Debug, PartialEq)]
struct Chosen {
    container: String,
    ended: bool,
}

pub(super) async fn read(client: &Client, read: ReadLog) -> Result<LogPart, Refused> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &read.namespace);
    let gone =
        format!("pod {} in namespace {}: pods are removed some time after they end", read.pod_name, read.namespace);
    let pod = pods.get(&read.pod_name).await.map_err(|error| Refused::of(&error, "read pods", &gone))?;
    // Looked at before the log is read: what has ended then writes no more.
    let Chosen { container, ended } = choose(&pod, &read)?;
    // Kubernetes knows whole seconds; the rest is left out here.
    let (since_second, since) = if read.since_ns > 0 {
        let second = Timestamp::from_second(read.since_ns.div_euclid(NANOS)).ok();
        (second, Timestamp::from_nanosecond(read.since_ns.into()).ok())
    } else {
        (None, None)
    };
    let params = LogParams {
        container: Some(container),
        previous: read.previous,
        timestamps: true,
        tail_lines: read.tail_lines.map(i64::from),
        since_time: since_second,
        ..LogParams::default()
    };
    let stream = pods.log_stream(&read.pod_name, &params).await;
    let mut stream = stream.map_err(|error| Refused::of(&error, "read logs", &gone))?;
    let bytes_max = read.bytes_max.clamp(1, BYTES_MAX) as usize;
    gather(&mut stream, Lines::new(since, bytes_max), ended).await
}

async fn gather(stream: &mut (impl AsyncBufRead + Unpin), mut lines: Lines, ended: bool) -> Result<LogPart, Refused> {
    loop {
        let piece = stream
            .fill_buf()
            .await
            .map_err(|error| Refused::new(ErrandProblem::Failed, format!("the log broke off: {error}")))?;
        let length = piece.len();
        if length == 0 || !lines.take(piece) {
            break;
        }
        stream.consume_unpin(length);
    }
    let (lines, more) = lines.finish(ended);
    Ok(LogPart { lines, more, ended })
}

/// The container that is meant: of a pod of the run, and one that has begun.
fn choose(pod: &Pod, read: &ReadLog) -> Result<Chosen, Refused> {
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(RUN_LABEL));
    if label != Some(&read.run_id) {
        let message = format!("there is no pod {} of run {}: another one has its name", read.pod_name, read.run_id);
        return Err(Refused::new(ErrandProblem::NotFound, message));
    }
    let spec = pod.spec.as_ref();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let names = || main.iter().chain(init).map(|container| container.name.as_str());
    let said = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(DEFAULT_CONTAINER));
    let container = match (read.container.as_str(), main) {
        ("", [only]) => only.name.as_str(),
        ("", _) => said.map(String::as_str).unwrap_or_default(),
        (container, _) => container,
    };
    if !names().any(|name| name == container) {
        let names: Vec<&str> = names().collect();
        let problem = if container.is_empty() { "say which container" } else { "there is no such container" };
        let message = format!("{problem}: pod {} has {}", read.pod_name, names.join(", "));
        return Err(Refused::new(ErrandProblem::Invalid, message));
    }
    let status = pod.status.as_ref();
    let main = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let init = status.and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    let status = main.iter().chain(init).find(|status| status.name == container);
    let state = status.and_then(|status| status.state.as_ref());
    let ended = state.is_some_and(|state| state.terminated.is_some());
    if !ended && !has_begun(status, state) {
        let why = state.and_then(|state| state.waiting.as_ref()).and_then(|waiting| waiting.reason.clone());
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        let message = format!("container {container} of pod {} has not started{why}", read.pod_name);
        return Err(Refused::new(ErrandProblem::NotStarted, message));
    }
    // Of a run before this one all is written.
    Ok(Chosen { container: container.to_owned(), ended: ended || read.previous })
}

fn has_begun(status: Option<&ContainerStatus>, state: Option<&ContainerState>) -> bool {
    state.is_some_and(|state| state.running.is_some()) || status.is_some_and(|status| status.restart_count > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const RUN: &str = "00000000000000000000000001-1";

    fn pod(status: Value) -> Pod {
        let containers = json!([{"name": "main"}, {"name": "side"}]);
        serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {RUN_LABEL: RUN}},
            "spec": {"containers": containers, "initContainers": [{"name": "init"}]},
            "status": status,
        }))
        .unwrap()
    }

    fn status(name: &str, state: Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    }

    fn asked(container: &str) -> ReadLog {
        let (run_id, pod_name, container) = (RUN.to_owned(), "p".to_owned(), container.to_owned());
        ReadLog { run_id, pod_name, container, ..ReadLog::default() }
    }

    #[test]
    fn the_container_that_is_meant_is_read_once_it_has_begun() {
        let started = pod(json!({
            "initContainerStatuses": [status("init", json!({"terminated": {"exitCode": 0}}))],
            "containerStatuses": [
                status("main", json!({"running": {}})),
                status("side", json!({"waiting": {"reason": "ImagePullBackOff"}})),
            ],
        }));
        let chosen = |name: &str, ended| Ok(Chosen { container: name.to_owned(), ended });
        assert_eq!(choose(&started, &asked("main")), chosen("main", false));
        assert_eq!(choose(&started, &asked("init")), chosen("init", true));
        assert_eq!(choose(&started, &ReadLog { previous: true, ..asked("main") }), chosen("main", true));
        for (container, problem, said) in [
            ("side", ErrandProblem::NotStarted, "container side of pod p has not started: ImagePullBackOff"),
            ("", ErrandProblem::Invalid, "say which container: pod p has main, side, init"),
            ("other", ErrandProblem::Invalid, "there is no such container: pod p has main, side, init"),
        ] {
            assert_eq!(choose(&started, &asked(container)), Err(Refused::new(problem, said)));
        }
        let nothing = choose(&pod(json!({})), &asked("main"));
        assert_eq!(nothing.unwrap_err().0.message, "container main of pod p has not started");

        let mut only = started.clone();
        only.spec.as_mut().unwrap().containers.truncate(1);
        assert_eq!(choose(&only, &asked("")), chosen("main", false));
        let mut said = started;
        said.metadata.annotations = Some([(DEFAULT_CONTAINER.to_owned(), "main".to_owned())].into());
        assert_eq!(choose(&said, &asked("")), chosen("main", false));
    }

    #[test]
    fn a_pod_of_nobody_or_of_another_run_is_not_read() {
        for label in [None, Some("00000000000000000000000001-2")] {
            let mut other = pod(json!({"containerStatuses": [status("main", json!({"running": {}}))]}));
            other.metadata.labels = label.map(|label| [(RUN_LABEL.to_owned(), label.to_owned())].into());
            let refused = choose(&other, &asked("main")).unwrap_err().0;
            assert_eq!(refused.problem, i32::from(ErrandProblem::NotFound), "{refused:?}");
        }
    }
}
