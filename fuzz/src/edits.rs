//! Bytes into changes of JSON values: members that are there, members that somebody looks at, values that mean something.
//!
//! Invariant: equal bytes give equal values, of bounded depth and size. Used by the makers of objects.

use serde_json::{Map, Value, json};

use crate::Bytes;

/// Most edits of one object.
const EDITS_MAX: u8 = 12;
/// Most steps down to the place of an edit.
const DEPTH_MAX: u8 = 9;

/// What edits put in.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary<'v> {
    /// Member names that somebody looks at.
    pub keys: &'v [&'v str],
    /// Words with a meaning somewhere.
    pub words: &'v [&'v str],
}

impl Vocabulary<'_> {
    /// The value with some edits.
    pub fn edited(&self, mut object: Value, bytes: &mut Bytes<'_>) -> Value {
        for _ in 0..bytes.below(EDITS_MAX) {
            self.edit(&mut object, bytes);
        }
        object
    }

    /// A value of any shape.
    pub fn any(&self, bytes: &mut Bytes<'_>, depth: u8) -> Value {
        match bytes.below(6) {
            0 | 1 if depth > 0 => {
                let count = bytes.below(4);
                (0..count).map(|_| (bytes.pick(self.keys).to_owned(), self.any(bytes, depth - 1))).collect()
            }
            2 if depth > 0 => (0..bytes.below(4)).map(|_| self.any(bytes, depth - 1)).collect(),
            _ => self.value(bytes),
        }
    }

    /// Changes the value at one path, chosen by the bytes.
    fn edit(&self, object: &mut Value, bytes: &mut Bytes<'_>) {
        let mut place = object;
        for _ in 0..bytes.below(DEPTH_MAX).saturating_add(1) {
            let is_empty = place.as_array().is_none_or(Vec::is_empty);
            place = match place {
                Value::Object(members) => {
                    let key = self.key(members, bytes);
                    members.entry(key).or_insert(Value::Null)
                }
                leaf if is_empty => {
                    *leaf = self.value(bytes);
                    return;
                }
                list => {
                    let Some(items) = list.as_array_mut() else { return };
                    let index = usize::from(bytes.byte()) % items.len();
                    if bytes.one_in(8) && items.len() < 40 {
                        items.push(items[index].clone());
                    }
                    if bytes.one_in(16) {
                        items.remove(index);
                        return;
                    }
                    &mut items[index]
                }
            };
        }
        *place = self.value(bytes);
    }

    /// Mostly one that is there.
    fn key(&self, members: &Map<String, Value>, bytes: &mut Bytes<'_>) -> String {
        if members.is_empty() || bytes.one_in(4) {
            return bytes.pick(self.keys).to_owned();
        }
        let index = usize::from(bytes.byte()) % members.len();
        members.keys().nth(index).cloned().unwrap_or_default()
    }

    fn value(&self, bytes: &mut Bytes<'_>) -> Value {
        match bytes.below(12) {
            0 => Value::Null,
            1 => bytes.one_in(2).into(),
            2 | 3 => i64::from(bytes.below(8)).into(),
            4 => bytes.amount().into(),
            5 => [i64::from(i32::MAX), i64::from(i32::MIN), 100_000, -1][usize::from(bytes.below(4))].into(),
            6 => json!({ bytes.pick(self.keys): bytes.pick(self.words) }),
            7 => json!([bytes.pick(self.words), bytes.pick(self.words)]),
            8 => "x".repeat(usize::from(bytes.byte())).into(),
            9 => bytes.text().into(),
            _ => bytes.pick(self.words).into(),
        }
    }
}
