//! Values of the language: JSON along its schema, and what variables stand for.
//!
//! Invariant: only what an expression looks at is converted, and each conversion is paid for. Names of declared fields are
//! escaped as upstream; keys of maps are as they are.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube_cel::cel::context::VariableResolver;
use kube_cel::cel::objects::{Key, Map, OptionalValue, Value};
use pumice_objects::schema::{Cursor, Member, Sort};
use serde_json::Value as Json;

use super::budget::{BYTES_PER_STEP, spend};
use super::functions;

/// Between the steps of a path in the name of a variable.
pub(super) const STEP: char = '\u{1}';
/// Before a path that is only asked whether it is there.
pub(super) const TEST: char = '\u{2}';

/// Words that can't be the name of a field.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];
const SIGNS: [(char, &str); 3] = [('.', "dot"), ('-', "dash"), ('/', "slash")];

/// The values of computed variables by name, or why there is none.
pub(crate) type Computed = BTreeMap<String, Result<Value, String>>;

/// What a variable stands for.
pub(crate) enum Binding<'a> {
    /// A value of JSON with its schema.
    Json(&'a Json, Option<Cursor<'a>>),
    /// A value that may be missing, as one of the language's optionals.
    Optional(Option<&'a Json>, Option<Cursor<'a>>),
    /// Fields that were computed.
    Computed(&'a Computed),
    /// A value with a field beside it.
    WithField { value: Value, field: &'a str, beside: Value },
}

/// What all variables of an evaluation stand for.
#[derive(Default)]
pub(crate) struct Bindings<'a>(Vec<(&'a str, Binding<'a>)>);

impl<'a> Bindings<'a> {
    pub(crate) fn with(mut self, name: &'a str, binding: Binding<'a>) -> Self {
        self.0.push((name, binding));
        self
    }

    /// Replaces what a variable stands for.
    pub(crate) fn set(&mut self, name: &'a str, binding: Binding<'a>) {
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, binding));
    }
}

impl VariableResolver for Bindings<'_> {
    fn resolve(&self, variable: &str) -> Option<Value> {
        let (is_test, path) = match variable.strip_prefix(TEST) {
            Some(path) => (true, path),
            None => (false, variable),
        };
        let mut steps = path.split(STEP);
        let name = steps.next()?;
        let (_, binding) = self.0.iter().find(|(known, _)| *known == name)?;
        match binding {
            Binding::Json(value, place) => {
                let steps: Vec<&str> = steps.collect();
                let (last, before) = match steps.split_last() {
                    Some((last, before)) => (Some(*last), before),
                    None => (None, &[][..]),
                };
                let begin = Within { value, schema: *place };
                let within = before.iter().try_fold(begin, |within, step| within.member(step))?;
                let Some(last) = last else { return of_json(within.value, within.schema) };
                if is_test {
                    // Of a null no field can be asked.
                    return within.value.as_object().map(|_| Value::Bool(within.member(last).is_some()));
                }
                let found = within.member(last)?;
                of_json(found.value, found.schema)
            }
            Binding::Optional(value, place) => {
                let inner = match value {
                    Some(value) => Some(of_json(value, *place)?),
                    None => None,
                };
                Some(optional(inner))
            }
            Binding::WithField { value, field, beside } => match steps.next() {
                None => Some(value.clone()),
                Some(step) if step == *field => Some(beside.clone()),
                Some(_) => None,
            },
            Binding::Computed(values) => {
                let name = steps.next()?;
                let value = values.get(name)?.as_ref().ok().cloned();
                if is_test { Some(Value::Bool(values.contains_key(name))) } else { value }
            }
        }
    }
}

pub(super) fn optional(inner: Option<Value>) -> Value {
    Value::Opaque(Arc::new(inner.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// A value within an object, and what its schema says there.
#[derive(Clone, Copy)]
struct Within<'a> {
    value: &'a Json,
    schema: Option<Cursor<'a>>,
}

impl<'a> Within<'a> {
    fn member(self, step: &str) -> Option<Within<'a>> {
        let fields = self.value.as_object()?;
        let value = match fields.get(step) {
            Some(value) => value,
            // Where no schema tells, a name may be escaped or not.
            None if self.schema.is_none() => fields.get(unescape(step).as_ref())?,
            None => return None,
        };
        Some(Within { value, schema: self.schema.and_then(|place| below(place, step)) })
    }
}

fn below<'s>(place: Cursor<'s>, step: &str) -> Option<Cursor<'s>> {
    match place.of(step) {
        Member::Declared(place) | Member::Additional(place) => Some(place),
        Member::Free | Member::Unknown => None,
    }
}

/// What is said of a variable that did not resolve.
pub(super) fn missing(name: &str) -> String {
    match name.trim_start_matches(TEST).rsplit_once(STEP) {
        Some((_, last)) => format!("no such key: {last}"),
        None => format!("undeclared reference to '{name}'"),
    }
}

/// A value of JSON; `None` when the budget does not allow it.
pub(super) fn of_json(value: &Json, place: Option<Cursor<'_>>) -> Option<Value> {
    let text_steps = value.as_str().map_or(0, |text| text.len() / BYTES_PER_STEP);
    if !spend(1 + text_steps as u64) {
        return None;
    }
    let sort = place.map_or(Sort::Any, Cursor::sort);
    Some(match value {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            _ if sort == Sort::Number => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            (Some(whole), _) => Value::Int(whole),
            (None, Some(whole)) => Value::UInt(whole),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => of_text(text, sort),
        Json::Array(items) => {
            let place = place.and_then(Cursor::items);
            let items: Option<Vec<Value>> = items.iter().map(|item| of_json(item, place)).collect();
            Value::List(Arc::new(items?))
        }
        Json::Object(fields) => {
            let mut map = HashMap::with_capacity(fields.len());
            for (name, field) in fields {
                let of = place.map(|place| place.of(name));
                let (name, below) = match of {
                    Some(Member::Declared(below)) => (escape(name), Some(below)),
                    Some(Member::Additional(below)) => (Cow::Borrowed(name.as_str()), Some(below)),
                    _ => (Cow::Borrowed(name.as_str()), None),
                };
                map.insert(Key::String(Arc::new(name.into_owned())), of_json(field, below)?);
            }
            Value::Map(Map { map: Arc::new(map) })
        }
    })
}

fn of_text(text: &str, sort: Sort) -> Value {
    let plain = || Value::String(Arc::new(text.to_owned()));
    match sort {
        Sort::Moment => functions::moment(text).unwrap_or_else(plain),
        Sort::Duration => functions::duration(text).unwrap_or_else(plain),
        Sort::Bytes => BASE64.decode(text).map_or_else(|_| plain(), |bytes| Value::Bytes(Arc::new(bytes))),
        _ => plain(),
    }
}

/// How an expression names a declared field.
pub(super) fn escape(name: &str) -> Cow<'_, str> {
    if RESERVED.contains(&name) {
        return Cow::Owned(format!("__{name}__"));
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return Cow::Borrowed(name);
    }
    let mut escaped = name.replace("__", "__underscores__");
    for (sign, word) in SIGNS {
        escaped = escaped.replace(sign, &format!("__{word}__"));
    }
    Cow::Owned(escaped)
}

/// The field that an expression names.
pub(super) fn unescape(name: &str) -> Cow<'_, str> {
    if !name.contains("__") {
        return Cow::Borrowed(name);
    }
    let reserved = name.strip_prefix("__").and_then(|name| name.strip_suffix("__"));
    if let Some(word) = reserved.filter(|word| RESERVED.contains(word)) {
        return Cow::Owned(word.to_owned());
    }
    let mut plain = name.to_owned();
    for (sign, word) in SIGNS {
        plain = plain.replace(&format!("__{word}__"), &sign.to_string());
    }
    Cow::Owned(plain.replace("__underscores__", "__"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_escaped_as_upstream() {
        for (name, escaped) in [
            ("plain", "plain"),
            ("with_one", "with_one"),
            ("namespace", "__namespace__"),
            ("a.b/c-d", "a__dot__b__slash__c__dash__d"),
            ("a__b", "a__underscores__b"),
            ("int", "int"),
        ] {
            assert_eq!(escape(name), escaped);
            assert_eq!(unescape(escaped), name);
        }
    }
}
