//! What every cluster has from the first start: namespaces, the system's priority classes, and cluster roles for people.

use std::sync::Arc;

use pumice_auth::{CLUSTER_ADMIN, DefaultRole, MASTERS, default_cluster_roles};
use pumice_store::{ApplyError, Change, Expect, Key};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::accounts::companions;
use crate::clock::wire_time;
use crate::render::draft;
use crate::rights::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP};
use crate::server::State;
use crate::strategy::namespace::{FINALIZER, NAME_LABEL, PERMANENT};
use crate::strategy::priority;

/// Stores what is missing; what is there stays as it is.
pub(crate) async fn run(state: &Arc<State>) -> Result<(), ApplyError> {
    let now = wire_time(state.clock.now());
    let namespaces = PERMANENT.into_iter().map(|name| ("namespaces", name, namespace(name, &now)));
    let classes = priority::BUILT_IN
        .into_iter()
        .map(|(name, value, about)| ("scheduling.k8s.io/priorityclasses", name, class(name, value, about, &now)));
    let roles = default_cluster_roles().into_iter().map(|role| (CLUSTER_ROLES, role));
    let roles = roles.map(|(resource, role)| (resource, role.role.name.clone(), cluster_role(&role, &now)));
    let administrators = (CLUSTER_ROLE_BINDINGS, CLUSTER_ADMIN, administrators(&now));
    let missing: Vec<Change> = namespaces
        .chain(classes)
        .chain([administrators])
        .map(|(resource, name, object)| (resource, name.to_owned(), object))
        .chain(roles)
        .filter(|(resource, name, _)| state.store.find(resource, "", name).is_none())
        .map(|(resource, name, object)| Change::Put {
            key: Key::new(resource, "", name),
            draft: draft(&object),
            expect: Expect::Absent,
        })
        .collect();
    if !missing.is_empty() {
        state.store.apply_all(missing).await?;
    }
    companions::complete(state).await
}

fn metadata(name: &str, now: &str) -> Value {
    json!({ "name": name, "uid": Uuid::now_v7().to_string(), "creationTimestamp": now })
}

fn namespace(name: &str, now: &str) -> Value {
    let mut metadata = metadata(name, now);
    metadata["labels"] = json!({ NAME_LABEL: name });
    json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": metadata,
        "spec": { "finalizers": [FINALIZER] }, "status": { "phase": "Active" },
    })
}

fn class(name: &str, value: i64, about: &str, now: &str) -> Value {
    let mut metadata = metadata(name, now);
    metadata["generation"] = json!(1);
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata,
        "value": value, "description": about, "preemptionPolicy": "PreemptLowerPriority",
    })
}

/// What upstream marks its own roles and bindings with.
fn rights_metadata(name: &str, now: &str) -> Value {
    let mut metadata = metadata(name, now);
    metadata["labels"] = json!({ "kubernetes.io/bootstrapping": "rbac-defaults" });
    metadata["annotations"] = json!({ "rbac.authorization.kubernetes.io/autoupdate": "true" });
    metadata
}

fn cluster_role(default: &DefaultRole, now: &str) -> Value {
    let label = |role: &str| format!("{GROUP}/aggregate-to-{role}");
    let mut metadata = rights_metadata(&default.role.name, now);
    if let Some(into) = default.gathered_into {
        metadata["labels"][label(into)] = json!("true");
    }
    let mut role = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": default.role.rules,
    });
    if default.gathers {
        let selector = json!({ "matchLabels": { label(&default.role.name): "true" } });
        role["aggregationRule"] = json!({ "clusterRoleSelectors": [selector] });
    }
    role
}

/// Who may do everything, whatever becomes of this binding.
fn administrators(now: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
        "metadata": rights_metadata(CLUSTER_ADMIN, now),
        "roleRef": { "apiGroup": GROUP, "kind": "ClusterRole", "name": CLUSTER_ADMIN },
        "subjects": [{ "apiGroup": GROUP, "kind": "Group", "name": MASTERS }],
    })
}
