//! From the text of a manifest (YAML or JSON, many documents) to objects.
//!
//! Invariant: everything is read and checked before anything is sent, so a bad last document loses
//! nothing and creates nothing. Errors name file, line and column. YAML is 1.2 with two habits of
//! kubectl kept: `0644` is octal, and `yes`/`on` stay text. Called by `submit` and `run`.

mod split;
pub(crate) mod strict_json;

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::error::{CORRECT, Failure, Remedy};
use crate::exit_code::Exit;
use split::Document;
use strict_json::StrictValue;

/// The most bytes one object may have in a manifest; the API server's own limit.
pub const OBJECT_BYTES_MAX: usize = 3 << 20;
/// The most bytes of a whole manifest.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// The deepest nesting of lists and mappings.
pub const DEPTH_MAX: usize = 100;
/// Stack of the thread that parses: the YAML parser recurses and needs up to 25 kB for each level.
const PARSER_STACK_BYTES: usize = 16 << 20;
/// Nodes that aliases may repeat in one document.
const REPLAYED_EVENTS_MAX: usize = 100_000;
/// The most objects of one manifest.
pub const OBJECTS_MAX: usize = 10_000;

/// One object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The object, a mapping with `apiVersion` and `kind`.
    pub body: Value,
    /// Where its document starts, as `file:line`.
    pub origin: String,
}

/// What is wrong with a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file can't be read.
    #[error("cannot read {origin}")]
    Read {
        origin: String,
        #[source]
        source: std::io::Error,
    },
    /// It is not UTF-8 text.
    #[error("{origin}: not UTF-8 text (byte {byte})")]
    Encoding {
        origin: String,
        /// Offset of the first wrong byte.
        byte: usize,
    },
    /// Too many bytes.
    #[error("{origin}: too large: {bytes} bytes, {what} may have {} MiB", max >> 20)]
    TooLarge {
        origin: String,
        bytes: u64,
        max: u64,
        /// What is too large.
        what: &'static str,
    },
    #[error("{origin}: more than {OBJECTS_MAX} objects; split the file")]
    TooMany { origin: String },
    /// Not YAML, or not JSON, or nested too deeply, or a key twice.
    #[error("{origin}: line {line}, column {column}: {detail}")]
    Parse {
        origin: String,
        /// Line in the file, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
        /// What is wrong there.
        detail: String,
    },
    /// A document that is no object of Kubernetes.
    #[error("{origin}: {detail}")]
    Shape {
        /// Where the document starts.
        origin: String,
        detail: String,
    },
    /// No thread to parse it on.
    #[error("cannot start a thread to parse {origin}")]
    Thread {
        origin: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{origin}: no object in it")]
    Empty { origin: String },
}

impl Failure for ManifestError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn remedy(&self) -> Remedy {
        Remedy::from_text(CORRECT)
    }
}

/// Reads a file; `-` is `stdin`.
pub fn read(path: &Path, stdin: impl Read) -> Result<Vec<Object>, ManifestError> {
    let origin = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
    let read = |reader: &mut dyn Read| {
        let mut bytes = Vec::new();
        reader.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = if path == Path::new("-") {
        let mut stdin = stdin;
        read(&mut stdin)
    } else {
        std::fs::File::open(path).and_then(|mut file| read(&mut file))
    };
    let bytes = bytes.map_err(|source| ManifestError::Read { origin: origin.clone(), source })?;
    if bytes.len() as u64 > MANIFEST_BYTES_MAX {
        let bytes = bytes.len() as u64;
        return Err(ManifestError::TooLarge { origin, bytes, max: MANIFEST_BYTES_MAX, what: "a manifest" });
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text, &origin),
        Err(error) => Err(ManifestError::Encoding { origin, byte: error.valid_up_to() }),
    }
}

/// Reads the objects of a text; `origin` is what errors call it. Lists are taken apart.
///
/// Parses on a thread of its own, so that the caller's stack, which may be small, doesn't decide how
/// deep a manifest may be.
pub fn parse(text: &str, origin: &str) -> Result<Vec<Object>, ManifestError> {
    let thread = |source| ManifestError::Thread { origin: origin.to_owned(), source };
    std::thread::scope(|scope| {
        let parser = std::thread::Builder::new()
            .stack_size(PARSER_STACK_BYTES)
            .spawn_scoped(scope, || parse_here(text, origin))
            .map_err(thread)?;
        parser.join().unwrap_or_else(|_| Err(thread(std::io::Error::other("the parser panicked"))))
    })
}

fn parse_here(text: &str, origin: &str) -> Result<Vec<Object>, ManifestError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut objects = Vec::new();
    if text.trim_start().starts_with('{') {
        for (value, line) in parse_json(text, origin)? {
            collect(value, format!("{origin}:{line}"), &mut objects)?;
        }
    } else {
        for document in split::documents(text) {
            if document.text.len() > OBJECT_BYTES_MAX {
                return Err(too_large(origin, &document));
            }
            let value = parse_yaml(&document, origin)?;
            collect(value, format!("{origin}:{}", document.line), &mut objects)?;
        }
    }
    match objects.len() {
        0 => Err(ManifestError::Empty { origin: origin.to_owned() }),
        n if n > OBJECTS_MAX => Err(ManifestError::TooMany { origin: origin.to_owned() }),
        _ => Ok(objects),
    }
}

fn too_large(origin: &str, document: &Document<'_>) -> ManifestError {
    ManifestError::TooLarge {
        origin: format!("{origin}:{}", document.line),
        bytes: document.text.len() as u64,
        max: OBJECT_BYTES_MAX as u64,
        what: "an object",
    }
}

/// A text that starts like JSON: read as JSON, which gives the better errors, unless it turns out to
/// be YAML's flow style.
fn parse_json(text: &str, origin: &str) -> Result<Vec<(Value, u64)>, ManifestError> {
    let mut values = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<StrictValue>();
    loop {
        let start = stream.byte_offset();
        let (next, end) = (stream.next(), stream.byte_offset());
        let first = start + text[start..].len() - text[start..].trim_start().len();
        let line = 1 + text[..first].matches('\n').count() as u64;
        match next {
            None => return Ok(values),
            Some(Ok(_)) if end - first > OBJECT_BYTES_MAX => {
                let document = Document { text: &text[first..end], line };
                return Err(too_large(origin, &document));
            }
            Some(Ok(StrictValue(value))) => values.push((value, line)),
            Some(Err(error)) => {
                if error.is_syntax() && values.is_empty() && text.len() <= OBJECT_BYTES_MAX {
                    let whole = Document { text, line: 1 };
                    if let Ok(value) = parse_yaml(&whole, origin) {
                        return Ok(vec![(value, 1)]);
                    }
                }
                return Err(json_error(&error, origin));
            }
        }
    }
}

fn json_error(error: &serde_json::Error, origin: &str) -> ManifestError {
    let text = error.to_string();
    let detail = text.rsplit_once(" at line ").map_or(text.as_str(), |(detail, _)| detail);
    let detail = if detail.starts_with("recursion limit") { "nested too deeply" } else { detail };
    ManifestError::Parse {
        origin: origin.to_owned(),
        line: error.line() as u64,
        column: error.column() as u64,
        detail: detail.to_owned(),
    }
}

fn parse_yaml(document: &Document<'_>, origin: &str) -> Result<Value, ManifestError> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        legacy_octal_numbers: true,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::Error,
        budget: serde_saphyr::budget! {
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_documents: 1,
            max_aliases: 10_000,
            max_events: 2_000_000,
            max_nodes: 1_000_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: REPLAYED_EVENTS_MAX },
    };
    serde_saphyr::from_str_with_options::<Value>(document.text, options).map_err(|error| {
        let error = error.without_snippet();
        let location = error.location();
        ManifestError::Parse {
            origin: origin.to_owned(),
            line: document.line - 1 + location.map_or(1, |l| l.line()),
            column: location.map_or(1, |l| l.column()),
            detail: yaml_detail(&error.to_string()),
        }
    })
}

/// The parser's sentence without the position, which we count for the file and not the document.
fn yaml_detail(text: &str) -> String {
    let detail = text.split(" at line ").next().unwrap_or(text);
    let detail = match detail.split_once(": ") {
        Some((place, rest)) if place.starts_with("line ") => rest,
        _ => detail,
    };
    if detail.contains("Depth") || detail.contains("nesting") || detail.contains("recursion") {
        return format!("nested too deeply: more than {DEPTH_MAX} levels");
    }
    let detail = detail.split(", set DuplicateKeyPolicy").next().unwrap_or(detail);
    detail.lines().next().unwrap_or(detail).trim_end_matches('.').to_owned()
}

/// Adds a document's objects: none for an empty one, the items of a `List`, else itself.
fn collect(value: Value, origin: String, objects: &mut Vec<Object>) -> Result<(), ManifestError> {
    if value.is_null() {
        return Ok(());
    }
    let shape = |detail: &str| ManifestError::Shape { origin: origin.clone(), detail: detail.to_owned() };
    let Some(map) = value.as_object() else {
        return Err(shape("not a mapping; an object starts with apiVersion and kind"));
    };
    let word = |key: &str| map.get(key).and_then(Value::as_str).filter(|word| !word.is_empty());
    let (Some(_), Some(kind)) = (word("apiVersion"), word("kind")) else {
        return Err(shape("apiVersion or kind is missing or not text"));
    };
    if map.get("metadata").is_some_and(|metadata| !metadata.is_object() && !metadata.is_null()) {
        return Err(shape("metadata is not a mapping"));
    }
    if kind == "List" {
        let mut body = value;
        let items = body.get_mut("items").map(Value::take);
        for item in items.as_ref().and_then(Value::as_array).into_iter().flatten() {
            if item.get("kind").and_then(Value::as_str) == Some("List") {
                return Err(shape("a List inside a List"));
            }
            collect(item.clone(), origin.clone(), objects)?;
        }
        return Ok(());
    }
    objects.push(Object { body: value, origin });
    Ok(())
}
