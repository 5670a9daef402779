//! A place in a schema, for walks that merge objects.
//!
//! Invariant: a place leads only to places of the same schema; where the schema says nothing there is none.

use serde_json::Value;

use super::node::{Additional, Arena, ListType, Merging, NodeId};

/// The schema of one value.
#[derive(Clone, Copy)]
pub(crate) struct Place<'s> {
    arena: &'s Arena,
    node: NodeId,
}

/// How the items of a list are told apart.
#[derive(Clone, Copy)]
pub(crate) enum ListKind<'s> {
    /// They are not: it is one value.
    Atomic,
    /// They stand for themselves.
    Set,
    /// By these members.
    Map(&'s [Box<str>]),
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

    /// Whether the schema names a member.
    pub(crate) fn declares(self, name: &str) -> bool {
        self.arena.node(self.node).object.property(name).is_some()
    }

    /// The value that a member gets where it is left out.
    pub(crate) fn default_of(self, name: &str) -> Option<&'s Value> {
        self.arena.node(self.node).object.property(name)?.default.as_ref()
    }

    /// Whether an object here is one value, and not its members apart.
    pub(crate) fn is_atomic(self) -> bool {
        self.arena.node(self.node).object.is_atomic
    }

    /// What a list here is.
    pub(crate) fn list_kind(self) -> ListKind<'s> {
        match self.arena.node(self.node).list.as_ref().map(|rules| &rules.kind) {
            None | Some(ListType::Atomic) => ListKind::Atomic,
            Some(ListType::Set) => ListKind::Set,
            Some(ListType::Map(keys)) => ListKind::Map(keys),
        }
    }
}
