//! What the configuration says of jobs away from home: on nodes that are kept for others. Names and meanings are Armada's; but
//! all conditions of a kind of nodes count, not the first alone.

use std::collections::{BTreeMap, BTreeSet};

use pumice_fleet_scheduling::{AwayRules, Compare, Condition, NodeKind, PoolRules, Way};
use pumice_ledger::AwayToleration;
use pumice_units::Quantity;
use serde::Deserialize;

use super::ConfigError;
use super::scheduling::{Class, PoolConfig};

/// Nodes that have taints in common.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WellKnownNodeType {
    /// What they are called.
    pub name: String,
    /// Nodes that have all of these are meant.
    pub taints: Vec<TaintConfig>,
}

/// A taint. The value `*` stands for any.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaintConfig {
    pub key: String,
    #[serde(default)]
    pub value: String,
    #[serde(default)]
    pub effect: String,
}

/// Where jobs of a class may be away from home.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwayNodeType {
    /// What counts there instead of the class's own.
    pub priority: i32,
    /// Armada's older form of one of `node_types`.
    #[serde(default)]
    pub well_known_node_type_name: String,
    #[serde(default)]
    pub node_types: Vec<AwayEntry>,
}

/// One kind of nodes.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwayEntry {
    /// What they are called.
    pub name: String,
    /// What jobs have to ask for to be there.
    #[serde(default)]
    pub conditions: Vec<AwayCondition>,
}

/// What is asked for of a resource.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AwayCondition {
    pub resource: String,
    pub operator: AwayOperator,
    pub value: Quantity,
}

/// How an amount compares.
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum AwayOperator {
    /// More is asked for.
    #[serde(rename = ">")]
    Greater,
    #[serde(rename = "<")]
    Less,
    #[serde(rename = "==")]
    Equal,
}

/// A pool in which jobs are away from home.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(untagged)]
pub enum AwayPool {
    Name(String),
    /// The same in Armada's newer form.
    Named {
        name: String,
    },
}

impl AwayPool {
    fn name(&self) -> &str {
        match self {
            AwayPool::Name(name) | AwayPool::Named { name } => name,
        }
    }
}

/// Who may be away, and where.
pub(super) fn rules(
    classes: &BTreeMap<String, Class>,
    known: &[WellKnownNodeType],
    pools: &[PoolConfig],
) -> Result<AwayRules, ConfigError> {
    let mut kinds = BTreeMap::new();
    for WellKnownNodeType { name, taints } in known {
        if taints.is_empty() {
            let key = format!("wellKnownNodeTypes.{name}.taints");
            return Err(ConfigError::Number { key, value: "[]".to_owned(), wanted: "at least one taint is wanted" });
        }
        if kinds.insert(name.as_str(), taints.iter().map(toleration).collect::<Vec<_>>()).is_some() {
            return Err(ConfigError::Twice { key: "wellKnownNodeTypes", name: name.clone() });
        }
    }
    let mut ways = BTreeMap::new();
    for (name, class) in classes.iter().filter(|(_, class)| !class.away_node_types.is_empty()) {
        let key = format!("priorityClasses.{name}.awayNodeTypes");
        if !class.preemptible {
            let wanted = "a class whose jobs may be away from home has preemptible: true";
            return Err(ConfigError::Number { key, value: "it".to_owned(), wanted });
        }
        let of_class: Result<Vec<Way>, ConfigError> = class
            .away_node_types
            .iter()
            .enumerate()
            .map(|(index, away)| way(&format!("{key}[{index}]"), away, &kinds))
            .collect();
        ways.insert(name.clone(), of_class?);
    }
    let named: BTreeSet<&str> = pools.iter().flat_map(|pool| &pool.away_pools).map(AwayPool::name).collect();
    let of_pool = |pool: &PoolConfig| PoolRules {
        home: !pool.disable_home_scheduling,
        away: !pool.disable_away_scheduling,
        gangs: !pool.disable_gang_away_scheduling,
    };
    let mut by_pool: BTreeMap<String, PoolRules> =
        pools.iter().map(|pool| (pool.name.clone(), of_pool(pool))).collect();
    let mut elsewhere = PoolRules::default();
    if !named.is_empty() {
        // Where some pools are named, it is in them, and in those that name them.
        elsewhere.away = false;
        let names_some: BTreeSet<&str> =
            pools.iter().filter(|pool| !pool.away_pools.is_empty()).map(|pool| pool.name.as_str()).collect();
        for (name, rules) in &mut by_pool {
            rules.away &= named.contains(name.as_str()) || names_some.contains(name.as_str());
        }
        for name in named {
            by_pool.entry(name.to_owned()).or_default();
        }
    }
    Ok(AwayRules { ways, pools: by_pool, elsewhere })
}

fn toleration(taint: &TaintConfig) -> AwayToleration {
    AwayToleration {
        key: taint.key.clone(),
        value: (taint.value != "*").then(|| taint.value.clone()),
        effect: (!taint.effect.is_empty()).then(|| taint.effect.clone()),
    }
}

fn way(key: &str, away: &AwayNodeType, known: &BTreeMap<&str, Vec<AwayToleration>>) -> Result<Way, ConfigError> {
    let old = Some(&away.well_known_node_type_name).filter(|name| !name.is_empty());
    let old = old.map(|name| AwayEntry { name: name.clone(), conditions: Vec::new() });
    let mut kinds = Vec::new();
    for AwayEntry { name, conditions } in old.into_iter().chain(away.node_types.iter().cloned()) {
        let Some(taints) = known.get(name.as_str()) else {
            let wanted = "a name of scheduling.wellKnownNodeTypes is wanted";
            return Err(ConfigError::Number { key: key.to_owned(), value: name, wanted });
        };
        let condition = |condition: AwayCondition| Condition {
            compare: match condition.operator {
                AwayOperator::Greater => Compare::Greater,
                AwayOperator::Less => Compare::Less,
                AwayOperator::Equal => Compare::Equal,
            },
            amount: match condition.resource.as_str() {
                "cpu" => condition.value.cpu_milli(),
                _ => condition.value.value(),
            },
            resource: condition.resource,
        };
        let conditions = conditions.into_iter().map(condition).collect();
        kinds.push(NodeKind { name, taints: taints.clone(), conditions });
    }
    if kinds.is_empty() {
        let (key, value) = (format!("{key}.nodeTypes"), "[]".to_owned());
        return Err(ConfigError::Number { key, value, wanted: "at least one kind of nodes is wanted" });
    }
    Ok(Way { priority: away.priority, kinds })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Scheduling;

    fn read(value: Value) -> Result<AwayRules, ConfigError> {
        Ok(serde_json::from_value::<Scheduling>(value).unwrap().constraints()?.away)
    }

    fn with(class: Value, pools: Value) -> Value {
        json!({
            "wellKnownNodeTypes": [
                {"name": "gpu", "taints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}]},
                {"name": "whale", "taints": [{"key": "whale", "value": "*"}]},
            ],
            "priorityClasses": {"c": class},
            "pools": pools,
        })
    }

    #[test]
    fn ways_are_read_with_all_of_their_conditions() {
        let conditions = json!([
            {"resource": "cpu", "operator": ">", "value": "1"},
            {"resource": "memory", "operator": "<", "value": "1Gi"},
            {"resource": "nvidia.com/gpu", "operator": "==", "value": 0},
        ]);
        let class = json!({"priority": 9, "preemptible": true, "awayNodeTypes": [
            {"priority": 5, "wellKnownNodeTypeName": "gpu"},
            {"priority": 3, "nodeTypes": [{"name": "whale", "conditions": conditions}, {"name": "gpu"}]},
        ]});
        let rules = read(with(class, json!([]))).unwrap();
        let ways = &rules.ways["c"];
        assert_eq!(ways.iter().map(|way| (way.priority, way.kinds.len())).collect::<Vec<_>>(), [(5, 1), (3, 2)]);
        let whale = &ways[1].kinds[0];
        assert_eq!(whale.taints, [AwayToleration { key: "whale".to_owned(), value: None, effect: None }]);
        for (cpu, memory, gpu, holds) in
            [(1001, 1, 0, true), (1000, 1, 0, false), (1001, 1 << 30, 0, false), (2000, 1, 1, false)]
        {
            let asked = [("cpu", cpu), ("memory", memory), ("nvidia.com/gpu", gpu)];
            let asked = asked.map(|(name, amount)| (name.to_owned(), amount)).into();
            assert_eq!(whale.takes(&asked), holds, "{asked:?}");
        }
    }

    #[test]
    fn pools_say_who_may_be_away() {
        let of = |pools: Value| {
            let rules = read(with(json!({"priority": 1}), pools)).unwrap();
            ["cpu", "gpu", "other"]
                .map(|name| rules.of(name))
                .map(|PoolRules { home, away, gangs }| [home, away, gangs])
        };
        let all = [true; 3];
        assert_eq!(of(json!([])), [all; 3]);
        let only_home = [true, false, true];
        assert_eq!(of(json!([{"name": "cpu", "awayPools": ["gpu"]}])), [all, all, only_home]);
        let pools = json!([
            {"name": "cpu", "awayPools": [{"name": "gpu"}], "disableAwayScheduling": true},
            {"name": "gpu", "disableHomeScheduling": true, "disableGangAwayScheduling": true},
        ]);
        assert_eq!(of(pools), [only_home, [false, true, false], only_home]);
    }

    #[test]
    fn what_cant_be_meant_is_named() {
        let away = |name: &str| json!([{"priority": 5, "wellKnownNodeTypeName": name}]);
        for (class, wanted) in [
            (
                json!({"priority": 1, "preemptible": true, "awayNodeTypes": away("tpu")}),
                "scheduling.priorityClasses.c.awayNodeTypes[0]: tpu is of no use: a name of scheduling.wellKnownNodeTypes is \
                 wanted",
            ),
            (
                json!({"priority": 1, "awayNodeTypes": away("gpu")}),
                "scheduling.priorityClasses.c.awayNodeTypes: it is of no use: a class whose jobs may be away from home has \
                 preemptible: true",
            ),
            (
                json!({"priority": 1, "preemptible": true, "awayNodeTypes": away("")}),
                "scheduling.priorityClasses.c.awayNodeTypes[0].nodeTypes: [] is of no use: at least one kind of nodes is wanted",
            ),
        ] {
            assert_eq!(read(with(class, json!([]))).unwrap_err().to_string(), wanted);
        }
        let twice = json!({"name": "gpu", "taints": [{"key": "a"}]});
        let error = read(json!({"wellKnownNodeTypes": [twice, twice]})).unwrap_err().to_string();
        assert_eq!(error, "scheduling.wellKnownNodeTypes: \"gpu\" is there twice");
    }
}
