//! A small cluster for the plugins' tests: facts in, a plugin's answers or a whole cycle's binds out.

use std::collections::BTreeMap;

use crate::cluster::classes::ClassRow;
use crate::config::{Config, PluginConfig, Switches};
use crate::engine::World;
use crate::facts::{Delta, NodeFacts, NodeName, PodFacts, PodPhase, QueueFacts};
use crate::ids::{NodeId, TaskId, TimeMs};
use crate::plan::Plan;
use crate::world::tables::Tables;

/// Deltas, to be applied to tables or to a world.
#[derive(Default, Clone)]
pub(crate) struct Scene(pub(crate) Vec<Delta>);

pub(crate) const GI: i64 = 1 << 30;

pub(crate) fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn amounts(pairs: &[(&str, i64)]) -> BTreeMap<String, i64> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect()
}

/// A plugin's configuration as YAML has its arguments.
pub(crate) fn config(plugin: &str, arguments: &str) -> PluginConfig {
    let text = format!("actions: allocate\ntiers:\n- plugins:\n  - name: {plugin}\n    arguments: {arguments}\n");
    let (config, _) = Config::parse(&text).expect("a good configuration");
    config.tiers[0][0].clone()
}

/// Why a plugin's arguments are refused.
pub(crate) fn refusal(plugin: &str, arguments: &str) -> String {
    let text = format!("actions: allocate\ntiers:\n- plugins:\n  - name: {plugin}\n    arguments: {arguments}\n");
    Config::parse(&text).expect_err("a refused configuration").to_string()
}

impl Scene {
    pub(crate) fn node(mut self, name: &str, offers: &[(&str, i64)], adapt: impl FnOnce(&mut NodeFacts)) -> Self {
        let mut allocatable = amounts(offers);
        allocatable.entry("pods".to_owned()).or_insert(100);
        let mut facts = NodeFacts { name: name.into(), allocatable, ..NodeFacts::default() };
        adapt(&mut facts);
        self.0.push(Delta::NodeUpsert(facts));
        self
    }

    /// A pod of a group of one; its name is its uid.
    pub(crate) fn pod(mut self, name: &str, asks: &[(&str, i64)], adapt: impl FnOnce(&mut PodFacts)) -> Self {
        let mut facts = PodFacts {
            uid: name.into(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            mine: true,
            ..PodFacts::default()
        };
        facts.template.requests = amounts(asks);
        adapt(&mut facts);
        self.0.push(Delta::TaskUpsert(Box::new(facts)));
        self
    }

    /// A pod that runs on a node.
    pub(crate) fn running(
        self,
        name: &str,
        node: &str,
        asks: &[(&str, i64)],
        adapt: impl FnOnce(&mut PodFacts),
    ) -> Self {
        self.pod(name, asks, |facts| {
            facts.node = Some(node.into());
            facts.phase = PodPhase::Running;
            adapt(facts);
        })
    }

    pub(crate) fn queue(mut self, name: &str, adapt: impl FnOnce(&mut QueueFacts)) -> Self {
        let mut facts = QueueFacts { name: name.to_owned(), weight: 1, ..QueueFacts::default() };
        adapt(&mut facts);
        self.0.push(Delta::QueueUpsert(facts));
        self
    }

    pub(crate) fn tables(&self) -> Tables {
        let mut tables = Tables::new("default");
        for delta in &self.0 {
            tables.apply(delta);
        }
        tables
    }

    /// Runs a cycle of `allocate` with gang and one plugin.
    pub(crate) fn cycle(&self, plugin: &str, arguments: &str) -> (World, Plan) {
        let gang = PluginConfig { name: "gang".to_owned(), switches: Switches::default(), arguments: BTreeMap::new() };
        let tiers = vec![vec![gang, config(plugin, arguments)]];
        let mut world = World::new(Config { actions: vec![crate::Action::Allocate], tiers, ..Config::default() });
        world.apply(&Delta::QueueUpsert(QueueFacts { name: "default".to_owned(), weight: 1, ..QueueFacts::default() }));
        for delta in &self.0 {
            world.apply(delta);
        }
        let plan = world.cycle(TimeMs(1_000_000));
        (world, plan)
    }

    /// Who was bound where by such a cycle.
    pub(crate) fn binds(&self, plugin: &str, arguments: &str) -> BTreeMap<String, NodeName> {
        binds(&self.cycle(plugin, arguments).1)
    }
}

pub(crate) fn binds(plan: &Plan) -> BTreeMap<String, NodeName> {
    plan.binds.iter().map(|bind| (bind.name.clone(), bind.node.clone())).collect()
}

pub(crate) fn node_of(tables: &Tables, name: &str) -> NodeId {
    tables.nodes.table.find(name).expect("a node of the scene")
}

pub(crate) fn task_of(tables: &Tables, name: &str) -> TaskId {
    tables.tasks.find(name).expect("a pod of the scene")
}

pub(crate) fn class_of<'t>(tables: &'t Tables, pod: &str) -> &'t ClassRow {
    tables.classes.row(tables.task(task_of(tables, pod)).class)
}
