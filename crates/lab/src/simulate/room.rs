//! What the nodes of a simulation have left.
//!
//! Invariant: nothing is taken that is not there. It holds in every build: a policy that puts a node over makes figures
//! that mean nothing, so the simulation ends with the node and the resource named. Used by the virtual cluster.

use std::collections::HashMap;

use pumice_engine::{NodeFacts, NodeName, Resources};

/// An amount of each of a room's resources that is asked for: its place in the room, and how much.
pub(super) type Ask = Vec<(usize, i64)>;

pub(super) struct Room {
    nodes: HashMap<NodeName, usize>,
    resources: Vec<String>,
    free: Vec<Vec<i64>>,
}

impl Room {
    pub(super) fn new(nodes: &[NodeFacts]) -> Self {
        let mut resources: Vec<String> = nodes.iter().flat_map(|node| node.allocatable.keys().cloned()).collect();
        resources.push(PODS.to_owned());
        resources.sort();
        resources.dedup();
        let offered =
            |node: &NodeFacts| resources.iter().map(|name| node.allocatable.get(name).copied().unwrap_or(0)).collect();
        Self {
            free: nodes.iter().map(offered).collect(),
            nodes: nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect(),
            resources,
        }
    }

    /// What a pod takes; a resource that no node offers can't be taken.
    pub(super) fn ask(&self, requests: &Resources) -> Ask {
        let place = |name: &str| self.resources.iter().position(|resource| resource == name);
        let asked = requests.iter().filter(|(_, amount)| **amount > 0);
        let mut ask: Ask = asked.filter_map(|(name, amount)| Some((place(name)?, *amount))).collect();
        ask.extend(place(PODS).map(|pods| (pods, 1)));
        ask
    }

    /// Takes it; the node's place.
    pub(super) fn take(&mut self, node: &str, ask: &Ask) -> usize {
        let place =
            *self.nodes.get(node).unwrap_or_else(|| panic!("the engine bound a pod to {node}, which is no node"));
        for (resource, amount) in ask {
            let free = &mut self.free[place][*resource];
            *free -= amount;
            assert!(*free >= 0, "{node} is over by {} of {}", -*free, self.resources[*resource]);
        }
        place
    }

    pub(super) fn give(&mut self, node: usize, ask: &Ask) {
        for (resource, amount) in ask {
            self.free[node][*resource] += amount;
        }
    }
}

const PODS: &str = "pods";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::nodes;

    #[test]
    #[should_panic(expected = "n00000 is over by 500 of cpu")]
    fn nothing_is_taken_that_is_not_there() {
        let mut room = Room::new(&nodes::parse("1x2cpu").unwrap());
        let ask = room.ask(&[("cpu".to_owned(), 1_250)].into());
        let place = room.take("n00000", &ask);
        room.give(place, &ask);
        room.take("n00000", &ask);
        room.take("n00000", &ask);
    }
}
