//! The compiled form of a schema: nodes in an arena, referring to each other by index.
//!
//! Invariant: every `NodeId` and pattern index in a finished arena is in range.

use regex::Regex;
use serde_json::{Number, Value};

use super::Range;

/// Index of a node in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(pub(super) u32);

#[derive(Debug, Default)]
pub(super) struct Arena {
    pub(super) nodes: Vec<Node>,
    pub(super) patterns: Vec<Regex>,
    /// Whether an integer has neither a fraction nor an exponent. Where not, `1e3` is 1000.
    pub(super) writes_integers_plainly: bool,
}

impl Arena {
    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }
}

/// One schema: what values may stand in one place. Rules that few schemas have are boxed.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) types: Types,
    pub(super) format: Option<Format>,
    pub(super) is_nullable: bool,
    /// A quantity of a built-in type, kept in canonical form.
    pub(super) is_quantity: bool,
    pub(super) allowed: Option<Box<[Value]>>,
    pub(super) number: Option<Box<NumberRules>>,
    pub(super) text: Option<Box<TextRules>>,
    pub(super) list: Option<Box<ListRules>>,
    pub(super) object: ObjectRules,
    pub(super) junctors: Option<Box<Junctors>>,
}

#[derive(Debug, Default)]
pub(super) struct NumberRules {
    pub(super) minimum: Option<Number>,
    pub(super) is_minimum_exclusive: bool,
    pub(super) maximum: Option<Number>,
    pub(super) is_maximum_exclusive: bool,
    pub(super) multiple_of: Option<Number>,
}

#[derive(Debug, Default)]
pub(super) struct TextRules {
    pub(super) len_min: Option<u64>,
    pub(super) len_max: Option<u64>,
    /// Index into the arena's patterns.
    pub(super) pattern: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct ListRules {
    pub(super) items: Option<NodeId>,
    pub(super) len_min: Option<u64>,
    pub(super) len_max: Option<u64>,
    pub(super) kind: ListType,
    /// Whether items must differ: by their keys if they have some.
    pub(super) is_unique: bool,
}

/// What a list is (`x-kubernetes-list-type`).
#[derive(Debug, Default)]
pub(super) enum ListType {
    #[default]
    Atomic,
    /// Values that stand for themselves.
    Set,
    /// Objects that these members tell apart.
    Map(Box<[Box<str>]>),
}

#[derive(Debug, Default)]
pub(super) struct ObjectRules {
    /// Whether it is one value (`x-kubernetes-map-type: atomic`).
    pub(super) is_atomic: bool,
    /// In the order of [`Property::order`].
    pub(super) properties: Box<[Property]>,
    /// Indices of the properties that have a default.
    pub(super) defaulted: Box<[u32]>,
    pub(super) additional: Additional,
    pub(super) required: Box<[Box<str>]>,
    pub(super) len_min: Option<u64>,
    pub(super) len_max: Option<u64>,
}

impl ObjectRules {
    pub(super) fn property(&self, name: &str) -> Option<&Property> {
        let index =
            self.properties.binary_search_by(|property| Property::order(&property.name).cmp(&Property::order(name)));
        index.ok().map(|index| &self.properties[index])
    }
}

#[derive(Debug)]
pub(super) struct Property {
    pub(super) name: Box<str>,
    pub(super) node: NodeId,
    /// Said beside a `$ref`, so not part of the node.
    pub(super) is_nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) merging: Option<Merging>,
    /// What numbers may be, or those of a list.
    pub(super) range: Option<Range>,
}

impl Property {
    /// Properties are looked up by this: length first, as most names differ in it, and comparing numbers is all it takes then.
    pub(super) fn order(name: &str) -> (usize, &str) {
        (name.len(), name)
    }
}

/// What a strategic merge patch does with a field (`x-kubernetes-patch-strategy`), where that is not the usual: objects are
/// merged, lists replaced.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Merging {
    /// Lists are merged: items of which this member is equal are one; without it equal scalars are.
    Merge {
        key: Option<Box<str>>,
    },
    Replace,
}

/// What happens to members that no property names.
#[derive(Debug, Default)]
pub(super) enum Additional {
    #[default]
    Unknown,
    /// They are kept as they are.
    Preserved,
    /// They follow a schema.
    Node(NodeId),
}

#[derive(Debug, Default)]
pub(super) struct Junctors {
    pub(super) all_of: Box<[NodeId]>,
    pub(super) any_of: Box<[NodeId]>,
    pub(super) one_of: Box<[NodeId]>,
    pub(super) not: Option<NodeId>,
}

/// A set of JSON types; empty stands for any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const INTEGER: Self = Self(1);
    pub(super) const NUMBER: Self = Self(2);
    pub(super) const STRING: Self = Self(4);
    pub(super) const BOOLEAN: Self = Self(8);
    pub(super) const OBJECT: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    /// In the order upstream names them.
    const NAMES: [(Self, &'static str); 6] = [
        (Self::INTEGER, "integer"),
        (Self::NUMBER, "number"),
        (Self::STRING, "string"),
        (Self::BOOLEAN, "boolean"),
        (Self::OBJECT, "object"),
        (Self::ARRAY, "array"),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(types, _)| *types)
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether numbers must be whole.
    pub(super) const fn is_integer(self) -> bool {
        self.has(Self::INTEGER) && !self.has(Self::NUMBER)
    }

    pub(super) const fn is_any(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn admits(self, value: &Value) -> bool {
        self.is_any()
            || match value {
                Value::Null => false,
                Value::Bool(_) => self.has(Self::BOOLEAN),
                Value::Number(number) => self.has(Self::NUMBER) || (self.has(Self::INTEGER) && is_whole(number)),
                Value::String(_) => self.has(Self::STRING),
                Value::Array(_) => self.has(Self::ARRAY),
                Value::Object(_) => self.has(Self::OBJECT),
            }
    }

    /// The names joined by commas.
    pub(super) fn names(self) -> String {
        let names: Vec<&str> =
            Self::NAMES.iter().filter(|(types, _)| self.has(*types)).map(|(_, name)| *name).collect();
        names.join(",")
    }
}

fn is_whole(number: &Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

/// The type of a value by upstream's name.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The formats that are checked; all others say something to people only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Int32,
    Int64,
    DateTime,
    Date,
    Duration,
    Byte,
    Ipv4,
    Ipv6,
    Cidr,
    Uuid,
}

impl Format {
    const NAMES: [(Self, &'static str); 10] = [
        (Self::Int32, "int32"),
        (Self::Int64, "int64"),
        (Self::DateTime, "date-time"),
        (Self::Date, "date"),
        (Self::Duration, "duration"),
        (Self::Byte, "byte"),
        (Self::Ipv4, "ipv4"),
        (Self::Ipv6, "ipv6"),
        (Self::Cidr, "cidr"),
        (Self::Uuid, "uuid"),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(format, _)| *format)
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(format, _)| *format == self).map_or("", |(_, name)| *name)
    }
}
