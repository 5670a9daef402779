//! What every cluster has from the first start: namespaces, the system's priority classes, the class of claims that become
//! folders, and cluster roles for people.

use std::sync::Arc;

use pumice_auth::{CLUSTER_ADMIN, DefaultRole, MASTERS, Rule, default_cluster_roles, uncovered};
use pumice_clock::wire_time;
use pumice_store::{ApplyError, Change, Expect, Key};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::authz::{CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, GROUP};
use crate::storage::Storage;
use crate::stored::{draft, parse};
use crate::strategies::namespace::{FINALIZER, NAME_LABEL, PERMANENT};
use crate::strategies::priority::{self, BuiltInClass};
use crate::strategies::storage_class::DEFAULT;
use crate::strategies::storage_class::{CLASSES, PROVISIONER};

/// The name of the class of claims that become folders.
const FOLDER_CLASS: &str = "folder";

/// Annotation of a role that grows with the version.
const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Stores what is missing; what is there stays as it is, but for cluster roles that lack what this version gives them.
pub(crate) async fn run(storage: &Arc<Storage>) -> Result<(), ApplyError> {
    let now = wire_time(storage.clock.now());
    let namespaces = PERMANENT.into_iter().map(|name| ("namespaces", name, namespace(name, &now)));
    let classes = priority::BUILT_IN
        .into_iter()
        .map(|built_in| ("scheduling.k8s.io/priorityclasses", built_in.name, class(&built_in, &now)));
    let roles = default_cluster_roles().into_iter().map(|role| (CLUSTER_ROLES, role));
    let roles = roles.map(|(resource, role)| (resource, role.role.name.clone(), cluster_role(&role, &now)));
    let administrators = (CLUSTER_ROLE_BINDINGS, CLUSTER_ADMIN, administrators(&now));
    let grown = default_cluster_roles().into_iter().filter_map(|role| grown(storage, &role));
    let missing: Vec<Change> = namespaces
        .chain(classes)
        .chain([administrators])
        .chain(folders(storage, &now).map(|class| (CLASSES, FOLDER_CLASS, class)))
        .map(|(resource, name, object)| (resource, name.to_owned(), object))
        .chain(roles)
        .filter(|(resource, name, _)| storage.store.find(resource, "", name).is_none())
        .map(|(resource, name, object)| Change::Put {
            key: Key::new(resource, "", name),
            draft: draft(&object),
            expect: Expect::Absent,
        })
        .chain(grown)
        .collect();
    if !missing.is_empty() {
        storage.store.apply_all(missing).await?;
    }
    Ok(())
}

/// The class of claims that name none. Made at the first start, and where there is no class at all.
///
/// What was in a folder stays when its claim goes, as it did before there were classes.
fn folders(storage: &Storage, now: &str) -> Option<Value> {
    if storage.store.count(CLASSES, None) > 0 {
        return None;
    }
    let mut metadata = metadata(FOLDER_CLASS, now);
    metadata["annotations"] = json!({ DEFAULT: "true" });
    Some(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata,
        "provisioner": PROVISIONER, "reclaimPolicy": "Retain", "volumeBindingMode": "Immediate",
    }))
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

fn class(built_in: &BuiltInClass, now: &str) -> Value {
    let mut metadata = metadata(built_in.name, now);
    metadata["generation"] = json!(1);
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata,
        "value": built_in.value, "description": built_in.about, "preemptionPolicy": "PreemptLowerPriority",
    })
}

/// What upstream marks its own roles and bindings with.
fn rights_metadata(name: &str, now: &str) -> Value {
    let mut metadata = metadata(name, now);
    metadata["labels"] = json!({ "kubernetes.io/bootstrapping": "rbac-defaults" });
    metadata["annotations"] = json!({ AUTO_UPDATE: "true" });
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

/// A stored role with the rules that an older version, or somebody, did not leave in it. Whoever set [`AUTO_UPDATE`] to false
/// keeps it as it is.
fn grown(storage: &Storage, default: &DefaultRole) -> Option<Change> {
    let found = storage.store.find(CLUSTER_ROLES, "", &default.role.name)?;
    let mut role = parse(&found);
    let rules: Vec<Rule> = match &role["rules"] {
        Value::Null => Vec::new(),
        rules => serde_json::from_value(rules.clone()).ok()?,
    };
    let owned: Vec<&Rule> = rules.iter().collect();
    let lacking = default.role.rules.iter().filter(|rule| !uncovered(&owned, std::slice::from_ref(rule)).is_empty());
    let lacking: Vec<&Rule> = lacking.collect();
    if lacking.is_empty() || role["metadata"]["annotations"][AUTO_UPDATE] != "true" {
        return None;
    }
    role["rules"] = json!(owned.into_iter().chain(lacking).collect::<Vec<_>>());
    Some(Change::Put { key: found.key.clone(), draft: draft(&role), expect: Expect::Revision(found.revision) })
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
