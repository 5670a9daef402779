//! Keys of a file that mean nothing here: all of them, where a reader would stop at the first.
//!
//! Invariant: what else is wrong is not said here; whoever reads the file in earnest says it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::de::value::{Error, MapAccessDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// So many values of a file that can't be read are passed over.
const WRONG_MAX: usize = 100;

/// The keys that the type of a file does not know, each with those that it is under, as in `auth.users[0].mail`.
pub fn unknown_keys<T: DeserializeOwned>(file: &Value) -> BTreeSet<String> {
    let found = RefCell::default();
    // A value that can't be read ends the reading: it is passed over the next time.
    for _ in 0..WRONG_MAX {
        let is_read = T::deserialize(Part { value: file, path: String::new(), found: &found }).is_ok();
        let Found { wrong, passed, .. } = &mut *found.borrow_mut();
        match wrong.take() {
            Some(wrong) if !is_read && passed.insert(wrong.clone()) => {}
            _ => break,
        }
    }
    found.into_inner().unknown
}

#[derive(Default)]
struct Found {
    /// Keys that mean nothing.
    unknown: BTreeSet<String>,
    /// Where the value stands that could not be read.
    wrong: Option<String>,
    /// Where those stand that are passed over.
    passed: BTreeSet<String>,
}

/// A value of a file, and where it stands.
struct Part<'v> {
    value: &'v Value,
    path: String,
    found: &'v RefCell<Found>,
}

/// Reads a part of a file; notes the innermost one that can't be read.
fn read<'de, S: DeserializeSeed<'de>>(seed: S, part: Part<'de>) -> Result<S::Value, Error> {
    let (path, found) = (part.path.clone(), part.found);
    seed.deserialize(part).inspect_err(|_| {
        found.borrow_mut().wrong.get_or_insert(path);
    })
}

impl<'v> Part<'v> {
    /// The fields of an object, but for those that are not among the `known`.
    fn fields(&self, of: &'v Map<String, Value>, known: Option<&[&str]>) -> Fields<'v> {
        let (mut read, others): (Vec<_>, Vec<_>) =
            of.iter().partition(|(key, _)| known.is_none_or(|known| known.contains(&key.as_str())));
        let mut found = self.found.borrow_mut();
        found.unknown.extend(others.into_iter().map(|(key, _)| under(&self.path, key)));
        read.retain(|(key, _)| !found.passed.contains(&under(&self.path, key)));
        Fields { fields: read.into_iter(), next: None, path: self.path.clone(), found: self.found }
    }
}

fn under(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl<'de> Deserializer<'de> for Part<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (None, Some(number)) => visitor.visit_i64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => {
                let Part { path, found, .. } = self;
                visitor.visit_seq(Items { items: items.iter().enumerate(), path, found })
            }
            Value::Object(fields) => visitor.visit_map(self.fields(fields, None)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(fields) => visitor.visit_map(self.fields(fields, Some(known))),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(fields) => visitor.visit_enum(MapAccessDeserializer::new(self.fields(fields, None))),
            value => visitor.visit_enum(value.as_str().unwrap_or_default().into_deserializer()),
        }
    }

    /// YAML has no quotes round a text that could be a number.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Bool(_) | Value::Number(_) => visitor.visit_string(self.value.to_string()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct
        map identifier ignored_any
    }
}

struct Fields<'v> {
    fields: std::vec::IntoIter<(&'v String, &'v Value)>,
    next: Option<(&'v String, &'v Value)>,
    path: String,
    found: &'v RefCell<Found>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.next = self.fields.next();
        self.next.map(|(key, _)| seed.deserialize(key.as_str().into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (key, value) = self.next.take().ok_or_else(|| serde::de::Error::custom("a value before its key"))?;
        read(seed, Part { value, path: under(&self.path, key), found: self.found })
    }
}

struct Items<'v> {
    items: std::iter::Enumerate<std::slice::Iter<'v, Value>>,
    path: String,
    found: &'v RefCell<Found>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        loop {
            let Some((place, value)) = self.items.next() else { return Ok(None) };
            let path = format!("{}[{place}]", self.path);
            if !self.found.borrow().passed.contains(&path) {
                return read(seed, Part { value, path, found: self.found }).map(Some);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Config;

    #[test]
    fn all_keys_that_mean_nothing_are_named_with_their_place() {
        let file = json!({
            "grpcPort": 50051,
            "corsAllowedOrigins": ["http://localhost:3000"],
            "submission": {"defaultJobLimits": {"cpu": 1, "x": "2Gi"}, "maxPods": 7},
            "auth": {
                "users": [{"name": 7, "mail": "a@b"}, {"name": "b", "groups": ["x"]}],
                "anonymousAuth": true,
            },
            "scheduling": {
                "priorityClasses": {"low": {"priority": -1, "share": 2}},
                "pools": [{"name": "gpu", "spare": true}],
                "maxRetries": null,
            },
            "postgres": {"host": "x"},
        });
        let wanted = [
            "auth.anonymousAuth",
            "auth.users[0].mail",
            "grpcPort",
            "postgres",
            "scheduling.pools[0].spare",
            "scheduling.priorityClasses.low.share",
            "submission.maxPods",
        ];
        assert_eq!(unknown_keys::<Config>(&file), wanted.map(str::to_owned).into());
        for known in [json!({"auth": {}, "scheduling": {"maxRetries": 3}}), json!([]), json!(null)] {
            assert_eq!(unknown_keys::<Config>(&known), BTreeSet::new());
        }
    }

    #[test]
    fn what_is_wrong_otherwise_hides_none_beside_it() {
        let file = json!({
            "auth": {"users": [7, {"name": "b", "x": 1}, {"password": []}], "y": 1},
            "retention": "long",
            "submission": {"maxPodSpecSizeBytes": "many", "z": 1},
        });
        let wanted = ["auth.users[1].x", "auth.y", "submission.z"];
        assert_eq!(unknown_keys::<Config>(&file), wanted.map(str::to_owned).into());
    }
}
