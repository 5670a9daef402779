//! Pods that only their queue keeps out (gate `scheduling.volcano.sh/queue-allocation-gate`): where the queue may take
//! one the plan says so, and from then on the pod counts as promised until it has a node. It is placed by a later
//! cycle, when it carries no gate any more.

use crate::ids::{DimId, GroupId, QueueId, TaskId};
use crate::plan::Ungate;
use crate::queue_limit;
use crate::resource_dims::Demand;
use crate::session::Session;
use crate::world::queues::amount;

/// The scheduling gate that this is about.
const GATE: &str = "scheduling.volcano.sh/queue-allocation-gate";

/// Plans the removal of the gates of `tasks` that the group's queue may take, in order.
pub(super) fn open(session: &mut Session<'_>, group: GroupId, tasks: Vec<TaskId>) {
    for task in tasks {
        let row = session.tables.task(task);
        if row.gate_passed {
            continue;
        }
        let queue = session.tables.groups.row(group).queue;
        let demand = &session.tables.classes.row(row.class).demand;
        if !has_room(session, queue, demand) || session.policy.allocatable(session.tables, queue, task).is_some() {
            continue;
        }
        session.plan.ungates.push(Ungate {
            uid: (&*row.uid).into(),
            namespace: row.namespace.to_string(),
            name: row.name.to_string(),
            gate: GATE.to_owned(),
            group: session.tables.groups.row(group).key(),
        });
        session.tables.pass_gate(task, true);
    }
}

/// Within the queue's hard limit, with all that it has promised.
fn has_room(session: &Session<'_>, queue: QueueId, demand: &Demand) -> bool {
    let own = &session.tables.queues.row(queue).own;
    let used = |dim: DimId| own.promised(dim).saturating_add(amount(&own.releasing, dim));
    let used: Vec<i64> = (0..session.tables.dims.len()).map(|dim| used(dim.into())).collect();
    let mut wanted = Vec::new();
    demand.add_to(&mut wanted, 1);
    queue_limit::exceeded(session.tables, queue, &wanted, &used).is_none()
}
