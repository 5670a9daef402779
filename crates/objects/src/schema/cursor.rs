//! A place in a schema, for walks along objects: merging, and rules about values.
//!
//! Invariant: a place leads only to places of the same schema; where the schema says nothing there is none.

use std::fmt;

use serde_json::Value;

use super::node::{Additional, Arena, Format, ListType, Merging, NodeId, Types};

/// The schema of one value.
#[derive(Clone, Copy)]
pub struct Cursor<'s> {
    arena: &'s Arena,
    node: NodeId,
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Cursor").field(&self.node).finish()
    }
}

/// What values stand in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Any, or one of several sorts.
    Any,
    /// Whole numbers.
    Integer,
    Number,
    Text,
    /// Texts that are a moment (`format: date-time` or `date`).
    Moment,
    /// Texts that are a length of time (`format: duration`).
    Duration,
    /// Texts that are bytes (`format: byte`).
    Bytes,
    Boolean,
    Object,
    List,
}

/// What a schema says of a member of an object.
#[derive(Clone, Copy, Debug)]
pub enum Member<'s> {
    Declared(Cursor<'s>),
    /// Members of any name are of this schema.
    Additional(Cursor<'s>),
    /// It may be there; nothing is said of it.
    Free,
    /// There is no such member.
    Unknown,
}

/// How the items of a list are told apart.
#[derive(Clone, Copy, Debug)]
pub enum ListKind<'s> {
    /// They are not: it is one value.
    Atomic,
    /// They stand for themselves.
    Set,
    /// By these members.
    Map(&'s [Box<str>]),
}

impl<'s> Cursor<'s> {
    pub(super) fn new(arena: &'s Arena, node: NodeId) -> Self {
        Self { arena, node }
    }

    /// The place of a member, and how patches merge it.
    pub(crate) fn member(self, name: &str) -> (Option<Self>, Option<&'s Merging>) {
        let rules = &self.arena.node(self.node).object;
        match (rules.property(name), &rules.additional) {
            (Some(property), _) => (Some(Self { node: property.node, ..self }), property.merging.as_ref()),
            (None, Additional::Node(node)) => (Some(Self { node: *node, ..self }), None),
            (None, Additional::Preserved | Additional::Unknown) => (None, None),
        }
    }

    /// The sort of value that the schema has here, which decides how it is compared and shown.
    pub fn sort(self) -> Sort {
        let node = self.arena.node(self.node);
        match node.types {
            Types::INTEGER => Sort::Integer,
            Types::NUMBER => Sort::Number,
            Types::BOOLEAN => Sort::Boolean,
            Types::OBJECT => Sort::Object,
            Types::ARRAY => Sort::List,
            Types::STRING => match node.format {
                Some(Format::DateTime | Format::Date) => Sort::Moment,
                Some(Format::Duration) => Sort::Duration,
                Some(Format::Byte) => Sort::Bytes,
                _ => Sort::Text,
            },
            _ => Sort::Any,
        }
    }

    /// What is said of a member.
    pub fn of(self, name: &str) -> Member<'s> {
        let rules = &self.arena.node(self.node).object;
        match (rules.property(name), &rules.additional) {
            (Some(property), _) => Member::Declared(Self { node: property.node, ..self }),
            (None, Additional::Node(node)) => Member::Additional(Self { node: *node, ..self }),
            (None, Additional::Preserved) => Member::Free,
            (None, Additional::Unknown) => Member::Unknown,
        }
    }

    /// The place of a list's items.
    pub fn items(self) -> Option<Self> {
        let node = self.arena.node(self.node).list.as_ref()?.items?;
        Some(Self { node, ..self })
    }

    /// Whether the schema names a member.
    pub(crate) fn declares(self, name: &str) -> bool {
        self.arena.node(self.node).object.property(name).is_some()
    }

    /// The value that a member gets where it is left out.
    pub fn default(self, name: &str) -> Option<&'s Value> {
        self.arena.node(self.node).object.property(name)?.default.as_ref()
    }

    /// Whether an object here is one value, and not its members apart.
    pub(crate) fn is_atomic(self) -> bool {
        self.arena.node(self.node).object.is_atomic
    }

    /// What a list here is.
    pub fn list_kind(self) -> ListKind<'s> {
        match self.arena.node(self.node).list.as_ref().map(|rules| &rules.kind) {
            None | Some(ListType::Atomic) => ListKind::Atomic,
            Some(ListType::Set) => ListKind::Set,
            Some(ListType::Map(keys)) => ListKind::Map(keys),
        }
    }
}
