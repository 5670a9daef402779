//! Rows of a file one after the other, each checked, with its key.
//!
//! Invariant: after an error nothing more comes. Called by what packs bundles.

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _};

use ring::digest::{SHA256, digest};
use serde_json::{Map, Value};

use super::error::{Fault, ParamsError};
use super::{COLUMNS_MAX, Format, KeyBy, NAME_BYTES_MAX, NAMES_BYTES_MAX, ROW_BYTES_MAX, csv};
use crate::manifest::strict_json::StrictValue;
use crate::shards::record::{text_of, variable};
use crate::shards::{KEY_BYTES_MAX, Kind, RECORDS_MAX};

/// How many bytes of a row's hash are its key; in hexadecimal, twice as many characters.
const KEY_HASH_BYTES: usize = 10;

/// A row of parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its key, which no other row has.
    pub key: String,
    /// Its values as canonical JSON, an object: [`crate::shards::Record::from_json`] reads it.
    pub json: Vec<u8>,
    /// Its first line in the file, from 1.
    pub line: u64,
}

/// The first line of a row, and its values.
type Numbered = (u64, Map<String, Value>);

/// A file of parameters, read row by row.
pub struct Params<R> {
    origin: String,
    format: Format,
    key: KeyBy,
    lines: Lines<R>,
    columns: Vec<String>,
    /// The first row of JSON lines, which is read for its names.
    first: Option<Numbered>,
    /// The line of each key by 64 bits of its hash, as the keys themselves could take gigabytes. That any two of ten million
    /// keys share these bits, and are refused for it, has a chance of three in a million.
    seen: HashMap<u64, u64>,
    ended: bool,
}

impl<R: BufRead> Params<R> {
    /// Reads the names of the columns. `origin` names the file in errors.
    pub fn open(origin: &str, format: Format, key: KeyBy, input: R) -> Result<Self, ParamsError> {
        let mut params = Self {
            origin: origin.to_owned(),
            format,
            key,
            lines: Lines::new(input),
            columns: vec![],
            first: None,
            seen: HashMap::new(),
            ended: false,
        };
        params.columns = match format {
            Format::Csv => match params.row_text()? {
                None => return Err(params.at(1, Fault::NoHeader)),
                Some((line, text)) => csv::fields(without_end(&text)).map_err(|fault| params.at(line, fault))?,
            },
            Format::JsonLines => {
                params.first = params.object()?;
                params.first.iter().flat_map(|(_, object)| object.keys().cloned()).collect()
            }
        };
        if params.first.is_none() && format == Format::JsonLines {
            return Err(ParamsError::NoRows { origin: params.origin });
        }
        let line = params.first.as_ref().map_or(1, |(line, _)| *line);
        check_names(&params.columns).map_err(|fault| params.at(line, fault))?;
        match &params.key {
            KeyBy::Column(column) if !params.columns.contains(column) => Err(ParamsError::NoKeyColumn {
                origin: params.origin,
                column: column.clone(),
                known: params.columns.join(", "),
            }),
            _ => Ok(params),
        }
    }

    /// The names of the columns: in the order of the header, or of JSON lines sorted.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    fn at(&self, line: u64, fault: Fault) -> ParamsError {
        ParamsError::Line { origin: self.origin.clone(), line, fault }
    }

    /// The text of the next row with its line end, and its first line. A quoted field may have several lines.
    fn row_text(&mut self) -> Result<Option<(u64, String)>, ParamsError> {
        let line = self.lines.count() + 1;
        let mut row = Vec::new();
        loop {
            let read = self.lines.read(&mut row, ROW_BYTES_MAX);
            let read = read.map_err(|source| ParamsError::Read {
                origin: self.origin.clone(),
                line: self.lines.count(),
                source,
            })?;
            match read {
                Read::End if row.is_empty() => return Ok(None),
                Read::End => break,
                Read::Line if self.format == Format::Csv && !csv::is_whole(&row) => {}
                Read::Line => break,
                Read::TooLong => return Err(self.at(line, Fault::RowTooLong)),
            }
        }
        let text = String::from_utf8(row)
            .map_err(|error| self.at(line, Fault::NotUtf8 { byte: error.utf8_error().valid_up_to() + 1 }))?;
        Ok(Some((line, text)))
    }

    /// The next row with its names.
    fn object(&mut self) -> Result<Option<Numbered>, ParamsError> {
        let Some((line, text)) = self.row_text()? else { return Ok(None) };
        let row = without_end(&text);
        let object = match self.format {
            Format::Csv => named_fields(&self.columns, row),
            Format::JsonLines => flat_object(row),
        };
        object.map(|object| Some((line, object))).map_err(|fault| self.at(line, fault))
    }

    fn next_row(&mut self) -> Result<Option<Row>, ParamsError> {
        let read = match self.first.take() {
            Some(first) => Some(first),
            None => self.object()?,
        };
        let Some((line, object)) = read else {
            let empty = self.seen.is_empty();
            return if empty { Err(ParamsError::NoRows { origin: self.origin.clone() }) } else { Ok(None) };
        };
        let fault = |fault| ParamsError::Line { origin: self.origin.clone(), line, fault };
        check_values(&self.columns, &object).map_err(fault)?;
        if self.seen.len() == RECORDS_MAX as usize {
            return Err(fault(Fault::TooManyRows));
        }
        let json = Value::Object(object.clone()).to_string().into_bytes();
        let (key, advice) = match &self.key {
            KeyBy::Content => (content_key(&json), "the rows say the same: remove one, or name a column by --key"),
            KeyBy::Column(column) => {
                let key = object.get(column).cloned().map(text_of).unwrap_or_default();
                (checked_key(column, key).map_err(fault)?, "give each row a key of its own")
            }
        };
        if let Some(first) = self.seen.insert(fingerprint(&key), line) {
            return Err(fault(Fault::Duplicate { key, first, advice }));
        }
        Ok(Some(Row { key, json, line }))
    }
}

impl<R: BufRead> Iterator for Params<R> {
    type Item = Result<Row, ParamsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let row = self.next_row().transpose();
        self.ended = !matches!(row, Some(Ok(_)));
        row
    }
}

/// Reads a row of CSV: a field for each column.
fn named_fields(columns: &[String], row: &str) -> Result<Map<String, Value>, Fault> {
    // An empty value of an only column is written in quotes, so that a stray line is never a run.
    if row.is_empty() {
        return Err(Fault::EmptyRow);
    }
    let fields = csv::fields(row)?;
    if fields.len() != columns.len() {
        return Err(Fault::Ragged { found: fields.len(), expected: columns.len() });
    }
    Ok(columns.iter().cloned().zip(fields.into_iter().map(Value::String)).collect())
}

/// Reads a line of JSON: an object of plain values, each name once.
fn flat_object(line: &str) -> Result<Map<String, Value>, Fault> {
    if line.trim().is_empty() {
        return Err(Fault::EmptyLine);
    }
    match serde_json::from_str(line) {
        Ok(StrictValue(Value::Object(object))) => {
            let long_digits = line.as_bytes().split(|byte| !byte.is_ascii_digit()).any(|digits| digits.len() >= 20);
            let beyond = |value: &Value| value.as_f64().is_some_and(|n| n.abs() >= u64::MAX as f64);
            match object.iter().find(|(_, value)| long_digits && value.is_f64() && beyond(value)) {
                Some((column, _)) => Err(Fault::BigNumber { column: column.clone() }),
                None => Ok(object),
            }
        }
        Ok(_) => Err(Fault::NotObject),
        Err(error) => {
            // The parser counts lines within this one.
            let text = error.to_string();
            let text = text.split(" at line ").next().unwrap_or_default().to_owned();
            Err(Fault::NotJson { text, column: error.column() })
        }
    }
}

/// Checks names of columns, which are in a rule, in templates and in variables.
/// Whether a text is a column's name.
pub(in crate::shards) fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    let others = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    first && others && text.len() <= NAME_BYTES_MAX
}

fn check_names(columns: &[String]) -> Result<(), Fault> {
    if columns.len() > COLUMNS_MAX {
        return Err(Fault::TooManyColumns { found: columns.len() });
    }
    let mut variables: HashMap<String, &String> = HashMap::new();
    for (position, name) in (1..).zip(columns) {
        if !is_name(name) {
            return Err(Fault::Name { position, name: name.chars().take(80).collect() });
        }
        if name == "index" || name == "key" {
            return Err(Fault::Reserved { position, name: name.clone() });
        }
        let variable = variable(Kind::Params, name);
        if let Some(first) = variables.insert(variable.clone(), name) {
            return Err(Fault::SameVariable { first: first.clone(), second: name.clone(), variable });
        }
    }
    let found = columns.iter().map(|name| name.len() + 1).sum();
    if found > NAMES_BYTES_MAX { Err(Fault::NamesTooLong { found }) } else { Ok(()) }
}

/// Checks that a row has the columns there are, with values that a program can be given.
fn check_values(columns: &[String], object: &Map<String, Value>) -> Result<(), Fault> {
    if let Some(column) = columns.iter().find(|column| !object.contains_key(*column)) {
        return Err(Fault::MissingColumn { column: column.clone() });
    }
    for (column, value) in object {
        let fault = match value {
            Value::Array(_) => Fault::Nested { column: column.clone(), what: "a list" },
            Value::Object(_) => Fault::Nested { column: column.clone(), what: "an object" },
            Value::String(text) if text.contains('\0') => Fault::ZeroByte { column: column.clone() },
            // As many columns as there are and none missing: none unknown.
            _ if object.len() == columns.len() || columns.contains(column) => continue,
            _ => Fault::UnknownColumn { column: column.chars().take(80).collect() },
        };
        return Err(fault);
    }
    Ok(())
}

fn checked_key(column: &str, key: String) -> Result<String, Fault> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.contains(char::is_control) {
        return Err(Fault::Key { column: column.to_owned(), key: key.chars().take(80).collect() });
    }
    Ok(key)
}

fn content_key(json: &[u8]) -> String {
    let hash = digest(&SHA256, json);
    hash.as_ref().iter().take(KEY_HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

fn fingerprint(key: &str) -> u64 {
    let hash = digest(&SHA256, key.as_bytes());
    hash.as_ref().iter().take(8).fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// A source of lines. No more of one is kept than the caller's bound, however long it is.
struct Lines<R> {
    input: R,
    /// How many lines were read.
    count: u64,
}

/// How reading a line went.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    /// A line was added.
    Line,
    /// There is none.
    End,
    /// It goes beyond the bound.
    TooLong,
}

impl<R: BufRead> Lines<R> {
    fn new(input: R) -> Self {
        Self { input, count: 0 }
    }

    /// How many lines were read.
    fn count(&self) -> u64 {
        self.count
    }

    /// Adds the next line with its end to `text`, which may get `bytes_max` bytes.
    fn read(&mut self, text: &mut Vec<u8>, bytes_max: usize) -> io::Result<Read> {
        let before = text.len();
        // One byte more than allowed tells a line that is just as long from one that goes on.
        let room = (bytes_max + 1).saturating_sub(before) as u64;
        self.input.by_ref().take(room).read_until(b'\n', text)?;
        if text.len() == before {
            return Ok(if room == 0 { Read::TooLong } else { Read::End });
        }
        self.count += 1;
        if self.count == 1 && text.starts_with("\u{feff}".as_bytes()) {
            text.drain(..'\u{feff}'.len_utf8());
        }
        Ok(if text.len() > bytes_max { Read::TooLong } else { Read::Line })
    }
}

/// A line without its end, which is `\n` or `\r\n`.
fn without_end(line: &str) -> &str {
    line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line))
}
