//! Nodes shared out among schedulers.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use pumice_api::shard::NodeShard;

use super::{NodeLoad, ShardEffect, Sharding, ShardingView, share_out, tell};

/// Nodes, shards, and an API server that does what is asked.
struct World {
    config: Sharding,
    nodes: BTreeMap<String, NodeLoad>,
    shards: BTreeMap<String, NodeShard>,
}

impl World {
    fn new(config: &str) -> Self {
        Self { config: Sharding::parse(config).unwrap(), nodes: BTreeMap::new(), shards: BTreeMap::new() }
    }

    /// A node of 100 CPUs.
    fn node(&mut self, name: &str, asked: i64, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let load = NodeLoad { labels, capacity_milli: 100_000, requested_milli: asked * 1_000 };
        self.nodes.insert(name.to_owned(), load);
    }

    fn effects(&self) -> (Vec<ShardEffect>, usize) {
        let shards: BTreeMap<String, &NodeShard> =
            self.shards.iter().map(|(name, shard)| (name.clone(), shard)).collect();
        let plan = share_out(&ShardingView { config: &self.config, nodes: &self.nodes, shards: &shards });
        (plan.effects, plan.left_over)
    }

    fn apply(&mut self, effect: ShardEffect) {
        match effect {
            ShardEffect::Create(shard) => {
                let name = shard.metadata.name.clone().unwrap();
                assert_eq!(self.shards.insert(name, *shard), None);
            }
            ShardEffect::SetNodes { name, nodes } => self.shards.get_mut(&name).unwrap().spec.nodes_desired = nodes,
            ShardEffect::Delete { name, .. } => drop(self.shards.remove(&name).unwrap()),
            ShardEffect::WriteStatus { name, to_add, to_remove } => {
                let status = &mut self.shards.get_mut(&name).unwrap().status;
                (status.nodes_to_add, status.nodes_to_remove) = (to_add, to_remove);
            }
        }
    }

    /// Shares out until nothing changes; the number of nodes in no shard.
    fn settle(&mut self) -> usize {
        self.effects().0.into_iter().for_each(|effect| self.apply(effect));
        let (effects, left_over) = self.effects();
        assert_eq!(effects, Vec::new());
        left_over
    }

    fn shard(&self, name: &str) -> Vec<&str> {
        self.shards[name].spec.nodes_desired.iter().map(String::as_str).collect()
    }
}

const RATES: &str = "
schedulerConfigs:
- name: volcano
  type: volcano
  policies:
  - {name: allocation-rate, weight: 1, arguments: {minCPUUtil: 0.0, maxCPUUtil: 0.6}}
  - {name: node-limit, arguments: {minNodes: 1, maxNodes: 3}}
- name: agents
  policies:
  - {name: allocation-rate, arguments: {minCPUUtil: '0.5', maxCPUUtil: 1.0}}
  - {name: warmup, weight: 2}
  - {name: node-limit, arguments: {maxNodes: 2}}
";

#[test]
fn schedulers_choose_in_turn() {
    let mut world = World::new(RATES);
    world.node("a", 10, &[]);
    world.node("b", 50, &[]);
    world.node("c", 60, &[]);
    world.node("d", 55, &[]);
    world.node("e", 61, &[]);
    world.node("f", 90, &[]);
    world.node("g", 70, &[("node.volcano.sh/warmup", "true")]);
    // The fullest first, up to three; then what is left, warm nodes first.
    assert_eq!(world.settle(), 2);
    assert_eq!((world.shard("volcano"), world.shard("agents")), (vec!["b", "c", "d"], vec!["f", "g"]));
    // Another scheduler's shard goes, one that was deleted comes back.
    let stray = world.shards.remove("agents").unwrap();
    world.shards.insert("stray".to_owned(), stray);
    world.settle();
    assert_eq!(world.shards.keys().collect::<Vec<_>>(), ["agents", "volcano"]);
}

#[test]
fn shares_are_rounded_to_hundredths_and_bounds_belong_to_them() {
    let cases = [(60_000, true), (60_499, true), (60_500, false), (100_000, false), (500_000, false), (0, true)];
    for (milli, inside) in cases {
        let mut world = World::new(RATES);
        world.node("n", 0, &[]);
        world.nodes.get_mut("n").unwrap().requested_milli = milli;
        world.settle();
        assert_eq!(world.shard("volcano").len() == 1, inside, "{milli}");
    }
    let mut world = World::new(RATES);
    world.nodes.insert("none".to_owned(), NodeLoad::default());
    world.settle();
    assert_eq!(world.shard("agents"), ["none"], "a node without CPUs is full");
}

#[test]
fn a_large_cluster_is_one_batch() {
    let mut world = World::new(&RATES.replace("maxNodes: 3", "maxNodes: 100"));
    for index in 0..300 {
        world.node(&format!("n{index:03}"), 10 + index % 40, &[]);
    }
    assert_eq!(world.settle(), 200);
    assert_eq!(world.shard("volcano").len(), 100);
    // Only the fullest, of all three hundred.
    assert!(world.shard("volcano").iter().all(|name| world.nodes[*name].requested_milli >= 35_000));
}

#[test]
fn what_lies_between_the_schedulers_bounds_is_in_no_shard() {
    let mut world = World { config: Sharding::default(), nodes: BTreeMap::new(), shards: BTreeMap::new() };
    world.node("low", 60, &[]);
    world.node("between", 65, &[]);
    world.node("high", 70, &[]);
    assert_eq!(world.settle(), 1);
    assert_eq!((world.shard("volcano"), world.shard("agent-scheduler")), (vec!["low"], vec!["high"]));
}

#[test]
fn few_nodes_that_change_sides_stay_and_all_move_together() {
    let mut world = World::new(&RATES.replace("maxNodes: 3", "maxNodes: 30").replace("maxNodes: 2", "maxNodes: 30"));
    for index in 0..60 {
        world.node(&format!("n{index:02}"), if index < 30 { 40 } else { 80 }, &[]);
    }
    world.settle();
    let swap = |world: &mut World, pairs: usize| {
        for index in 0..pairs {
            world.node(&format!("n{index:02}"), 80, &[]);
            world.node(&format!("n{:02}", 59 - index), 40, &[]);
        }
    };
    swap(&mut world, 2);
    assert_eq!(world.effects().0, Vec::new(), "two of thirty are less than a tenth");
    swap(&mut world, 3);
    let (effects, _) = world.effects();
    assert_eq!(effects.len(), 2, "{effects:?}");
    world.settle();
    // A node that is gone is not kept for being one of few.
    world.nodes.remove("n05");
    world.node("n05a", 40, &[]);
    world.settle();
    assert!(world.shard("volcano").contains(&"n05a"));
}

#[test]
fn the_status_says_what_a_scheduler_has_still_to_do() {
    let mut world = World::new(RATES);
    world.node("a", 10, &[]);
    world.node("b", 20, &[]);
    world.settle();
    world.shards.get_mut("volcano").unwrap().status.nodes_in_use = vec!["b".into(), "z".into()];
    let told = |world: &mut World| {
        let shards: BTreeMap<String, &NodeShard> =
            world.shards.iter().map(|(name, shard)| (name.clone(), shard)).collect();
        let effects = tell(&shards);
        effects.iter().cloned().for_each(|effect| world.apply(effect));
        effects.len()
    };
    assert_eq!(told(&mut world), 1);
    let status = &world.shards["volcano"].status;
    assert_eq!((&status.nodes_to_add[..], &status.nodes_to_remove[..]), (&["a".to_owned()][..], &["z".to_owned()][..]));
    assert_eq!(told(&mut world), 0);
    world.shards.get_mut("volcano").unwrap().status.nodes_in_use = vec!["a".into(), "b".into()];
    assert_eq!(told(&mut world), 1);
    assert_eq!(world.shards["volcano"].status.nodes_to_add, Vec::<String>::new());
}

#[test]
fn configurations_are_taken_or_refused_whole() {
    let one = |fields: &str| format!("schedulerConfigs: [{{name: s, {fields}}}]");
    let policy = |fields: &str| one(&format!("policies: [{{{fields}}}]"));
    let cases = [
        (
            one("cpuUtilizationMin: 0.1, cpuUtilizationMax: 0.5, preferWarmupNodes: true, minNodes: 1, maxNodes: 2"),
            None,
        ),
        (policy("name: node-limit, arguments: {minNodes: 3}"), None),
        (policy("name: warmup, arguments: {warmupLabelValue: true}"), None),
        ("shardSyncPeriod: 10s".to_owned(), Some("at least one scheduler")),
        ("schedulerConfigs: [{type: volcano}]".to_owned(), Some("its name")),
        ("schedulerConfigs: [{name: s}, {name: s}]".to_owned(), Some("twice")),
        (one("type: x") + "\nshardSyncPeriod: soon", Some("shardSyncPeriod")),
        (one("type: x") + "\nshardSyncPeriod: 10ms", Some("shardSyncPeriod")),
        (one("cpuUtilizationMax: 1.5"), Some("between 0 and 1")),
        (one("cpuUtilizationMin: .nan"), Some("between 0 and 1")),
        (one("cpuUtilizationMin: 0.7, cpuUtilizationMax: 0.6"), Some("between 0 and 1")),
        (one("minNodes: -1"), Some("number of nodes")),
        (one("minNodes: 3, maxNodes: 2"), Some("number of nodes")),
        (policy("weight: 1"), Some("has no name")),
        (policy("name: warmup, weight: -1"), Some("weight -1")),
        (policy("name: warmup, arguments: {maxNodes: 1}"), Some("use node-limit")),
        (policy("name: warmup, arguments: {warmupLabel: 'a b'}"), Some("warmupLabel")),
        (policy("name: allocation-rate, arguments: {minCPUUtil: much}"), Some("not a number")),
        (policy("name: node-limit, arguments: {maxNodes: 1.5}"), Some("not a whole number")),
        (policy("name: luck"), Some("unknown; use allocation-rate, warmup or node-limit")),
        ("7".to_owned(), Some("can't be read")),
    ];
    for (text, wanted) in cases {
        match (Sharding::parse(&text), wanted) {
            (Ok(_), None) => {}
            (Err(error), Some(wanted)) => assert!(error.to_string().contains(wanted), "{text}: {error}"),
            (result, wanted) => panic!("{text}: {result:?}, not {wanted:?}"),
        }
    }
    let read = Sharding::parse(&(one("type: x") + "\nshardSyncPeriod: 2m\nenableNodeEventTrigger: false")).unwrap();
    assert_eq!((read.period.as_secs(), read.follows_nodes), (120, false));
}

#[test]
fn flags_say_the_same_in_short() {
    let flags = ["volcano:volcano:0.0:0.6:false:2:100", "agent-scheduler:agent:0.7:1.0:true:2:100"];
    assert_eq!(Sharding::of_flags(&flags.map(str::to_owned)), Ok(Sharding::default()));
    for wrong in ["volcano", "v:v:a:1:true:1:2", "v:v:0:1:true:1:2:3", "v:v:0:1:maybe:1:2", "v:v:0:2:true:1:2"] {
        assert!(Sharding::of_flags(&[wrong.to_owned()]).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn no_node_is_in_two_shards(
        loads in prop::collection::vec((0..120_i64, any::<bool>(), 0..4_usize), 0..80),
        later in prop::collection::vec((0..80_usize, 0..120_i64), 0..40),
        bound in 0..20_usize,
    ) {
        let mut world = World::new(&RATES.replace("maxNodes: 3", &format!("maxNodes: {}", bound.max(1))));
        for (index, (asked, warm, _)) in loads.iter().enumerate() {
            let labels: &[_] = if *warm { &[("node.volcano.sh/warmup", "true")] } else { &[] };
            world.node(&format!("n{index}"), *asked, labels);
        }
        world.settle();
        for (index, asked) in later {
            world.node(&format!("n{index}"), asked, &[]);
        }
        world.settle();
        prop_assert!(world.shard("volcano").len() <= bound.max(1));
        let all: Vec<&str> = world.shards.values().flat_map(|shard| &shard.spec.nodes_desired).map(String::as_str).collect();
        prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        prop_assert!(all.iter().all(|name| world.nodes.contains_key(*name)));
    }

    #[test]
    fn any_text_is_answered(text in "[a-zA-Z0-9:{}\\[\\], .\\-\n]{0,200}") {
        let _ = Sharding::parse(&text);
        let _ = Sharding::of_flags(&[text]);
    }
}
