//! JSON in Kubernetes' form as protobuf messages: the inverse of reading.
//!
//! Invariant: what is written is read as the JSON that Kubernetes would make of the same input: null is nothing, quantities
//! are canonical, times are in UTC. Fields stand in the order of their numbers and maps in that of their keys, so equal
//! input gives equal bytes. Whatever the table does not know is refused: it would be lost.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use pumice_units::Quantity;
use serde_json::{Map, Value};

use super::table::{Field, Kind, Message, Presence, Shape, Types};
use super::wire::Writer;
use super::{Cause, DEPTH_MAX, ProtobufError, Result, ZERO_TIME, is_within, is_zero};

/// What objects have beside the fields of their messages.
const TYPE_META: [&str; 2] = ["apiVersion", "kind"];

impl Types {
    /// One message without an envelope, of JSON in Kubernetes' form; `message` is its name in the table, as
    /// `core.v1.PodSpec`. Of whole objects, `apiVersion` and `kind` are left out: an envelope has them.
    ///
    /// # Errors
    /// Where a field is unknown or its value is of another type, with the path to it, and where values are nested too deep.
    pub fn encode_message(&self, message: &str, value: &Value) -> Result<Vec<u8>> {
        let message = self.message(message).ok_or_else(|| Cause::Message(message.to_owned()))?;
        let mut writer = Writer::default();
        let encoder = Encoder { types: self };
        match value {
            Value::Object(object) if message.fields.iter().any(|field| field.name == "metadata") => {
                let mut object = object.clone();
                object.retain(|name, _| !TYPE_META.contains(&name.as_str()));
                encoder.fields(message, &object, &mut writer, 1)?;
                encoder.check_names(message, &object)?;
            }
            value => encoder.message(message, value, &mut writer, 1)?,
        }
        Ok(writer.written)
    }
}

struct Encoder<'t> {
    types: &'t Types,
}

impl Encoder<'_> {
    /// Writes the content of a message.
    fn message(&self, message: &Message, value: &Value, writer: &mut Writer, depth: usize) -> Result<()> {
        match value {
            Value::Null => Ok(()),
            value if message.is_union => {
                let field = message.fields.iter().find(|field| fits(field, value));
                let field = field.ok_or(Cause::Expected("of a type that this field can have"))?;
                self.field(field, value, writer, depth)
            }
            Value::Object(object) => {
                self.check_names(message, object)?;
                self.fields(message, object, writer, depth)
            }
            _ => Err(Cause::Expected("an object").into()),
        }
    }

    fn check_names(&self, message: &Message, object: &Map<String, Value>) -> Result<()> {
        match object.keys().find(|name| !self.has(message, name)) {
            Some(name) => Err(ProtobufError::from(Cause::Unknown).within(name)),
            None => Ok(()),
        }
    }

    fn has(&self, message: &Message, name: &str) -> bool {
        message.fields.iter().any(|field| match (field.shape, field.kind) {
            (Shape::Inline, Kind::Message(inner)) => self.has(&self.types.messages[inner], name),
            _ => field.name == name,
        })
    }

    fn fields(&self, message: &Message, object: &Map<String, Value>, writer: &mut Writer, depth: usize) -> Result<()> {
        for field in &message.fields {
            if let (Shape::Inline, Kind::Message(inner)) = (field.shape, field.kind) {
                let mut content = Writer::default();
                self.fields(&self.types.messages[inner], object, &mut content, depth)?;
                if !content.written.is_empty() {
                    writer.bytes(field.number, &content.written);
                }
                continue;
            }
            if let Some(value) = object.get(&field.name).filter(|value| !value.is_null()) {
                let is_left_out = field.presence == Presence::NotZero && is_zero(value);
                // What is left out has to be of its type, too.
                let writer = if is_left_out { &mut Writer::default() } else { &mut *writer };
                self.field(field, value, writer, depth).map_err(|error| error.within(&field.name))?;
            }
        }
        Ok(())
    }

    fn field(&self, field: &Field, value: &Value, writer: &mut Writer, depth: usize) -> Result<()> {
        match field.shape {
            Shape::Inline | Shape::One => self.value(field.number, field.kind, value, writer, depth),
            Shape::List => {
                let items = value.as_array().ok_or(Cause::Expected("a list"))?;
                for (index, item) in items.iter().enumerate() {
                    self.value(field.number, field.kind, item, writer, depth + 1)
                        .map_err(|error| error.within(&format!("[{index}]")))?;
                }
                Ok(())
            }
            Shape::Map => {
                let entries = value.as_object().ok_or(Cause::Expected("an object"))?;
                let mut entries: Vec<_> = entries.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                for (key, value) in entries {
                    let mut entry = Writer::default();
                    entry.bytes(1, key.as_bytes());
                    // Null is what an entry without a value is read as.
                    if !value.is_null() {
                        self.value(2, field.kind, value, &mut entry, depth + 1).map_err(|error| error.within(key))?;
                    }
                    writer.bytes(field.number, &entry.written);
                }
                Ok(())
            }
        }
    }

    /// One value with its tag. Null is the zero that Go makes of it.
    fn value(&self, number: u32, kind: Kind, value: &Value, writer: &mut Writer, depth: usize) -> Result<()> {
        if depth >= DEPTH_MAX {
            return Err(Cause::TooDeep.into());
        }
        match kind {
            Kind::Bool => {
                let flag = zero_if_null(value, false, Value::as_bool).ok_or(Cause::Expected("true or false"))?;
                writer.varint(number, u64::from(flag));
            }
            Kind::Int32 | Kind::Int64 => {
                let whole = zero_if_null(value, 0, Value::as_i64).ok_or(Cause::Expected("a whole number"))?;
                if kind == Kind::Int32 && i32::try_from(whole).is_err() {
                    return Err(Cause::Expected("a whole number of 32 bits").into());
                }
                writer.varint(number, whole.cast_unsigned());
            }
            Kind::Double => {
                let double = zero_if_null(value, 0.0, Value::as_f64).ok_or(Cause::Expected("a number"))?;
                writer.double(number, double);
            }
            Kind::String => writer.bytes(number, text(value)?.as_bytes()),
            Kind::Bytes => {
                let decoded = BASE64_STANDARD.decode(text(value)?);
                writer.bytes(number, &decoded.map_err(|_| Cause::Expected("text in base64"))?);
            }
            kind => {
                let mut content = Writer::default();
                self.content(kind, value, &mut content, depth)?;
                writer.bytes(number, &content.written);
            }
        }
        Ok(())
    }

    /// What is in a value that is a message on the wire.
    fn content(&self, kind: Kind, value: &Value, writer: &mut Writer, depth: usize) -> Result<()> {
        match kind {
            Kind::Message(index) => return self.message(&self.types.messages[index], value, writer, depth + 1),
            Kind::Quantity => {
                let quantity = match value {
                    Value::Null => Ok(Quantity::ZERO),
                    Value::String(text) => text.parse(),
                    Value::Number(number) => number.to_string().parse(),
                    _ => return Err(Cause::Expected("a quantity").into()),
                };
                let quantity: Quantity = quantity.map_err(|_| Cause::Expected("a quantity"))?;
                writer.bytes(1, quantity.to_string().as_bytes());
            }
            _ if value.is_null() => {}
            Kind::Time => time(text(value)?, writer, false)?,
            Kind::MicroTime => time(text(value)?, writer, true)?,
            Kind::IntOrString => int_or_string(value, writer)?,
            Kind::Json => {
                if !is_within(value, DEPTH_MAX.saturating_sub(depth)) {
                    return Err(Cause::TooDeep.into());
                }
                writer.bytes(1, value.to_string().as_bytes());
            }
            Kind::Strings => {
                for item in value.as_array().ok_or(Cause::Expected("a list"))? {
                    writer.bytes(1, text(item)?.as_bytes());
                }
            }
            Kind::Bool | Kind::Int32 | Kind::Int64 | Kind::Double | Kind::String | Kind::Bytes => {
                unreachable!("`value` has written it")
            }
        }
        Ok(())
    }
}

/// Whether a field of a union is the one for a value.
fn fits(field: &Field, value: &Value) -> bool {
    match (field.shape, field.kind, value) {
        (Shape::List, _, value) => value.is_array(),
        (_, Kind::Message(_) | Kind::Json, value) => value.is_object(),
        (_, Kind::Bool, value) => value.is_boolean(),
        (_, Kind::String, value) => value.is_string(),
        _ => false,
    }
}

fn zero_if_null<T>(value: &Value, zero: T, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
    if value.is_null() { Some(zero) } else { read(value) }
}

fn text(value: &Value) -> Result<&str> {
    match value {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        _ => Err(Cause::Expected("text").into()),
    }
}

/// `Timestamp`: seconds and, where they count, the microseconds as nanoseconds.
fn time(text: &str, writer: &mut Writer, has_micros: bool) -> Result<()> {
    let moment: Timestamp = text.parse().map_err(|_| Cause::Expected("a time as RFC 3339 has it"))?;
    let nanoseconds = moment.as_nanosecond();
    let seconds = nanoseconds.div_euclid(1_000_000_000);
    let micros = if has_micros { nanoseconds.rem_euclid(1_000_000_000) / 1_000 } else { 0 };
    let seconds = i64::try_from(seconds).map_err(|_| Cause::Time)?;
    if seconds == ZERO_TIME {
        return Ok(());
    }
    writer.varint(1, seconds.cast_unsigned());
    if micros != 0 {
        writer.varint(2, u64::try_from(micros * 1_000).map_err(|_| Cause::Time)?);
    }
    Ok(())
}

fn int_or_string(value: &Value, writer: &mut Writer) -> Result<()> {
    match value {
        Value::String(text) => {
            writer.varint(1, 1);
            writer.bytes(3, text.as_bytes());
        }
        value => {
            let whole = value.as_i64().filter(|whole| i32::try_from(*whole).is_ok());
            let whole = whole.ok_or(Cause::Expected("text or a whole number of 32 bits"))?;
            writer.varint(1, 0);
            writer.varint(2, whole.cast_unsigned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
