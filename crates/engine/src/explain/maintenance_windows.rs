//! What the Reservations of administrators have to do with it that a group or a node waits.
//!
//! Invariant: worked out when asked, by the checks that bar pods. O(nodes of the windows).

use crate::ids::{GroupId, NodeId, TimeMs};
use crate::policy::Policy;
use crate::reasons::{Reason, time_text};
use crate::world::maintenance_windows::Window;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Windows that a group is told of.
const TOLD_MAX: usize = 3;

/// The windows that keep the group's first waiting pod from nodes where it would fit this moment.
pub(crate) fn closed(tables: &Tables, policy: &Policy, group: GroupId, now: TimeMs) -> Vec<Reason> {
    if tables.maintenance_windows.all.is_empty() {
        return Vec::new();
    }
    let row = tables.groups.row(group);
    let first = row.tasks.iter().copied().find(|task| tables.task(*task).state == TaskState::Pending);
    let Some(first) = first else { return Vec::new() };
    let class = tables.classes.row(tables.task(first).class);
    let barring = tables.barring(first);
    let fits = |node: NodeId| {
        let known = tables.nodes.table.get(node.index()).is_some_and(|row| row.known);
        // What is kept there, be it for itself, is another matter.
        let has_room =
            tables.nodes.fits(node, &class.demand) || tables.nodes.fits_but_for_reserved(node, &class.demand);
        known
            && has_room
            && policy.check_facts(tables, class, node).is_none()
            && policy.check_use(tables, class, node).is_none()
    };
    let mut reasons = Vec::new();
    for window in barring.iter().map(|place| &tables.maintenance_windows.all[usize::from(*place)]) {
        let is_first =
            |node: &NodeId| tables.maintenance_windows.on(*node, &barring).is_some_and(|on| on.name == window.name);
        let nodes = window.nodes.ones().map(NodeId::from).filter(is_first).filter(|node| fits(*node)).count();
        if nodes > 0 && reasons.len() < TOLD_MAX {
            reasons.push(Reason::Closed {
                window: window.name.to_string(),
                nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
                begins_ms: left(window.from, now),
                ends_ms: window.to.map(|to| left(to, now)),
                for_whom: window.for_whom(),
            });
        }
    }
    reasons
}

/// What the windows of a node say of it.
pub(super) fn of_node(tables: &Tables, node: NodeId, now: TimeMs) -> impl Iterator<Item = String> {
    let on_node = tables.maintenance_windows.all.iter().filter(move |window| window.nodes.contains(node.index()));
    on_node.map(move |window| text(window, now))
}

fn text(window: &Window, now: TimeMs) -> String {
    let whom = if window.is_for_some() { format!(" for {}", window.for_whom()) } else { String::new() };
    let (begins, long) = (left(window.from, now), window.to.map(|to| left(to, window.from.max(now))));
    let begins = if begins > 0 { format!(", in {}", time_text(begins)) } else { String::new() };
    let ends = long.map_or_else(|| "until that is deleted".to_owned(), |long| format!("for {}", time_text(long)));
    format!("reservation {}{whom}{begins}, {ends}", window.name)
}

fn left(time: TimeMs, now: TimeMs) -> i64 {
    time.0.saturating_sub(now.0)
}
