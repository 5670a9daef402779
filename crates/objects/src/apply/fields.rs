//! Sets of fields, as `managedFields` has them.
//!
//! Invariant: two sets are equal exactly if they have the same members: no node stands for nothing. The text form is
//! Kubernetes' `FieldsV1`; reading one is bounded by the depth and size of the object it stands in.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// One step from an object to what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    /// A member of an object.
    Field(String),
    /// The item of a list whose key members these are, as JSON text with sorted names.
    Key(String),
    /// The item of a set, as JSON text.
    Value(String),
    /// The item at this index: for lists that had another type when somebody owned a part of them.
    Index(usize),
}

/// A set of fields: a tree, each node of which may be a member itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) is_member: bool,
    children: BTreeMap<Step, Fields>,
}

impl Step {
    fn parse(text: &str) -> Option<Self> {
        let (sort, rest) = text.split_once(':')?;
        let json = |text: &str| serde_json::from_str::<Value>(text).ok().map(|value| value.to_string());
        match sort {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => json(rest).map(Self::Key),
            "v" => json(rest).map(Self::Value),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(json) => format!("k:{json}"),
            Self::Value(json) => format!("v:{json}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// As conflicts name it: `.spec`, `[name="main"]`, `[="a"]`, `[0]`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(json) => write!(f, "[={json}]"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(json) => {
                let keys: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
        }
    }
}

impl Fields {
    /// The set that `FieldsV1` says; `None` where it says none.
    pub(crate) fn parse(value: &Value) -> Option<Self> {
        let mut fields = Self::default();
        let members = value.as_object()?;
        // A node without anything in it is a member.
        fields.is_member = members.is_empty();
        for (text, below) in members {
            if text == "." {
                fields.is_member = true;
            } else {
                fields.children.insert(Step::parse(text)?, Self::parse(below)?);
            }
        }
        Some(fields)
    }

    /// The set in the form of `FieldsV1`.
    pub(crate) fn to_json(&self) -> Value {
        let mut object: Map<String, Value> =
            self.children.iter().map(|(step, below)| (step.text(), below.to_json())).collect();
        if self.is_member && !self.children.is_empty() {
            object.insert(".".to_owned(), Value::Object(Map::new()));
        }
        Value::Object(object)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_member && self.children.is_empty()
    }

    /// What is below a step.
    pub(crate) fn child(&self, step: &Step) -> Option<&Self> {
        self.children.get(step)
    }

    /// Puts a set below a step, unless it is empty.
    pub(crate) fn put(&mut self, step: Step, below: Self) {
        if !below.is_empty() {
            self.children.entry(step).or_default().add(&below);
        }
    }

    /// Adds all members of another.
    pub(crate) fn add(&mut self, other: &Self) {
        self.is_member |= other.is_member;
        for (step, below) in &other.children {
            self.children.entry(step.clone()).or_default().add(below);
        }
    }

    /// Takes all members of another away.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.is_member &= !other.is_member;
        self.children.retain(|step, below| {
            if let Some(other) = other.children.get(step) {
                below.subtract(other);
            }
            !below.is_empty()
        });
    }

    /// The members of both.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let both = self.children.iter().filter_map(|(step, below)| {
            let below = below.intersection(other.children.get(step)?);
            if below.is_empty() {
                return None;
            }
            Some((step.clone(), below))
        });
        Self { is_member: self.is_member && other.is_member, children: both.collect() }
    }

    /// The paths of all members, as conflicts name them.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths(&mut String::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, at: &mut String, paths: &mut Vec<String>) {
        if self.is_member {
            paths.push(at.clone());
        }
        for (step, below) in &self.children {
            let len = at.len();
            at.push_str(&step.to_string());
            below.collect_paths(at, paths);
            at.truncate(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        Fields::parse(&value).unwrap()
    }

    #[test]
    fn the_text_form_is_read_and_written() {
        let text = json!({"f:spec": {"f:replicas": {}, "f:ports": {".": {},
            "k:{\"protocol\":\"TCP\",\"port\":80}": {".": {}, "f:name": {}}}, "f:set": {"v:\"a\"": {}}, "f:list": {"i:3": {}}}});
        let set = fields(text);
        let written = json!({"f:spec": {"f:replicas": {}, "f:ports": {".": {},
            "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}, "f:set": {"v:\"a\"": {}}, "f:list": {"i:3": {}}}});
        assert_eq!(set.to_json(), written);
        assert_eq!(
            set.paths(),
            [
                ".spec.list[3]",
                ".spec.ports",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].name",
                ".spec.replicas",
                ".spec.set[=\"a\"]"
            ]
        );
        for wrong in [json!({"x:a": {}}), json!({"f:a": 1}), json!({"k:{": {}}), json!({"i:x": {}}), json!([])] {
            assert_eq!(Fields::parse(&wrong), None, "{wrong}");
        }
    }

    fn set() -> impl Strategy<Value = Fields> {
        let leaf = any::<bool>().prop_map(|is_member| Fields { is_member, ..Fields::default() });
        leaf.prop_recursive(4, 24, 3, |below| {
            let step = prop::sample::select(vec!["a", "b", "c"]).prop_map(|name| Step::Field(name.to_owned()));
            (any::<bool>(), prop::collection::vec((step, below), 0..3)).prop_map(|(is_member, below)| {
                let mut fields = Fields { is_member, ..Fields::default() };
                below.into_iter().for_each(|(step, below)| fields.put(step, below));
                fields
            })
        })
    }

    proptest! {
        #[test]
        fn sets_behave_as_sets(one in set(), other in set()) {
            let (in_one, in_other) = (one.paths(), other.paths());
            let (mut sum, mut rest) = (one.clone(), one.clone());
            sum.add(&other);
            rest.subtract(&other);
            let both = one.intersection(&other);
            prop_assert!(both.paths().iter().all(|path| in_one.contains(path) && in_other.contains(path)));
            prop_assert!(rest.paths().iter().all(|path| in_one.contains(path) && !in_other.contains(path)));
            prop_assert_eq!(rest.paths().len() + both.paths().len(), in_one.len());
            prop_assert_eq!(sum.paths().len() + both.paths().len(), in_one.len() + in_other.len());
            rest.add(&both);
            prop_assert_eq!(&rest, &one);
            if !one.is_empty() {
                prop_assert_eq!(Fields::parse(&one.to_json()), Some(one));
            }
        }
    }
}
