//! One value out of a JSON text, by its path: everything else is passed over without being kept.
//!
//! Invariant: gives what parsing the whole text and walking down would give. Called by `handlers::selectors` for each change that a
//! watch with a field selector sees.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The value at a dotted path; nothing where there is none, or no JSON.
pub(crate) fn value_at(text: &[u8], path: &str) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    Path(Some(path)).deserialize(&mut deserializer).ok().flatten()
}

/// What is left of the path.
#[derive(Clone, Copy)]
struct Path<'p>(Option<&'p str>);

impl<'de> DeserializeSeed<'de> for Path<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        match self.0 {
            Some(path) => deserializer.deserialize_any(Walk(path)),
            None => Value::deserialize(deserializer).map(Some),
        }
    }
}

struct Walk<'p>(&'p str);

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<Value>, A::Error> {
        let (step, rest) = self.0.split_once('.').map_or((self.0, None), |(step, rest)| (step, Some(rest)));
        let mut found = None;
        while let Some(is_step) = map.next_key_seed(Is(step))? {
            if is_step {
                found = map.next_value_seed(Path(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<Value>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }
}

/// Whether a key is the one that is looked for.
struct Is<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn picks_what_walking_the_whole_would_find() {
        let object = json!({
            "kind": "Pod", "metadata": {"name": "p", "labels": {"spec": "x"}},
            "spec": {"a\"b": 1, "nodeName": "n1", "list": [{"nodeName": "n2"}], "none": null, "flag": false, "f": 0.5},
            "status": {"phase": "Running"},
        });
        let text = object.to_string();
        for path in [
            "kind",
            "kind.x",
            "spec.nodeName",
            "spec.nodeName.x",
            "spec.list",
            "spec.list.nodeName",
            "spec.none",
            "spec.none.x",
            "spec.flag",
            "spec.flag.x",
            "spec.f.x",
            "spec.f",
            "status.phase",
            "status",
            "nothing",
            "spec.nothing",
            "",
        ] {
            let walked = path.split('.').try_fold(&object, |value, step| value.get(step)).cloned();
            assert_eq!(value_at(text.as_bytes(), path), walked, "{path}");
        }
        assert_eq!(value_at(b"{\"spec\":{\"nodeName\":", "spec.nodeName"), None);
        assert_eq!(value_at(b"", "a"), None);
    }
}
