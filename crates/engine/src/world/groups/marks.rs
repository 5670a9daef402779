//! Which groups wait to be looked at again: taken back to what it was after a trial that was only for an answer.
//!
//! Invariant: between `marks` and `unmark` everything else of the groups was rolled back. Called by `Tables::begin_dry_run`.

use super::Groups;

/// How many groups each list had.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marked([usize; 3]);

impl Groups {
    pub(crate) fn marks(&self) -> Marked {
        Marked([self.dirty.len(), self.moved.len(), self.unsettled.len()])
    }

    /// Forgets what was marked since. O(that).
    pub(crate) fn unmark(&mut self, Marked([dirty, moved, unsettled]): Marked) {
        for group in self.dirty.drain(dirty..) {
            self.marks[group.index()].dirty = false;
        }
        for group in self.moved.drain(moved..) {
            self.marks[group.index()].moved = false;
        }
        for group in self.unsettled.drain(unsettled..) {
            self.marks[group.index()].unsettled = false;
        }
    }
}
