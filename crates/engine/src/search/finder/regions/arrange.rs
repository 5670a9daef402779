//! Which nodes lie together in the tree of regions: parted in halves where they differ most, until each part is a leaf,
//! and by the same planes when they have changed since. It decides how quick a search is, never what it finds.

use std::cmp::Ordering;

use super::{FAN, LEAF};
use crate::facts::{Taint, TaintEffect};
use crate::ids::NodeId;
use crate::resource_dims::{CPU, MEMORY, PODS};
use crate::world::tables::Tables;

/// How much twice the size tells nodes apart, where from empty to full counts 1.
const OCTAVE: f32 = 2.0;
/// And that one refuses most pods.
const CLOSED: f32 = 4.0;
/// And that one can't take a pod of any kind.
const FULL: f32 = 8.0;
const KEYS: usize = 7;

type Keys = [f32; KEYS];

#[derive(Debug, Clone, Copy)]
struct Item {
    keys: Keys,
    node: NodeId,
}

/// Where each node belongs: planes that part the nodes, in a tree that ends in leaves.
#[derive(Debug, Default)]
pub(super) struct Map {
    planes: Vec<Plane>,
}

/// What lies below the key, with the lower id among equals, is on the one side, the rest on the other.
#[derive(Debug)]
struct Plane {
    key: usize,
    at: (f32, NodeId),
    sides: [Child; 2],
}

#[derive(Debug, Clone, Copy)]
enum Child {
    Leaf(usize),
    Plane(usize),
}

impl Map {
    /// Parts the nodes into leaves.
    pub(super) fn new(tables: &Tables) -> (Self, Vec<Vec<NodeId>>) {
        let ids = tables.nodes.ids();
        let mut items: Vec<Item> = ids.map(|node| Item { keys: keys(tables, node), node }).collect();
        let mut map = Self::default();
        map.split(&mut items, 0);
        let leaf = |items: &[Item]| {
            let mut nodes = Vec::with_capacity(2 * LEAF);
            nodes.extend(items.iter().map(|item| item.node));
            nodes
        };
        (map, items.chunks(LEAF).map(leaf).collect())
    }

    /// The leaf where the node belongs as it is now. There must be one.
    pub(super) fn leaf_of(&self, tables: &Tables, node: NodeId) -> usize {
        let keys = keys(tables, node);
        let mut child = if self.planes.is_empty() { Child::Leaf(0) } else { Child::Plane(0) };
        loop {
            match child {
                Child::Leaf(leaf) => return leaf,
                Child::Plane(plane) => {
                    let Plane { key, at, sides } = &self.planes[plane];
                    child = sides[usize::from(order((keys[*key], node), *at).is_ge())];
                }
            }
        }
    }

    /// Splits at multiples of what a region of the next lower level holds, so that the parts become regions. `first` of
    /// all is the first of the items.
    fn split(&mut self, items: &mut [Item], first: usize) -> Child {
        if items.len() <= LEAF {
            return Child::Leaf(first / LEAF);
        }
        let mut unit = LEAF;
        while unit * FAN < items.len() {
            unit *= FAN;
        }
        let middle = unit * (items.len().div_ceil(unit) / 2);
        let key = widest(items);
        let (_, least, _) = items.select_nth_unstable_by(middle, |left, right| {
            order((left.keys[key], left.node), (right.keys[key], right.node))
        });
        let at = (least.keys[key], least.node);
        let plane = self.planes.len();
        self.planes.push(Plane { key, at, sides: [Child::Leaf(0); 2] });
        let (below, above) = items.split_at_mut(middle);
        self.planes[plane].sides = [self.split(below, first), self.split(above, first + middle)];
        Child::Plane(plane)
    }
}

fn order(left: (f32, NodeId), right: (f32, NodeId)) -> Ordering {
    left.0.total_cmp(&right.0).then(left.1.cmp(&right.1))
}

fn keys(tables: &Tables, node: NodeId) -> Keys {
    let nodes = &tables.nodes;
    let gpu = tables.dims.gpu();
    let offered = [CPU, MEMORY].map(|dim| nodes.allocatable(node, dim));
    let [cpu, memory] = offered;
    let gpus = gpu.map_or(0, |gpu| nodes.allocatable(node, gpu));
    let taken = gpu.map_or(0, |gpu| nodes.used(node, gpu));
    let size = |offered: i64| if offered > 0 { OCTAVE * (offered as f32).log2() } else { -OCTAVE };
    let part =
        |taken: i64, offered: i64| if offered > 0 { (taken as f32 / offered as f32).clamp(0.0, 1.0) } else { 0.0 };
    let row = nodes.row(node);
    let refuses = |taint: &Taint| taint.effect != TaintEffect::PreferNoSchedule;
    let apart = match nodes.room(node, PODS) {
        ..=0 => FULL,
        _ if row.unschedulable || row.taints.iter().any(refuses) => CLOSED,
        _ => 0.0,
    };
    // Where nodes are all alike they are parted by the last: so that one that is given a pod leaves the others.
    [
        size(cpu),
        size(memory),
        size(gpus),
        apart,
        part(taken, gpus),
        part(nodes.scored(node, 1), memory),
        part(nodes.scored(node, 0), cpu),
    ]
}

/// Where the items differ most.
fn widest(items: &[Item]) -> usize {
    let (mut least, mut most) = ([f32::INFINITY; KEYS], [f32::NEG_INFINITY; KEYS]);
    for item in items {
        for key in 0..KEYS {
            least[key] = least[key].min(item.keys[key]);
            most[key] = most[key].max(item.keys[key]);
        }
    }
    let width = |key: &usize| most[*key] - least[*key];
    (0..KEYS).max_by(|left, right| width(left).total_cmp(&width(right))).unwrap_or(0)
}
