//! Whether a job could run anywhere if nothing ran yet: asked before a failed job is tried again in another way.
//!
//! The engine answers, over nodes on which there is nothing; only nodes that offer enough are shown to it.

use std::collections::{BTreeMap, BTreeSet};

use pumice_engine::{Delta, NodeFacts, PodFacts, Resources, TimeMs};
use pumice_ledger::{NodeRef, PriorityClasses, Queue, Shape};

use super::{Pool, node_delta, queue_delta, window};

/// Nodes that the engine is shown at a time: most often one of the first will do.
const NODES_AT_ONCE: usize = 100;
/// The queue of the one job.
const QUEUE: &str = "retry";

/// Whether one of these nodes, of clusters by name, could hold a job of the shape if nothing ran there. Resources that are on
/// no node are not looked at, and neither is whether a node takes new pods now. O(nodes).
pub fn could_hold<'n>(
    shape: &Shape,
    off: &[NodeRef],
    floating: &BTreeMap<String, BTreeMap<String, i64>>,
    nodes: impl Iterator<Item = (&'n str, &'n NodeFacts)>,
) -> bool {
    let off: BTreeSet<(&str, &str)> = off.iter().map(|at| (at.cluster.as_str(), at.node.as_str())).collect();
    let (template, _) = window::template(shape, floating);
    let task = PodFacts {
        uid: QUEUE.to_owned(),
        namespace: QUEUE.to_owned(),
        name: QUEUE.to_owned(),
        mine: true,
        queue: Some(QUEUE.to_owned()),
        template: template.into(),
        ..PodFacts::default()
    };
    let offers = |offered: &Resources| {
        let mut wanted = task.template.requests.iter();
        wanted.all(|(name, amount)| *amount <= offered.get(name).copied().unwrap_or(0))
    };
    let mut fitting = nodes
        .filter(|(cluster, facts)| offers(&facts.allocatable) && !off.contains(&(*cluster, facts.name.as_str())))
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

#[cfg(test)]
mod tests {
    use pumice_engine::{PodTemplate, Taint, TaintEffect, Toleration};

    use super::*;

    #[test]
    fn a_job_fits_where_all_of_its_words_are_met() {
        let node = |name: &str, memory: i64, zone: &str, tainted: bool| NodeFacts {
            name: name.to_owned(),
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
            };
            let floating = [("licence".to_owned(), BTreeMap::new())].into();
            let found = could_hold(&shape, &off, &floating, nodes.iter().map(|facts| ("c", facts)));
            assert_eq!(found, fits, "{memory} {:?} {off:?}", shape.template);
        }
    }
}
