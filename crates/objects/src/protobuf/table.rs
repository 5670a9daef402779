//! The table of messages: numbers, JSON names, types, and when a field is in the JSON.
//!
//! It is text, a line each: `group apps/v1 apps.v1` says in which package the kinds of an API version are, `message NAME`
//! or `union NAME` begins a message, and its fields follow as `NUMBER NAME TYPE`. The name `.` is of a message whose fields
//! are those of the message around it. A type is a word of [`Kind`] or a message, after `[]` in a list and `{}` in a map
//! by text; behind it stands its [`Presence`].

use std::collections::HashMap;

use thiserror::Error;

/// The name of a field whose fields are those of the message around it.
pub(super) const INLINE: &str = ".";

/// The messages of all built-in kinds, by the name that the table gives them.
#[derive(Debug)]
pub struct Types {
    pub(super) messages: Vec<Message>,
    by_name: HashMap<String, usize>,
    /// Packages by API version.
    packages: HashMap<String, String>,
}

/// What a message is made of, and how it looks in JSON.
#[derive(Debug)]
pub struct Message {
    /// As `core.v1.Pod`.
    pub name: String,
    /// In the table's order.
    pub fields: Vec<Field>,
    /// Whether its JSON is that of its first field that is set.
    pub is_union: bool,
}

/// A field of a message: its number and type in protobuf, its name and presence in JSON.
#[derive(Debug)]
pub struct Field {
    /// Its number on the wire.
    pub number: u32,
    /// Its name in JSON.
    pub name: String,
    /// How often it is there.
    pub shape: Shape,
    /// What is in it.
    pub kind: Kind,
    /// When it is in the JSON.
    pub presence: Presence,
}

/// How often a field is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    One,
    /// Once; its fields are those of the message around it.
    Inline,
    /// Any number of times, in an order.
    List,
    /// Any number of times, each with its own key.
    Map,
}

/// What is in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    Int32,
    Int64,
    Double,
    String,
    Bytes,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// A message with JSON in it.
    Json,
    /// A message with a list of texts in it.
    Strings,
    /// A message of the table.
    Message(usize),
}

/// When a field is in the JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// No mark: always, with its zero where nothing was sent.
    Always,
    /// `?`: where it was sent, whatever its value.
    OnWire,
    /// `~`: where it is not zero or empty.
    NotZero,
    /// `!`: always, as null where it was not sent.
    OrNull,
}

/// Why a table can't be used.
#[derive(Debug, Error)]
#[error("line {line} of the table of messages: {cause}")]
pub struct TableError {
    line: usize,
    cause: &'static str,
}

impl Types {
    /// Reads the text of a table; the error names the line. A type must be a word of [`Kind`] or a message of the table.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut types = Self { messages: Vec::new(), by_name: HashMap::new(), packages: HashMap::new() };
        let lines = || text.lines().zip(1..).filter(|(text, _)| !text.starts_with('#'));
        for (text, line) in lines() {
            match text.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["group", version, package] => {
                    types.packages.insert((*version).to_owned(), (*package).to_owned());
                }
                [word @ ("message" | "union"), name] => {
                    let is_union = *word == "union";
                    if types.by_name.insert((*name).to_owned(), types.messages.len()).is_some() {
                        return Err(TableError { line, cause: "the message is there already" });
                    }
                    types.messages.push(Message { name: (*name).to_owned(), fields: Vec::new(), is_union });
                }
                [_, _, _] => {}
                _ => return Err(TableError { line, cause: "it is no group, message, union or field" }),
            }
        }
        let mut current = 0;
        for (text, line) in lines() {
            match text.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["group", ..] => {}
                ["message" | "union", name] => current = types.by_name[*name],
                words => {
                    let field = types.field(words).map_err(|cause| TableError { line, cause })?;
                    let message = types.messages.get_mut(current);
                    message.ok_or(TableError { line, cause: "a field before any message" })?.fields.push(field);
                }
            }
        }
        Ok(types)
    }

    fn field(&self, words: &[&str]) -> Result<Field, &'static str> {
        let [number, name, kind] = words else { return Err("a field has three words") };
        let number = number.parse().map_err(|_| "a field begins with its number")?;
        let (kind, presence) = match kind.split_at_checked(kind.len().saturating_sub(1)) {
            Some((kind, "?")) => (kind, Presence::OnWire),
            Some((kind, "~")) => (kind, Presence::NotZero),
            Some((kind, "!")) => (kind, Presence::OrNull),
            _ => (*kind, Presence::Always),
        };
        let one = if *name == INLINE { Shape::Inline } else { Shape::One };
        let (kind, shape) = match (kind.strip_prefix("[]"), kind.strip_prefix("{}")) {
            (Some(kind), _) => (kind, Shape::List),
            (_, Some(kind)) => (kind, Shape::Map),
            _ => (kind, one),
        };
        let kind = match kind {
            "bool" => Kind::Bool,
            "int32" => Kind::Int32,
            "int64" => Kind::Int64,
            "double" => Kind::Double,
            "string" => Kind::String,
            "bytes" => Kind::Bytes,
            "Time" => Kind::Time,
            "MicroTime" => Kind::MicroTime,
            "Quantity" => Kind::Quantity,
            "IntOrString" => Kind::IntOrString,
            "JSON" => Kind::Json,
            "strings" => Kind::Strings,
            name => Kind::Message(*self.by_name.get(name).ok_or("there is no such message")?),
        };
        Ok(Field { number, name: (*name).to_owned(), shape, kind, presence })
    }

    /// The messages in the order of the table.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// A message by its name in the table.
    pub fn message(&self, name: &str) -> Option<&Message> {
        self.by_name.get(name).map(|index| &self.messages[*index])
    }

    /// The package of an API version.
    pub(super) fn package(&self, version: &str) -> Option<&str> {
        self.packages.get(version).map(String::as_str)
    }
}

impl Message {
    pub(super) fn field(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|field| field.number == number)
    }
}

impl Kind {
    /// Whether lists of it may be packed into one value.
    pub(super) fn is_varint(self) -> bool {
        matches!(self, Self::Bool | Self::Int32 | Self::Int64)
    }
}
