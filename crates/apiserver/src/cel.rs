//! The expression language of rules and policies: CEL, compiled once, evaluated within bounds.
//!
//! Invariant: an expression that was compiled names only variables, fields and functions that exist; an evaluation ends when
//! its [`Budget`] is spent, whatever the expression and the object, and never panics. Called by rules of CRDs and by
//! dynamic admission. The language itself is `kube-cel`'s; what is here is scope, types, values and bounds.

pub(crate) mod authorizer;
mod budget;
mod check;
mod functions;
mod values;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::cel::common::ast::IdedExpr;
use kube_cel::cel::objects::Value;
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{ExecutionError, Value as CelValue};

pub(crate) use budget::Budget;
pub(crate) use check::{Scope, Variable, Wanted};
pub(crate) use values::{Binding, Bindings, Computed};

/// Longest source of an expression, in bytes.
const SOURCE_BYTES_MAX: usize = 16 * 1024;
/// Deepest brackets of a source, and deepest nesting of what it means.
const DEPTH_MAX: usize = 64;
/// Stack of the thread that compiles: the parser descends through all levels of the grammar for each bracket.
const COMPILE_STACK_BYTES: usize = 256 * 1024 * 1024;
/// Most signs of which each may nest what stands before it once more (`a.b.c`, `1 + 2 + 3`).
const CHAIN_MAX: usize = 1500;
/// Stack of the thread that evaluates what is nested deeper than [`SHALLOW`].
const EVALUATE_STACK_BYTES: usize = 32 * 1024 * 1024;
/// What may be evaluated on the stack of the caller.
const SHALLOW: usize = 14;
/// Longest error text of an evaluation.
const ERROR_BYTES_MAX: usize = 512;

/// Why an expression can't be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("compilation failed: {0}")]
pub(crate) struct CompileError(pub(crate) String);

/// Why an evaluation gave nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EvaluateError {
    /// It took more than it may.
    #[error("operation cancelled: actual cost limit exceeded")]
    Spent,
    #[error("{0}")]
    Failed(String),
}

/// An expression that can be evaluated.
#[derive(Debug)]
pub(crate) struct Expression {
    tree: IdedExpr,
    reads: BTreeSet<String>,
    depth: usize,
}

impl Expression {
    /// Compiles a source. On a thread of its own, because the parser's need of stack is the source's to choose.
    pub(crate) fn compile(source: &str, scope: &Scope<'_>, wanted: Wanted) -> Result<Self, CompileError> {
        on_stack(COMPILE_STACK_BYTES, || Self::compile_here(source, scope, wanted))
            .unwrap_or_else(|| Err(CompileError("the expression could not be read".to_owned())))
    }

    fn compile_here(source: &str, scope: &Scope<'_>, wanted: Wanted) -> Result<Self, CompileError> {
        check_source(source)?;
        let parsed = Parser::new().enable_optional_syntax(true).parse(source);
        let mut tree = parsed.map_err(|errors| CompileError(shortened(&errors.to_string())))?;
        let found = check::check(&mut tree, scope, wanted)?;
        Ok(Self { tree, reads: found.reads, depth: found.depth })
    }

    /// Whether it looks at a variable. One of several computed ones is named `variables.x`.
    pub(crate) fn reads(&self, name: &str) -> bool {
        self.reads.contains(name)
    }

    /// The names of all variables it looks at.
    pub(crate) fn read(&self) -> impl Iterator<Item = &str> {
        self.reads.iter().map(String::as_str)
    }

    pub(crate) fn evaluate(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<CelValue, EvaluateError> {
        if budget.is_spent() {
            return Err(EvaluateError::Spent);
        }
        let evaluated = match self.depth {
            0..=SHALLOW => budget.lend(|| self.resolve(bindings)),
            _ => {
                let (spent, evaluated) = on_stack(EVALUATE_STACK_BYTES, || {
                    let mut mine = budget.clone();
                    let evaluated = mine.lend(|| self.resolve(bindings));
                    (mine, evaluated)
                })
                .ok_or_else(|| EvaluateError::Failed("the expression could not be evaluated".to_owned()))?;
                *budget = spent;
                evaluated
            }
        };
        if budget.is_spent() {
            return Err(EvaluateError::Spent);
        }
        evaluated.map_err(|error| EvaluateError::Failed(shortened(&error)))
    }

    fn resolve(&self, bindings: &Bindings<'_>) -> Result<CelValue, String> {
        let mut context = functions::context().new_inner_scope();
        context.set_variable_resolver(bindings);
        // A function of the language that panics must not take the request with it.
        let resolved = catch_unwind(AssertUnwindSafe(|| Value::resolve(&self.tree, &context)));
        resolved.map_err(|_| "the expression could not be evaluated".to_owned())?.map_err(|error| error_text(&error))
    }

    /// Its value where that is a boolean.
    pub(crate) fn holds(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<bool, EvaluateError> {
        match self.evaluate(bindings, budget)? {
            Value::Bool(truth) => Ok(truth),
            other => Err(EvaluateError::Failed(format!("expected bool, got {}", other.type_of()))),
        }
    }

    /// Its value where that is a text, without the spaces around it.
    pub(crate) fn text(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<String, EvaluateError> {
        match self.evaluate(bindings, budget)? {
            Value::String(text) => Ok(text.trim().to_owned()),
            other => Err(EvaluateError::Failed(format!("expected string, got {}", other.type_of()))),
        }
    }
}

/// A text as a value.
pub(crate) fn text(text: &str) -> CelValue {
    Value::String(Arc::new(text.to_owned()))
}

/// Runs work on a thread with a stack of its own; `None` if it panicked or there is no thread to be had.
fn on_stack<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(bytes).spawn_scoped(scope, work).ok()?;
        thread.join().ok()
    })
}

/// Bounds what the parser is given: its length, and how deep brackets and signs are nested.
fn check_source(source: &str) -> Result<(), CompileError> {
    if source.trim().is_empty() {
        return Err(CompileError("the expression is empty".to_owned()));
    }
    if source.len() > SOURCE_BYTES_MAX {
        return Err(CompileError(format!("the expression is longer than {SOURCE_BYTES_MAX} bytes")));
    }
    let (mut depth, mut signs, mut choices, mut chained) = (0_usize, 0_usize, 0_usize, 0_usize);
    for letter in source.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '?' => choices += 1,
            _ => {}
        }
        chained += usize::from(".+-*/%<>=!([".contains(letter));
        signs = if matches!(letter, '!' | '-') { signs + 1 } else { 0 };
        if depth > DEPTH_MAX || signs > DEPTH_MAX || choices > 2 * DEPTH_MAX || chained > CHAIN_MAX {
            return Err(CompileError(format!("the expression is nested deeper than {DEPTH_MAX} levels")));
        }
    }
    Ok(())
}

/// What went wrong, in upstream's words.
fn error_text(error: &ExecutionError) -> String {
    match error {
        ExecutionError::UndeclaredReference(name) => values::missing(name),
        ExecutionError::NoSuchKey(name) => format!("no such key: {name}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::ValuesNotComparable(..) => "no such overload".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(ERROR_BYTES_MAX.min(text.len()));
    text[..end].to_owned()
}

#[cfg(test)]
mod tests;
