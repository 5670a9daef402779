//! JSON paths in Kubernetes' dialect: `.status.state.phase`, `.metadata.labels.a\.b`,
//! `.spec.list[0].x`, `.status.conditions[?(@.type=="Ready")].status`.
//!
//! Invariant: a path is parsed once and evaluated without allocation but for its results; the cost
//! of an evaluation is bounded by the size of the object times the steps. Called for printer
//! columns, selectable fields and scale paths.

mod parse;

use serde_json::Value;

pub use parse::PathError;

/// A path that was parsed, to be evaluated on as many objects as one likes.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// From the end where negative.
    Index(i64),
    /// From start to end (excluded), either from the list's end where negative.
    Slice(Option<i64>, Option<i64>),
    /// Every member or item.
    Wildcard,
    Filter(Filter),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    /// `None` asks only whether the left side is there.
    compare: Option<(Comparison, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    /// Relative to the item under test.
    Path(JsonPath),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Reads a path; a surrounding `{}` and a leading `$` are allowed, as kubectl's users write them.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        parse::parse(text)
    }

    /// The first value the path leads to.
    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        walk(&self.steps, object, &mut |value| Some(value))
    }

    /// Every value the path leads to, in order.
    pub fn all<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = Vec::new();
        walk(&self.steps, object, &mut |value| {
            found.push(value);
            None::<()>
        });
        found
    }
}

/// Calls `visit` for each value the steps lead to until it answers; the answer is the result.
fn walk<'a, T>(steps: &[Step], value: &'a Value, visit: &mut impl FnMut(&'a Value) -> Option<T>) -> Option<T> {
    let Some((step, rest)) = steps.split_first() else {
        return visit(value);
    };
    match step {
        Step::Field(name) => walk(rest, value.get(name)?, visit),
        Step::Index(index) => {
            let items = value.as_array()?;
            walk(rest, items.get(position(*index, items.len())?)?, visit)
        }
        Step::Slice(start, end) => {
            let items = value.as_array()?;
            let bound = |index: Option<i64>, default| match index {
                Some(index) => position(index, items.len()).unwrap_or(0).min(items.len()),
                None => default,
            };
            let (start, end) = (bound(*start, 0), bound(*end, items.len()));
            items.get(start..end)?.iter().find_map(|item| walk(rest, item, visit))
        }
        Step::Wildcard => match value {
            Value::Array(items) => items.iter().find_map(|item| walk(rest, item, visit)),
            Value::Object(members) => members.values().find_map(|member| walk(rest, member, visit)),
            _ => None,
        },
        Step::Filter(filter) => {
            value.as_array()?.iter().filter(|item| filter.holds(item)).find_map(|item| walk(rest, item, visit))
        }
    }
}

/// The place of `index` in a list of `len`, counted from the end where negative.
fn position(index: i64, len: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index.checked_add(len as i64)? } else { index }).ok()
}

impl Filter {
    fn holds(&self, item: &Value) -> bool {
        let left = self.left.value(item);
        match &self.compare {
            None => left.is_some(),
            Some((comparison, right)) => match (left, right.value(item)) {
                (Some(left), Some(right)) => comparison.holds(left, right),
                _ => false,
            },
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Path(path) => path.first(item),
            Self::Literal(literal) => Some(literal),
        }
    }
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = match (left, right) {
            (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            _ => None,
        };
        match self {
            Self::Equal => order.map_or(left == right, |order| order.is_eq()),
            Self::NotEqual => order.map_or(left != right, |order| order.is_ne()),
            Self::Less => order.is_some_and(|order| order.is_lt()),
            Self::LessOrEqual => order.is_some_and(|order| order.is_le()),
            Self::Greater => order.is_some_and(|order| order.is_gt()),
            Self::GreaterOrEqual => order.is_some_and(|order| order.is_ge()),
        }
    }
}

#[cfg(test)]
mod tests;
