//! Names in what macros are given, which is not parsed as Rust.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The shapes of a call that stands where items do: rows of a saved World, or words that stand for variants.
pub fn of_call(name: &str, tokens: TokenStream) -> Vec<String> {
    match name {
        "saved" => rows(tokens).iter().map(|(row, fields)| format!("saved row {row} {}", fields.join(" "))).collect(),
        "saved_enum" => rows(tokens).iter().map(|(_, variants)| format!("saved word {}", variants.join(" "))).collect(),
        _ => {
            let mut words = Vec::new();
            assigned(tokens, &mut words);
            if words.is_empty() { Vec::new() } else { vec![format!("words {}", words.join(" "))] }
        }
    }
}

/// `Row { a, b }` as its name and fields. What is followed by `as "name"` goes by that.
fn rows(tokens: TokenStream) -> Vec<(String, Vec<String>)> {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    let mut name = String::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident != "as" => name = ident.to_string(),
            TokenTree::Literal(literal) => name = text(&literal.to_string()),
            TokenTree::Group(group) if name != "except" => rows.push((std::mem::take(&mut name), names(&group))),
            _ => {}
        }
    }
    rows
}

/// The names of a list, each by what it is saved as.
fn names(list: &Group) -> Vec<String> {
    let mut names = Vec::new();
    for token in list.stream() {
        match token {
            TokenTree::Ident(ident) if ident != "as" => names.push(ident.to_string()),
            TokenTree::Literal(literal) => {
                names.pop();
                names.push(text(&literal.to_string()));
            }
            _ => {}
        }
    }
    names
}

/// Every text that follows a name and `=`, attributes aside.
fn assigned(tokens: TokenStream, words: &mut Vec<String>) {
    let mut last = [None, None];
    let mut attribute = false;
    for token in tokens {
        if let TokenTree::Literal(literal) = &token
            && let [
                Some(TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Group(_)),
                Some(TokenTree::Punct(equals)),
            ] = &last
            && equals.as_char() == '='
            && literal.to_string().starts_with('"')
        {
            words.push(text(&literal.to_string()));
        }
        if let TokenTree::Group(group) = &token
            && !(attribute && group.delimiter() == Delimiter::Bracket)
        {
            assigned(group.stream(), words);
        }
        attribute = matches!(&token, TokenTree::Punct(hash) if hash.as_char() == '#');
        last = [last[1].take(), Some(token)];
    }
}

/// `key`, `key = value` and `key(…)`, separated by commas. A key without a value has an empty one.
pub fn settings(tokens: TokenStream, found: &mut BTreeMap<String, String>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let TokenTree::Ident(key) = token else { continue };
        let mut value = Vec::new();
        while let Some(token) =
            tokens.next_if(|token| !matches!(token, TokenTree::Punct(comma) if comma.as_char() == ','))
        {
            value.push(token.to_string());
        }
        let value = value.strip_prefix(&["=".to_owned()]).unwrap_or(&value).concat();
        found.insert(key.to_string(), text(&value));
    }
}

/// What stands between quotes, or all of it where there are none.
fn text(literal: &str) -> String {
    literal.trim_matches(|quote| quote == '"' || quote == '\'').to_owned()
}
