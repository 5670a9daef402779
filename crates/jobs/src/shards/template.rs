//! Names in braces in the words of a command: `--seed={seed}`, `out/{key}.parquet`.
//!
//! Invariant: only a name in braces is a place, so that shell, awk and JSON stay as they are: `${HOME}`, `{1..3}`,
//! `{print $1}`, `{"a": {}}`. `{{name}}` stands for `{name}`. A template that was read can be filled from any record with its
//! names. Called where a command is submitted, and in the pod for each record.

use super::Record;
use super::params::is_name;

/// The words of a command, with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    words: Vec<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(String),
}

/// Words that are no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A name that no record has.
    #[error("{{{name}}} in {word:?} is not known; the names are {known}; for {{{name}}} itself write {{{{{name}}}}}")]
    Unknown {
        /// The name, cut to 40 characters.
        name: String,
        /// The word, cut to 80 characters.
        word: String,
        /// The names there are.
        known: String,
    },
    /// A record that lacks a value.
    #[error("record {key:?} has no {name:?}; the bundle does not belong to this job, submit it again")]
    NoValue { key: String, name: String },
}

impl Template {
    /// Reads the words of a command; `names` is [`super::Shards::names`].
    pub fn new(words: &[String], names: &[String]) -> Result<Self, TemplateError> {
        let words = words.iter().map(|word| parse_word(word, names)).collect::<Result<_, _>>()?;
        Ok(Self { words })
    }

    /// Whether there is no place for a value, so that all records run the same words.
    pub fn is_constant(&self) -> bool {
        self.words.iter().flatten().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// The words for a record.
    pub fn fill(&self, record: &Record) -> Result<Vec<String>, TemplateError> {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => Ok(text.clone()),
            Piece::Name(name) => match name.as_str() {
                "index" => Ok(record.index.to_string()),
                "key" => Ok(record.key.clone()),
                column => record
                    .value(column)
                    .map(str::to_owned)
                    .ok_or_else(|| TemplateError::NoValue { key: record.key.clone(), name: column.to_owned() }),
            },
        };
        self.words.iter().map(|pieces| pieces.iter().map(text).collect()).collect()
    }
}

fn parse_word(word: &str, names: &[String]) -> Result<Vec<Piece>, TemplateError> {
    let cut = |text: &str, max| text.chars().take(max).collect::<String>();
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('{') {
        let (before, opened) = rest.split_at(at);
        text.push_str(before);
        if let Some((name, after)) = opened.strip_prefix("{{").and_then(|inner| split_name(inner, "}}")) {
            text.push_str(&format!("{{{name}}}"));
            rest = after;
        } else if !text.ends_with('$')
            && let Some((name, after)) = split_name(&opened[1..], "}")
        {
            if !names.iter().any(|known| known == name) {
                return Err(TemplateError::Unknown { name: cut(name, 40), word: cut(word, 80), known: listed(names) });
            }
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Name(name.to_owned()));
            rest = after;
        } else {
            text.push('{');
            rest = &opened[1..];
        }
    }
    text.push_str(rest);
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// The name that a text begins with, if just the closing braces follow it, and what comes after them.
fn split_name<'a>(text: &'a str, close: &str) -> Option<(&'a str, &'a str)> {
    let (name, after) = text.split_once(close)?;
    is_name(name).then_some((name, after))
}

/// The first names there are; a table may have many columns.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = names.iter().take(SHOWN).map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}
