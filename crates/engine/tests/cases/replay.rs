//! Reads `scheduling-cases/cases.yaml` (its schema stands at its top) and runs one case on the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pumice_engine::{
    Action, Argument, Config, Delta, GroupFacts, GroupPhase, GroupStatus, NodeFacts, NodeTerm, Operator, Plan,
    PluginConfig, PodFacts, PodPhase, PodTemplate, PreferredTerm, QueueFacts, QueueState, Requirement, Resources,
    ShardFacts, Sharding, Switch, Switches, TimeMs, World,
};
use pumice_units::Quantity;
use serde_json::Value;

#[path = "network.rs"]
mod network;

/// The shard that a case is about.
const SHARD: &str = "volcano";
/// Plugins that exist.
const PLUGINS: &[&str] = &["gang", "priority", "predicates", "nodeorder", "network-topology-aware"];
/// Cases that also name plugins of later versions, which don't matter to their outcome.
const ALSO: &[&str] =
    &["allocate-001", "allocate-006", "allocate-077", "derived-514", "derived-561", "derived-overcommit"];
/// Keys of pods that mean something this version can't do.
const POD_KEYS: &[&str] = &[
    "name",
    "group",
    "phase",
    "requests",
    "labels",
    "node",
    "created",
    "nodeSelector",
    "affinity",
    "nominatedNode",
    "priority",
];

/// One case.
pub struct Case(Value);

/// How an outcome compares with the one expected.
pub enum Verdict {
    /// As expected.
    Same,
    /// Not as expected, and how.
    Different(String),
}

/// The fixture's cases, or nothing where the fixtures are not there (which fails in CI).
pub fn load() -> Option<Vec<Case>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures/scheduling-cases/cases.yaml");
    let Ok(text) = std::fs::read_to_string(&path) else {
        #[allow(clippy::disallowed_methods, reason = "CI must not pass by skipping")]
        let ci = std::env::var("CI").is_ok();
        assert!(!ci, "{} is missing", path.display());
        println!("skipped: {} is missing", path.display());
        return None;
    };
    let file: Value = serde_saphyr::from_str(&text).expect("the fixture is YAML");
    Some(list(&file["cases"]).iter().cloned().map(Case).collect())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn strings(value: &Value) -> BTreeMap<String, String> {
    value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
}

fn resources(value: &Value) -> Resources {
    let amount = |name: &str, value: &Value| {
        let quantity: Quantity = text(value).parse().expect("a quantity");
        if name == "cpu" { quantity.cpu_milli() } else { quantity.value() }
    };
    value.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), amount(name, value))).collect()
}

/// `ns/name`.
fn split(name: &Value) -> (String, String) {
    let name = text(name);
    let (namespace, name) = name.split_once('/').expect("ns/name");
    (namespace.to_owned(), name.to_owned())
}

/// Seconds of a day are enough to order what the cases hold.
fn created(value: &Value) -> TimeMs {
    let text = text(value);
    let clock = text.split_once('T').map_or("", |(_, clock)| clock.trim_end_matches('Z'));
    TimeMs(clock.split(':').fold(0, |sum, part| sum * 60 + part.parse::<i64>().unwrap_or(0)) * 1_000)
}

impl Case {
    /// Its id.
    pub fn name(&self) -> &str {
        self.0["name"].as_str().unwrap_or_default()
    }

    /// Runs it, unless it needs what this version lacks.
    pub fn run(&self) -> Option<Verdict> {
        let config = self.config()?;
        let mut world = World::new(config);
        self.fill(&mut world);
        let plan = world.cycle(TimeMs(100_000_000));
        assert_eq!(world.lint(&plan), Vec::<String>::new(), "{}", self.name());
        Some(self.compare(&world, &plan))
    }

    fn config(&self) -> Option<Config> {
        let config = &self.0["config"];
        let names = || list(&config["tiers"]).iter().flat_map(list).map(|plugin| text(&plugin["name"]));
        let plugins_known = names().all(|name| PLUGINS.contains(&name.as_str())) || ALSO.contains(&self.name());
        let needs_more = ["objects"].iter().any(|key| self.0.get(*key).is_some());
        let simple = ["testOnlyPlugins"].iter().all(|key| config.get(*key).is_none());
        let pods_known = list(&self.0["pods"])
            .iter()
            .all(|pod| pod.as_object().into_iter().flatten().all(|(key, _)| POD_KEYS.contains(&key.as_str())));
        if !plugins_known || needs_more || !simple || !pods_known {
            return None;
        }
        let actions =
            list(&config["actions"]).iter().map(|name| Action::from_name(&text(name))).collect::<Option<Vec<_>>>()?;
        let tiers = list(&config["tiers"]).iter().map(|tier| list(tier).iter().map(plugin).collect()).collect();
        let sharding = config
            .get("sharding")
            .map(|sharding| Sharding { hard: sharding["mode"] == "hard", name: SHARD.to_owned() });
        Some(Config { actions, tiers, sharding, ..Config::default() })
    }

    fn fill(&self, world: &mut World) {
        for class in list(&self.0["priorityClasses"]) {
            let (name, value) = (text(&class["name"]), number(&class["value"]) as i32);
            world.apply(&Delta::PriorityClassUpsert { name, value, global_default: class["globalDefault"] == true });
        }
        for queue in list(&self.0["queues"]) {
            let state = if text(&queue["state"]) == "Closed" { QueueState::Closed } else { QueueState::Open };
            let (name, capability) = (text(&queue["name"]), resources(&queue["capability"]));
            world.apply(&Delta::QueueUpsert(QueueFacts { name, state, capability, ..QueueFacts::default() }));
        }
        for hyper_node in list(&self.0["hypernodes"]) {
            world.apply(&Delta::HyperNodeUpsert(network::hyper_node(hyper_node)));
        }
        let shard = &self.0["config"]["sharding"]["nodes"];
        if !shard.is_null() {
            let desired = list(shard).iter().map(text).collect();
            world.apply(&Delta::ShardUpsert(ShardFacts { name: SHARD.to_owned(), desired, ..ShardFacts::default() }));
        }
        for node in list(&self.0["nodes"]) {
            world.apply(&Delta::NodeUpsert(NodeFacts {
                name: text(&node["name"]),
                labels: strings(&node["labels"]),
                unschedulable: node["unschedulable"] == true,
                allocatable: resources(&node["allocatable"]),
                ..NodeFacts::default()
            }));
        }
        for group in list(&self.0["podgroups"]) {
            world.apply(&Delta::GroupUpsert(Box::new(group_facts(group))));
        }
        for pod in list(&self.0["pods"]) {
            world.apply(&Delta::TaskUpsert(Box::new(pod_facts(pod))));
        }
    }

    fn compare(&self, world: &World, plan: &Plan) -> Verdict {
        let expect = &self.0["expect"];
        let got: BTreeMap<String, String> =
            plan.binds.iter().map(|bind| (format!("{}/{}", bind.namespace, bind.name), bind.node.clone())).collect();
        let mut wrong = Vec::new();
        if expect.get("binds").is_some() {
            let wanted = strings(&expect["binds"]);
            let same = wanted.len() == got.len()
                && wanted.iter().all(|(pod, node)| got.get(pod).is_some_and(|on| on == node || node == "any"));
            if !same {
                wrong.push(format!("binds {got:?}, expected {wanted:?}"));
            }
        }
        if let Some(count) = expect["bindCount"].as_u64()
            && got.len() as u64 != count
        {
            wrong.push(format!("{} binds, expected {count}", got.len()));
        }
        let nodes: BTreeSet<&String> = got.values().collect();
        if expect["onePerNode"] == true && nodes.len() != got.len() {
            wrong.push(format!("two pods share a node: {got:?}"));
        }
        let allowed: Vec<String> = list(&expect["allowedNodes"]).iter().map(text).collect();
        if !allowed.is_empty() && !nodes.iter().all(|node| allowed.contains(node)) {
            wrong.push(format!("binds {got:?}, allowed nodes {allowed:?}"));
        }
        for (name, phase) in strings(&expect["phases"]) {
            let group = world.groups().find(|group| format!("{}/{}", group.namespace, group.name) == name);
            let actual = group.map(|group| format!("{:?}", group.phase)).unwrap_or_default();
            if actual != phase {
                wrong.push(format!("{name} is {actual}, expected {phase}"));
            }
        }
        if wrong.is_empty() { Verdict::Same } else { Verdict::Different(wrong.join("; ")) }
    }
}

/// In the cases a switch that is not named is off, unlike in a file.
fn plugin(plugin: &Value) -> PluginConfig {
    let mut switches = Switches::none();
    for key in list(&plugin["on"]) {
        let switch = Switch::ALL.iter().find(|switch| switch.key() == text(key));
        switches.set(*switch.unwrap_or_else(|| panic!("no switch is called {key}")), true);
    }
    let arguments = strings(&plugin["arguments"]);
    // The dump prints every argument as a string.
    let typed = arguments.into_iter().map(|(key, value)| {
        let argument = value.parse().map_or_else(|_| Argument::Text(value.clone()), Argument::Int);
        (key, argument)
    });
    PluginConfig { name: text(&plugin["name"]), switches, arguments: typed.collect() }
}

fn group_facts(group: &Value) -> GroupFacts {
    let (namespace, name) = split(&group["name"]);
    let phase = match text(&group["phase"]).as_str() {
        "Inqueue" => GroupPhase::Inqueue,
        "Running" => GroupPhase::Running,
        _ => GroupPhase::Pending,
    };
    let minima = group["minTaskMember"].as_object().into_iter().flatten();
    GroupFacts {
        uid: format!("{namespace}-{name}"),
        namespace,
        name,
        queue: text(&group["queue"]),
        min_member: number(&group["minMember"]) as u32,
        min_task_member: minima.map(|(role, min)| (role.clone(), number(min) as u32)).collect(),
        min_resources: group.get("minResources").map(resources),
        priority_class: text(&group["priorityClassName"]),
        created: created(&group["created"]),
        topology: network::topology(&group["networkTopology"]),
        sub_groups: list(&group["subGroupPolicy"]).iter().map(network::sub_group).collect(),
        status: GroupStatus { phase, ..GroupStatus::default() },
        ..GroupFacts::default()
    }
}

fn pod_facts(pod: &Value) -> PodFacts {
    let (namespace, name) = split(&pod["name"]);
    let phase = match text(&pod["phase"]).as_str() {
        "Running" => PodPhase::Running,
        "Succeeded" => PodPhase::Succeeded,
        "Failed" => PodPhase::Failed,
        _ => PodPhase::Pending,
    };
    let preferred = &pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let preferred_terms = list(preferred).iter().map(|item| PreferredTerm {
        weight: number(&item["weight"]) as i32,
        term: NodeTerm {
            expressions: list(&item["preference"]["matchExpressions"]).iter().map(requirement).collect(),
            fields: Vec::new(),
        },
    });
    PodFacts {
        uid: format!("{namespace}-{name}"),
        namespace,
        name,
        mine: true,
        group: pod["group"].as_str().map(str::to_owned),
        role: text(&pod["labels"]["volcano.sh/task-spec"]),
        labels: strings(&pod["labels"]),
        node: pod["node"].as_str().map(str::to_owned),
        phase,
        created: created(&pod["created"]),
        template: PodTemplate {
            requests: resources(&pod["requests"]),
            node_selector: strings(&pod["nodeSelector"]),
            preferred_terms: preferred_terms.collect(),
            priority: pod["priority"].as_i64().unwrap_or(1) as i32,
            ..PodTemplate::default()
        },
        ..PodFacts::default()
    }
}

fn requirement(value: &Value) -> Requirement {
    let operator = match text(&value["operator"]).as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => panic!("operator {other} is not in the cases"),
    };
    Requirement { key: text(&value["key"]), operator, values: list(&value["values"]).iter().map(text).collect() }
}
