//! A place in a schema, for walks that merge objects.
//!
//! Invariant: a place leads only to places of the same schema; where the schema says nothing there is none.

use super::node::{Additional, Arena, Merging, NodeId};

/// The schema of one value.
#[derive(Clone, Copy)]
pub(crate) struct Place<'s> {
    arena: &'s Arena,
    node: NodeId,
}

impl<'s> Place<'s> {
    pub(super) fn new(arena: &'s Arena, node: NodeId) -> Self {
        Self { arena, node }
    }

    /// The place of a member, and how patches merge it.
    pub(crate) fn member(self, name: &str) -> (Option<Self>, Option<&'s Merging>) {
        let rules = &self.arena.node(self.node).object;
        match (rules.property(name), &rules.additional) {
            (Some(property), _) => (Some(Self { node: property.node, ..self }), property.merging.as_ref()),
            (None, Additional::Node(node)) => (Some(Self { node: *node, ..self }), None),
            (None, Additional::Kept | Additional::Unknown) => (None, None),
        }
    }

    /// The place of a list's items.
    pub(crate) fn items(self) -> Option<Self> {
        let node = self.arena.node(self.node).list.as_ref()?.items?;
        Some(Self { node, ..self })
    }
}
