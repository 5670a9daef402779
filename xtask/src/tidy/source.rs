//! Rust sources as syntax trees, each with the crate and the module path it stands at. Unit tests are left out.
//!
//! Called by the checks of modules, words, comments and formats.

use super::File;

/// A parsed file of a crate's `src`.
pub struct Source {
    /// Path from the workspace's root.
    pub path: String,
    /// Folder of the crate, as `crates/engine`.
    pub folder: String,
    /// Path of the module that the file is: `["world", "apply"]` for `src/world/apply.rs`, empty for `lib.rs`.
    pub module: Vec<String>,
    /// Lines, unit tests aside.
    pub lines: usize,
    pub tree: syn::File,
}

/// Parses what people write below any `src`. A file that does not parse is left to the compiler.
pub fn parse(files: &[File]) -> Vec<Source> {
    files.iter().filter_map(source).collect()
}

fn source(file: &File) -> Option<Source> {
    let (folder, inside) = file.path.split_once("/src/")?;
    let inside = inside.strip_suffix(".rs")?;
    let module: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if module.iter().any(|part| part == "tests" || part == "generated") {
        return None;
    }
    let module = if inside == "lib" || inside == "main" { Vec::new() } else { module };
    let mut tree = syn::parse_file(&file.text).ok()?;
    tree.items.retain(|item| !attributes(item).iter().any(is_test));
    let lines = super::layout::lines_without_tests(&file.text);
    Some(Source { path: file.path.clone(), folder: folder.to_owned(), module, lines, tree })
}

/// Whether an attribute says that what follows is compiled for tests only.
fn is_test(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string();
    list.path.is_ident("cfg")
        && (condition == "test" || condition.starts_with("any (test") || condition.starts_with("all (test"))
}

/// The traits that a type derives, by the last part of their paths.
pub fn derives(attributes: &[syn::Attribute]) -> Vec<String> {
    let mut names = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        // What can't be read here is left to the compiler.
        let _ = attribute.parse_nested_meta(|meta| {
            names.extend(meta.path.segments.last().map(|last| last.ident.to_string()));
            Ok(())
        });
    }
    names
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
