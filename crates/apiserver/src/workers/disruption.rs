//! PodDisruptionBudgets: their status, and whether an eviction is allowed.
//!
//! Invariant: an eviction is granted by a write of the budget's status that nothing came between, made of the pods as they
//! are stored at that moment, so that evictions at the same time never go below a budget. Where there is no budget,
//! nothing is followed. The task is run by the server; evictions ask from `handlers::subresources::eviction`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pumice_objects::meta::{self, OwnerReference};
use pumice_objects::selector::LabelSelector;
use pumice_objects::status::{GroupResource, Status, StatusCause};
use pumice_store::{ApplyError, Change, Expect, Object};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::kinds::descriptor::Subresource;
use crate::storage::{Storage, apply_status};
use crate::stored::{draft, parse};
use crate::workers::watch_trigger::WatchTrigger;

mod budget;

use budget::{BudgetStatus, Expected, Member, grant, status_of};

/// The store's name of budgets.
const BUDGETS: &str = "policy/poddisruptionbudgets";
const PODS: &str = "pods";
/// Changes within this time are told in one status.
const STATUS_DELAY: Duration = Duration::from_millis(50);
/// A look at very many pods is followed by a pause of this many times its length.
const PAUSE_FACTOR: u32 = 8;
/// How often a status is tried against a changing budget.
const ATTEMPTS_MAX: usize = 64;
/// Most evictions that wait to be seen as deletions.
const GRANTED_MAX: usize = 2_000;
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// The pods of a namespace that budgets look at.
fn pods(storage: &Storage, namespace: &str) -> Vec<Value> {
    storage.store.list(PODS, Some(namespace)).items.iter().map(|object| parse(object)).collect()
}

/// Whether a budget is about this pod. One without a selector is about none, one with an empty selector about all.
fn selects(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    selector.is_object()
        && LabelSelector::from_json(selector).is_ok_and(|selector| selector.matches(|key| meta::label(pod, key)))
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The status that a budget should have now.
fn look(storage: &Storage, budget: &Value, pods: &[Value], now: Timestamp) -> BudgetStatus {
    let selected: Vec<&Value> = pods.iter().filter(|pod| selects(budget, pod)).collect();
    let members: Vec<Member> = selected
        .iter()
        .map(|pod| Member {
            name: meta::name(pod).to_owned(),
            is_ready: is_ready(pod),
            is_leaving: meta::deletion_timestamp(pod).is_some(),
        })
        .collect();
    status_of(budget, &members, expected(storage, &selected), now)
}

/// How many pods their controllers want. One that does not say counts for the pods that it has; pods without a controller
/// don't count, as upstream.
fn expected(storage: &Storage, pods: &[&Value]) -> Expected {
    let mut controllers: BTreeMap<String, (i64, Option<i64>)> = BTreeMap::new();
    for pod in pods {
        let Some(owner) = meta::controller(pod) else { continue };
        let namespace = meta::namespace(pod).unwrap_or_default();
        let (uid, scale) = top(storage, namespace, owner);
        let entry = controllers.entry(uid).or_insert((0, scale));
        entry.0 += 1;
    }
    let by_scale = controllers.values().map(|(counted, scale)| scale.unwrap_or(*counted)).sum();
    Expected { by_scale, counted: i64::try_from(pods.len()).unwrap_or(i64::MAX) }
}

/// The uid of the controller that says how many there are to be, and its number: that of a Deployment for its ReplicaSets.
fn top(storage: &Storage, namespace: &str, owner: OwnerReference) -> (String, Option<i64>) {
    let registry = storage.registry.load(&storage.store);
    let find = |owner: &OwnerReference| {
        let descriptor = registry.find_kind(&owner.api_version, &owner.kind)?;
        let stored = storage.store.find(&descriptor.storage, namespace, &owner.name)?;
        let object = parse(&stored);
        if meta::uid(&object) != Some(owner.uid.as_str()) {
            return None;
        }
        Some((Arc::clone(descriptor), object))
    };
    let mut found = find(&owner);
    if owner.kind == "ReplicaSet"
        && let Some(above) = found.as_ref().and_then(|(_, object)| meta::controller(object))
        && let Some(deployment) = find(&above)
    {
        found = Some(deployment);
    }
    let Some((descriptor, object)) = found else { return (owner.uid, None) };
    let scale = descriptor.subresources.iter().find_map(|subresource| match subresource {
        Subresource::Scale { spec, .. } => object.pointer(&format!("/{}", spec.replace('.', "/")))?.as_i64(),
        _ => None,
    });
    (meta::uid(&object).unwrap_or_default().to_owned(), scale)
}

/// Keeps the status of every budget. Runs until `stop`.
pub(crate) async fn run(storage: Arc<Storage>, stop: CancellationToken) {
    let mut following = WatchTrigger::default();
    loop {
        let mut resources = BTreeSet::from([BUDGETS.to_owned()]);
        if storage.store.count(BUDGETS, None) > 0 {
            resources.insert(PODS.to_owned());
        }
        if !following.follow(&storage.store, &resources) {
            return;
        }
        let began = Instant::now();
        let look_again = all(&storage).await;
        let pause = STATUS_DELAY.max(began.elapsed() * PAUSE_FACTOR);
        following.keep(&resources);
        let due = look_again.map(|at| at.duration_since(storage.clock.now()).try_into().unwrap_or(Duration::ZERO));
        if !following.next_look(&stop, due, pause).await {
            return;
        }
    }
}

/// Looks at every budget. O(pods in namespaces with budgets). Says when to look again.
async fn all(storage: &Storage) -> Option<Timestamp> {
    let mut look_again: Option<Timestamp> = None;
    let mut known: HashMap<Arc<str>, Vec<Value>> = HashMap::new();
    for stored in storage.store.list(BUDGETS, None).items {
        let namespace = &stored.key.namespace;
        let pods = known.entry(Arc::clone(namespace)).or_insert_with(|| pods(storage, namespace));
        let mut budget = parse(&stored);
        let standing = look(storage, &budget, pods, storage.clock.now());
        look_again = look_again.into_iter().chain(standing.look_again).min();
        if budget["status"] == standing.status {
            continue;
        }
        budget["status"] = standing.status;
        match put(storage, &stored, &budget).await {
            // Somebody was faster, an eviction perhaps: that wakes the task.
            Ok(()) | Err(ApplyError::Conflict(_) | ApplyError::NotFound(_)) => {}
            Err(error) => tracing::warn!(%error, key = ?stored.key, "the status of a budget is old for now"),
        }
    }
    look_again
}

async fn put(storage: &Storage, stored: &Object, object: &Value) -> Result<(), ApplyError> {
    let (key, expect) = (stored.key.clone(), Expect::Revision(stored.revision));
    storage.commit(Change::Put { key, draft: draft(object), expect }).await.map(drop)
}

/// Takes one eviction of the pod from its budget, or refuses it with 429. Pods that have not started, have ended or go
/// anyway cost nothing. With `dry_run` nothing is taken.
pub(crate) async fn charge_eviction(storage: &Storage, stored_pod: &Object, dry_run: bool) -> Result<(), Status> {
    let pod = parse(stored_pod);
    let namespace = &stored_pod.key.namespace;
    let costs_nothing = matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed"))
        || meta::deletion_timestamp(&pod).is_some();
    if costs_nothing || storage.store.count(BUDGETS, Some(namespace)) == 0 {
        return Ok(());
    }
    for _ in 0..ATTEMPTS_MAX {
        let mut about = storage.store.list(BUDGETS, Some(namespace)).items;
        about.retain(|budget| selects(&parse(budget), &pod));
        let stored = match about.as_slice() {
            [] => return Ok(()),
            [one] => one,
            _ => {
                return Err(Status::internal_error(
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                ));
            }
        };
        let mut budget = parse(stored);
        let now = storage.clock.now();
        let standing = look(storage, &budget, &pods(storage, namespace), now).status;
        if !is_ready(&pod) && passes_unready(&budget, &standing) {
            return Ok(());
        }
        let granted = granted(&budget, &standing, meta::name(&pod), now)?;
        if dry_run {
            return Ok(());
        }
        budget["status"] = granted;
        match put(storage, stored, &budget).await {
            Ok(()) => return Ok(()),
            Err(ApplyError::Conflict(_) | ApplyError::NotFound(_)) => {}
            Err(error) => return Err(apply_status(resource(), &error)),
        }
    }
    let mut busy = Status::too_many_requests(VIOLATES, 10);
    let text = "The disruption budget is still being processed by the server.".to_owned();
    busy.details.get_or_insert_default().causes.push(cause(text));
    Err(busy)
}

fn resource() -> GroupResource<'static> {
    GroupResource { group: "policy", resource: "poddisruptionbudgets" }
}

fn cause(message: String) -> StatusCause {
    StatusCause { reason: "DisruptionBudget".to_owned(), message, field: String::new() }
}

/// Whether a pod that is not ready may go without being counted.
fn passes_unready(budget: &Value, standing: &Value) -> bool {
    let number = |field: &str| standing[field].as_i64().unwrap_or(0);
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        || (number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0)
}

fn granted(budget: &Value, standing: &Value, pod: &str, now: Timestamp) -> Result<Value, Status> {
    let name = meta::name(budget);
    if standing["disruptedPods"].as_object().is_some_and(|all| all.len() > GRANTED_MAX) {
        let text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden(resource(), name, text));
    }
    grant(standing, pod, now).ok_or_else(|| {
        let mut refused = Status::too_many_requests(VIOLATES, 0);
        let text = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            standing["desiredHealthy"], standing["currentHealthy"]
        );
        refused.details.get_or_insert_default().causes.push(cause(text));
        refused
    })
}

/// Gives back what was taken for a pod that was not deleted after all.
pub(crate) async fn refund_eviction(storage: &Storage, namespace: &str, pod: &str) {
    for stored in storage.store.list(BUDGETS, Some(namespace)).items {
        let mut budget = parse(&stored);
        let granted = budget["status"]["disruptedPods"].as_object_mut().and_then(|all| all.remove(pod));
        if granted.is_some() {
            budget["status"]["observedGeneration"] = json!(meta::generation(&budget));
            // What does not come back now does so after its time.
            let _ = put(storage, &stored, &budget).await;
        }
    }
}
