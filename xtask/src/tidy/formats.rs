//! What the code spells for others, as one list that is committed: whoever renames a field, a variant or a type sees here
//! whether anything that is stored, sent or typed on a command line is renamed with it.
//!
//! A line is the shape of one type as others see it: names after all attributes of serde and clap, in their order, `?` where
//! one may be absent. Names and paths of Rust are not in it, so moving and renaming change nothing as long as the spelling
//! stays. Also in it are the rows of a saved World, words that macros give to variants, and SQL migrations. Lines that begin
//! with `debug` are written by hand: enums whose names stand in messages by way of `{:?}`. Called by `cargo xtask tidy` and,
//! to write the list, by `cargo xtask formats`.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;

use super::source::Source;
use super::{File, Violation};

mod case;
mod clap;
mod macros;
mod serde;

/// The list, from the workspace's root.
pub const FILE: &str = "xtask/data/formats.txt";
/// What a line about an enum begins with that is shown by its `Debug`.
const DEBUG: &str = "debug ";
/// Folders whose crates are no part of what ships.
const NOT_SHIPPED: &[&str] = &["bench", "examples", "fuzz", "tests", "xtask"];

/// Shape -> the first place that has it, as file and line.
type Shapes<'a> = BTreeMap<String, (&'a str, usize)>;

/// Compares the shapes in the code with the list.
pub fn check(files: &[File], sources: &[Source]) -> Vec<Violation> {
    let listed = listed(files);
    let found = shapes(files, sources);
    let mut violations: Vec<Violation> = found
        .iter()
        .filter(|(shape, _)| !shape.starts_with(DEBUG) && !listed.contains(shape.as_str()))
        .map(|(shape, (file, line))| {
            let advice = format!(
                "others read or write this and {FILE} does not have it: `{shape}`; what was renamed keeps its spelling by \
                 #[serde(rename = \"…\")] or the like, what is new is written by cargo xtask formats"
            );
            Violation::new(file, *line, advice)
        })
        .collect();
    violations.extend(listed.iter().zip(1..).filter(|(shape, _)| !found.contains_key(**shape)).map(|(shape, line)| {
        Violation::new(FILE, line, format!("`{shape}` is not in the code any more; does nobody have it stored?"))
    }));
    violations
}

/// The list as the code has it.
pub fn list(files: &[File], sources: &[Source]) -> String {
    let listed = listed(files);
    let found = shapes(files, sources).into_keys();
    let kept = found.filter(|shape| !shape.starts_with(DEBUG) || listed.contains(shape.as_str()));
    kept.map(|shape| shape + "\n").collect()
}

fn listed(files: &[File]) -> BTreeSet<&str> {
    files.iter().find(|file| file.path == FILE).map_or("", |file| &file.text).lines().collect()
}

fn shapes<'a>(files: &'a [File], sources: &'a [Source]) -> Shapes<'a> {
    let mut shapes = Shapes::new();
    for source in sources.iter().filter(|source| ships(&source.path)) {
        let mut finder = Finder::default();
        finder.visit_file(&source.tree);
        for (shape, line) in finder.found {
            shapes.entry(shape).or_insert((&source.path, line));
        }
    }
    for file in files.iter().filter(|file| file.path.ends_with(".sql") && ships(&file.path)) {
        for statement in file.text.split(';').filter(|statement| !statement.trim().is_empty()) {
            let words: Vec<&str> = statement.split_whitespace().collect();
            shapes.entry(format!("sql {}", words.join(" "))).or_insert((&file.path, 0));
        }
    }
    shapes
}

fn ships(path: &str) -> bool {
    !NOT_SHIPPED.iter().any(|folder| path.split('/').next() == Some(folder))
}

/// Collects shapes with their lines.
#[derive(Default)]
struct Finder {
    found: Vec<(String, usize)>,
}

impl Finder {
    fn add(&mut self, ident: &syn::Ident, shapes: impl IntoIterator<Item = String>) {
        let line = ident.span().start().line;
        self.found.extend(shapes.into_iter().map(|shape| (shape, line)));
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let derives = derives(&item.attrs);
        if derives.serde() {
            self.add(&item.ident, serde::of_struct(item, derives.reads));
        }
        if derives.arguments {
            self.add(&item.ident, clap::of_struct(item));
        }
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let derives = derives(&item.attrs);
        if derives.serde() {
            self.add(&item.ident, serde::of_enum(item, derives.reads));
        }
        if derives.debug {
            let names: Vec<String> = item.variants.iter().map(|variant| variant.ident.to_string()).collect();
            self.add(&item.ident, [format!("{DEBUG}{}", names.join(" "))]);
        }
        if derives.commands || derives.values {
            self.add(&item.ident, clap::of_enum(item, derives.values));
        }
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if item.ident.is_none()
            && let Some(name) = item.mac.path.segments.last()
        {
            self.add(&name.ident, macros::of_call(&name.ident.to_string(), item.mac.tokens.clone()));
        }
    }
}

/// What is derived for a type, as far as it spells names.
#[derive(Default)]
struct Derives {
    writes: bool,
    reads: bool,
    arguments: bool,
    commands: bool,
    values: bool,
    debug: bool,
}

impl Derives {
    fn serde(&self) -> bool {
        self.writes || self.reads
    }
}

fn derives(attributes: &[syn::Attribute]) -> Derives {
    let mut derives = Derives::default();
    for name in super::source::derives(attributes) {
        match name.as_str() {
            "Serialize" => derives.writes = true,
            "Deserialize" => derives.reads = true,
            "Debug" => derives.debug = true,
            "Args" | "Parser" => derives.arguments = true,
            "Subcommand" => derives.commands = true,
            "ValueEnum" => derives.values = true,
            _ => {}
        }
    }
    derives
}

/// The attributes `#[name(key, key = "value", …)]` of these names by their keys. A value that is no text is kept as code.
fn settings(attributes: &[syn::Attribute], names: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for attribute in attributes.iter().filter(|attribute| names.iter().any(|name| attribute.path().is_ident(name))) {
        let syn::Meta::List(list) = &attribute.meta else { continue };
        macros::settings(list.tokens.clone(), &mut found);
    }
    found
}

/// A name without the `r#` by which a word of Rust becomes one.
fn plain(ident: &syn::Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests;
