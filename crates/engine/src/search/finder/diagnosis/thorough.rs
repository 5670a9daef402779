//! All that every node has against a pod, for an answer that somebody asked for. O(nodes x checks).
//!
//! Invariant: each check that fails is counted on each node, whether others fail there or not. What is short is told of the
//! nodes that could take the pod but for room. Called by `diagnosis`, where the finder was told to be thorough.

use super::{ClassRoom, Findings};
use crate::cluster::classes::ClassRow;
use crate::ids::{DimId, NodeId};
use crate::policy::Policy;
use crate::reasons::Check;
use crate::resource_dims::PODS;
use crate::search::finder::Search;
use crate::world::tables::Tables;

pub(super) fn scan(tables: &Tables, policy: &Policy, search: Search<'_>) -> Findings {
    let class = tables.classes.row(search.class);
    let mut findings = Findings { nodes: tables.nodes.known, ..Findings::default() };
    let mut rooms: Vec<ClassRoom> = class.demand.iter().map(|_| ClassRoom::default()).collect();
    for node in tables.nodes.ids() {
        let mut failed = policy.failed(tables, class, search.task, node);
        if search.within.is_some_and(|nodes| !nodes.contains(node.index())) {
            failed.push((Check::OutsideDomain, String::new()));
        }
        let bars = failed.iter().any(|(check, _)| check.is_of_facts());
        failed.extend(of_room(tables, class, node));
        let kept = failed.iter().any(|(check, _)| *check == Check::Reserved);
        if !bars {
            for ((dim, requested), rooms) in class.demand.iter().zip(&mut rooms) {
                // A node whose room is kept for others lacks nothing of it.
                let room = tables.nodes.room(node, dim);
                rooms.look(node, if kept { requested.min(room) } else { requested }, room);
            }
        }
        failed.into_iter().for_each(|(check, about)| findings.count(check, about));
    }
    findings.tell_few_apart();
    for ((dim, requested), rooms) in class.demand.iter().zip(&rooms) {
        findings.add_short(dim, requested, rooms);
    }
    findings
}

/// The dimensions that are short on the node, or that its room is kept.
fn of_room(tables: &Tables, class: &ClassRow, node: NodeId) -> Vec<(Check, String)> {
    if tables.nodes.fits_but_for_reserved(node, &class.demand) {
        return vec![(Check::Reserved, String::new())];
    }
    let lacks = |(dim, requested): &(DimId, i64)| *requested > tables.nodes.room(node, *dim);
    class.demand.iter().filter(lacks).map(|(dim, _)| super::told_as(tables, dim)).collect()
}

impl Check {
    /// Whether the node itself is not one for the pod, whatever runs there: where it is not, what is short does not matter.
    pub(crate) fn is_of_facts(self) -> bool {
        matches!(
            self,
            Self::NodeGone
                | Self::OutsideShard
                | Self::Unschedulable
                | Self::NodeAffinity
                | Self::Taint
                | Self::Unsupported
                | Self::OutsideDomain
                | Self::RevocableZone
                | Self::Usage
        )
    }
}

impl Findings {
    fn add_short(&mut self, dim: DimId, requested: i64, rooms: &ClassRoom) {
        self.free.insert(dim, rooms.free());
        if let Some((short_on_best, best)) = rooms.best
            && dim != PODS
        {
            self.short.insert(dim, super::Short { requested, best, short_on_best });
        }
    }
}
