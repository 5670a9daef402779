//! Checks what was parsed, and makes of it what is evaluated.
//!
//! Invariant: what leaves here names known variables, declared fields and known functions only. Chains of fields from a
//! variable become one look-up, so that only the value at their end is converted; loops and what grows are paid for.
//! Where types are known they are checked; what can't be known is found at run time.

use std::collections::BTreeSet;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators,
};
use pumice_objects::schema::{Cursor, Member, Sort};

use super::values::{STEP, TEST, unescape};
use super::{CompileError, DEPTH_MAX, functions};

/// A variable that expressions may look at.
pub(crate) struct Variable<'s> {
    pub(crate) name: &'s str,
    /// Its schema, where it is JSON that has one.
    pub(crate) cursor: Option<Cursor<'s>>,
    /// Whether it stands for JSON.
    pub(crate) is_json: bool,
    /// Whether it is an object of the API: of its metadata rules see the name alone.
    pub(crate) hides_metadata: bool,
    /// The fields that it has, where they are looked up by name.
    pub(crate) fields: Option<Vec<String>>,
    /// Whether it is a value by itself.
    pub(crate) is_value: bool,
}

impl<'s> Variable<'s> {
    /// JSON, along a schema where there is one.
    pub(crate) fn json(name: &'s str, cursor: Option<Cursor<'s>>) -> Self {
        Self { name, cursor, is_json: true, hides_metadata: false, fields: None, is_value: true }
    }

    /// A value that is no JSON.
    pub(crate) fn value(name: &'s str) -> Self {
        Self { name, cursor: None, is_json: false, hides_metadata: false, fields: None, is_value: true }
    }

    /// A variable that is nothing but these fields, such as `variables` of a policy.
    pub(crate) fn computed(name: &'s str, fields: Vec<String>) -> Self {
        Self { fields: Some(fields), is_value: false, ..Self::value(name) }
    }

    /// A value that is no JSON, with a field.
    pub(crate) fn with_field(name: &'s str, field: &str) -> Self {
        Self { fields: Some(vec![field.to_owned()]), ..Self::value(name) }
    }
}

/// The variables of an expression.
#[derive(Default)]
pub(crate) struct Scope<'s>(pub(crate) Vec<Variable<'s>>);

/// What an expression must give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Bool,
    Text,
    Any,
}

pub(super) struct Found {
    pub(super) reads: BTreeSet<String>,
    pub(super) depth: usize,
}

/// What is known of the value of a part.
#[derive(Clone, Copy)]
enum Kind<'s> {
    Any,
    Bool,
    Number,
    Text,
    /// A moment, a length of time, bytes, null.
    Other,
    /// A list or an object of a schema.
    Of(Cursor<'s>),
}

impl<'s> Kind<'s> {
    fn at(cursor: Option<Cursor<'s>>) -> Self {
        let Some(cursor) = cursor else { return Self::Any };
        match cursor.sort() {
            Sort::Any => Self::Any,
            Sort::Integer | Sort::Number => Self::Number,
            Sort::Text => Self::Text,
            Sort::Boolean => Self::Bool,
            Sort::Moment | Sort::Duration | Sort::Bytes => Self::Other,
            Sort::Object | Sort::List => Self::Of(cursor),
        }
    }

    fn name(self) -> Option<&'static str> {
        match self {
            Self::Any | Self::Other => None,
            Self::Bool => Some("bool"),
            Self::Number => Some("number"),
            Self::Text => Some("string"),
            Self::Of(cursor) => Some(if cursor.sort() == Sort::List { "list" } else { "object" }),
        }
    }

    /// Whether no value is of both kinds.
    fn differs(self, other: Self) -> bool {
        matches!((self.name(), other.name()), (Some(one), Some(other)) if one != other)
    }
}

/// Checks that an expression knows its names and gives what is wanted, and rewrites it to what the interpreter can resolve.
pub(super) fn check(tree: &mut IdedExpr, scope: &Scope<'_>, wanted: Wanted) -> Result<Found, CompileError> {
    let mut checker = Checker { scope, locals: Vec::new(), reads: BTreeSet::new(), depth: 0 };
    let kind = checker.visit(tree, 1)?.kind;
    let fits = match wanted {
        Wanted::Bool => !kind.differs(Kind::Bool),
        Wanted::Text => !kind.differs(Kind::Text),
        Wanted::Any => true,
    };
    if !fits {
        let wanted = if wanted == Wanted::Bool { "bool" } else { "string" };
        return refuse(format!("must evaluate to {wanted}"));
    }
    Ok(Found { reads: checker.reads, depth: checker.depth })
}

fn refuse<T>(cause: impl Into<String>) -> Result<T, CompileError> {
    Err(CompileError(cause.into()))
}

/// What was found of a part.
struct Part<'s> {
    kind: Kind<'s>,
    /// Whether it became the name of a path, and the schema at its end.
    path: Option<Option<Cursor<'s>>>,
}

impl<'s> From<Kind<'s>> for Part<'s> {
    fn from(kind: Kind<'s>) -> Self {
        Self { kind, path: None }
    }
}

struct Checker<'c, 's> {
    scope: &'c Scope<'s>,
    /// Variables of the loops around.
    locals: Vec<(String, Kind<'s>)>,
    reads: BTreeSet<String>,
    depth: usize,
}

impl<'s> Checker<'_, 's> {
    fn visit(&mut self, part: &mut IdedExpr, depth: usize) -> Result<Part<'s>, CompileError> {
        if depth > DEPTH_MAX {
            return refuse(format!("the expression is nested deeper than {DEPTH_MAX} levels"));
        }
        self.depth = self.depth.max(depth);
        match &mut part.expr {
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Kind::Bool,
                LiteralValue::String(_) => Kind::Text,
                LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => Kind::Number,
                LiteralValue::Bytes(_) | LiteralValue::Null => Kind::Other,
            }
            .into()),
            Expr::Ident(name) => {
                let (found, name) = (self.identifier(name)?, name.clone());
                if let (None, Some(literal)) = (&found, type_name(&name)) {
                    part.expr = literal;
                    return Ok(Kind::Other.into());
                }
                found.ok_or_else(|| CompileError(format!("undeclared reference to '{name}' (in container '')")))
            }
            Expr::Select(_) => self.select(part, depth),
            Expr::Call(_) => self.call(part, depth),
            Expr::Comprehension(_) => self.comprehension(part, depth),
            Expr::List(ListExpr { elements, .. }) => {
                for element in elements {
                    self.visit(element, depth + 1)?;
                }
                Ok(Kind::Any.into())
            }
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    let EntryExpr::MapEntry(entry) = &mut entry.expr else { return refuse("messages can't be made") };
                    self.visit(&mut entry.key, depth + 1)?;
                    self.visit(&mut entry.value, depth + 1)?;
                }
                Ok(Kind::Any.into())
            }
            Expr::Struct(_) | Expr::Unspecified => refuse("messages can't be made"),
        }
    }

    fn identifier(&mut self, name: &str) -> Result<Option<Part<'s>>, CompileError> {
        if let Some((_, kind)) = self.locals.iter().rev().find(|(known, _)| known == name) {
            return Ok(Some((*kind).into()));
        }
        let Some(variable) = self.scope.0.iter().find(|variable| variable.name == name) else { return Ok(None) };
        if !variable.is_value {
            return refuse(format!("'{name}' has no value of its own"));
        }
        self.reads.insert(name.to_owned());
        let path = variable.is_json.then_some(variable.cursor);
        Ok(Some(Part { kind: Kind::at(variable.cursor), path }))
    }

    fn select(&mut self, part: &mut IdedExpr, depth: usize) -> Result<Part<'s>, CompileError> {
        let Expr::Select(select) = &mut part.expr else { return Ok(Kind::Any.into()) };
        if let Some(field) = self.computed(&select.operand, &select.field)? {
            self.reads.insert(field.replace(STEP, "."));
            part.expr = Expr::Ident(if select.test { format!("{TEST}{field}") } else { field });
            return Ok(Kind::Any.into());
        }
        let of = self.visit(&mut select.operand, depth + 1)?;
        let (name, cursor) = self.field(&select.operand, of.kind, &select.field)?;
        let is_test = select.test;
        let kind = if is_test { Kind::Bool } else { Kind::at(cursor) };
        match (&select.operand.expr, of.path) {
            (Expr::Ident(path), Some(_)) => {
                let path = format!("{path}{STEP}{name}");
                part.expr = Expr::Ident(if is_test { format!("{TEST}{path}") } else { path });
                Ok(Part { kind, path: (!is_test).then_some(cursor) })
            }
            _ => Ok(kind.into()),
        }
    }

    /// The look-up of a computed field, if the operand is a variable that has such.
    fn computed(&self, operand: &IdedExpr, field: &str) -> Result<Option<String>, CompileError> {
        let Expr::Ident(name) = &operand.expr else { return Ok(None) };
        if self.locals.iter().any(|(known, _)| known == name) {
            return Ok(None);
        }
        let Some(fields) = self.scope.0.iter().find(|one| one.name == name).and_then(|one| one.fields.as_ref()) else {
            return Ok(None);
        };
        if !fields.iter().any(|known| known == field) {
            return refuse(format!("undefined field '{field}'"));
        }
        Ok(Some(format!("{name}{STEP}{field}")))
    }

    /// The stored name of a field and its schema.
    fn field(
        &self,
        operand: &IdedExpr,
        of: Kind<'s>,
        field: &str,
    ) -> Result<(String, Option<Cursor<'s>>), CompileError> {
        let undefined = || CompileError(format!("undefined field '{field}'"));
        let cursor = match of {
            Kind::Any => return Ok((field.to_owned(), None)),
            Kind::Of(cursor) if cursor.sort() == Sort::Object => cursor,
            _ => return refuse(format!("type '{}' does not support field selection", of.name().unwrap_or("value"))),
        };
        if let Expr::Ident(path) = &operand.expr {
            let metadata = format!("{STEP}metadata");
            let hides =
                |one: &Variable<'_>| one.hides_metadata && path.strip_prefix(one.name) == Some(metadata.as_str());
            if self.scope.0.iter().any(hides) && !["name", "generateName"].contains(&field) {
                return Err(undefined());
            }
        }
        let declared = unescape(field);
        match cursor.of(&declared) {
            Member::Declared(cursor) => Ok((declared.into_owned(), Some(cursor))),
            Member::Additional(cursor) => Ok((field.to_owned(), Some(cursor))),
            Member::Free => Ok((field.to_owned(), None)),
            Member::Unknown => Err(undefined()),
        }
    }

    fn call(&mut self, part: &mut IdedExpr, depth: usize) -> Result<Part<'s>, CompileError> {
        let Expr::Call(call) = &mut part.expr else { return Ok(Kind::Any.into()) };
        if let Some(rewritten) = as_loop(call)? {
            part.expr = rewritten;
            return self.visit(part, depth);
        }
        if call.func_name == "dyn" && call.target.is_none() && call.args.len() == 1 {
            *part = call.args.remove(0);
            self.visit(part, depth)?;
            return Ok(Kind::Any.into());
        }
        let namespaced = match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(name)) if self.identifier_kind(name).is_none() => {
                Some(format!("{name}.{}", call.func_name))
            }
            _ => None,
        };
        let name = namespaced.unwrap_or_else(|| call.func_name.clone());
        if !is_operator(&name) && !functions::is_known(&name) {
            return refuse(format!("undeclared reference to '{name}' (in container '')"));
        }
        let is_namespace = name.contains('.') && !is_operator(&name);
        let mut kinds = Vec::with_capacity(call.args.len() + 1);
        if !is_namespace && let Some(target) = call.target.as_mut() {
            kinds.push(self.visit(target, depth + 1)?.kind);
        }
        let mut paths = Vec::with_capacity(call.args.len());
        for arg in &mut call.args {
            let found = self.visit(arg, depth + 1)?;
            kinds.push(found.kind);
            paths.push(found.path);
        }
        check_operands(&name, &kinds)?;
        if let Some(found) = self.fold(&name, &call.args, &paths, &kinds) {
            part.expr = Expr::Ident(found.0);
            return Ok(found.1);
        }
        if name == operators::OPT_SELECT {
            call.func_name = functions::OPTIONAL_SELECT.to_owned();
        } else if name == "type" {
            call.func_name = functions::TYPE.to_owned();
        }
        guard(&name, call);
        let kind = result(&name, &kinds);
        if functions::grows(&name) {
            pay(part);
        }
        Ok(kind.into())
    }

    fn identifier_kind(&self, name: &str) -> Option<()> {
        let is_local = self.locals.iter().any(|(known, _)| known == name);
        (is_local || self.scope.0.iter().any(|variable| variable.name == name)).then_some(())
    }

    /// `path['x']` and `'x' in path` as look-ups.
    fn fold(
        &self,
        name: &str,
        args: &[IdedExpr],
        paths: &[Option<Option<Cursor<'s>>>],
        kinds: &[Kind<'s>],
    ) -> Option<(String, Part<'s>)> {
        let (map, key) = match name {
            operators::INDEX => (0, 1),
            operators::IN => (1, 0),
            _ => return None,
        };
        let (Some(Expr::Ident(path)), Some(Expr::Literal(LiteralValue::String(text)))) =
            (args.get(map).map(|arg| &arg.expr), args.get(key).map(|arg| &arg.expr))
        else {
            return None;
        };
        (*paths.get(map)?)?;
        let Kind::Of(cursor) = kinds.get(map)? else { return None };
        let text = text.inner();
        let below = match cursor.of(text) {
            Member::Additional(below) => Some(below),
            Member::Free => None,
            Member::Declared(_) | Member::Unknown => return None,
        };
        if cursor.sort() != Sort::Object || text.contains([STEP, TEST]) {
            return None;
        }
        let path = format!("{path}{STEP}{text}");
        Some(match name {
            operators::IN => (format!("{TEST}{path}"), Kind::Bool.into()),
            _ => (path, Part { kind: Kind::at(below), path: Some(below) }),
        })
    }

    fn comprehension(&mut self, part: &mut IdedExpr, depth: usize) -> Result<Part<'s>, CompileError> {
        let Expr::Comprehension(comprehension) = &mut part.expr else { return Ok(Kind::Any.into()) };
        let ComprehensionExpr { iter_range, iter_var, accu_var, accu_init, loop_cond, loop_step, result, .. } =
            comprehension.as_mut();
        let over = self.visit(iter_range, depth + 1)?;
        let item = match over.kind {
            Kind::Of(cursor) if cursor.sort() == Sort::List => Kind::at(cursor.items()),
            Kind::Of(_) => Kind::Text,
            Kind::Any => Kind::Any,
            _ => return refuse("a loop needs a list or a map"),
        };
        if over.path.is_none() && !matches!(iter_range.expr, Expr::Ident(_)) {
            pay(iter_range);
        }
        self.visit(accu_init, depth + 1)?;
        let is_truth = matches!(accu_init.expr, Expr::Literal(LiteralValue::Boolean(_)));
        let counts = matches!(accu_init.expr, Expr::Literal(LiteralValue::Int(_)));
        let accu = if is_truth { Kind::Bool } else { Kind::Any };
        self.locals.push((accu_var.clone(), accu));
        self.visit(loop_cond, depth + 1)?;
        self.locals.push((iter_var.clone(), item));
        // The items that a `map` makes are paid for, not the list that they are added to.
        if let Some(made) = added(loop_step) {
            self.visit(made, depth + 3)?;
            if !matches!(made.expr, Expr::Ident(_) | Expr::Literal(_)) {
                pay(made);
            }
            if let Some(filter) = filter(loop_step) {
                let found = self.visit(filter, depth + 2)?;
                if found.kind.differs(Kind::Bool) {
                    return refuse("the condition of a loop must be bool");
                }
            }
        } else {
            self.visit(loop_step, depth + 1)?;
        }
        self.locals.pop();
        self.visit(result, depth + 1)?;
        self.locals.pop();
        let condition = std::mem::take(loop_cond);
        *loop_cond = of_function(functions::TICK, vec![condition]);
        Ok(if is_truth || counts { Kind::Bool } else { Kind::Any }.into())
    }
}

/// The item in `accu + [item]`, also within `filter ? accu + [item] : accu`.
fn added(step: &mut IdedExpr) -> Option<&mut IdedExpr> {
    let Expr::Call(call) = &mut step.expr else { return None };
    match call.func_name.as_str() {
        operators::CONDITIONAL => call.args.get_mut(1).and_then(added),
        operators::ADD => match &mut call.args.get_mut(1)?.expr {
            Expr::List(list) => list.elements.first_mut(),
            _ => None,
        },
        _ => None,
    }
}

fn filter(step: &mut IdedExpr) -> Option<&mut IdedExpr> {
    match &mut step.expr {
        Expr::Call(call) if call.func_name == operators::CONDITIONAL => call.args.first_mut(),
        _ => None,
    }
}

fn of_function(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }) }
}

/// Makes a part cost what its value is large.
fn pay(part: &mut IdedExpr) {
    let inner = std::mem::take(part);
    *part = of_function(functions::PAY, vec![inner]);
}

/// `x.optMap(v, e)` and `x.optFlatMap(v, e)` as a loop over none or one.
fn as_loop(call: &mut CallExpr) -> Result<Option<Expr>, CompileError> {
    let is_flat = call.func_name == "optFlatMap";
    if !is_flat && call.func_name != "optMap" || call.args.len() != 2 {
        return Ok(None);
    }
    let (Some(target), Expr::Ident(name)) = (call.target.take(), &call.args[0].expr) else {
        return refuse("optMap must be called on an optional with a simple name and an expression");
    };
    // The loop gathers in a list: the library forgets that a variable is an optional.
    let list = |elements: Vec<IdedExpr>| {
        let list = ListExpr { elements, optional_indices: Vec::new() };
        IdedExpr { id: 0, expr: Expr::List(list) }
    };
    let name = name.clone();
    let made = call.args.remove(1);
    let accu = "@optional".to_owned();
    Ok(Some(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: of_function(functions::OPTIONAL_ITEMS, vec![*target]),
        iter_var: name,
        iter_var2: None,
        accu_init: list(Vec::new()),
        loop_cond: IdedExpr { id: 0, expr: Expr::Literal(LiteralValue::Boolean(true.into())) },
        loop_step: if is_flat { of_function(functions::OPTIONAL_ITEMS, vec![made]) } else { list(vec![made]) },
        result: of_function(functions::OPTIONAL_OF, vec![IdedExpr { id: 0, expr: Expr::Ident(accu.clone()) }]),
        accu_var: accu,
    }))))
}

/// The value that the name of a type stands for.
fn type_name(name: &str) -> Option<Expr> {
    const NAMES: [&str; 10] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];
    NAMES.contains(&name).then(|| Expr::Literal(LiteralValue::String(functions::type_text(name).as_str().into())))
}

fn is_operator(name: &str) -> bool {
    name.starts_with('@') || name.contains('_') && !name.chars().any(char::is_alphanumeric) || name == operators::NEGATE
}

/// Refuses operands that no operator takes.
fn check_operands(name: &str, kinds: &[Kind<'_>]) -> Result<(), CompileError> {
    let refused = match (name, kinds) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b]) => a.differs(Kind::Bool) || b.differs(Kind::Bool),
        (operators::LOGICAL_NOT, [a]) => a.differs(Kind::Bool),
        (operators::CONDITIONAL, [a, b, c]) => a.differs(Kind::Bool) || b.differs(*c),
        (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [a, b])
        | (operators::EQUALS | operators::NOT_EQUALS, [a, b]) => a.differs(*b),
        (
            operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
            [a, b],
        ) => a.differs(*b),
        _ => false,
    };
    if !refused {
        return Ok(());
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name().unwrap_or("dyn")).collect();
    refuse(format!("found no matching overload for '{name}' applied to '({})'", names.join(", ")))
}

/// What is known of the result of a function.
fn result<'s>(name: &str, kinds: &[Kind<'s>]) -> Kind<'s> {
    match name {
        operators::CONDITIONAL => match kinds {
            [_, Kind::Of(_), _] | [_, _, Kind::Of(_)] | [_, Kind::Any, _] | [_, _, Kind::Any] => Kind::Any,
            [_, kind, _] => *kind,
            _ => Kind::Any,
        },
        operators::INDEX => match kinds.first() {
            Some(Kind::Of(cursor)) if cursor.sort() == Sort::List => Kind::at(cursor.items()),
            _ => Kind::Any,
        },
        operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT
        | operators::EQUALS
        | operators::NOT_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::IN
        | operators::NOT_STRICTLY_FALSE => Kind::Bool,
        operators::ADD => match kinds {
            [Kind::Text, _] | [_, Kind::Text] => Kind::Text,
            [Kind::Number, _] | [_, Kind::Number] => Kind::Number,
            _ => Kind::Any,
        },
        _ => match functions::gives(name) {
            Some(functions::Gives::Bool) => Kind::Bool,
            Some(functions::Gives::Text) => Kind::Text,
            Some(functions::Gives::Number) => Kind::Number,
            None => Kind::Any,
        },
    }
}

/// Bounds what a function is given, where its work is more than linear in that.
fn guard(name: &str, call: &mut CallExpr) {
    let Some(guard) = functions::guard(name) else { return };
    let is_method =
        call.target.as_ref().is_some_and(|target| !matches!(target.expr, Expr::Ident(_)) || !name.contains('.'));
    if is_method && let Some(target) = call.target.as_mut() {
        let inner = std::mem::take(target.as_mut());
        **target = of_function(guard, vec![inner]);
    }
    for arg in &mut call.args {
        let inner = std::mem::take(arg);
        *arg = of_function(guard, vec![inner]);
    }
}
