//! Kubernetes' protobuf bodies as the JSON that Kubernetes itself would make of them.
//!
//! Invariant: for what Kubernetes' encoder wrote, [`Types::decode`] gives what its decoder and then its JSON encoder give;
//! for any other bytes an error, never a panic, and memory in proportion to their number. What [`Types::encode_message`]
//! wrote is read as the same JSON. The API server reads bodies, the fleet reads and writes the messages in its own ones.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use thiserror::Error;

mod encode;
mod table;
mod wire;

pub use table::{Field, Kind, Message, Presence, Shape, TableError, Types};
use wire::{Datum, Reader};

/// What a body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting of what is made of a body.
const DEPTH_MAX: usize = 96;
/// Most fields, set or filled with their zero, of all messages of a body.
const FIELDS_MAX: usize = 1_000_000;
/// The zero of Go's time, in seconds since 1970.
const ZERO_TIME: i64 = -62_135_596_800;
/// Read whatever group it is said to be of.
const OPTIONS: (&str, &str) = ("DeleteOptions", "meta.v1.DeleteOptions");

static BUILTIN: LazyLock<Types> = LazyLock::new(|| {
    Types::parse(include_str!("../schemas/protobuf.txt")).expect("the committed table is sound: a test reads it")
});

/// The messages of Kubernetes' own kinds, from the table that `cargo xtask protobuf` writes.
pub fn builtin() -> &'static Types {
    &BUILTIN
}

/// Why bytes can't be read as a message, or JSON can't be written as one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{}{cause}", .path, if .path.is_empty() { "" } else { ": " })]
pub struct ProtobufError {
    /// The field where it is broken.
    path: String,
    cause: Cause,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum Cause {
    #[error("it does not begin with \"k8s\" and a zero byte")]
    Magic,
    #[error("it breaks off")]
    Truncated,
    #[error("a number or a tag is malformed")]
    Malformed,
    #[error("the value is of another type")]
    WireType,
    #[error("text is not valid UTF-8")]
    Utf8,
    #[error("not valid JSON within: {0}")]
    Json(String),
    #[error("no such time")]
    Time,
    #[error("nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("more than {FIELDS_MAX} fields")]
    TooMany,
    #[error("content encoding {0:?} is not read")]
    Encoding(String),
    #[error("there is no protobuf form of kind {kind:?} in version {version:?}: send JSON")]
    Kind { version: String, kind: String },
    #[error("there is no message {0:?}")]
    Message(String),
    #[error("there is no such field")]
    Unknown,
    #[error("it must be {0}")]
    Expected(&'static str),
}

impl From<Cause> for ProtobufError {
    fn from(cause: Cause) -> Self {
        Self { path: String::new(), cause }
    }
}

impl ProtobufError {
    fn within(mut self, field: &str) -> Self {
        let is_joined = self.path.is_empty() || self.path.starts_with('[') || field == table::INLINE;
        let dot = if is_joined { "" } else { "." };
        let field = if field == table::INLINE { "" } else { field };
        self.path = format!("{field}{dot}{}", self.path);
        self
    }
}

type Result<T> = std::result::Result<T, ProtobufError>;

impl Types {
    /// The object in a body: the envelope, then the message that it names.
    pub fn decode(&self, body: &[u8]) -> Result<Value> {
        let envelope = Envelope::read(body.strip_prefix(MAGIC).ok_or(Cause::Magic)?)?;
        let options = if envelope.kind == OPTIONS.0 { self.message(OPTIONS.1) } else { None };
        let of_group = || self.message(&format!("{}.{}", self.package(&envelope.version)?, envelope.kind));
        let Some(message) = options.or_else(of_group) else {
            return Err(Cause::Kind { version: envelope.version, kind: envelope.kind }.into());
        };
        let mut object = Map::new();
        object.insert("apiVersion".to_owned(), Value::String(envelope.version));
        object.insert("kind".to_owned(), Value::String(envelope.kind));
        self.read(message, envelope.raw, &mut object)?;
        Ok(Value::Object(object))
    }

    /// One message without an envelope: `message` is its name in the table, as `core.v1.PodSpec`.
    pub fn decode_message(&self, message: &str, bytes: &[u8]) -> Result<Value> {
        let message = self.message(message).ok_or_else(|| Cause::Message(message.to_owned()))?;
        let mut object = Map::new();
        self.read(message, bytes, &mut object)?;
        Ok(if message.is_union { union(message, object) } else { Value::Object(object) })
    }

    fn read(&self, message: &Message, bytes: &[u8], object: &mut Map<String, Value>) -> Result<()> {
        Decoder { types: self, fields_left: FIELDS_MAX }.message(message, bytes, object, 1)
    }
}

/// `runtime.Unknown`.
#[derive(Default)]
struct Envelope<'b> {
    version: String,
    kind: String,
    raw: &'b [u8],
}

impl<'b> Envelope<'b> {
    fn read(bytes: &'b [u8]) -> Result<Self> {
        let mut envelope = Self::default();
        let mut reader = Reader::new(bytes);
        while let Some((number, datum)) = reader.next()? {
            match number {
                1 => {
                    let mut reader = Reader::new(datum.bytes()?);
                    while let Some((number, datum)) = reader.next()? {
                        match number {
                            1 => datum.text()?.clone_into(&mut envelope.version),
                            2 => datum.text()?.clone_into(&mut envelope.kind),
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = datum.bytes()?,
                3 if !datum.bytes()?.is_empty() => return Err(Cause::Encoding(datum.text()?.to_owned()).into()),
                _ => {}
            }
        }
        Ok(envelope)
    }
}

struct Decoder<'t> {
    types: &'t Types,
    fields_left: usize,
}

impl Decoder<'_> {
    /// Reads a message into an object that may hold an earlier part of it.
    fn message(
        &mut self,
        message: &Message,
        bytes: &[u8],
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<()> {
        self.spend(1 + message.fields.len())?;
        let mut reader = Reader::new(bytes);
        while let Some((number, datum)) = reader.next()? {
            // What this server does not know is left out, as upstream.
            if let Some(field) = message.field(number) {
                self.spend(1)?;
                self.field(field, datum, object, depth).map_err(|error| error.within(&field.name))?;
            }
        }
        self.finish(message, object, depth)
    }

    fn spend(&mut self, fields: usize) -> Result<()> {
        self.fields_left = self.fields_left.checked_sub(fields).ok_or(Cause::TooMany)?;
        Ok(())
    }

    fn field(&mut self, field: &Field, datum: Datum<'_>, object: &mut Map<String, Value>, depth: usize) -> Result<()> {
        match (&field.shape, &field.kind) {
            (Shape::Inline, Kind::Message(inner)) => {
                let inner = &self.types.messages[*inner];
                return self.message(inner, datum.bytes()?, object, depth);
            }
            (Shape::Inline | Shape::One, kind) => {
                let before = object.remove(&field.name);
                let value = self.value(kind, datum, before, depth)?;
                object.insert(field.name.clone(), value);
            }
            (Shape::List, kind) => {
                let mut values = Vec::new();
                match datum {
                    Datum::Bytes(packed) if kind.is_varint() => {
                        let mut reader = Reader::new(packed);
                        while let Some(number) = reader.packed()? {
                            self.spend(1)?;
                            values.push(self.value(kind, Datum::Varint(number), None, depth + 1)?);
                        }
                    }
                    datum => values.push(self.value(kind, datum, None, depth + 1)?),
                }
                if let Value::Array(items) = object.entry(field.name.as_str()).or_insert_with(|| json!([])) {
                    items.append(&mut values);
                }
            }
            (Shape::Map, kind) => {
                let (mut key, mut value) = ("", None);
                let mut reader = Reader::new(datum.bytes()?);
                while let Some((number, datum)) = reader.next()? {
                    match number {
                        1 => key = datum.text()?,
                        2 => value = Some(datum),
                        _ => {}
                    }
                }
                let value = match value {
                    Some(datum) => self.value(kind, datum, None, depth + 1)?,
                    None => self.zero(kind, depth + 1)?,
                };
                if let Value::Object(entries) = object.entry(field.name.as_str()).or_insert_with(|| json!({})) {
                    entries.insert(key.to_owned(), value);
                }
            }
        }
        Ok(())
    }

    /// One value. `before` is an earlier part of the same one.
    fn value(&mut self, kind: &Kind, datum: Datum<'_>, before: Option<Value>, depth: usize) -> Result<Value> {
        if depth >= DEPTH_MAX {
            return Err(Cause::TooDeep.into());
        }
        Ok(match kind {
            Kind::Bool => json!(datum.varint()? != 0),
            // Go takes the low bits, too.
            #[allow(clippy::cast_possible_truncation)]
            Kind::Int32 => json!(datum.varint()? as i32),
            Kind::Int64 => json!(datum.varint()?.cast_signed()),
            Kind::Double => number(datum.double()?)?,
            Kind::String => json!(datum.text()?),
            Kind::Bytes => json!(BASE64_STANDARD.encode(datum.bytes()?)),
            Kind::Time => time(datum.bytes()?, 0)?,
            Kind::MicroTime => time(datum.bytes()?, 6)?,
            Kind::Quantity => {
                let text = last(datum.bytes()?, 1)?.map(Datum::text).transpose()?.unwrap_or_default();
                json!(if text.is_empty() { "0" } else { text })
            }
            Kind::IntOrString => int_or_string(datum.bytes()?)?,
            Kind::Json => free_form(datum.bytes()?, depth)?,
            Kind::Strings => {
                let (mut items, mut reader) = (Vec::new(), Reader::new(datum.bytes()?));
                while let Some((_, datum)) = reader.next()? {
                    self.spend(1)?;
                    items.push(json!(datum.text()?));
                }
                Value::Array(items)
            }
            Kind::Message(index) => {
                let message = &self.types.messages[*index];
                let mut object = match before {
                    Some(Value::Object(object)) if !message.is_union => object,
                    _ => Map::new(),
                };
                self.message(message, datum.bytes()?, &mut object, depth + 1)?;
                if message.is_union { union(message, object) } else { Value::Object(object) }
            }
        })
    }

    /// What Go has where nothing was sent.
    fn zero(&mut self, kind: &Kind, depth: usize) -> Result<Value> {
        Ok(match kind {
            Kind::Bool => json!(false),
            Kind::Int32 | Kind::Int64 | Kind::Double => json!(0),
            Kind::String | Kind::Bytes => json!(""),
            Kind::Strings => Value::Null,
            _ => self.value(kind, Datum::Bytes(&[]), None, depth)?,
        })
    }

    /// Makes the object what Go's JSON encoder would write: some zeros are left out, some written.
    fn finish(&mut self, message: &Message, object: &mut Map<String, Value>, depth: usize) -> Result<()> {
        for field in &message.fields {
            let value = object.get(&field.name);
            match (field.presence, &field.shape, &field.kind) {
                (_, Shape::Inline, Kind::Message(inner)) => {
                    let inner = &self.types.messages[*inner];
                    self.spend(inner.fields.len())?;
                    self.finish(inner, object, depth)?;
                }
                (Presence::OnWire, ..) => {}
                (Presence::NotZero, ..) => {
                    if value.is_some_and(is_zero) {
                        object.remove(&field.name);
                    }
                }
                (Presence::OrNull, ..) => {
                    object.entry(field.name.as_str()).or_insert(Value::Null);
                }
                (Presence::Always, _, kind) if value.is_none() => {
                    let zero = self.zero(kind, depth)?;
                    object.insert(field.name.clone(), zero);
                }
                (Presence::Always, ..) => {}
            }
        }
        Ok(())
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The field of a union that counts: fields stand in the table in the order in which they do. Where none is set, a flag is
/// false, as Go writes `additionalProperties`, and all else null.
fn union(message: &Message, mut object: Map<String, Value>) -> Value {
    let has_flag = || message.fields.iter().any(|field| field.kind == Kind::Bool);
    let set = message.fields.iter().find_map(|field| object.remove(&field.name));
    set.unwrap_or_else(|| if has_flag() { json!(false) } else { Value::Null })
}

/// The last value of a field.
fn last(bytes: &[u8], wanted: u32) -> Result<Option<Datum<'_>>> {
    let (mut found, mut reader) = (None, Reader::new(bytes));
    while let Some((number, datum)) = reader.next()? {
        if number == wanted {
            found = Some(datum);
        }
    }
    Ok(found)
}

fn varint_of(bytes: &[u8], number: u32) -> Result<i64> {
    Ok(last(bytes, number)?.map(Datum::varint).transpose()?.unwrap_or_default().cast_signed())
}

/// A number of Go's as its JSON encoder writes it: whole ones without a point.
fn number(double: f64) -> Result<Value> {
    /// Below this, every whole number is exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[allow(clippy::cast_possible_truncation)]
    if double.fract() == 0.0 && double.abs() < EXACT {
        return Ok(json!(double as i64));
    }
    serde_json::Number::from_f64(double).map(Value::Number).ok_or_else(|| Cause::Malformed.into())
}

/// `Timestamp`: seconds and, where they count, microseconds of the nanoseconds.
fn time(bytes: &[u8], digits: usize) -> Result<Value> {
    let seconds = varint_of(bytes, 1)?;
    if bytes.is_empty() || seconds == ZERO_TIME {
        return Ok(Value::Null);
    }
    let nanoseconds = if digits == 0 { 0 } else { varint_of(bytes, 2)? };
    let nanoseconds = i32::try_from(nanoseconds).map_err(|_| Cause::Time)? / 1_000 * 1_000;
    let moment = Timestamp::new(seconds, nanoseconds).map_err(|_| Cause::Time)?;
    Ok(json!(format!("{moment:.digits$}")))
}

fn int_or_string(bytes: &[u8]) -> Result<Value> {
    match varint_of(bytes, 1)? {
        0 => Ok(json!(i32::try_from(varint_of(bytes, 2)?).map_err(|_| Cause::Malformed)?)),
        1 => Ok(json!(last(bytes, 3)?.map(Datum::text).transpose()?.unwrap_or_default())),
        _ => Err(Cause::Malformed.into()),
    }
}

/// JSON as it stands in a message's field `raw`.
fn free_form(bytes: &[u8], depth: usize) -> Result<Value> {
    let raw = last(bytes, 1)?.map(Datum::bytes).transpose()?.unwrap_or_default();
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let value: Value = serde_json::from_slice(raw).map_err(|error| Cause::Json(error.to_string()))?;
    if !is_within(&value, DEPTH_MAX.saturating_sub(depth)) {
        return Err(Cause::TooDeep.into());
    }
    Ok(value)
}

/// Whether a value has no more levels of nesting.
fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| is_within(field, levels - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
