//! Whether the top modules of each crate stand in layers: none uses one that, over others, uses it.
//!
//! What a module uses is read off its paths: `crate::module::…`, `super::…` up to the crate, and names that the crate's
//! root takes from a module (`pub use module::Name`). Also bounds the size of a top module.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

use super::Violation;
use super::source::Source;

/// Lines of a top module with all its files, tests aside, from which on it must be split.
const LINES_MAX: usize = 5000;

/// Module -> modules of the same crate that it uses, with the file that does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Finds circles among the top modules of crates, and modules that are too long.
pub fn check(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let folders: BTreeSet<&str> = sources.iter().map(|source| source.folder.as_str()).collect();
    for folder in folders {
        let members: Vec<&Source> = sources.iter().filter(|source| source.folder == folder).collect();
        let uses = uses(&members);
        for circle in circles(&uses) {
            violations.extend(circle.iter().map(|module| in_circle(folder, module, &circle, &uses[*module])));
        }
        violations.extend(sizes(folder, &members));
    }
    violations
}

/// Sets of modules of which each reaches each.
fn circles(uses: &Uses) -> Vec<BTreeSet<&str>> {
    let edges =
        uses.iter().flat_map(|(module, others)| others.keys().map(move |other| (module.as_str(), other.as_str())));
    let graph = DiGraphMap::<&str, ()>::from_edges(edges);
    tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1).map(BTreeSet::from_iter).collect()
}

fn in_circle(folder: &str, module: &str, circle: &BTreeSet<&str>, uses: &BTreeMap<String, String>) -> Violation {
    let others: Vec<String> = uses
        .iter()
        .filter(|(other, _)| circle.contains(other.as_str()))
        .map(|(other, file)| format!("{other} ({})", file.rsplit("/src/").next().unwrap_or(file)))
        .collect();
    let (count, others) = (circle.len(), others.join(", "));
    let advice =
        format!("module {module} is in a circle of {count}: it uses {others}; move the shared part down a layer");
    Violation::new(&format!("{folder}/src/{module}.rs"), 0, advice)
}

fn sizes(folder: &str, members: &[&Source]) -> Vec<Violation> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for source in members {
        if let Some(top) = source.module.first() {
            *lines.entry(top).or_default() += source.lines;
        }
    }
    let long = lines.into_iter().filter(|(_, lines)| *lines > LINES_MAX);
    long.map(|(module, lines)| {
        let advice =
            format!("{lines} lines without tests in one top module, {LINES_MAX} is the bound; split by concept");
        Violation::new(&format!("{folder}/src/{module}"), 0, advice)
    })
    .collect()
}

/// Which top module uses which.
fn uses(members: &[&Source]) -> Uses {
    let tops: BTreeSet<String> = members.iter().filter_map(|source| source.module.first().cloned()).collect();
    let roots: Vec<&&Source> = members.iter().filter(|source| source.module.is_empty()).collect();
    let exports: BTreeMap<String, String> = roots.iter().flat_map(|root| exports(&root.tree, &tops)).collect();
    let mut uses: Uses = tops.iter().map(|top| (top.clone(), BTreeMap::new())).collect();
    for source in members {
        let Some(top) = source.module.first() else { continue };
        let mut finder = Finder { depth: source.module.len(), first: BTreeSet::new() };
        finder.visit_file(&source.tree);
        for name in finder.first {
            let module = if tops.contains(&name) { Some(&name) } else { exports.get(&name) };
            if let Some(module) = module.filter(|module| *module != top)
                && let Some(of) = uses.get_mut(top)
            {
                of.entry(module.clone()).or_insert_with(|| source.path.clone());
            }
        }
    }
    uses
}

/// Names that the root takes from its modules -> the module.
fn exports(root: &syn::File, tops: &BTreeSet<String>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for item in &root.items {
        if let syn::Item::Use(item) = item {
            let mut paths = Vec::new();
            flatten(&item.tree, &mut Vec::new(), &mut paths);
            for path in paths {
                let path: Vec<String> = path.into_iter().filter(|part| part != "crate" && part != "self").collect();
                if let (Some(first), Some(last)) = (path.first(), path.last())
                    && tops.contains(first)
                {
                    found.push((last.clone(), first.clone()));
                }
            }
        }
    }
    found
}

/// Every path of a `use`, whole. What is renamed goes by its new name at the end.
fn flatten(tree: &syn::UseTree, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match tree {
        syn::UseTree::Path(path) => {
            before.push(path.ident.to_string());
            flatten(&path.tree, before, paths);
            before.pop();
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, before, paths);
            }
        }
        syn::UseTree::Name(name) => paths.push([before.clone(), vec![name.ident.to_string()]].concat()),
        syn::UseTree::Rename(rename) => {
            let names = vec![rename.ident.to_string(), rename.rename.to_string()];
            paths.push([before.clone(), names].concat());
        }
        syn::UseTree::Glob(_) => paths.push(before.clone()),
    }
}

/// Collects the first name after the crate's root of every path.
struct Finder {
    /// How many `super` lead from here to the root.
    depth: usize,
    first: BTreeSet<String>,
}

impl Finder {
    fn path(&mut self, parts: &[String]) {
        let ups = parts.iter().take_while(|part| *part == "super").count();
        let name = match parts.first().map(String::as_str) {
            Some("crate") => parts.get(1),
            Some("super") if ups == self.depth => parts.get(ups),
            _ => None,
        };
        self.first.extend(name.cloned());
    }

    /// Paths in what macros are given, which is not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut parts: Vec<String> = Vec::new();
        for tree in tokens {
            match tree {
                TokenTree::Ident(ident) => parts.push(ident.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == ':' => {}
                TokenTree::Group(group) => {
                    self.path(&std::mem::take(&mut parts));
                    self.tokens(group.stream());
                }
                _ => self.path(&std::mem::take(&mut parts)),
            }
        }
        self.path(&parts);
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut paths = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut paths);
        for path in paths {
            self.path(&path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(&parts);
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        syn::visit::visit_macro(self, call);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.depth += 1;
        syn::visit::visit_item_mod(self, item);
        self.depth -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{File, source};

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect();
        check(&source::parse(&files)).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn layers_pass() {
        let files = [
            ("crates/x/src/lib.rs", "mod a; mod b; pub use b::B;"),
            ("crates/x/src/a.rs", "use crate::B; fn f() { crate::b::g() }"),
            ("crates/x/src/b.rs", "use std::a; mod c; pub struct B;"),
            ("crates/x/src/b/c.rs", "use super::super::b::B; #[cfg(test)] mod tests { use crate::a; }"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }

    #[test]
    fn a_circle_is_found_by_every_kind_of_path() {
        for back in [
            "use crate::a::f;",
            "use super::a;",
            "fn g() { crate::a::f() }",
            "fn g() { println!(\"{}\", crate::a::f()) }",
            "use crate::{Z, a::{f, h}};",
            "use crate::A;",
            "mod c { fn g(_: super::super::a::A) {} }",
        ] {
            let files = [
                ("crates/x/src/lib.rs", "mod a; mod b; pub use a::A;"),
                ("crates/x/src/a.rs", "use crate::b;"),
                ("crates/x/src/b.rs", back),
            ];
            assert_eq!(
                found(&files),
                [
                    "crates/x/src/a.rs: module a is in a circle of 2: it uses b (a.rs); move the shared part down a layer",
                    "crates/x/src/b.rs: module b is in a circle of 2: it uses a (b.rs); move the shared part down a layer",
                ],
                "{back}"
            );
        }
    }

    #[test]
    fn a_long_module_is_named_with_its_lines() {
        let long = format!("//! a\n{}", "// x\n".repeat(LINES_MAX));
        let found = found(&[("crates/x/src/a/b.rs", &long)]);
        assert_eq!(
            found,
            ["crates/x/src/a: 5001 lines without tests in one top module, 5000 is the bound; split by concept"]
        );
    }
}
