//! Gangs that no present node fits, where something adds nodes for pods that wait.
//!
//! Such a group is admitted so that its pods are made and found unschedulable, which is what autoscalers read. Invariant: it is
//! promised nothing, makes no victims and holds up nobody, until nodes have come that it fits: from then on it is a group like
//! any other. What its PodGroup says of it outlives the scheduler.

use super::is_possible;
use crate::config::Autoscaling;
use crate::ids::GroupId;
use crate::session::Session;
use crate::world::minimum::missing;
use crate::world::tables::Tables;

/// Labels of nodes that were added, or are taken away, as pods want them: Karpenter's, and one for the template of any other pool.
const SIGNS: [(&str, Option<&str>); 2] = [("karpenter.sh/nodepool", None), ("pumice.sh/autoscaled", Some("true"))];

/// Whether nodes are added for pods that wait. O(nodes) where they have to say so.
pub(super) fn adds_nodes(session: &Session<'_>) -> bool {
    match session.config.autoscaling() {
        Autoscaling::Off => false,
        Autoscaling::On => true,
        Autoscaling::IfSeen => session.tables.nodes.autoscaler || some_node_says(session.tables),
    }
}

fn some_node_says(tables: &Tables) -> bool {
    let has = |labels: &std::collections::BTreeMap<String, String>| {
        let says = |(key, value): (&str, Option<&str>)| {
            labels.get(key).is_some_and(|found| value.is_none_or(|value| found == value))
        };
        SIGNS.into_iter().any(says)
    };
    tables.nodes.ids().any(|node| has(&tables.nodes.row(node).labels))
}

/// Groups that wait for nodes and fit those that have come are promised what they need from now on.
pub(super) fn look_again(session: &mut Session<'_>) {
    let seen = session.tables.nodes.offers_version;
    if session.tables.groups.await_nodes.is_empty() || session.tables.groups.looked_for_nodes == seen {
        return;
    }
    session.tables.groups.looked_for_nodes = seen;
    let waiting: Vec<GroupId> = session.tables.groups.await_nodes.iter().copied().collect();
    for group in waiting {
        if is_possible(session, group) {
            session.tables.groups.set_awaits_nodes(group, false);
            let missing = missing(session.tables, group);
            session.tables.promise(group, &missing);
        }
    }
}
