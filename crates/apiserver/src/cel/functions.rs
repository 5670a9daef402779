//! Functions of the language: those of `kube-cel`, ours that bound them, and what is known of each.
//!
//! Invariant: every function that may be called stands in [`KNOWN`]; one whose work or result is more than linear in what
//! it is given is bounded by [`guard`], replaced here, or pays for its result.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::{Key, OptionalValue, Value};
use kube_cel::cel::{Context, ExecutionError, Program, ResolveResult};
use regex::{Regex, RegexBuilder};

use super::budget::{BYTES_PER_STEP, spend};
use super::values::optional;

/// Before each round of a loop.
pub(super) const TICK: &str = "@tick";
/// Pays for a value.
pub(super) const PAY: &str = "@pay";
pub(super) const OPTIONAL_SELECT: &str = "@optional_select";
pub(super) const OPTIONAL_ITEMS: &str = "@optional_items";
pub(super) const OPTIONAL_OF: &str = "@optional_of";
pub(super) const TYPE: &str = "@type";
const FEW: &str = "@few";
const SHORT: &str = "@short";

/// Most items of a list whose items are compared with each other.
const ITEMS_MAX: usize = 2000;
/// Longest text of functions that search or take apart.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most bytes that a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 512 * 1024;
/// Compiled patterns that a thread keeps.
const PATTERNS_MAX: usize = 64;
/// Longest text of a format, and largest precision in it.
const FORMAT_BYTES_MAX: usize = 4096;
const PRECISION_MAX: usize = 64;

/// Every function and namespace of functions.
const KNOWN: &str = " abs asApproximateFloat asInteger base64.decode base64.encode bool bytes charAt cidr compareTo contains \
    containsCIDR containsIP distinct double duration endsWith family find findAll first flatten format format.byte \
    format.date format.datetime format.dns1035Label format.dns1035LabelPrefix format.dns1123Label format.dns1123LabelPrefix \
    format.dns1123Subdomain format.dns1123SubdomainPrefix format.labelValue format.named format.qualifiedName format.uri \
    format.uuid getDate getDayOfMonth getDayOfWeek getDayOfYear getEscapedPath getFullYear getHost getHostname getHours \
    getMilliseconds getMinutes getMonth getPort getQuery getScheme getSeconds hasValue indexOf int ip ip.isCanonical isCIDR \
    isCIDRv4 isCIDRv6 isGlobalUnicast isGreaterThan isIP isIPv4 isIPv6 isInteger isLessThan isLinkLocalMulticast \
    isLinkLocalUnicast isLoopback isQuantity isSemver isSorted isURL isUnspecified join jsonpatch.escapeKey last lastIndexOf \
    lists.range lowerAscii major masked matches math.abs math.bitAnd math.bitNot math.bitOr math.bitShiftLeft \
    math.bitShiftRight math.bitXor math.ceil math.floor math.greatest math.isFinite math.isInf math.isNaN math.least \
    math.round math.sign math.sqrt math.trunc max min minor add optional.none optional.of optional.ofNonZeroValue or orValue \
    patch prefixLength quantity replace reverse semver sets.contains sets.equivalent sets.intersects sign size slice sort \
    split startsWith string strings.quote sub substring sum timestamp trim type uint upperAscii url validate value group \
    resource subresource namespace name path serviceAccount check allowed reason errored error fieldSelector labelSelector ";
const GIVE_BOOL: &str = " bool contains containsCIDR containsIP endsWith hasValue ip.isCanonical isCIDR isGlobalUnicast \
    isGreaterThan isIP isInteger isLessThan isLinkLocalMulticast isLinkLocalUnicast isLoopback isQuantity isSemver isSorted \
    isURL isUnspecified matches sets.contains sets.equivalent sets.intersects startsWith allowed errored ";
const GIVE_TEXT: &str = " base64.encode charAt find format join lowerAscii replace string strings.quote substring trim \
    upperAscii ";
const GIVE_NUMBER: &str = " double indexOf int lastIndexOf size uint ";
const GROW: &str = " _+_ base64.decode base64.encode bytes findAll flatten format join lists.range replace slice sort split \
    string strings.quote url ";
const SEARCH: &str = " find findAll format indexOf join lastIndexOf matches replace split ";
const COMPARE: &str = " distinct sets.contains sets.equivalent sets.intersects ";

#[derive(Clone, Copy)]
pub(super) enum Gives {
    Bool,
    Text,
    Number,
}

fn is_in(list: &str, name: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == name)
}

pub(super) fn is_known(name: &str) -> bool {
    is_in(KNOWN, name)
}

/// What a function gives, where that is known.
pub(super) fn gives(name: &str) -> Option<Gives> {
    [(GIVE_BOOL, Gives::Bool), (GIVE_TEXT, Gives::Text), (GIVE_NUMBER, Gives::Number)]
        .into_iter()
        .find(|(list, _)| is_in(list, name))
        .map(|(_, gives)| gives)
}

/// Whether its result may be larger than what it was given.
pub(super) fn grows(name: &str) -> bool {
    is_in(GROW, name)
}

/// What bounds the arguments of a function.
pub(super) fn guard(name: &str) -> Option<&'static str> {
    if is_in(COMPARE, name) {
        return Some(FEW);
    }
    is_in(SEARCH, name).then_some(SHORT)
}

/// The value that a type is.
pub(super) fn type_text(name: &str) -> String {
    format!("\u{2}type {name}")
}

/// The context with all functions and no variables.
pub(super) fn context() -> &'static Context<'static> {
    static CONTEXT: LazyLock<Context<'static>> = LazyLock::new(|| {
        let mut context = Context::default().with_all();
        context.add_function(TICK, tick);
        context.add_function(PAY, pay);
        context.add_function(FEW, few);
        context.add_function(SHORT, short);
        context.add_function(OPTIONAL_SELECT, optional_select);
        context.add_function(OPTIONAL_ITEMS, optional_items);
        context.add_function(OPTIONAL_OF, optional_of);
        context.add_function(TYPE, type_of);
        context.add_function("bool", truth);
        context.add_function("matches", matches);
        context.add_function("find", find);
        context.add_function("findAll", find_all);
        context.add_function("format", format);
        context.add_function("replace", replace);
        context.add_function("join", join);
        context.add_function("lists.range", range);
        crate::cel::authorizer::register(&mut context);
        context
    });
    &CONTEXT
}

/// The library's functions alone, for ours that bound them.
fn library() -> &'static Context<'static> {
    static LIBRARY: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());
    &LIBRARY
}

fn failed(function: &str, cause: &str) -> ExecutionError {
    ExecutionError::function_error(function, cause)
}

fn spent() -> ExecutionError {
    failed("cost", "operation cancelled: actual cost limit exceeded")
}

fn tick(condition: Value) -> ResolveResult {
    if spend(1) { Ok(condition) } else { Err(spent()) }
}

fn pay(value: Value) -> ResolveResult {
    if spend(size(&value)) { Ok(value) } else { Err(spent()) }
}

/// What a value costs.
fn size(value: &Value) -> u64 {
    match value {
        Value::String(text) => 1 + (text.len() / BYTES_PER_STEP) as u64,
        Value::Bytes(bytes) => 1 + (bytes.len() / BYTES_PER_STEP) as u64,
        Value::List(items) => items.iter().map(size).sum::<u64>() + 1,
        Value::Map(map) => map.map.values().map(size).sum::<u64>() + map.map.len() as u64 + 1,
        _ => 1,
    }
}

fn few(value: Value) -> ResolveResult {
    match &value {
        Value::List(items) if items.len() > ITEMS_MAX => {
            Err(failed("list", &format!("lists that are compared may have at most {ITEMS_MAX} items")))
        }
        _ => pay(value),
    }
}

fn short(value: Value) -> ResolveResult {
    match &value {
        Value::String(text) if text.len() > TEXT_BYTES_MAX => {
            Err(failed("text", &format!("texts that are searched may have at most {TEXT_BYTES_MAX} bytes")))
        }
        _ => pay(value),
    }
}

fn optional_select(of: Value, field: Arc<String>) -> ResolveResult {
    let inner = match &of {
        Value::Opaque(opaque) => match opaque.downcast_ref::<OptionalValue>() {
            Some(optional) => optional.value().cloned(),
            None => return Err(ExecutionError::NoSuchOverload),
        },
        other => Some(other.clone()),
    };
    let found = match inner {
        Some(Value::Map(map)) => map.map.get(&Key::String(field)).cloned(),
        Some(Value::Null) | None => None,
        Some(_) => return Err(ExecutionError::NoSuchOverload),
    };
    Ok(optional(found))
}

fn optional_items(of: Value) -> ResolveResult {
    let Value::Opaque(opaque) = &of else { return Err(ExecutionError::NoSuchOverload) };
    let optional = opaque.downcast_ref::<OptionalValue>().ok_or(ExecutionError::NoSuchOverload)?;
    Ok(Value::List(Arc::new(optional.value().cloned().into_iter().collect())))
}

/// An optional of a list's only item.
fn optional_of(list: Value) -> ResolveResult {
    let Value::List(items) = &list else { return Err(ExecutionError::NoSuchOverload) };
    Ok(optional(items.first().cloned()))
}

fn type_of(value: Value) -> ResolveResult {
    let name = match value {
        Value::Bool(_) => "bool",
        Value::Bytes(_) => "bytes",
        Value::Float(_) => "double",
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Null => "null_type",
        Value::String(text) if text.starts_with('\u{2}') => "type",
        Value::String(_) => "string",
        _ => "other",
    };
    Ok(super::text(&type_text(name)))
}

fn truth(value: Value) -> ResolveResult {
    match &value {
        Value::Bool(_) => Ok(value),
        Value::String(text) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(failed("bool", "cannot convert string to bool")),
        },
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// A compiled pattern. A thread keeps some: a loop matches the same one for each item.
fn pattern(source: &str) -> Result<Regex, ExecutionError> {
    thread_local! {
        static PATTERNS: RefCell<HashMap<String, Regex>> = RefCell::new(HashMap::new());
    }
    PATTERNS.with_borrow_mut(|patterns| {
        if let Some(known) = patterns.get(source) {
            return Ok(known.clone());
        }
        let compiled = RegexBuilder::new(source)
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .build()
            .map_err(|error| failed("matches", &format!("invalid regular expression: {error}")))?;
        if patterns.len() >= PATTERNS_MAX {
            patterns.clear();
        }
        patterns.insert(source.to_owned(), compiled.clone());
        Ok(compiled)
    })
}

fn matches(This(text): This<Arc<String>>, source: Arc<String>) -> ResolveResult {
    Ok(Value::Bool(pattern(&source)?.is_match(&text)))
}

fn find(This(text): This<Arc<String>>, source: Arc<String>) -> ResolveResult {
    Ok(super::text(pattern(&source)?.find(&text).map_or("", |found| found.as_str())))
}

fn find_all(This(text): This<Arc<String>>, Arguments(args): Arguments) -> ResolveResult {
    let Some(Value::String(source)) = args.first() else { return Err(ExecutionError::NoSuchOverload) };
    let most = match args.get(1) {
        Some(Value::Int(most)) if *most >= 0 => usize::try_from(*most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let pattern = pattern(source)?;
    let found = pattern.find_iter(&text).take(most).map(|found| super::text(found.as_str()));
    Ok(Value::List(Arc::new(found.collect())))
}

/// The library's format, of a text whose precisions can't make it large.
fn format(This(text): This<Arc<String>>, args: Value) -> ResolveResult {
    let too_precise = text.split("%.").skip(1).any(|rest| {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse::<usize>().map_or(digits > 0, |precision| precision > PRECISION_MAX)
    });
    if text.len() > FORMAT_BYTES_MAX || too_precise {
        return Err(failed("format", "the format is too long, or too precise"));
    }
    static PROGRAM: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("text.format(items)").ok());
    let Some(program) = PROGRAM.as_ref() else { return Err(ExecutionError::NoSuchOverload) };
    let mut context = library().new_inner_scope();
    context.add_variable_from_value("text", Value::String(text));
    context.add_variable_from_value("items", args);
    program.execute(&context)
}

fn replace(This(text): This<Arc<String>>, Arguments(args): Arguments) -> ResolveResult {
    let (Some(Value::String(from)), Some(Value::String(to))) = (args.first(), args.get(1)) else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let most = match args.get(2) {
        Some(Value::Int(most)) if *most >= 0 => usize::try_from(*most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let places = text.matches(from.as_str()).take(most).count();
    if !spend((places.saturating_mul(to.len()) / BYTES_PER_STEP) as u64) {
        return Err(spent());
    }
    Ok(super::text(&text.replacen(from.as_str(), to, most)))
}

fn join(This(items): This<Arc<Vec<Value>>>, Arguments(args): Arguments) -> ResolveResult {
    let between = match args.first() {
        Some(Value::String(between)) => between.as_str(),
        None => "",
        Some(_) => return Err(ExecutionError::NoSuchOverload),
    };
    if !spend((items.len().saturating_mul(between.len()) / BYTES_PER_STEP) as u64) {
        return Err(spent());
    }
    let texts: Result<Vec<&str>, ExecutionError> = items
        .iter()
        .map(|item| match item {
            Value::String(text) => Ok(text.as_str()),
            _ => Err(ExecutionError::NoSuchOverload),
        })
        .collect();
    Ok(super::text(&texts?.join(between)))
}

fn range(end: i64) -> ResolveResult {
    if !spend(u64::try_from(end).unwrap_or_default()) {
        return Err(spent());
    }
    Ok(Value::List(Arc::new((0..end).map(Value::Int).collect())))
}

/// A moment, or a day, as the library reads it.
pub(super) fn moment(text: &str) -> Option<Value> {
    let whole = if text.len() == "2006-01-02".len() { format!("{text}T00:00:00Z") } else { text.to_owned() };
    converted("timestamp(text)", &whole)
}

/// A length of time as the library reads it.
pub(super) fn duration(text: &str) -> Option<Value> {
    converted("duration(text)", text)
}

fn converted(source: &'static str, text: &str) -> Option<Value> {
    static PROGRAMS: LazyLock<[Option<Program>; 2]> =
        LazyLock::new(|| ["timestamp(text)", "duration(text)"].map(|source| Program::compile(source).ok()));
    let program = PROGRAMS[usize::from(source.starts_with('d'))].as_ref()?;
    let mut context = library().new_inner_scope();
    context.add_variable_from_value("text", super::text(text));
    program.execute(&context).ok()
}
