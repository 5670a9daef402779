//! From OpenAPI v3 JSON to the arena.
//!
//! Invariant: recursion follows inline nesting only, bounded by `DEPTH_MAX`; references are queued,
//! so recursive components end. What the dialect does not know (descriptions, CEL rules) is passed
//! over.

use std::collections::HashMap;

use regex::RegexBuilder;
use serde_json::{Map, Number, Value};

use super::DEPTH_MAX;
use super::RangeOf;
use super::node::{
    Additional, Arena, Format, Junctors, ListRules, ListType, Merging, Node, NodeId, NumberRules, ObjectRules,
    Property, TextRules, Types,
};

/// Most nodes of one schema with all it refers to.
const NODES_MAX: usize = 200_000;
/// Most bytes a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;
const QUANTITY: &str = ".apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = ".apimachinery.pkg.util.intstr.IntOrString";

/// Why a schema cannot be compiled, and where.
#[derive(Clone, Debug, thiserror::Error)]
#[error("schema at {path:?}: {problem}")]
pub struct SchemaError {
    /// The place, like `properties[spec].items`.
    pub path: String,
    /// What is wrong there.
    #[source]
    pub problem: SchemaProblem,
}

/// What is wrong with a schema.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SchemaProblem {
    /// A keyword has a value of the wrong shape.
    #[error("{keyword} must be {expected}")]
    Malformed {
        keyword: &'static str,
        /// What its value has to be.
        expected: &'static str,
    },
    /// `type` names no JSON type.
    #[error("type {name:?} must be one of integer, number, string, boolean, object, array")]
    UnknownType {
        /// The name as given.
        name: String,
    },
    /// `$ref` leads nowhere.
    #[error("$ref {target:?} leads to no known component")]
    UnknownReference {
        /// The reference as given.
        target: String,
    },
    /// `pattern` is no regular expression that can be compiled.
    #[error("pattern {pattern:?} cannot be used")]
    Pattern {
        /// The pattern as given.
        pattern: String,
        #[source]
        source: regex::Error,
    },
    /// Schemas are nested too deep.
    #[error("schemas are nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// The schema has too many parts.
    #[error("schema has more than {NODES_MAX} parts")]
    TooManyNodes,
}

impl From<SchemaProblem> for SchemaError {
    fn from(problem: SchemaProblem) -> Self {
        Self { path: String::new(), problem }
    }
}

impl SchemaError {
    /// The same error seen from one level further out.
    fn within(mut self, place: std::fmt::Arguments<'_>) -> Self {
        self.path = match self.path.as_str() {
            "" => place.to_string(),
            path => format!("{place}.{path}"),
        };
        self
    }
}

/// Whose schema it is.
#[derive(Clone, Copy)]
pub(super) enum Dialect {
    /// A definition's. `x-kubernetes-list-type` says how a list is merged, and that items must differ.
    Declared,
    /// A built-in kind's. `x-kubernetes-list-type` says how a list is merged; whether items must differ is for the kind to say.
    Builtin {
        /// What numbers may be.
        range_of: RangeOf,
    },
}

pub(super) fn compile(
    schema: &Value,
    components: &Map<String, Value>,
    dialect: Dialect,
) -> Result<(Arena, NodeId), SchemaError> {
    let mut compiler = Compiler {
        components,
        checks_list_types: matches!(dialect, Dialect::Declared),
        range_of: match dialect {
            Dialect::Declared => |_, _| None,
            Dialect::Builtin { range_of } => range_of,
        },
        component: "",
        arena: Arena { writes_integers_plainly: matches!(dialect, Dialect::Builtin { .. }), ..Arena::default() },
        patterns: HashMap::new(),
        references: HashMap::new(),
        pending: Vec::new(),
    };
    let root = compiler.node(schema, 0)?;
    // Metadata of custom resources is a built-in type, too.
    compiler.checks_list_types = false;
    while let Some((name, id)) = compiler.pending.pop() {
        let within = |error: SchemaError| error.within(format_args!("components[{name}]"));
        compiler.component = name;
        let mut node = compiler.build(&components[name], 0).map_err(within)?;
        if name.ends_with(QUANTITY) {
            node.is_quantity = true;
            node.types = Types::INTEGER.with(Types::NUMBER).with(Types::STRING);
        }
        if name.ends_with(INT_OR_STRING) {
            node.format = Some(Format::Int32);
        }
        compiler.arena.nodes[id.0 as usize] = node;
    }
    Ok((compiler.arena, root))
}

struct Compiler<'a> {
    components: &'a Map<String, Value>,
    checks_list_types: bool,
    range_of: RangeOf,
    /// The component that is built.
    component: &'a str,
    arena: Arena,
    patterns: HashMap<&'a str, u32>,
    references: HashMap<&'a str, NodeId>,
    /// Components that are referred to and not built yet.
    pending: Vec<(&'a str, NodeId)>,
}

impl<'a> Compiler<'a> {
    fn node(&mut self, schema: &'a Value, depth: usize) -> Result<NodeId, SchemaError> {
        if let Some(target) = reference(schema) {
            return self.reference(target);
        }
        // The place is taken before the children take theirs: the root is the first.
        let id = self.reserve_node()?;
        let node = self.build(schema, depth)?;
        self.arena.nodes[id.0 as usize] = node;
        Ok(id)
    }

    fn reserve_node(&mut self) -> Result<NodeId, SchemaError> {
        let count = self.arena.nodes.len();
        if count >= NODES_MAX {
            return Err(SchemaProblem::TooManyNodes.into());
        }
        self.arena.nodes.push(Node::default());
        Ok(NodeId(count as u32))
    }

    fn reference(&mut self, target: &'a str) -> Result<NodeId, SchemaError> {
        let name = self.component(target)?;
        if let Some(id) = self.references.get(name) {
            return Ok(*id);
        }
        let id = self.reserve_node()?;
        self.references.insert(name, id);
        self.pending.push((name, id));
        Ok(id)
    }

    /// The name of the component that `target` leads to, through components that only refer on.
    fn component(&self, target: &'a str) -> Result<&'a str, SchemaError> {
        let unknown = || SchemaProblem::UnknownReference { target: target.to_owned() };
        let mut at = target;
        for _ in 0..DEPTH_MAX {
            let name = at.rsplit('/').next().unwrap_or_default();
            match reference(self.components.get(name).ok_or_else(unknown)?) {
                Some(next) => at = next,
                None => return Ok(name),
            }
        }
        Err(unknown().into())
    }

    fn build(&mut self, schema: &'a Value, depth: usize) -> Result<Node, SchemaError> {
        if depth > DEPTH_MAX {
            return Err(SchemaProblem::TooDeep.into());
        }
        let Value::Object(schema) = schema else {
            return Err(malformed("schema", "an object"));
        };
        let is_int_or_string = flag(schema, "x-kubernetes-int-or-string")?;
        let (mut types, has_null) = types(schema)?;
        if is_int_or_string {
            types = Types::INTEGER.with(Types::STRING);
        }
        let format = text(schema, "format")?.and_then(Format::named);
        let allowed = list(schema, "enum")?.map(|allowed| allowed.to_vec().into_boxed_slice());
        Ok(Node {
            types,
            format,
            is_nullable: has_null || flag(schema, "nullable")?,
            is_quantity: false,
            allowed,
            number: number_rules(schema)?,
            text: self.text_rules(schema)?,
            list: self.list_rules(schema, depth)?,
            object: self.object_rules(schema, types, depth)?,
            junctors: self.junctors(schema, is_int_or_string, depth)?,
        })
    }

    fn text_rules(&mut self, schema: &'a Map<String, Value>) -> Result<Option<Box<TextRules>>, SchemaError> {
        let rules = TextRules {
            len_min: count(schema, "minLength")?,
            len_max: count(schema, "maxLength")?,
            pattern: match text(schema, "pattern")? {
                Some(pattern) => Some(self.pattern(pattern)?),
                None => None,
            },
        };
        let is_used = rules.len_min.is_some() || rules.len_max.is_some() || rules.pattern.is_some();
        Ok(is_used.then(|| Box::new(rules)))
    }

    fn pattern(&mut self, pattern: &'a str) -> Result<u32, SchemaError> {
        if let Some(index) = self.patterns.get(pattern) {
            return Ok(*index);
        }
        let compiled = RegexBuilder::new(pattern)
            .size_limit(PATTERN_BYTES_MAX)
            .build()
            .map_err(|source| SchemaProblem::Pattern { pattern: pattern.to_owned(), source })?;
        let index = self.arena.patterns.len() as u32;
        self.arena.patterns.push(compiled);
        self.patterns.insert(pattern, index);
        Ok(index)
    }

    fn list_rules(
        &mut self,
        schema: &'a Map<String, Value>,
        depth: usize,
    ) -> Result<Option<Box<ListRules>>, SchemaError> {
        let items = match schema.get("items") {
            Some(items) => Some(self.node(items, depth + 1).map_err(|error| error.within(format_args!("items")))?),
            None => None,
        };
        let kind = match text(schema, "x-kubernetes-list-type")? {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(texts(schema, "x-kubernetes-list-map-keys")?),
            _ => ListType::Atomic,
        };
        let rules = ListRules {
            items,
            len_min: count(schema, "minItems")?,
            len_max: count(schema, "maxItems")?,
            is_unique: flag(schema, "uniqueItems")? || self.checks_list_types && !matches!(kind, ListType::Atomic),
            kind,
        };
        let is_used = rules.items.is_some()
            || rules.len_min.is_some()
            || rules.len_max.is_some()
            || rules.is_unique
            || !matches!(rules.kind, ListType::Atomic);
        Ok(is_used.then(|| Box::new(rules)))
    }

    fn object_rules(
        &mut self,
        schema: &'a Map<String, Value>,
        types: Types,
        depth: usize,
    ) -> Result<ObjectRules, SchemaError> {
        let mut properties = Vec::new();
        if let Some(declared) = map(schema, "properties")? {
            for (name, declared) in declared {
                let within = |error: SchemaError| error.within(format_args!("properties[{name}]"));
                properties.push(self.property(name, declared, depth + 1).map_err(within)?);
            }
        }
        let mut required = texts(schema, "required")?.into_vec();
        if flag(schema, "x-kubernetes-embedded-resource")? {
            self.embed(&mut properties, &mut required)?;
        }
        properties.sort_by(|left, right| Property::order(&left.name).cmp(&Property::order(&right.name)));
        let keeps_unknown = flag(schema, "x-kubernetes-preserve-unknown-fields")? || types.is_any();
        let additional = match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => Additional::Preserved,
            None | Some(Value::Bool(false)) if keeps_unknown => Additional::Preserved,
            None | Some(Value::Bool(false)) => Additional::Unknown,
            Some(additional) => Additional::Node(
                self.node(additional, depth + 1).map_err(|error| error.within(format_args!("additionalProperties")))?,
            ),
        };
        let defaulted = properties.iter().enumerate().filter(|(_, property)| property.default.is_some());
        Ok(ObjectRules {
            is_atomic: text(schema, "x-kubernetes-map-type")? == Some("atomic"),
            defaulted: defaulted.map(|(index, _)| index as u32).collect(),
            properties: properties.into(),
            additional,
            required: required.into(),
            len_min: count(schema, "minProperties")?,
            len_max: count(schema, "maxProperties")?,
        })
    }

    fn property(&mut self, name: &str, schema: &'a Value, depth: usize) -> Result<Property, SchemaError> {
        let node = self.node(schema, depth)?;
        Ok(Property {
            name: name.into(),
            node,
            is_nullable: schema["nullable"] == true,
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            merging: schema.as_object().map(merging).transpose()?.flatten(),
            range: (self.range_of)(self.component, name),
        })
    }

    /// An embedded resource has the fields of every object, whether declared or not.
    fn embed(&mut self, properties: &mut Vec<Property>, required: &mut Vec<Box<str>>) -> Result<(), SchemaError> {
        for (name, types) in [("apiVersion", Types::STRING), ("kind", Types::STRING), ("metadata", Types::OBJECT)] {
            if !properties.iter().any(|property| property.name.as_ref() == name) {
                let node = self.reserve_node()?;
                let additional = Additional::Preserved;
                self.arena.nodes[node.0 as usize] =
                    Node { types, object: ObjectRules { additional, ..ObjectRules::default() }, ..Node::default() };
                properties.push(Property {
                    name: name.into(),
                    node,
                    is_nullable: false,
                    default: None,
                    merging: None,
                    range: None,
                });
            }
            if name != "metadata" && !required.iter().any(|known| known.as_ref() == name) {
                required.push(name.into());
            }
        }
        Ok(())
    }

    fn junctors(
        &mut self,
        schema: &'a Map<String, Value>,
        is_int_or_string: bool,
        depth: usize,
    ) -> Result<Option<Box<Junctors>>, SchemaError> {
        // `anyOf: [{type: integer}, {type: string}]` beside int-or-string says the same again.
        let says_again = |entries: &[Value]| {
            is_int_or_string
                && entries
                    .iter()
                    .all(|entry| entry.as_object().is_some_and(|entry| entry.len() == 1 && entry.contains_key("type")))
        };
        let mut nodes = |keyword: &'static str| -> Result<Box<[NodeId]>, SchemaError> {
            let entries = list(schema, keyword)?.unwrap_or_default();
            if says_again(entries) {
                return Ok(Box::default());
            }
            let entries = entries.iter().enumerate().map(|(index, entry)| {
                self.node(entry, depth + 1).map_err(|error| error.within(format_args!("{keyword}[{index}]")))
            });
            entries.collect()
        };
        let mut junctors =
            Junctors { all_of: nodes("allOf")?, any_of: nodes("anyOf")?, one_of: nodes("oneOf")?, not: None };
        if let Some(not) = schema.get("not") {
            junctors.not = Some(self.node(not, depth + 1).map_err(|error| error.within(format_args!("not")))?);
        }
        let is_used = junctors.not.is_some()
            || [&junctors.all_of, &junctors.any_of, &junctors.one_of].iter().any(|nodes| !nodes.is_empty());
        Ok(is_used.then(|| Box::new(junctors)))
    }
}

/// `x-kubernetes-patch-strategy`, one or several with commas, and the key beside it. `retainKeys` is for clients.
fn merging(schema: &Map<String, Value>) -> Result<Option<Merging>, SchemaError> {
    let strategies = text(schema, "x-kubernetes-patch-strategy")?.unwrap_or_default();
    let is_named = |name: &str| strategies.split(',').any(|strategy| strategy == name);
    if is_named("merge") {
        return Ok(Some(Merging::Merge { key: text(schema, "x-kubernetes-patch-merge-key")?.map(Box::from) }));
    }
    Ok(is_named("replace").then_some(Merging::Replace))
}

/// The target of a reference, also where it is wrapped in `allOf` to stand beside other keywords.
fn reference(schema: &Value) -> Option<&str> {
    if let Some(target) = schema.get("$ref") {
        return target.as_str();
    }
    match schema.get("allOf")?.as_array()?.as_slice() {
        [only] if schema.get("type").is_none() && schema.get("properties").is_none() => only.get("$ref")?.as_str(),
        _ => None,
    }
}

fn number_rules(schema: &Map<String, Value>) -> Result<Option<Box<NumberRules>>, SchemaError> {
    let rules = NumberRules {
        minimum: number(schema, "minimum")?,
        is_minimum_exclusive: flag(schema, "exclusiveMinimum")?,
        maximum: number(schema, "maximum")?,
        is_maximum_exclusive: flag(schema, "exclusiveMaximum")?,
        multiple_of: number(schema, "multipleOf")?,
    };
    let is_used = rules.minimum.is_some() || rules.maximum.is_some() || rules.multiple_of.is_some();
    Ok(is_used.then(|| Box::new(rules)))
}

/// `type`, one name or a list, and whether null is among them.
fn types(schema: &Map<String, Value>) -> Result<(Types, bool), SchemaError> {
    let names = match schema.get("type") {
        None => &[],
        Some(name @ Value::String(_)) => std::slice::from_ref(name),
        Some(Value::Array(names)) => names.as_slice(),
        Some(_) => return Err(malformed("type", "a text")),
    };
    let mut types = Types::default();
    let mut has_null = false;
    for name in names {
        match name.as_str().ok_or_else(|| malformed("type", "a text"))? {
            "null" => has_null = true,
            "" => {}
            name => {
                let unknown = || SchemaProblem::UnknownType { name: name.to_owned() };
                types = types.with(Types::named(name).ok_or_else(unknown)?);
            }
        }
    }
    Ok((types, has_null))
}

fn malformed(keyword: &'static str, expected: &'static str) -> SchemaError {
    SchemaProblem::Malformed { keyword, expected }.into()
}

fn read<'a, T>(
    schema: &'a Map<String, Value>,
    keyword: &'static str,
    expected: &'static str,
    take: impl Fn(&'a Value) -> Option<T>,
) -> Result<Option<T>, SchemaError> {
    match schema.get(keyword) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => take(value).map(Some).ok_or_else(|| malformed(keyword, expected)),
    }
}

fn flag(schema: &Map<String, Value>, keyword: &'static str) -> Result<bool, SchemaError> {
    read(schema, keyword, "a boolean", Value::as_bool).map(Option::unwrap_or_default)
}

fn text<'a>(schema: &'a Map<String, Value>, keyword: &'static str) -> Result<Option<&'a str>, SchemaError> {
    read(schema, keyword, "a text", Value::as_str)
}

fn count(schema: &Map<String, Value>, keyword: &'static str) -> Result<Option<u64>, SchemaError> {
    read(schema, keyword, "a count", Value::as_u64)
}

fn number(schema: &Map<String, Value>, keyword: &'static str) -> Result<Option<Number>, SchemaError> {
    read(schema, keyword, "a number", |value| value.as_number().cloned())
}

fn map<'a>(
    schema: &'a Map<String, Value>,
    keyword: &'static str,
) -> Result<Option<&'a Map<String, Value>>, SchemaError> {
    read(schema, keyword, "a map", Value::as_object)
}

fn list<'a>(schema: &'a Map<String, Value>, keyword: &'static str) -> Result<Option<&'a [Value]>, SchemaError> {
    read(schema, keyword, "a list", |value| value.as_array().map(Vec::as_slice))
}

fn texts(schema: &Map<String, Value>, keyword: &'static str) -> Result<Box<[Box<str>]>, SchemaError> {
    let entries = list(schema, keyword)?.unwrap_or_default().iter();
    let texts = entries.map(|entry| entry.as_str().map(Box::from).ok_or_else(|| malformed(keyword, "a list of texts")));
    texts.collect()
}
