//! Request bodies into JSON values: size, depth, encoding, duplicate fields.
//!
//! Invariant: no body, however made, panics or uses memory beyond a small multiple of [`BODY_BYTES_MAX`].
//! Called by the verbs that take a body.

use std::fmt;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use pumice_objects::protobuf::{self, ProtobufError};
use pumice_objects::status::Status;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Largest request body, in bytes, as upstream.
pub(crate) const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Most bytes of a body that are read and thrown away before it is refused.
const DRAINED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Deepest nesting of a body.
pub(crate) const DEPTH_MAX: usize = 96;
/// Most duplicate fields that are reported.
const DUPLICATES_MAX: usize = 32;
/// Longest time a client may take to send its body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a body can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error(
        "the request body is larger than {BODY_BYTES_MAX} bytes: limit is 3145728; split the object or store its data elsewhere"
    )]
    TooLarge,
    #[error("the request body broke off: {0}")]
    Read(String),
    #[error("the request body did not arrive within {} s", BODY_TIMEOUT.as_secs())]
    Slow,
    #[error("there is no room for more request bodies")]
    NoRoom,
    #[error("the request body is not valid UTF-8")]
    NotUtf8,
    #[error("the request body is not valid JSON: {0}")]
    Json(String),
    #[error("the request body is not valid YAML: {0}")]
    Yaml(String),
    #[error("the request body is not valid protobuf: {0}")]
    Protobuf(#[from] ProtobufError),
}

/// Reads a body into one buffer.
pub(crate) async fn read<B>(body: B) -> Result<Bytes, DecodeError>
where
    B: http_body::Body,
    B::Error: fmt::Display,
{
    read_charged(body, |_| true).await
}

/// The same; `charge` is told of bytes that are about to be kept, and says whether there is room for them.
pub(crate) async fn read_charged<B>(body: B, charge: impl FnMut(usize) -> bool) -> Result<Bytes, DecodeError>
where
    B: http_body::Body,
    B::Error: fmt::Display,
{
    tokio::time::timeout(BODY_TIMEOUT, collect(body, charge)).await.map_err(|_| DecodeError::Slow)?
}

async fn collect<B>(body: B, mut charge: impl FnMut(usize) -> bool) -> Result<Bytes, DecodeError>
where
    B: http_body::Body,
    B::Error: fmt::Display,
{
    let mut body = std::pin::pin!(body);
    let mut whole = BytesMut::new();
    let mut arrived = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| DecodeError::Read(error.to_string()))?;
        let Ok(mut data) = frame.into_data() else { continue };
        let length = data.remaining();
        arrived += length;
        if arrived > DRAINED_BYTES_MAX {
            return Err(DecodeError::TooLarge);
        }
        if arrived > BODY_BYTES_MAX {
            // A client of HTTP/1.1 that still writes would see a broken connection in place of the answer.
            whole = BytesMut::new();
            continue;
        }
        if !charge(length) {
            return Err(DecodeError::NoRoom);
        }
        whole.extend_from_slice(&data.copy_to_bytes(length));
    }
    if arrived > BODY_BYTES_MAX { Err(DecodeError::TooLarge) } else { Ok(whole.freeze()) }
}

#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// Paths of fields that stood more than once; the last one won.
    pub(crate) duplicates: Vec<String>,
}

/// What a body is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
    Protobuf,
}

pub(crate) fn decode(bytes: &[u8], format: Format) -> Result<Decoded, DecodeError> {
    if format == Format::Protobuf {
        return Ok(Decoded { value: protobuf::builtin().decode(bytes)?, duplicates: Vec::new() });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)?;
    if format == Format::Yaml {
        // As YAML 1.2: a name such as `y` or `no` stays text.
        let options = serde_saphyr::options! { strict_booleans: true };
        let Yaml(value) = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| DecodeError::Yaml(first_line(&error)))?;
        return Ok(Decoded { value, duplicates: Vec::new() });
    }
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    let path = Path { parent: None, step: Step::Root, depth: 0 };
    let value = Tree { path: &path, duplicates: &mut duplicates }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| DecodeError::Json(error.to_string()))?;
    Ok(Decoded { value, duplicates })
}

fn first_line(error: &impl fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().chars().take(400).collect()
}

struct Yaml(Value);

impl<'de> de::Deserialize<'de> for Yaml {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = Path { parent: None, step: Step::Root, depth: 0 };
        Tree { path: &path, duplicates: &mut Vec::new() }.deserialize(deserializer).map(Self)
    }
}

/// Where the reader stands; lives on the stack, so an ordinary body pays nothing for it.
struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    step: Step<'p>,
    depth: usize,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Field(&'p str),
    Item(usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if self.parent.is_some_and(|parent| parent.parent.is_some()) => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Item(index) => write!(f, "[{index}]"),
        }
    }
}

struct Tree<'p, 'd> {
    path: &'p Path<'p>,
    duplicates: &'d mut Vec<String>,
}

impl<'p> Tree<'p, '_> {
    fn below<E: de::Error>(&self, step: Step<'p>) -> Result<Path<'p>, E> {
        if self.path.depth >= DEPTH_MAX {
            return Err(E::custom(format_args!("nested deeper than {DEPTH_MAX} levels")));
        }
        Ok(Path { parent: Some(self.path), step, depth: self.path.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_, '_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that JSON can't hold"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let path = self.below(Step::Item(items.len()))?;
            let Some(item) = sequence.next_element_seed(Tree { path: &path, duplicates: self.duplicates })? else {
                return Ok(Value::Array(items));
            };
            items.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = {
                let path = Path { parent: Some(self.path), ..self.below(Step::Field(&name))? };
                let value = entries.next_value_seed(Tree { path: &path, duplicates: self.duplicates })?;
                if fields.contains_key(&name) && self.duplicates.len() < DUPLICATES_MAX {
                    self.duplicates.push(path.to_string());
                }
                value
            };
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

impl From<DecodeError> for Status {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooLarge => Self::too_large(error),
            DecodeError::Slow => Self::timeout(error),
            _ => Self::bad_request(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_named_and_the_last_wins() {
        let decoded =
            decode(br#"{"a":{"b":[{"c":1,"c":2}]},"a":{"b":[{"c":3,"c":4}]}}"#, Format::Json).expect("decodes");
        assert_eq!(decoded.duplicates, ["a.b[0].c", "a.b[0].c", "a"]);
        assert_eq!(decoded.value, serde_json::json!({"a": {"b": [{"c": 4}]}}));
    }

    #[test]
    fn yaml_is_read_as_json() {
        let decoded = decode(b"a: 1\nb: [true, 'x', null]\nc: {d: 0.5}\n", Format::Yaml).expect("decodes");
        assert_eq!(decoded.value, serde_json::json!({"a": 1, "b": [true, "x", null], "c": {"d": 0.5}}));
    }

    #[test]
    fn broken_bodies_are_errors() {
        let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
        let deep_fields = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
        for text in ["", "{", "{\"a\":}", "{} {}", "nul", deep.as_str(), deep_fields.as_str(), "1e999"] {
            assert!(decode(text.as_bytes(), Format::Json).is_err(), "{:.20}", text);
        }
        assert!(matches!(decode(b"\"\xff\"", Format::Json), Err(DecodeError::NotUtf8)));
        for text in ["a: [", "a: 1\na: 2\n", "a: .nan\n", deep.as_str()] {
            assert!(decode(text.as_bytes(), Format::Yaml).is_err(), "{:.20}", text);
        }
    }

    #[tokio::test]
    async fn large_bodies_are_refused() {
        let body = http_body_util::Full::new(Bytes::from(vec![b' '; BODY_BYTES_MAX + 1]));
        assert!(matches!(read(body).await, Err(DecodeError::TooLarge)));
    }

    proptest::proptest! {
        #[test]
        fn no_body_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), yaml: bool) {
            let _ = decode(&bytes, if yaml { Format::Yaml } else { Format::Json });
        }

        #[test]
        fn json_survives(text in "[{}\\[\\]:,\"a0.\\-\\\\ ]{0,60}") {
            let ours = decode(text.as_bytes(), Format::Json).ok().map(|decoded| decoded.value);
            let theirs = serde_json::from_str::<Value>(&text).ok();
            proptest::prop_assert_eq!(ours, theirs);
        }
    }
}
