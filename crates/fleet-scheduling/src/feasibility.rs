//! Whether a job could run anywhere if nothing ran yet: asked before a failed job is tried again in another way.
//!
//! The engine answers, over nodes on which there is nothing; only nodes that offer enough are shown to it. Of a Volcano job,
//! which has many pods, only amounts are looked at: where they would do, it waits and says why.

use std::collections::{BTreeMap, BTreeSet};

use pumice_engine::{Delta, NodeFacts, PodFacts, Resources, TimeMs};
use pumice_fleet_model::names::CLUSTER_LABEL;
use pumice_ledger::{NodeRef, PriorityClasses, Queue, Shape, VolcanoJob};

use crate::pool::{Pool, node_delta, queue_delta};
use crate::pool_view;

/// Nodes that the engine is shown at a time: most often one of the first will do.
const NODES_AT_ONCE: usize = 100;
/// The queue of the one job.
const QUEUE: &str = "retry";

/// What nodes have of resources that are on none, by pool.
type Floating = BTreeMap<String, BTreeMap<String, i64>>;

/// Whether one of these nodes, of clusters by name, could hold a job of the shape if nothing ran there; of a Volcano job,
/// whether one cluster could. Resources that are on no node are not looked at, and neither is whether a node takes new pods
/// now. O(nodes), of a Volcano job O(nodes · different pods).
pub fn could_hold<'n>(
    shape: &Shape,
    off: &[NodeRef],
    floating: &Floating,
    nodes: impl Iterator<Item = (&'n str, &'n NodeFacts)>,
) -> bool {
    if let Some(whole) = &shape.volcano_job {
        return could_hold_whole(whole, off, floating, nodes);
    }
    let off: BTreeSet<(&str, &str)> = off.iter().map(|at| (at.cluster.as_str(), at.node.as_str())).collect();
    let (template, _) = pool_view::template(shape, floating);
    let task = PodFacts {
        uid: QUEUE.into(),
        namespace: QUEUE.to_owned(),
        name: QUEUE.to_owned(),
        mine: true,
        queue: Some(QUEUE.to_owned()),
        template: template.into(),
        ..PodFacts::default()
    };
    let mut fitting = nodes
        .filter(|(cluster, facts)| {
            offers(&facts.allocatable, &task.template.requests) && !off.contains(&(*cluster, facts.name.as_str()))
        })
        .map(|(cluster, facts)| node_delta(cluster, NodeFacts { unschedulable: false, ..facts.clone() }))
        .peekable();
    while fitting.peek().is_some() {
        let mut pool = Pool::new(QUEUE, &PriorityClasses::new());
        pool.apply(&fitting.by_ref().take(NODES_AT_ONCE).collect::<Vec<_>>());
        let queue = Queue { name: QUEUE.to_owned(), ..Queue::default() };
        pool.apply(&[queue_delta(&queue), Delta::TaskUpsert(Box::new(task.clone()))]);
        if !pool.world.cycle(TimeMs(0)).binds.is_empty() {
            return true;
        }
    }
    false
}

fn offers(offered: &Resources, wanted: &Resources) -> bool {
    wanted.iter().all(|(name, amount)| *amount <= offered.get(name).copied().unwrap_or(0))
}

/// What a cluster has nodes for, of a Volcano job.
struct Found<'w> {
    /// What no node was found for yet, and how many pods ask for it.
    left: Vec<(&'w Resources, u32)>,
    /// Pods for which there is one.
    pods: u32,
}

/// Whether some cluster that runs such jobs, and is not one to keep off, has a node for each of as many pods as start.
fn could_hold_whole<'n>(
    whole: &VolcanoJob,
    off: &[NodeRef],
    floating: &Floating,
    nodes: impl Iterator<Item = (&'n str, &'n NodeFacts)>,
) -> bool {
    // How many pods ask for the same.
    let mut wanted: BTreeMap<Resources, u32> = BTreeMap::new();
    for part in &whole.parts {
        let of_nodes = part.requests.iter().filter(|(name, _)| !floating.contains_key(*name));
        let pods = wanted.entry(of_nodes.map(|(name, amount)| (name.clone(), *amount)).collect()).or_default();
        *pods = pods.saturating_add(part.pods);
    }
    let least = whole.least.clamp(1, whole.pods().max(1));
    let mut clusters: BTreeMap<&str, Found> = BTreeMap::new();
    for (cluster, facts) in nodes {
        let is_off = || off.iter().any(|at| at.node.is_empty() && at.cluster == cluster);
        if !facts.labels.contains_key(CLUSTER_LABEL) || is_off() {
            continue;
        }
        let none = || Found { left: wanted.iter().map(|(requests, pods)| (requests, *pods)).collect(), pods: 0 };
        let Found { left, pods: found } = clusters.entry(cluster).or_insert_with(none);
        left.retain(|(requests, pods)| {
            let fits = offers(&facts.allocatable, requests);
            *found = found.saturating_add(if fits { *pods } else { 0 });
            !fits
        });
        if *found >= least {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use pumice_engine::{PodTemplate, Taint, TaintEffect, Toleration};
    use pumice_ledger::VolcanoTask;

    use super::*;

    #[test]
    fn a_job_fits_where_all_of_its_words_are_met() {
        let node = |name: &str, memory: i64, zone: &str, tainted: bool| NodeFacts {
            name: name.into(),
            allocatable: [("cpu".to_owned(), 4000), ("memory".to_owned(), memory), ("pods".to_owned(), 110)].into(),
            labels: [("zone".to_owned(), zone.to_owned())].into(),
            taints: if tainted {
                vec![Taint { key: "gpu".to_owned(), value: String::new(), effect: TaintEffect::NoSchedule }]
            } else {
                Vec::new()
            },
            unschedulable: true,
            ..NodeFacts::default()
        };
        // More than the engine is shown at once, of which none will do.
        let mut nodes: Vec<NodeFacts> = (0..250).map(|name| node(&format!("n{name}"), 8, "far", false)).collect();
        nodes.extend([node("a", 8, "near", false), node("b", 16, "near", true)]);
        let off = |name: &str| NodeRef { cluster: "c".to_owned(), node: name.to_owned() };
        let near =
            PodTemplate { node_selector: [("zone".to_owned(), "near".to_owned())].into(), ..PodTemplate::default() };
        let gpu = Toleration { key: "gpu".to_owned(), exists: true, ..Toleration::default() };
        let tolerant = PodTemplate { tolerations: vec![gpu], ..near.clone() };
        for (memory, template, off, fits) in [
            (8, PodTemplate::default(), vec![], true),
            (9, PodTemplate::default(), vec![], false),
            (8, near.clone(), vec![], true),
            (8, near, vec![off("a")], false),
            (16, tolerant, vec![off("a")], true),
        ] {
            let shape = Shape {
                priority_class: "c".to_owned(),
                requests: [("memory".to_owned(), memory), ("licence".to_owned(), 1)].into(),
                template: serde_json::to_value(&template).unwrap(),
                volcano_job: None,
                price_band: None,
                retries: None,
            };
            let floating = [("licence".to_owned(), BTreeMap::new())].into();
            let found = could_hold(&shape, &off, &floating, nodes.iter().map(|facts| ("c", facts)));
            assert_eq!(found, fits, "{memory} {:?} {off:?}", shape.template);
        }
    }

    #[test]
    fn a_whole_job_fits_where_a_cluster_has_nodes_for_as_many_as_start() {
        let node = |name: &str, cores: i64, runs_them: bool| {
            let mut facts = NodeFacts {
                name: name.into(),
                allocatable: [("cpu".to_owned(), cores * 1000)].into(),
                ..NodeFacts::default()
            };
            if runs_them {
                facts.labels.insert(CLUSTER_LABEL.to_owned(), "x".to_owned());
            }
            facts
        };
        let nodes = [
            ("one", node("a", 1, true)),
            ("one", node("b", 2, true)),
            ("two", node("a", 2, true)),
            ("no", node("a", 9, false)),
        ];
        let off = |cluster: &str| NodeRef { cluster: cluster.to_owned(), node: String::new() };
        for (least, parts, off, fits) in [
            // Together they are more than any node has.
            (7, vec![(3, 1), (4, 2)], vec![], true),
            (7, vec![(3, 1), (4, 2)], vec![off("one")], true),
            (7, vec![(3, 1), (4, 2)], vec![off("one"), off("two")], false),
            (2, vec![(1, 1), (1, 9)], vec![], false),
            (1, vec![(1, 1), (1, 9)], vec![], true),
            (2, vec![(1, 2), (1, 2)], vec![off("two")], true),
        ] {
            let part = |(pods, cores): &(u32, i64)| VolcanoTask {
                pods: *pods,
                requests: [("cpu".to_owned(), cores * 1000), ("licence".to_owned(), 1)].into(),
                template: serde_json::Value::Null,
            };
            let shape = Shape {
                priority_class: "c".to_owned(),
                requests: [("cpu".to_owned(), 100_000)].into(),
                template: serde_json::Value::Null,
                volcano_job: Some(VolcanoJob { least, parts: parts.iter().map(part).collect() }),
                price_band: None,
                retries: None,
            };
            let floating = [("licence".to_owned(), BTreeMap::new())].into();
            let found = could_hold(&shape, &off, &floating, nodes.iter().map(|(cluster, facts)| (*cluster, facts)));
            assert_eq!(found, fits, "{least} {parts:?} {off:?}");
        }
    }
}
