//! What every cluster has from the first start: namespaces and the system's priority classes.

use std::sync::Arc;

use pumice_store::{ApplyError, Change, Expect, Key};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::clock::wire_time;
use crate::render::draft;
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
    let missing: Vec<Change> = namespaces
        .chain(classes)
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
    Ok(())
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
