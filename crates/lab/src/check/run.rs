//! Runs one case: objects through the watches' way into a World, one cycle, and what came of it.
//!
//! Invariant: nothing reaches the engine but by the way that a running scheduler takes.

use std::collections::{BTreeMap, BTreeSet};

use pumice_engine::plugin::Registry;
use pumice_engine::{Config, Plan, Resources, Sharding, TimeMs, World};
use pumice_scheduler::WatchedObjects;
use pumice_translate::phase_word;
use pumice_units::Quantity;

use super::file::{self, Case};
use super::{config, objects, stubs};

/// The names that the pods of cases may give as their scheduler's.
const SCHEDULERS: &[&str] = &[pumice_api::names::SCHEDULER_VOLCANO];
/// 2026-01-01: every object of a case is older, so that what waits for an age has reached it.
const NOW: TimeMs = TimeMs(1_767_225_600_000);

/// What a cycle did with a case's world, named as the cases name things: `namespace/name`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) binds: BTreeMap<String, String>,
    /// Pods told to leave.
    pub(super) evicted: BTreeSet<String>,
    /// By group: pod to the node that it waits for.
    pub(super) pipelined: BTreeMap<String, BTreeMap<String, String>>,
    /// By group.
    pub(super) phases: BTreeMap<String, String>,
    /// By group: how many pods have which status.
    pub(super) task_counts: BTreeMap<String, BTreeMap<String, usize>>,
    /// By queue; cpu in milli-cores, all else in whole units.
    pub(super) deserved: BTreeMap<String, Resources>,
    /// Binds by queue.
    pub(super) binds_per_queue: BTreeMap<String, usize>,
    /// Binds by the lowest HyperNode of their nodes.
    pub(super) binds_per_hyper_node: BTreeMap<String, usize>,
    /// What the engine's own check of the plan says against it.
    pub(super) violations: Vec<String>,
}

/// Runs a case in a World of its own.
///
/// # Errors
/// What its configuration or its objects have that can't be read, in words.
pub(super) fn run(case: &Case, registry: &Registry) -> Result<Answer, String> {
    let text = config::text(&case.config)?;
    let mut registry = registry.clone();
    stubs::add(&mut registry, &case.config.test_only_plugins);
    let (mut config, _warnings) = Config::parse_with(&text, &registry).map_err(|error| error.to_string())?;
    config.sharding = case.config.sharding.as_ref().map(sharding).transpose()?;
    let mut world = World::with_plugins(config, registry);
    let mut watched = WatchedObjects::new(SCHEDULERS.iter().map(|name| (*name).to_owned()).collect());
    let mut deltas = objects::deltas(case)?;
    for input in objects::inputs(case)? {
        watched.take(input, &mut deltas);
    }
    for delta in &deltas {
        world.apply(delta);
    }
    let plan = world.cycle(NOW);
    Ok(answer(case, &world, &plan))
}

fn sharding(sharding: &file::Sharding) -> Result<Sharding, String> {
    let hard = match sharding.mode.as_str() {
        "hard" => true,
        "soft" => false,
        other => return Err(format!("there is no sharding mode {other}; use hard or soft")),
    };
    Ok(Sharding { hard, name: objects::SHARD.to_owned() })
}

fn answer(case: &Case, world: &World, plan: &Plan) -> Answer {
    let mut answer = Answer { violations: world.lint(plan), ..Answer::default() };
    for bind in &plan.binds {
        answer.binds.insert(format!("{}/{}", bind.namespace, bind.name), bind.node.to_string());
    }
    for eviction in &plan.evictions {
        answer.evicted.insert(format!("{}/{}", eviction.namespace, eviction.name));
    }
    for waits in &plan.pipelined {
        let pods = answer.pipelined.entry(waits.group.to_string()).or_default();
        pods.insert(format!("{}/{}", waits.namespace, waits.name), waits.node.to_string());
    }
    for group in world.groups() {
        answer.phases.insert(format!("{}/{}", group.namespace, group.name), phase_word(group.phase).to_owned());
    }
    for queue in world.queues() {
        answer.deserved.extend(queue.deserved.map(|deserved| (queue.name, deserved)));
    }
    count_tasks(case, &mut answer);
    count_queues(case, &mut answer);
    count_hyper_nodes(case, &mut answer);
    answer
}

/// Every pod's status at the end: what it was, unless the cycle decided something about it.
fn count_tasks(case: &Case, answer: &mut Answer) {
    for pod in &case.pods {
        let text = |key: &str| pod.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        let name = text("name");
        let Some((namespace, _)) = name.split_once('/') else { continue };
        let group = format!("{namespace}/{}", text("group"));
        let terminating = pod.contains_key("deleted") || pod.contains_key("deletionTimestamp");
        let status = if answer.binds.contains_key(name) {
            "Binding"
        } else if answer.evicted.contains(name) {
            "Releasing"
        } else if answer.pipelined.get(&group).is_some_and(|pods| pods.contains_key(name)) {
            "Pipelined"
        } else {
            match (text("phase"), terminating, text("node").is_empty()) {
                ("Running" | "Pending" | "", true, _) => "Releasing",
                ("Running", false, _) => "Running",
                ("Pending" | "", false, true) => "Pending",
                ("Pending" | "", false, false) => "Bound",
                (ended, ..) => ended,
            }
        };
        *answer.task_counts.entry(group).or_default().entry(status.to_owned()).or_default() += 1;
    }
}

fn count_queues(case: &Case, answer: &mut Answer) {
    let queue_of: BTreeMap<&str, &str> = case
        .podgroups
        .iter()
        .filter_map(|group| Some((group.get("name")?.as_str()?, group.get("queue")?.as_str()?)))
        .collect();
    for pod in &case.pods {
        let text = |key: &str| pod.get(key).and_then(|value| value.as_str()).unwrap_or_default();
        let Some((namespace, _)) = text("name").split_once('/') else { continue };
        if !answer.binds.contains_key(text("name")) {
            continue;
        }
        let group = format!("{namespace}/{}", text("group"));
        if let Some(queue) = queue_of.get(group.as_str()) {
            *answer.binds_per_queue.entry((*queue).to_owned()).or_default() += 1;
        }
    }
}

/// The lowest HyperNode that a node is really in.
fn count_hyper_nodes(case: &Case, answer: &mut Answer) {
    let tier = |hyper: &serde_json::Map<String, serde_json::Value>| hyper.get("tier").and_then(|tier| tier.as_i64());
    for node in answer.binds.values() {
        let holds = |hyper: &&serde_json::Map<String, serde_json::Value>| {
            let nodes = hyper.get("realNodes").and_then(|nodes| nodes.as_array());
            nodes.into_iter().flatten().any(|name| name.as_str() == Some(node))
        };
        let lowest = case.hypernodes.iter().filter(holds).min_by_key(|hyper| tier(hyper));
        if let Some(name) = lowest.and_then(|hyper| hyper.get("name")).and_then(|name| name.as_str()) {
            *answer.binds_per_hyper_node.entry(name.to_owned()).or_default() += 1;
        }
    }
}

/// An expected amount in the engine's units.
pub(super) fn amount(name: &str, value: &serde_json::Value) -> Result<i64, String> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let quantity: Quantity = text.parse().map_err(|_| format!("{text:?} is no quantity"))?;
    Ok(if name == "cpu" { quantity.cpu_milli() } else { quantity.value() })
}
