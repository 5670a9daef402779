//! Deltas of PodGroups, and of the shapes that their owners declare, to tables.
//!
//! Called by `Tables::apply`, between cycles only.

use std::sync::Arc;

use crate::cluster::table::key_of;
use crate::facts::{GroupCondition, GroupFacts, GroupPhase, GroupUid, ShapeTask};
use crate::ids::{GroupId, QueueId, TaskId};
use crate::world::groups::{AWAITS_NODES, ROLES_MAX, ShapePart};
use crate::world::sub_jobs::JOB_HYPER_NODE;
use crate::world::tables::{Shape, Tables};
use crate::world::tasks::TaskState;

impl Tables {
    pub(super) fn upsert_group(&mut self, facts: &GroupFacts) {
        let group = self.intern_group(&facts.namespace, &key_of(&facts.namespace, &facts.name), None);
        let status = self.groups.share(&facts.status);
        let priority_class = self.groups.share_name(&facts.priority_class);
        let run_profile = self.groups.share_name(&facts.run_profile);
        let row = self.groups.row_mut(group);
        let replaced = row.known && *row.uid != *facts.uid;
        let same_owner = row.known && !replaced && row.owner.as_deref() == facts.owner.as_ref();
        if replaced {
            row.emitted = None;
            row.reasons = None;
            row.writing = false;
        }
        // The phase is ours to decide: what is stored is only read where nothing was decided yet.
        if replaced || (!row.known && !row.of_one) {
            row.phase = facts.status.phase;
        }
        if !row.writing {
            row.emitted = Some(status);
        }
        let was_known = std::mem::replace(&mut row.known, true);
        if !row.writing {
            row.reported_hyper_node = facts.annotations.get(JOB_HYPER_NODE).map(|name| name.as_str().into());
        }
        row.uid = facts.uid.as_str().into();
        row.created = facts.created;
        row.priority_class = priority_class;
        row.priority = self.priorities.resolve(&facts.priority_class);
        row.annotations.clone_from(&facts.annotations);
        row.preemptable = facts.preemptable;
        row.topology = facts.topology.clone().map(Box::new);
        row.run_profile = run_profile;
        let parts_changed = !was_known || row.sub_groups != facts.sub_groups;
        row.sub_groups.clone_from(&facts.sub_groups);
        row.min_resources = facts.min_resources.as_ref().map(|resources| Box::new(self.dims.demand(resources)));
        for role in &mut row.roles {
            role.declared_min = 0;
        }
        for (name, min) in facts.min_task_member.iter().take(ROLES_MAX) {
            let name = self.groups.share_name(name);
            let row = self.groups.row_mut(group);
            let role = row.role(&name);
            row.roles[role as usize].declared_min = *min;
        }
        self.groups.row_mut(group).set_minimum(facts.min_member);
        // Its place among others depends on all of this.
        self.groups.set_deadline(group, facts.deadline);
        if replaced || !was_known {
            let until = self.groups.row(group).restored_sum(&facts.status);
            self.groups.set_sum(group, until);
            let says = |condition: &GroupCondition| condition.kind == AWAITS_NODES && condition.status;
            let awaits = facts.status.phase == GroupPhase::Inqueue && facts.status.conditions.iter().any(says);
            self.groups.set_awaits_nodes(group, awaits);
        }
        self.groups.refresh(group);
        let row = self.groups.row_mut(group);
        row.shape_version += 1;
        let shape = facts.owner.as_ref().and_then(|owner| self.shapes.get(owner.uid.as_str()));
        // An owner that is gone has no shape, and stays gone.
        row.ended = shape.map_or(same_owner && row.ended, |shape| shape.ended);
        let old_owner = self.groups.set_owner(group, facts.owner.clone());
        self.plan_tasks(group);
        self.nodes.widen(self.dims.len());
        if parts_changed {
            self.make_parts(group);
        }
        self.set_owner(group, old_owner.map(|owner| owner.uid), facts.owner.as_ref().map(|owner| owner.uid.clone()));
        self.set_queue(group, Some(facts.queue.as_str()).filter(|queue| !queue.is_empty()));
        self.groups.refresh(group);
    }

    fn set_owner(&mut self, group: GroupId, old: Option<String>, new: Option<String>) {
        if old == new {
            return;
        }
        if let Some(uid) = old
            && let Some(groups) = self.owned.get_mut(uid.as_str())
        {
            groups.retain(|other| *other != group);
            if groups.is_empty() {
                self.owned.remove(uid.as_str());
            }
        }
        if let Some(uid) = new {
            let known = self.shapes.get_key_value(uid.as_str()).map(|(uid, _)| uid.clone());
            let groups = self.owned.entry(known.unwrap_or_else(|| uid.into())).or_default();
            let place = groups.partition_point(|other| *other < group);
            groups.insert(place, group);
        }
    }

    pub(crate) fn set_queue(&mut self, group: GroupId, name: Option<&str>) {
        let queue = self.queues.intern(name.unwrap_or(&self.default_queue));
        let row = self.groups.row_mut(group);
        let old = std::mem::replace(&mut row.queue, queue);
        if old == queue {
            return;
        }
        let (tasks, namespace): (Vec<TaskId>, _) = (row.tasks.iter().copied().collect(), row.namespace_id);
        for task in tasks {
            let (state, class) = (self.task(task).state_in_queue(), self.task(task).class);
            let demand = &self.classes.row(class).demand;
            self.queues.charge(old, state, demand, -1);
            self.queues.charge(queue, state, demand, 1);
            if state.is_allocated() || state == TaskState::Pipelined {
                self.namespace_shares.charge(old, namespace, demand, -1);
                self.namespace_shares.charge(queue, namespace, demand, 1);
            }
            self.charge_devices(task, old, -1);
            self.charge_devices(task, queue, 1);
        }
        self.queues.row_mut(queue).groups += 1;
        self.leave_queue(old);
    }

    fn leave_queue(&mut self, queue: QueueId) {
        self.queues.row_mut(queue).groups -= 1;
        self.queues.release(queue);
    }

    pub(super) fn remove_group(&mut self, namespace: &str, name: &str, uid: &GroupUid) {
        let Some(group) = self.groups.table.find(&key_of(namespace, name)) else { return };
        let row = self.groups.row_mut(group);
        if !row.known || (!uid.is_empty() && *row.uid != **uid) {
            return;
        }
        row.known = false;
        row.emitted = None;
        row.writing = false;
        row.reasons = None;
        if !row.of_one {
            row.phase = GroupPhase::Pending;
        }
        let owner = self.groups.set_owner(group, None).map(|owner| owner.uid);
        self.set_owner(group, owner, None);
        self.plan_tasks(group);
        self.groups.set_deadline(group, None);
        self.groups.set_sum(group, None);
        self.groups.set_awaits_nodes(group, false);
        self.groups.refresh(group);
        self.release_group(group);
    }

    /// Frees a placeholder that no pod names any more.
    pub(super) fn release_group(&mut self, group: GroupId) {
        let row = self.groups.row(group);
        if row.known || !row.tasks.is_empty() {
            return;
        }
        let (key, queue) = (row.key.clone(), row.queue);
        self.groups.table.remove(&key);
        self.groups.forget(group);
        self.leave_queue(queue);
    }

    pub(super) fn upsert_shape(&mut self, owner_uid: &str, tasks: &[ShapeTask], ended: bool) {
        let parts: Vec<ShapePart> = tasks
            .iter()
            .filter(|task| task.count > 0)
            .map(|task| ShapePart {
                role: self.groups.share_name(&task.role),
                class: self.acquire_class(&task.template),
                count: task.count,
                depends_on: task.depends_on.clone().map(Arc::new),
            })
            .collect();
        self.nodes.widen(self.dims.len());
        if self.shapes.get(owner_uid).is_some_and(|shape| *shape.parts == parts && shape.ended == ended) {
            parts.into_iter().for_each(|part| self.release_class(part.class));
            return;
        }
        let old = if parts.is_empty() && !ended {
            self.shapes.remove(owner_uid)
        } else {
            let known = self.owned.get_key_value(owner_uid).map(|(uid, _)| uid.clone());
            let parts = self.groups.share_parts(parts);
            self.shapes.insert(known.unwrap_or_else(|| owner_uid.into()), Shape { parts, ended })
        };
        self.release_shape(old);
        self.owner_changed(owner_uid, ended);
    }

    /// The owner is gone: what it made goes after it.
    pub(super) fn remove_shape(&mut self, owner_uid: &str) {
        let old = self.shapes.remove(owner_uid);
        self.release_shape(old);
        self.owner_changed(owner_uid, true);
    }

    fn release_shape(&mut self, shape: Option<Shape>) {
        for part in shape.iter().flat_map(|shape| shape.parts.iter()) {
            self.release_class(part.class);
        }
    }

    fn owner_changed(&mut self, owner_uid: &str, ended: bool) {
        for group in self.owned.get(owner_uid).into_iter().flatten().copied().collect::<Vec<_>>() {
            let row = self.groups.row_mut(group);
            row.shape_version += 1;
            row.ended = ended;
            self.plan_tasks(group);
            self.groups.refresh(group);
        }
    }
}
