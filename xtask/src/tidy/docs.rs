//! What documentation comments must say: a public item of a library has one, and none is a line that says nothing.
//!
//! Instead of rustc's `missing_docs`, which asks for a line on each field and variant, too: where the name says it all, the
//! line was `/// The name.`, and a reader skipped such lines with those that say something. A line of up to three words
//! passes if it has code, a number or a unit in it. Types whose comments are shown to people, as a help text or as a
//! description in a schema, are left alone.

use std::collections::HashSet;

use syn::visit::Visit;

use super::Violation;
use super::source::{self, Source};

/// A comment of one line with no more words than this says no more than the name does.
const WORDS_MIN: usize = 4;
/// Words that make a short line worth reading: units, forms, bounds, orders, and what a lack stands for.
const TELLING: &[&str] = &[
    "absolute",
    "after",
    "always",
    "ascending",
    "base64",
    "before",
    "bits",
    "by",
    "bytes",
    "camelcase",
    "case-insensitive",
    "cores",
    "default",
    "descending",
    "empty",
    "exclusive",
    "first",
    "hex",
    "inclusive",
    "json",
    "largest",
    "last",
    "least",
    "length",
    "lowercase",
    "microseconds",
    "millicores",
    "milliseconds",
    "minutes",
    "most",
    "nanoseconds",
    "never",
    "newest",
    "none",
    "not",
    "oldest",
    "only",
    "optional",
    "order",
    "pem",
    "people",
    "per",
    "percent",
    "read-only",
    "relative",
    "seconds",
    "sentence",
    "since",
    "smallest",
    "sorted",
    "unix",
    "unsorted",
    "unset",
    "until",
    "utc",
    "whole",
    "whose",
    "within",
    "without",
    "word",
    "yaml",
    "yet",
];
/// Derives whose comments people read elsewhere.
const SHOWN: &[&str] = &["Parser", "Args", "Subcommand", "ValueEnum", "JsonSchema", "CustomResource"];

/// Finds public items without a comment and comments that say nothing.
pub fn check(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        let mut finder = Finder { is_public: source.folder.starts_with("crates/"), ..Finder::default() };
        finder.visit_file(&source.tree);
        violations.extend(finder.found.into_iter().map(|(line, advice)| Violation::new(&source.path, line, advice)));
    }
    violations
}

/// Collects what is wrong, with lines.
#[derive(Default)]
struct Finder {
    /// Whether other crates can use what is public here.
    is_public: bool,
    /// Public types of this file. What is public of other types may not be seen outside.
    types: HashSet<String>,
    found: Vec<(usize, String)>,
}

impl Finder {
    fn item(&mut self, visibility: &syn::Visibility, attributes: &[syn::Attribute], ident: &syn::Ident) {
        self.comment(self.is_public && is_pub(visibility), attributes, ident);
    }

    fn comment(&mut self, is_needed: bool, attributes: &[syn::Attribute], ident: &syn::Ident) {
        let lines: Vec<(usize, String)> = attributes.iter().filter_map(comment_line).collect();
        match &lines[..] {
            [] if is_needed => self.found.push((ident.span().start().line, format!("say what `{ident}` is for"))),
            [(line, text)] if says_nothing(text) => {
                let advice = format!("`{text}` says no more than `{ident}`: say what the name can't, or nothing");
                self.found.push((*line, advice));
            }
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_file(&mut self, file: &'ast syn::File) {
        self.types = file.items.iter().filter_map(public_type).map(ToString::to_string).collect();
        syn::visit::visit_file(self, file);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let outside = std::mem::replace(&mut self.is_public, false);
        syn::visit::visit_item_mod(self, module);
        self.is_public = outside;
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = match &*item.self_ty {
            syn::Type::Path(of) => of.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        let is_seen = self.is_public && of.is_some_and(|of| self.types.contains(&of));
        let outside = std::mem::replace(&mut self.is_public, is_seen);
        syn::visit::visit_item_impl(self, item);
        self.is_public = outside;
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        if !is_shown(&item.attrs) {
            self.item(&item.vis, &item.attrs, &item.ident);
            syn::visit::visit_item_struct(self, item);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if !is_shown(&item.attrs) {
            self.item(&item.vis, &item.attrs, &item.ident);
            syn::visit::visit_item_enum(self, item);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.item(&item.vis, &item.attrs, &item.ident);
        let is_public = self.is_public && is_pub(&item.vis);
        for member in &item.items {
            if let syn::TraitItem::Fn(method) = member {
                self.comment(is_public, &method.attrs, &method.sig.ident);
            }
        }
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.item(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.item(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.item(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.item(&item.vis, &item.attrs, &item.sig.ident);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.item(&item.vis, &item.attrs, &item.sig.ident);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.item(&item.vis, &item.attrs, &item.ident);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.comment(false, &variant.attrs, &variant.ident);
        syn::visit::visit_variant(self, variant);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(ident) = &field.ident {
            self.comment(false, &field.attrs, ident);
        }
    }
}

fn is_pub(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

fn public_type(item: &syn::Item) -> Option<&syn::Ident> {
    let (visibility, ident) = match item {
        syn::Item::Struct(item) => (&item.vis, &item.ident),
        syn::Item::Enum(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    is_pub(visibility).then_some(ident)
}

/// Line number and text of an attribute that is a line of a documentation comment.
fn comment_line(attribute: &syn::Attribute) -> Option<(usize, String)> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value else { return None };
    pair.path.is_ident("doc").then(|| (text.span().start().line, text.value().trim().to_owned()))
}

fn says_nothing(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let has_fact = text.contains(['`', '[']) || text.contains(|c: char| c.is_ascii_digit());
    let is_telling = |word: &str| TELLING.contains(&word.trim_matches(['.', ',', ':']).to_lowercase().as_str());
    !has_fact && words.clone().count() < WORDS_MIN && !words.any(is_telling)
}

/// Whether a type's comments are shown to people who don't read the code.
fn is_shown(attributes: &[syn::Attribute]) -> bool {
    source::derives(attributes).iter().any(|derive| SHOWN.contains(&derive.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::File;

    fn found(text: &str) -> usize {
        let file = File { path: "crates/x/src/a.rs".into(), text: text.into() };
        check(&source::parse(&[file])).len()
    }

    #[test]
    fn a_public_item_needs_a_comment() {
        for text in [
            "pub fn f() {}",
            "pub struct S;",
            "pub enum E {}",
            "pub const C: u8 = 1;",
            "pub type T = u8;",
            "/// What can be drained, by name.\npub trait T { fn f(&self); }",
            "/// Drops what it can.\npub struct S; impl S { pub fn f(&self) {} }",
        ] {
            assert_eq!(found(text), 1, "{text}");
        }
        for text in [
            "fn f() {}",
            "pub(crate) struct S; impl S { pub fn f(&self) {} }",
            "mod m { pub fn f() {} }",
            "/// Milliseconds since 1970 (UTC).\npub type T = u64;",
        ] {
            assert_eq!(found(text), 0, "{text}");
        }
    }

    #[test]
    fn a_line_that_says_nothing_is_found_wherever_it_stands() {
        for text in [
            "/// Its name.\nfn name() {}",
            "struct S {\n/// The file.\nfile: u8 }",
            "enum E {\n/// It failed.\nFailed }",
            "impl S {\n/// The pods.\nfn pods(&self) {} }",
        ] {
            assert_eq!(found(text), 1, "{text}");
        }
    }

    #[test]
    fn a_short_line_with_a_fact_passes() {
        for text in [
            "struct S {\n/// In milliseconds.\nage: u64 }",
            "struct S {\n/// `PUT`\nput: u64 }",
            "struct S {\n/// At most 63.\nlength: u64 }",
            "struct S {\n/// The first.\n/// Line of two.\nfirst: u64 }",
            "/// Which pods count as lost.\nfn lost() {}",
        ] {
            assert_eq!(found(text), 0, "{text}");
        }
    }

    #[test]
    fn what_people_read_elsewhere_is_left_alone() {
        assert_eq!(found("#[derive(Debug, clap::Args)]\npub struct S {\n/// Their names\npub names: u8 }"), 0);
        assert_eq!(found("#[derive(JsonSchema)]\npub enum E {\n/// Ready.\nReady }"), 0);
    }
}
