//! Pods of Jobs, as attempts.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::history::DELETED;
use pumice_api::names;
use pumice_cluster::partly_read;
use pumice_units::Quantity;
use serde::Deserialize;

use super::{Facts, Fate, Seen, annotation, job_of, millis, text, versioned};
use crate::rows::{Row, Table};

/// Index of a pod of a `batch/v1` Job; annotation.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// What is read of a pod. The rest of it, which is most, is passed over.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SeenPod {
    pub metadata: ObjectMeta,
    spec: SeenSpec,
    status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SeenSpec {
    node_name: String,
    containers: Vec<SeenContainer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SeenContainer {
    resources: Option<k8s_openapi::api::core::v1::ResourceRequirements>,
}

partly_read!(SeenPod, Pod, metadata);

/// What containers ask for. Sums and products stop at the largest number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
}

impl Amounts {
    pub fn plus(self, other: Amounts) -> Amounts {
        Amounts {
            cpu_milli: self.cpu_milli.saturating_add(other.cpu_milli),
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
        }
    }

    pub fn times(self, count: i64) -> Amounts {
        Amounts {
            cpu_milli: self.cpu_milli.saturating_mul(count),
            memory_bytes: self.memory_bytes.saturating_mul(count),
        }
    }

    /// Requests, with limits for those that are absent. What can't be read counts as nothing.
    fn of(resources: Option<&k8s_openapi::api::core::v1::ResourceRequirements>) -> Amounts {
        let amount = |name: &str| {
            let all = resources?;
            let of = |list: &Option<std::collections::BTreeMap<_, _>>| {
                list.as_ref().and_then(|list| list.get(name).cloned())
            };
            let quantity: k8s_openapi::apimachinery::pkg::api::resource::Quantity =
                of(&all.requests).or_else(|| of(&all.limits))?;
            quantity.0.parse::<Quantity>().ok()
        };
        Amounts {
            cpu_milli: amount("cpu").map_or(0, Quantity::cpu_milli),
            memory_bytes: amount("memory").map_or(0, Quantity::value),
        }
    }
}

/// What the containers of a pod ask for while they run.
pub(super) fn amounts(spec: Option<&PodSpec>) -> Amounts {
    let containers = spec.into_iter().flat_map(|spec| &spec.containers);
    containers
        .map(|container: &Container| Amounts::of(container.resources.as_ref()))
        .fold(Amounts::default(), Amounts::plus)
}

/// How a pod ended.
struct End {
    at: Option<i64>,
    exit_code: Option<i64>,
    reason: String,
    message: String,
}

impl SeenPod {
    /// Whether its containers run, so that there is something to sample.
    pub fn runs(&self) -> bool {
        self.status.phase.as_deref() == Some("Running") && job_of(&self.metadata).is_some()
    }

    fn containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.status.init_container_statuses.iter().flatten().chain(self.status.container_statuses.iter().flatten())
    }

    fn condition(&self, kind: &str, status: &str) -> Option<&k8s_openapi::api::core::v1::PodCondition> {
        self.status.conditions.iter().flatten().find(|condition| condition.type_ == kind && condition.status == status)
    }

    /// When its first container started, in this or in an earlier run of it.
    fn started(&self) -> Option<i64> {
        let starts = self.status.container_statuses.iter().flatten().filter_map(|container| {
            let of = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| {
                let state = state.as_ref()?;
                let running = state.running.as_ref().and_then(|running| running.started_at.as_ref());
                millis(running.or_else(|| state.terminated.as_ref()?.started_at.as_ref()))
            };
            of(&container.last_state).or_else(|| of(&container.state))
        });
        starts.min()
    }

    fn end(&self) -> Option<End> {
        let phase = self.status.phase.as_deref().unwrap_or_default();
        if !matches!(phase, "Succeeded" | "Failed") {
            return None;
        }
        let ended: Vec<_> =
            self.containers().filter_map(|container| container.state.as_ref()?.terminated.as_ref()).collect();
        let culprit = ended.iter().find(|state| state.exit_code != 0);
        let of_pod = (text(self.status.reason.as_ref()), text(self.status.message.as_ref()));
        let (reason, message) = match culprit {
            _ if !of_pod.0.is_empty() => of_pod,
            Some(state) => (text(state.reason.as_ref()), text(state.message.as_ref())),
            None => ("", of_pod.1),
        };
        Some(End {
            at: ended.iter().filter_map(|state| millis(state.finished_at.as_ref())).max(),
            exit_code: culprit.or(ended.first()).map(|state| state.exit_code.into()),
            reason: reason.to_owned(),
            message: message.to_owned(),
        })
    }
}

impl Facts for SeenPod {
    fn rows(&self, fate: Fate, seen: Seen, rows: &mut Vec<Row>) {
        let Some(job) = job_of(&self.metadata) else { return };
        let index =
            [names::TASK_INDEX, COMPLETION_INDEX].map(|key| annotation(&self.metadata, key).parse::<i64>().ok());
        let task = annotation(&self.metadata, names::TASK_SPEC);
        let requests = self.spec.containers.iter().map(|container| Amounts::of(container.resources.as_ref()));
        let requests = requests.fold(Amounts::default(), Amounts::plus);
        let restarts: i64 = self.containers().map(|container| i64::from(container.restart_count)).sum();
        let scheduled = self.condition("PodScheduled", "True").and_then(|at| at.last_transition_time.as_ref());
        let evicted = self.condition("DisruptionTarget", "True");
        let mut row = versioned(Table::Attempt, &self.metadata, seen)
            .text("uid", text(self.metadata.uid.as_ref()))
            .text("job_uid", &job.uid)
            .text("namespace", text(self.metadata.namespace.as_ref()))
            .text("name", text(self.metadata.name.as_ref()))
            .text("task", if task.is_empty() { names::DEFAULT_TASK } else { task })
            .int("task_index", index[0].or(index[1]))
            .text_if("node", &self.spec.node_name)
            .text("phase", self.status.phase.as_deref().unwrap_or("Pending"))
            .text("reason", text(self.status.reason.as_ref()))
            .text("message", text(self.status.message.as_ref()))
            .int("restarts", restarts)
            .int("created", millis(self.metadata.creation_timestamp.as_ref()))
            .int("scheduled", millis(scheduled))
            .int("started", self.started())
            .int("cpu_milli", requests.cpu_milli)
            .int("memory_bytes", requests.memory_bytes)
            .text_if("evicted", evicted.and_then(|condition| condition.message.as_deref()).unwrap_or_default());
        let end = self.end();
        if let Some(end) = &end {
            // A pod that no container of ended at a known time was refused or lost: the last change is its end.
            let at = end.at.or_else(|| self.last_change());
            row = row
                .text("reason", &end.reason)
                .text("message", &end.message)
                .int("exit_code", end.exit_code)
                .int("ended", at);
        }
        if let Fate::Gone(now) = fate {
            row = row.int("gone", now.as_millisecond());
            if end.is_none() {
                row = row.text("phase", DELETED).int("ended", now.as_millisecond());
            }
        }
        rows.push(row);
    }
}

impl SeenPod {
    fn last_change(&self) -> Option<i64> {
        let changes =
            self.status.conditions.iter().flatten().map(|change| millis(change.last_transition_time.as_ref()));
        changes.flatten().max().or_else(|| millis(self.status.start_time.as_ref()))
    }
}
