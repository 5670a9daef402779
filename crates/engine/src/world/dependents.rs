//! Tasks of a Job that depend on others (`dependsOn`): their pods are made only when those of the others run.
//!
//! Invariant: a group's `min_member`, and its roles' `min`, leave out what tasks will have that depend on others and have no
//! pods yet. So what can be there starts, while all of it was admitted and is promised as one (`minimum`, `inqueue_demand`).
//! Read by `gang` and everything that asks whether a group has its minimum.

use std::sync::Arc;

use crate::ids::GroupId;
use crate::reasons::Reason;
use crate::world::groups::{GroupRow, Role, ShapePart};
use crate::world::tables::Tables;

impl Role {
    /// Its pods can't be there yet, as it depends on other tasks.
    fn is_to_come(&self) -> bool {
        self.made_later > 0 && self.counts.all() == 0
    }
}

impl GroupRow {
    /// Takes over `minMember` as declared, and works out what of it must start together now. O(roles).
    pub(crate) fn set_minimum(&mut self, min_member: u32) {
        self.declared_min = min_member;
        self.settle_minimum();
    }

    /// Works out anew what must start together now: pods were made, or have gone. O(roles).
    pub(crate) fn settle_minimum(&mut self) {
        self.min_member = self.minimum_without(Role::is_to_come);
        for role in &mut self.roles {
            role.min = if role.is_to_come() { 0 } else { role.declared_min };
        }
    }

    /// How many pods must start together for the group to begin: those of tasks that depend on none. O(roles).
    pub(crate) fn min_to_begin(&self) -> u32 {
        self.minimum_without(|role| role.made_later > 0)
    }

    fn minimum_without(&self, left_out: impl Fn(&Role) -> bool) -> u32 {
        if self.planned == 0 {
            return self.declared_min;
        }
        let later: u32 = self
            .roles
            .iter()
            .filter(|role| left_out(role))
            .fold(0, |sum: u32, role| sum.saturating_add(role.made_later));
        self.declared_min.min(self.planned.saturating_sub(later))
    }
}

impl Tables {
    /// Takes over from the group's Job which of its tasks depend on others. O(roles), where none does.
    pub(crate) fn plan_tasks(&mut self, group: GroupId) {
        let parts = self.parts_of(self.groups.row(group)).cloned().unwrap_or_default();
        let any = parts.iter().any(|part| part.depends_on.is_some());
        let row = self.groups.row_mut(group);
        if !any && row.planned == 0 {
            return;
        }
        row.planned = if any { parts.iter().fold(0, |sum: u32, part| sum.saturating_add(part.count)) } else { 0 };
        for role in &mut row.roles {
            role.made_later = 0;
        }
        for part in parts.iter().filter(|part| part.depends_on.is_some()) {
            let role = row.role(&part.role);
            let role = &mut row.roles[role as usize];
            // Those that are too many to be told apart count for the first.
            if role.name == part.role {
                role.made_later = role.made_later.saturating_add(part.count);
            }
        }
        row.settle_minimum();
    }

    /// The tasks of the group's Job, where it is known.
    pub(crate) fn parts_of(&self, row: &GroupRow) -> Option<&Arc<Vec<ShapePart>>> {
        let owner = row.owner.as_ref()?;
        self.shapes.get(owner.uid.as_str()).map(|shape| &shape.parts).filter(|parts| !parts.is_empty())
    }

    /// Which of the group's tasks wait for which. O(roles), where none depends on others.
    pub(crate) fn tasks_to_come(&self, group: GroupId) -> Vec<Reason> {
        let row = self.groups.row(group);
        if row.planned == 0 || row.ended {
            return Vec::new();
        }
        let role = |name: &str| row.roles.iter().find(|role| *role.name == *name);
        let waits = |part: &&ShapePart| role(&part.role).is_some_and(Role::is_to_come);
        let reason = |part: &ShapePart| {
            let depends_on = part.depends_on.as_deref()?;
            Some(Reason::WaitsForTasks {
                role: part.role.to_string(),
                tasks: depends_on.tasks.clone(),
                any: depends_on.any,
            })
        };
        self.parts_of(row).into_iter().flat_map(|parts| parts.iter()).filter(waits).filter_map(reason).collect()
    }
}
