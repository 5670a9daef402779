//! What is remembered of a class between its questions: which nodes refused it, whether preferences tell nodes apart,
//! what its searches cost, and what the nodes said last. Small, so that many classes can have it.

use fixedbitset::FixedBitSet;

use super::diagnosis;
use crate::cluster::classes::ClassRow;
use crate::ids::NodeId;
use crate::policy::Policy;
use crate::world::tables::Tables;

#[derive(Debug)]
pub(super) struct ClassMemo {
    pub(super) generation: u64,
    facts_seen: u64,
    /// Nodes whose facts don't allow the class, as far as they were asked.
    refused: FixedBitSet,
    /// Whether preferences are the same for all nodes; known until facts change.
    even: Option<bool>,
    /// The end of the nodes' log at the last question.
    pub(super) asked_at: u64,
    /// What the last search among the regions cost.
    pub(super) effort: u64,
    /// What a cache would have saved since there was one.
    pub(super) missed: u64,
    /// The last answer, and up to where of the nodes' logs of facts and use it is good.
    answer: Option<((u64, u64), Option<NodeId>)>,
    /// Bytes that the finder has counted for it.
    pub(super) counted: usize,
    pub(super) diagnosis: diagnosis::Memo,
}

impl ClassMemo {
    pub(super) fn new(tables: &Tables, class: &ClassRow) -> Self {
        Self {
            generation: class.generation,
            facts_seen: tables.nodes.facts_log.end(),
            refused: FixedBitSet::new(),
            even: None,
            asked_at: tables.nodes.use_log.end(),
            effort: 0,
            missed: 0,
            answer: None,
            counted: 0,
            diagnosis: diagnosis::Memo::default(),
        }
    }

    /// Memory of what grows with the cluster, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.refused.len() / 8 + self.diagnosis.bytes()
    }

    /// Forgets what changes of facts may have made wrong.
    pub(super) fn refresh(&mut self, tables: &Tables) {
        let log = &tables.nodes.facts_log;
        match log.since(self.facts_seen) {
            Some([]) => return,
            Some(changed) => {
                let known = self.refused.len();
                let asked = changed.iter().map(|node| node.index()).filter(|node| *node < known);
                asked.for_each(|node| self.refused.set(node, false));
            }
            None => self.refused.clear(),
        }
        self.even = None;
        self.facts_seen = log.end();
    }

    /// The last answer, if no node has changed since.
    pub(super) fn answer(&self, tables: &Tables) -> Option<Option<NodeId>> {
        self.answer.filter(|(good_at, _)| *good_at == ends(tables)).map(|(_, node)| node)
    }

    /// Keeps the answer to what was asked now.
    pub(super) fn keep_answer(&mut self, tables: &Tables, node: Option<NodeId>) {
        self.answer = Some((ends(tables), node));
    }

    /// Whether it is known that the node's facts don't allow the class.
    pub(super) fn has_refused(&self, node: NodeId) -> bool {
        self.refused.contains(node.index())
    }

    /// Whether the node's facts allow the class.
    pub(super) fn allows(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow, node: NodeId) -> bool {
        if self.has_refused(node) {
            return false;
        }
        let allows = policy.check_facts(tables, class, node).is_none();
        if !allows {
            self.refused.grow(tables.nodes.table.span());
            self.refused.insert(node.index());
        }
        allows
    }

    /// Whether no preference tells any two nodes apart.
    pub(super) fn is_even(
        &mut self,
        policy: &Policy,
        class: &ClassRow,
        tellers: &mut Tellers,
        tables: &Tables,
    ) -> bool {
        *self.even.get_or_insert_with(|| tellers.are_silent(tables, policy, class))
    }
}

fn ends(tables: &Tables) -> (u64, u64) {
    (tables.nodes.facts_log.end(), tables.nodes.use_log.end())
}

/// The nodes that any preference may like more or less than others.
#[derive(Debug, Default)]
pub(super) struct Tellers {
    facts_seen: Option<u64>,
    /// One set for each preference.
    nodes: Vec<FixedBitSet>,
}

impl Tellers {
    /// Whether all preferences have nothing to say to the class about any node.
    fn are_silent(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow) -> bool {
        self.refresh(tables, policy);
        let raw =
            |preference: &crate::plugin::Preference, node| (preference.raw)(&class.template, tables.nodes.row(node));
        policy.preferences().iter().zip(&self.nodes).all(|(preference, nodes)| {
            !(preference.of_pod)(&class.template) || nodes.ones().all(|node| raw(preference, node.into()) == 0)
        })
    }

    fn refresh(&mut self, tables: &Tables, policy: &Policy) {
        let log = &tables.nodes.facts_log;
        let span = tables.nodes.table.span();
        self.nodes.resize_with(policy.preferences().len(), FixedBitSet::new);
        for (preference, nodes) in policy.preferences().iter().zip(&mut self.nodes) {
            nodes.grow(span);
            let mut look = |node: NodeId| {
                let row = tables.nodes.table.get(node.index());
                nodes.set(node.index(), row.is_some_and(|row| row.known && (preference.of_node)(row)));
            };
            match self.facts_seen.and_then(|seen| log.since(seen)) {
                Some(changed) => changed.iter().for_each(|node| look(*node)),
                None => (0..span).for_each(|node| look(node.into())),
            }
        }
        self.facts_seen = Some(log.end());
    }
}
