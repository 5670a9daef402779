//! Names that a newcomer can't search for: words that could mean anything, where the field has a term of its own.
//!
//! Looked at are the names of types, variants, modules, functions and fields; `docs/glossary.md` has the terms to use.

use std::collections::BTreeSet;

use syn::visit::Visit;

use super::Violation;
use super::source::Source;

/// What no name may consist of, in lower case.
const BANNED: &[&str] = &[
    "told", "asked", "kept", "held", "said", "shown", "news", "standing", "grounds", "hunt", "spot", "nowhere",
    "course", "scene", "place",
];
/// Names that stay, a line each: file, name, and why.
const KNOWN: &str = include_str!("../../data/words.txt");

/// Finds banned names, and entries of the list that no longer stand for one.
pub fn check(sources: &[Source]) -> Vec<Violation> {
    check_but(sources, KNOWN)
}

fn check_but(sources: &[Source], known: &str) -> Vec<Violation> {
    let known: BTreeSet<(String, String)> = known.lines().filter_map(entry).collect();
    let mut violations = Vec::new();
    let mut stale = known.clone();
    for source in sources {
        let mut finder = Finder::default();
        finder.visit_file(&source.tree);
        if let Some(name) = source.module.last().filter(|name| is_banned(name)) {
            finder.found.push((name.clone(), 1));
        }
        for (name, line) in finder.found {
            let advice = format!("`{name}` could mean anything; take the field's term, see docs/glossary.md");
            let entry = (source.path.clone(), name);
            stale.remove(&entry);
            if !known.contains(&entry) {
                violations.push(Violation::new(&source.path, line, advice));
            }
        }
    }
    violations.extend(stale.into_iter().map(|(path, name)| {
        let advice = format!("`{name}` is no longer here; remove it from xtask/data/words.txt");
        Violation::new(&path, 0, advice)
    }));
    violations
}

/// File and name of a line; the reason is for people.
fn entry(line: &str) -> Option<(String, String)> {
    let mut words = line.split(' ').map(str::to_owned);
    words.next().zip(words.next())
}

fn is_banned(name: &str) -> bool {
    BANNED.contains(&name.to_lowercase().as_str())
}

/// Collects banned names with their lines.
#[derive(Default)]
struct Finder {
    found: Vec<(String, usize)>,
}

impl Finder {
    fn name(&mut self, ident: &syn::Ident) {
        let name = ident.to_string();
        if is_banned(&name) {
            self.found.push((name, ident.span().start().line));
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.name(&item.ident);
        syn::visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.name(&item.ident);
        syn::visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.name(&item.ident);
        syn::visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.name(&item.ident);
        syn::visit::visit_item_type(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.name(&signature.ident);
        syn::visit::visit_signature(self, signature);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.name(&variant.ident);
        syn::visit::visit_variant(self, variant);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(ident) = &field.ident {
            self.name(ident);
        }
        syn::visit::visit_field(self, field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{File, source};

    fn found(path: &str, text: &str, known: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        check_but(&source::parse(&[file]), known).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn each_kind_of_name_is_looked_at() {
        for text in [
            "struct Told;",
            "enum Held {}",
            "enum E { Kept }",
            "trait Scene {}",
            "type News = u8;",
            "fn asked() {}",
            "impl E { fn spot() {} }",
            "struct S { held: u8 }",
            "enum E { V { course: u8 } }",
        ] {
            assert_eq!(found("crates/x/src/a.rs", text, "").len(), 1, "{text}");
        }
        assert_eq!(found("crates/x/src/told.rs", "", "").len(), 1);
    }

    #[test]
    fn what_only_holds_such_a_word_passes() {
        for text in ["fn told_once() {}", "fn f(kept: u8) { let held = kept; }", "/// Told.\nstruct Placement;"] {
            assert!(found("crates/x/src/a.rs", text, "").is_empty(), "{text}");
        }
    }

    #[test]
    fn what_is_known_passes_while_it_is_there() {
        let known = "crates/x/src/a.rs Told the recordings' name";
        assert!(found("crates/x/src/a.rs", "struct Told;", known).is_empty());
        assert_eq!(
            found("crates/x/src/a.rs", "struct Delta;", known),
            ["crates/x/src/a.rs: `Told` is no longer here; remove it from xtask/data/words.txt"]
        );
    }
}
