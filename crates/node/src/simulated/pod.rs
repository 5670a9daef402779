//! Pods as far as a simulated node reads them.
//!
//! Invariant: only what decides is parsed, so that a stream of a million pods stays cheap; an annotation that can't be
//! read counts as absent, with a warning. Called by the shell for every change of a pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_cluster::partly_read;
use pumice_units::{GoDuration, Quantity};
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::capacity::NodeShape;
use super::fleet::{Glance, SeenPhase};
use super::order::{Container, Order, Plan, Template};
use super::status::others;
use super::{EXIT_CODE, NODE_PREFIX, OOM, SIMULATED_DURATION, STOP_DURATION};

/// Containers of a pod that are shown at most; the rest is counted only.
const CONTAINERS_MAX: usize = 64;
/// Exit code of a process that was killed for memory.
const KILLED: i32 = 137;

/// A pod as the wire has it, in part.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct WirePod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    node_name: Option<String>,
    #[serde(default)]
    containers: Vec<WireContainer>,
    #[serde(default)]
    init_containers: Vec<WireContainer>,
    overhead: Option<BTreeMap<String, Quantity>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    #[serde(default)]
    name: String,
    image: Option<String>,
    restart_policy: Option<String>,
    #[serde(default)]
    resources: WireResources,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct WireResources {
    requests: Option<BTreeMap<String, Quantity>>,
    limits: Option<BTreeMap<String, Quantity>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    phase: Option<String>,
    start_time: Option<Timestamp>,
    #[serde(default)]
    conditions: Vec<Value>,
}

partly_read!(WirePod, Pod, metadata);

impl WirePod {
    /// Its uid; none if it is no UUID, as those of every API server are.
    pub(super) fn uid(&self) -> Option<Uuid> {
        Uuid::parse_str(self.metadata.uid.as_deref()?).ok()
    }

    /// The index of the node that it is bound to, if that is one of `nodes`.
    fn node(&self, nodes: u32) -> Option<u32> {
        let name = self.spec.node_name.as_deref()?;
        let index: u32 = name.strip_prefix(NODE_PREFIX)?.parse().ok()?;
        // Digits can be written in many ways, names only in one.
        (index < nodes && super::node_name(index) == name).then_some(index)
    }

    /// Whether its node runs it already.
    pub(super) fn is_running(&self) -> bool {
        self.status.phase.as_deref() == Some("Running")
    }

    /// How far it is; none for pods of others.
    pub(super) fn glance(&self, nodes: u32) -> Option<Glance> {
        let node = self.node(nodes)?;
        let uid = self.uid()?;
        let phase = match self.status.phase.as_deref() {
            Some("Succeeded" | "Failed") => SeenPhase::Over,
            Some("Running") => SeenPhase::Running { since_seconds: self.status.start_time.map(Timestamp::as_second) },
            _ => SeenPhase::Pending,
        };
        let leaving_ms = self.metadata.deletion_timestamp.as_ref().map(|_| {
            let grace = self.metadata.deletion_grace_period_seconds.unwrap_or_default();
            u64::try_from(grace).unwrap_or(0).saturating_mul(1000)
        });
        Some(Glance { uid, node, phase, leaving_ms })
    }

    /// What a node must know to run it.
    pub(super) fn order(&self, shape: &NodeShape) -> Order {
        Order {
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
            name: self.metadata.name.clone().unwrap_or_default(),
            template: self.template(shape),
            plan: self.plan(),
            conditions: others(&self.status.conditions),
        }
    }

    fn template(&self, shape: &NodeShape) -> Template {
        let shown = self.spec.containers.iter().take(CONTAINERS_MAX).map(|container| Container {
            name: container.name.as_str().into(),
            image: container.image.as_deref().unwrap_or_default().into(),
        });
        Template { containers: shown.collect(), request: shape.request(&self.requests()) }
    }

    /// As a kubelet counts: the sum of the containers, or the largest initial container with the sidecars before it,
    /// and the overhead.
    fn requests(&self) -> BTreeMap<String, Quantity> {
        let mut sum = BTreeMap::new();
        self.spec.containers.iter().for_each(|container| add(&mut sum, container.requests()));
        let (mut sidecars, mut most) = (BTreeMap::new(), BTreeMap::new());
        for container in &self.spec.init_containers {
            if container.restart_policy.as_deref() == Some("Always") {
                add(&mut sidecars, container.requests());
                raise(&mut most, &sidecars);
            } else {
                let mut stage = sidecars.clone();
                add(&mut stage, container.requests());
                raise(&mut most, &stage);
            }
        }
        add(&mut sum, sidecars.iter().map(|(name, amount)| (name.as_str(), *amount)));
        raise(&mut sum, &most);
        let overhead = self.spec.overhead.iter().flatten();
        add(&mut sum, overhead.map(|(name, amount)| (name.as_str(), *amount)));
        sum
    }

    fn plan(&self) -> Plan {
        let oom = self.annotation(OOM) == Some("true");
        let code = self.annotation(EXIT_CODE).and_then(|text| match text.parse::<u8>() {
            Ok(code) => Some(i32::from(code)),
            Err(_) => self.unreadable(EXIT_CODE, text),
        });
        Plan {
            duration_ms: self.duration(SIMULATED_DURATION),
            stop_ms: self.duration(STOP_DURATION).unwrap_or(0),
            exit_code: if oom { KILLED } else { code.unwrap_or(0) },
            oom,
        }
    }

    fn duration(&self, annotation: &str) -> Option<u64> {
        let text = self.annotation(annotation)?;
        let Ok(duration) = text.parse::<GoDuration>() else { return self.unreadable(annotation, text) };
        if duration.is_negative() { None } else { u64::try_from(duration.as_millis()).ok() }
    }

    fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    fn unreadable<T>(&self, annotation: &str, text: &str) -> Option<T> {
        let pod = self.metadata.name.as_deref().unwrap_or_default();
        tracing::warn!(pod, annotation, text, "annotation can't be read and counts as absent");
        None
    }
}

impl WireContainer {
    /// A limit counts where no request is made.
    fn requests(&self) -> impl Iterator<Item = (&str, Quantity)> {
        let requests = self.resources.requests.iter().flatten();
        let asked = |name: &String| self.resources.requests.as_ref().is_some_and(|all| all.contains_key(name));
        let limits = self.resources.limits.iter().flatten().filter(move |(name, _)| !asked(name));
        requests.chain(limits).map(|(name, amount)| (name.as_str(), *amount))
    }
}

fn add<'a>(sum: &mut BTreeMap<String, Quantity>, amounts: impl Iterator<Item = (&'a str, Quantity)>) {
    for (name, amount) in amounts {
        let total = sum.entry(name.to_owned()).or_insert(Quantity::ZERO);
        *total = total.checked_add(amount).unwrap_or(amount);
    }
}

fn raise(most: &mut BTreeMap<String, Quantity>, amounts: &BTreeMap<String, Quantity>) {
    for (name, amount) in amounts {
        let found = most.entry(name.clone()).or_insert(Quantity::ZERO);
        *found = (*found).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const UID: &str = "01900000-0000-7000-8000-000000000001";

    fn pod(metadata: &Value, spec: &Value, status: &Value) -> WirePod {
        let mut pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": UID}, "spec": spec, "status": status});
        for (key, value) in metadata.as_object().into_iter().flatten() {
            pod["metadata"][key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    fn glance(metadata: &Value, spec: &Value, status: &Value) -> Option<Glance> {
        pod(metadata, spec, status).glance(100)
    }

    fn shape() -> NodeShape {
        "cpu=32,memory=256Gi".parse().unwrap()
    }

    fn on(node: &str) -> Value {
        json!({"nodeName": node, "containers": []})
    }

    #[test]
    fn only_pods_of_our_nodes_are_read() {
        let cases = [
            ("sim-00007", Some(7)),
            ("sim-00099", Some(99)),
            ("sim-00100", None),
            ("sim-7", None),
            ("sim-+0007", None),
            ("other", None),
            ("", None),
        ];
        for (node, index) in cases {
            let found = glance(&json!({}), &on(node), &json!({}));
            assert_eq!(found.map(|seen| seen.node), index, "{node}");
        }
        assert!(glance(&json!({}), &json!({"containers": []}), &json!({})).is_none(), "not bound");
        assert!(glance(&json!({"uid": "../x"}), &on("sim-00001"), &json!({})).is_none(), "no uuid");
    }

    #[test]
    fn annotations_say_how_it_goes() {
        let plan = |annotations: Value| {
            pod(&json!({"annotations": annotations}), &on("sim-00001"), &json!({})).order(&shape()).plan
        };
        let cases = [
            (json!({}), (None, 0, false, 0)),
            (json!({"pumice.sh/simulated-duration": "30s"}), (Some(30_000), 0, false, 0)),
            (json!({"pumice.sh/simulated-duration": "soon"}), (None, 0, false, 0)),
            (json!({"pumice.sh/simulated-duration": "-1s"}), (None, 0, false, 0)),
            (json!({"pumice.sh/simulated-exit-code": "3"}), (None, 3, false, 0)),
            (json!({"pumice.sh/simulated-exit-code": "300"}), (None, 0, false, 0)),
            (json!({"pumice.sh/simulated-oom": "true"}), (None, 137, true, 0)),
            (json!({"pumice.sh/simulated-stop-duration": "1500ms"}), (None, 0, false, 1500)),
        ];
        for (annotations, expected) in cases {
            let Plan { duration_ms, exit_code, oom, stop_ms } = plan(annotations.clone());
            assert_eq!((duration_ms, exit_code, oom, stop_ms), expected, "{annotations}");
        }
    }

    #[test]
    fn requests_count_as_a_kubelet_counts_them() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let spec = json!({
            "nodeName": "sim-00001",
            "containers": [{"name": "a", "resources": cpu("1")}, {"name": "b", "resources": {"limits": {"cpu": "500m"}}}],
            "initContainers": [
                {"name": "s", "restartPolicy": "Always", "resources": cpu("250m")},
                {"name": "i", "resources": cpu("2")},
            ],
            "overhead": {"cpu": "10m"},
        });
        let expected = shape().request(&BTreeMap::from([("cpu".to_owned(), "2260m".parse().unwrap())]));
        assert_eq!(pod(&json!({}), &spec, &json!({})).order(&shape()).template.request, expected);
    }

    #[test]
    fn phase_and_end_are_read() {
        let running = json!({"phase": "Running", "startTime": "1970-01-01T00:00:09Z"});
        let found = glance(&json!({}), &on("sim-00001"), &running).unwrap();
        assert_eq!(found.phase, SeenPhase::Running { since_seconds: Some(9) });
        let leaving = json!({"deletionTimestamp": "1970-01-01T00:00:09Z", "deletionGracePeriodSeconds": 30});
        let found = glance(&leaving, &on("sim-00001"), &json!({"phase": "Failed"})).unwrap();
        assert_eq!((found.phase, found.leaving_ms), (SeenPhase::Over, Some(30_000)));
    }
}
