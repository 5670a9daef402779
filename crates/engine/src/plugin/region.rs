//! A region: several nodes of which only the extremes are known. What plugins bound their scores by.
//!
//! A row holds maxima only, so that regions are put together by one operation; a least value is kept as its
//! complement, which turns the order around and never overflows. Rows are kept by `finder::regions`.

use smallvec::SmallVec;

use crate::cluster::nodes::Nodes;
use crate::ids::{DimId, NodeId};
use crate::resource_dims::PODS;

/// Dimensions that rows tell of; of others nothing is known.
pub(crate) const DIMS_MAX: usize = 12;
/// What stands in a row where no node has a value.
pub(crate) const NONE: i64 = i64::MIN;

/// For cpu and memory in use as scoring counts them, the complement of the least, and the most; then that of the lowest
/// id.
const HEAD: usize = 5;
const LOWEST: usize = 4;
/// For each dimension: offered (complement of the least, most), used (likewise), room (most).
const PER_DIM: usize = 5;

/// Values that all nodes of a region lie between, these included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extremes {
    /// No node has less.
    pub least: i64,
    /// No node has more.
    pub most: i64,
}

/// What is known of several nodes.
#[derive(Debug, Clone, Copy)]
pub struct Region<'a>(&'a [i64]);

impl<'a> Region<'a> {
    #[inline]
    pub(crate) fn new(row: &'a [i64]) -> Self {
        Self(row)
    }

    /// What the nodes offer of a dimension. `None` where that is not kept: anything, then.
    #[inline]
    pub fn offered(&self, dim: DimId) -> Option<Extremes> {
        self.dim(dim).map(|cells| extremes(&cells[..2]))
    }

    /// What is taken of it.
    #[inline]
    pub fn used(&self, dim: DimId) -> Option<Extremes> {
        self.dim(dim).map(|cells| extremes(&cells[2..4]))
    }

    /// cpu (0) or memory (1) in use, where pods without requests count as Kubernetes' scoring counts them.
    #[inline]
    pub(crate) fn scored(&self, which: usize) -> Extremes {
        extremes(&self.0[2 * which..2 * which + 2])
    }

    /// The lowest id of any node.
    #[inline]
    pub(crate) fn lowest(&self) -> Option<NodeId> {
        u32::try_from(!self.0[LOWEST]).ok().map(NodeId)
    }

    /// The most that any node has room for.
    #[inline]
    pub(crate) fn room(&self, dim: DimId) -> i64 {
        self.dim(dim).map_or(i64::MAX, |cells| cells[4])
    }

    #[inline]
    fn dim(&self, dim: DimId) -> Option<&'a [i64]> {
        let at = HEAD + dim.index() * PER_DIM;
        self.0.get(at..at + PER_DIM)
    }
}

#[inline]
fn extremes(cells: &[i64]) -> Extremes {
    Extremes { least: !cells[0], most: cells[1] }
}

/// Cells of a row over so many dimensions.
pub(crate) fn width(dims: usize) -> usize {
    HEAD + dims.min(DIMS_MAX) * PER_DIM
}

/// Takes nodes into a row, but those that can't take a pod of any kind. Column by column, as the values lie in memory.
pub(crate) fn include(row: &mut [i64], nodes: &Nodes, members: &[NodeId]) {
    let pods = nodes.rooms(PODS);
    let able = members.iter().map(|node| node.index()).filter(|node| at(pods, *node) > 0);
    let able: SmallVec<[usize; 32]> = able.collect();
    let Some(lowest) = able.iter().min() else { return };
    let (head, dims) = row.split_at_mut(HEAD);
    for (which, cells) in head[..LOWEST].chunks_exact_mut(2).enumerate() {
        span(cells, nodes.taken_for_scoring(which), &able);
    }
    raise(&mut head[LOWEST], !i64::try_from(*lowest).expect("ids of nodes have 32 bits"));
    for (dim, cells) in dims.chunks_exact_mut(PER_DIM).enumerate() {
        let dim = DimId::from(dim);
        span(&mut cells[..2], nodes.offered(dim), &able);
        span(&mut cells[2..4], nodes.taken(dim), &able);
        let rooms = nodes.rooms(dim);
        raise(&mut cells[4], able.iter().fold(NONE, |most, node| most.max(at(rooms, *node))));
    }
}

/// A dimension that no node was told of has no column yet.
fn at(column: &[i64], node: usize) -> i64 {
    column.get(node).copied().unwrap_or(0)
}

fn span(cells: &mut [i64], column: &[i64], nodes: &[usize]) {
    let (mut least, mut most) = (i64::MAX, i64::MIN);
    for node in nodes {
        let value = at(column, *node);
        least = least.min(value);
        most = most.max(value);
    }
    raise(&mut cells[0], !least);
    raise(&mut cells[1], most);
}

fn raise(cell: &mut i64, value: i64) {
    *cell = value.max(*cell);
}
