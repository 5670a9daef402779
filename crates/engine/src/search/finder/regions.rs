//! An index of the nodes that all classes share: a tree of regions, each with the extremes of what its nodes offer and
//! use. Branch and bound over it finds the best node for a class that was never seen before without looking at most
//! nodes: a region is opened only if the bound of its scores is better than the best node found.
//!
//! Leaves hold nodes that are alike. A change costs the way of one node to the leaf where it belongs now, and the
//! extremes of two leaves and of those above them that really move. The tree is built again after as many changes as there
//! are nodes, or sooner where too many come to one leaf.
//!
//! Invariant: after `refresh` every node that a pod may be given is in one leaf, and no node exceeds the extremes of a
//! region that holds it. Called by `Finder`.

use fixedbitset::FixedBitSet;

use crate::ids::NodeId;
use crate::plugin::region;
use crate::world::tables::Tables;

mod arrange;
mod search;

use arrange::Map;
pub(super) use search::Question;

/// Nodes of a leaf when the tree is built.
const LEAF: usize = 16;
/// Regions put together to one of the next level.
const FAN: usize = 8;
/// A leaf that holds more makes the tree be built again, after changes of one node in so many.
const CROWD: usize = 8 * LEAF;
const CHANGED_IN_CROWD: usize = 8;
/// Where more than one node in so many has changed at once the tree is built again.
const CHANGED_AT_ONCE: usize = 4;
/// Changes that never make it be built again.
const CHANGES_MIN: usize = 64;
/// The place of a node that is in no leaf.
const ABSENT: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Where in the log of changes it has been brought up to.
    seen: Option<u64>,
    /// Changes since it was built.
    changes: usize,
    crowded: bool,
    /// Cells of a row.
    width: usize,
    map: Map,
    leaves: Vec<Vec<NodeId>>,
    /// The leaf of each node, by id.
    places: Vec<u32>,
    /// Rows of the leaves, of what they are put together to, and so on.
    levels: Vec<Vec<i64>>,
    /// Leaves whose nodes have changed; each once.
    stale: Vec<usize>,
    is_stale: FixedBitSet,
    /// A row before and after a change: kept for their memory.
    before: Vec<i64>,
    after: Vec<i64>,
    open: search::Open,
}

impl Regions {
    /// Takes in what has changed on the nodes.
    pub(super) fn refresh(&mut self, tables: &Tables) {
        let nodes = &tables.nodes;
        let log = &nodes.use_log;
        let same_width = self.width == region::width(tables.dims.len());
        match self.seen.and_then(|seen| log.since(seen)) {
            Some(changed) if same_width && self.note(tables, changed) => self.settle(tables),
            _ => self.build(tables),
        }
        self.seen = Some(log.end());
    }

    /// Whether the tree can follow the changes.
    fn note(&mut self, tables: &Tables, changed: &[NodeId]) -> bool {
        let nodes = tables.nodes.known as usize;
        if self.leaves.is_empty() || changed.len() > (nodes / CHANGED_AT_ONCE).max(CHANGES_MIN) {
            return false;
        }
        self.places.resize(tables.nodes.table.span(), ABSENT);
        // A pod that is given a node changes it more than once.
        for alike in changed.chunk_by(|one, next| one == next) {
            let node = &alike[0];
            self.changes += 1;
            let old = self.places[node.index()];
            let known = tables.nodes.table.get(node.index()).is_some_and(|row| row.known);
            let new = if known { index(self.map.leaf_of(tables, *node)) } else { ABSENT };
            if old != ABSENT {
                self.doubt(old as usize);
            }
            if new != old {
                self.put(tables, *node, old, new);
            }
        }
        let most = if self.crowded { nodes / CHANGED_IN_CROWD } else { nodes };
        self.changes <= most.max(CHANGES_MIN)
    }

    /// Moves a node to another leaf.
    fn put(&mut self, tables: &Tables, node: NodeId, old: u32, new: u32) {
        self.places[node.index()] = new;
        if old != ABSENT {
            let leaf = &mut self.leaves[old as usize];
            leaf.iter().position(|member| *member == node).map(|at| leaf.swap_remove(at));
        }
        if new != ABSENT {
            let leaf = &mut self.leaves[new as usize];
            leaf.push(node);
            self.crowded |= leaf.len() > CROWD;
            if !self.is_stale.contains(new as usize) {
                // One more can only raise its row.
                self.after.clear();
                self.after.extend_from_slice(&self.levels[0][new as usize * self.width..][..self.width]);
                region::include(&mut self.after, &tables.nodes, &[node]);
                self.replace(new as usize);
            }
        }
    }

    fn doubt(&mut self, leaf: usize) {
        if !self.is_stale.put(leaf) {
            self.stale.push(leaf);
        }
    }

    fn build(&mut self, tables: &Tables) {
        (self.changes, self.crowded) = (0, false);
        self.width = region::width(tables.dims.len());
        (self.map, self.leaves) = Map::new(tables);
        self.places.clear();
        self.places.resize(tables.nodes.table.span(), ABSENT);
        self.stale.clear();
        self.is_stale = FixedBitSet::with_capacity(self.leaves.len());
        let mut rows = vec![region::NONE; self.leaves.len() * self.width];
        for (leaf, (nodes, row)) in self.leaves.iter().zip(rows.chunks_mut(self.width)).enumerate() {
            nodes.iter().for_each(|node| self.places[node.index()] = index(leaf));
            region::include(row, &tables.nodes, nodes);
        }
        self.levels.clear();
        while rows.len() > FAN * self.width {
            let above = rows.chunks(FAN * self.width).flat_map(|rows| together(rows, self.width)).collect();
            self.levels.push(std::mem::replace(&mut rows, above));
        }
        self.levels.push(rows);
    }

    fn settle(&mut self, tables: &Tables) {
        while let Some(leaf) = self.stale.pop() {
            self.is_stale.set(leaf, false);
            self.after.clear();
            self.after.resize(self.width, region::NONE);
            region::include(&mut self.after, &tables.nodes, &self.leaves[leaf]);
            self.replace(leaf);
        }
    }

    /// Gives a leaf the row `after`, and those above it what follows.
    fn replace(&mut self, leaf: usize) {
        let (width, mut index) = (self.width, leaf);
        for at in 0..self.levels.len() {
            let row = &mut self.levels[at][index * width..(index + 1) * width];
            if *row == *self.after {
                return;
            }
            self.before.clear();
            self.before.extend_from_slice(row);
            row.copy_from_slice(&self.after);
            index /= FAN;
            let [level, above, ..] = &self.levels[at..] else { return };
            let children = &level[index * FAN * width..level.len().min((index + 1) * FAN * width)];
            let row = &above[index * width..(index + 1) * width];
            // `before` and `after` are of the child; `after` becomes what its parent is to be.
            for (cell, ((before, after), now)) in self.before.iter().zip(&mut self.after).zip(row).enumerate() {
                if *after < *now && *before == *now {
                    *after = children[cell..].iter().step_by(width).copied().max().unwrap_or(region::NONE);
                } else {
                    *after = (*after).max(*now);
                }
            }
        }
    }
}

fn index(leaf: usize) -> u32 {
    u32::try_from(leaf).expect("a world holds fewer than 2^32 nodes")
}

/// The row of the region that several make together.
fn together(rows: &[i64], width: usize) -> Vec<i64> {
    let mut together = vec![region::NONE; width];
    for row in rows.chunks(width) {
        together.iter_mut().zip(row).for_each(|(cell, value)| *cell = (*cell).max(*value));
    }
    together
}

#[cfg(test)]
mod tests;
