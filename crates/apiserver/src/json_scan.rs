//! Scans JSON texts: some fields of the top level as values, the others as the text they are.
//!
//! Invariant: what was parsed and what is left make the stored object again. A status is written for each step of each pod,
//! and what its spec says is neither looked at nor changed by that. Called by `update` for writes of a status, by
//! `binding`, and by whoever needs the metadata alone.

mod value_at;

use serde_json::{Map, Value};

pub(crate) use value_at::value_at;

/// An object in two parts.
#[derive(Debug, PartialEq)]
pub(crate) struct PartlyParsed {
    pub(crate) object: Value,
    /// The others, each as `,"name":value`.
    pub(crate) rest: Vec<u8>,
}

/// Takes the fields `wanted` out of an object's text. Nothing where the text is no object or writes names oddly.
pub(crate) fn parse_fields(text: &[u8], wanted: &[&str]) -> Option<PartlyParsed> {
    let mut scan = Scan { text, at: 0 };
    let (mut object, mut rest) = (Map::new(), Vec::new());
    scan.expect(b'{')?;
    loop {
        let start = scan.at;
        let name = scan.name()?;
        scan.expect(b':')?;
        let value = scan.value()?;
        match wanted.iter().find(|one| one.as_bytes() == name) {
            Some(one) => {
                object.insert((*one).to_owned(), serde_json::from_slice(value).ok()?);
            }
            None => {
                rest.push(b',');
                rest.extend_from_slice(text.get(start..scan.at)?);
            }
        }
        match scan.next()? {
            b',' => {}
            b'}' if scan.at == text.len() => return Some(PartlyParsed { object: Value::Object(object), rest }),
            _ => return None,
        }
    }
}

/// The text of one field of an object. What follows it is not looked at.
pub(crate) fn field<'t>(text: &'t [u8], wanted: &str) -> Option<&'t [u8]> {
    let mut scan = Scan { text, at: 0 };
    scan.expect(b'{')?;
    loop {
        let name = scan.name()?;
        scan.expect(b':')?;
        let value = scan.value()?;
        if name == wanted.as_bytes() {
            return Some(value);
        }
        scan.expect(b',')?;
    }
}

/// A place in a text without white space, as the server writes it.
struct Scan<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Scan<'t> {
    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    /// A quoted name without escapes.
    fn name(&mut self) -> Option<&'t [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        self.string()?;
        let name = self.text.get(start..self.at - 1)?;
        (!name.contains(&b'\\')).then_some(name)
    }

    /// Goes behind the closing quote of a string whose opening one has been passed.
    fn string(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => self.at += 1,
                _ => {}
            }
        }
    }

    /// Goes behind a value: up to the comma or the brace that is not its own.
    fn value(&mut self) -> Option<&'t [u8]> {
        let (start, mut depth) = (self.at, 0_usize);
        loop {
            match *self.text.get(self.at)? {
                b',' | b'}' if depth == 0 => break,
                b'"' => {
                    self.at += 1;
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            self.at += 1;
        }
        self.text.get(start..self.at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::stored::draft_with;

    fn whole(cut: &PartlyParsed) -> Value {
        serde_json::from_slice(&draft_with(&cut.object, &cut.rest).render(1)).unwrap()
    }

    #[test]
    fn what_is_wanted_is_parsed_and_the_rest_is_text() {
        let text =
            br#"{"kind":"Pod","metadata":{"name":"x","resourceVersion":"1"},"spec":{"a":["}","\"",{}]},"status":1}"#;
        let cut = parse_fields(text, &["kind", "metadata", "status"]).unwrap();
        assert_eq!(cut.object, json!({"kind": "Pod", "metadata": {"name": "x", "resourceVersion": "1"}, "status": 1}));
        assert_eq!(cut.rest, br#","spec":{"a":["}","\"",{}]}"#);
        assert_eq!(whole(&cut), serde_json::from_slice::<Value>(text).unwrap());
    }

    #[test]
    fn a_field_is_found_in_front_of_anything() {
        let text = br#"{"kind":"Pod","metadata":{"name":"metadata"},"spec": broken"#;
        assert_eq!(field(text, "metadata"), Some(&br#"{"name":"metadata"}"#[..]));
        assert_eq!(
            (field(text, "name"), field(text, "spec"), field(b"", "a"), field(b"{}", "a")),
            (None, None, None, None)
        );
    }

    #[test]
    fn a_text_that_is_no_object_is_not_cut() {
        for text in [
            "",
            "{",
            "[]",
            "1",
            "{}",
            r#"{"a"}"#,
            r#"{"a":1"#,
            r#"{"a":1]"#,
            r#"{"a":]}"#,
            r#"{"\u0061":1}"#,
            r#"{"a":1} "#,
            r#"{"a":"#,
            r#"{"a":"x\"#,
        ] {
            assert_eq!(parse_fields(text.as_bytes(), &["a"]), None, "{text}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC*".prop_map(Value::from),
            "[\\[\\]{},:\"\\\\]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"\\\\]{0,2}", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn both_parts_make_the_object_again(
            fields in prop::collection::btree_map("[a-f]", values(), 0..5),
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut object = Value::Object(fields.into_iter().collect());
            object["metadata"] = json!({"name": "x", "resourceVersion": "1"});
            let text = object.to_string();
            let cut_text = parse_fields(text.as_bytes(), &["metadata", "a", "b"]).unwrap();
            prop_assert_eq!(whole(&cut_text), object);
            let _ = parse_fields(&bytes, &["a"]);
            let _ = parse_fields(&text.as_bytes()[..text.len() - 1], &["a"]);
        }
    }
}
