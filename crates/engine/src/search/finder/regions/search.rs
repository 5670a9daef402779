//! The search for the best node among the regions, the best bound first.
//!
//! A node's rank is its score, then the lower id; a region's is the bound of its scores, then its lowest id. No node
//! ranks above a region that holds it, so the search ends when the best node ranks above all regions left.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::{FAN, LEAF, Regions};
use crate::cluster::classes::ClassRow;
use crate::ids::NodeId;
use crate::plugin::region::Region;
use crate::policy::Policy;
use crate::search::finder::class_memo::ClassMemo;
use crate::world::tables::Tables;

type Rank = (i64, Reverse<NodeId>);

/// Regions that may hold a better node, the best rank first.
pub(super) type Open = BinaryHeap<OpenRegion>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpenRegion {
    rank: Rank,
    level: usize,
    index: usize,
}

/// What a node is searched for.
#[derive(Debug, Clone, Copy)]
pub(in crate::search::finder) struct Question<'a> {
    pub(in crate::search::finder) tables: &'a Tables,
    pub(in crate::search::finder) policy: &'a Policy,
    pub(in crate::search::finder) class: &'a ClassRow,
}

/// An answer, and how many regions and nodes had to be looked at.
#[derive(Debug)]
pub(in crate::search::finder) struct Found {
    pub(in crate::search::finder) node: Option<NodeId>,
    pub(in crate::search::finder) effort: u64,
}

struct Search<'a, 'n> {
    question: Question<'a>,
    class_memos: &'n mut ClassMemo,
    best: Option<Rank>,
    effort: u64,
}

impl Regions {
    /// The node with the highest score among those that can take the class now; among equals the lowest id. Nothing if a
    /// plugin can't tell bounds. The tree must be fresh, and so must the notes of the class.
    pub(in crate::search::finder) fn best(
        &mut self,
        question: Question<'_>,
        class_memos: &mut ClassMemo,
    ) -> Option<Found> {
        let mut search = Search { question, class_memos, best: None, effort: 0 };
        let mut open = std::mem::take(&mut self.open);
        open.clear();
        let told = self.run(&mut search, &mut open);
        self.open = open;
        told?;
        Some(Found { node: search.best.map(|(_, Reverse(node))| node), effort: search.effort })
    }

    fn run(&self, search: &mut Search<'_, '_>, open: &mut Open) -> Option<()> {
        let top = self.levels.len().checked_sub(1)?;
        self.open(search, open, top, 0)?;
        while let Some(OpenRegion { rank, level, index }) = open.pop() {
            if search.best.is_some_and(|best| best >= rank) {
                break;
            }
            match level.checked_sub(1) {
                Some(below) => self.open(search, open, below, index * FAN)?,
                None => search.look(&self.leaves[index], rank),
            }
        }
        Some(())
    }

    /// Bounds the regions of a level from `first` on that are put together, and keeps those that may hold a better node.
    fn open(&self, search: &mut Search<'_, '_>, open: &mut Open, level: usize, first: usize) -> Option<()> {
        let Question { tables, policy, class } = search.question;
        let rows = self.levels[level][first * self.width..].chunks(self.width).take(FAN);
        let (mut indices, mut regions) = (SmallVec::<[_; FAN]>::new(), SmallVec::<[Region<'_>; FAN]>::new());
        for (index, row) in (first..).zip(rows) {
            let region = Region::new(row);
            search.effort += 1;
            if let Some(lowest) = region.lowest()
                && class.demand.iter().all(|(dim, amount)| amount <= region.room(dim))
            {
                indices.push((index, lowest));
                regions.push(region);
            }
        }
        let mut bounds = SmallVec::<[i64; FAN]>::from_elem(0, regions.len());
        if !policy.bound_scores(tables, class, &regions, &mut bounds) {
            return None;
        }
        for ((index, lowest), bound) in indices.into_iter().zip(bounds) {
            let rank = (bound, Reverse(lowest));
            if search.best.is_none_or(|best| rank > best) {
                open.push(OpenRegion { rank, level, index });
            }
        }
        Some(())
    }
}

impl Search<'_, '_> {
    /// Looks at the nodes of a leaf.
    fn look(&mut self, members: &[NodeId], (bound, _): Rank) {
        let Question { tables, policy, class } = self.question;
        let best = self.best;
        let may_win = |node: &NodeId| best.is_none_or(|best| (bound, Reverse(*node)) > best);
        let candidates = members.iter().copied().filter(|node| may_win(node) && !self.class_memos.has_refused(*node));
        let mut nodes: SmallVec<[NodeId; LEAF]> =
            candidates.filter(|node| tables.nodes.fits(*node, &class.demand)).collect();
        self.effort += members.len() as u64;
        let mut scores = SmallVec::<[i64; LEAF]>::from_elem(0, nodes.len());
        policy.score_nodes(tables, class, &nodes, &mut scores);
        debug_assert!(
            scores.iter().all(|score| *score <= bound),
            "a bound of scores must hold: {bound} for {scores:?}"
        );
        loop {
            let ranks = nodes.iter().zip(&scores).map(|(node, score)| (*score, Reverse(*node)));
            let Some((at, rank)) = ranks.enumerate().max_by_key(|(_, rank)| *rank) else { return };
            if self.best.is_some_and(|best| best >= rank) {
                return;
            }
            if self.class_memos.allows(tables, policy, class, nodes[at]) && policy.use_allows(tables, class, nodes[at])
            {
                self.best = Some(rank);
                return;
            }
            self.effort += 1;
            nodes.swap_remove(at);
            scores.swap_remove(at);
        }
    }
}
