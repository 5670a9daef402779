//! The journal: what to do to take back each mutation made inside a cycle, and savepoints in it.
//!
//! Invariant: while a cycle runs every mutation of the tables is written here first, so a rollback restores them
//! exactly. Nothing of the world is ever copied. Called by `Tables` only.

use crate::facts::GroupPhase;
use crate::ids::{ClassId, GroupId, NodeId, TaskId};
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// How to take back one mutation.
#[derive(Debug)]
pub(crate) enum Undo {
    /// Put the task back.
    Task { task: TaskId, state: TaskState, node: Option<NodeId> },
    /// Put the phase back.
    Phase { group: GroupId, phase: GroupPhase },
    /// Give back room held for a pod that does not exist.
    Hold { class: ClassId, node: NodeId },
}

/// A place in the journal to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Savepoint(usize);

#[derive(Debug, Default)]
pub(crate) struct Journal {
    entries: Vec<Undo>,
    open: bool,
}

impl Journal {
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// From now on mutations are noted.
    pub(crate) fn open(&mut self) {
        assert!(!self.open, "a cycle runs alone");
        self.open = true;
    }

    pub(crate) fn note(&mut self, undo: Undo) {
        if self.open {
            self.entries.push(undo);
        }
    }
}

impl Tables {
    /// Starts a cycle: from here on changes are noted, so that they can be rolled back.
    pub(crate) fn begin(&mut self) {
        self.refresh_inter_pod();
        self.images.settle(&mut self.nodes);
        self.journal.open();
    }

    /// Ends a cycle: all that was not rolled back stays.
    pub(crate) fn commit(&mut self) {
        self.journal.entries.clear();
        self.journal.open = false;
    }

    pub(crate) fn savepoint(&self) -> Savepoint {
        Savepoint(self.journal.entries.len())
    }

    /// Takes back everything since `savepoint`, newest first.
    pub(crate) fn rollback(&mut self, savepoint: Savepoint) {
        assert!(self.journal.open, "only a cycle is rolled back");
        self.journal.open = false;
        while self.journal.entries.len() > savepoint.0 {
            match self.journal.entries.pop().expect("longer than the savepoint") {
                Undo::Task { task, state, node } => self.move_task(task, state, node),
                Undo::Phase { group, phase } => self.set_phase(group, phase),
                Undo::Hold { class, node } => self.charge_node(class, node, -1),
            }
        }
        self.journal.open = true;
    }
}
