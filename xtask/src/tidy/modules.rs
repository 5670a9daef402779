//! Whether the top modules of each crate stand in layers: none uses one that, over others, uses it.
//!
//! What a module uses is read off its paths: `crate::module::…`, `super::…` up to the crate, and names that the crate's
//! root takes from a module (`pub use module::Name`). Also bounds the size of a top module.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

use super::Violation;
use super::source::Source;

/// Top modules that still stand in a circle, a path a line. It only shrinks: what is listed and no longer in a circle is a
/// violation, too.
const CIRCLES: &str = include_str!("../../data/circles.txt");

/// Lines of a top module with all its files, tests aside, from which on it must be split.
const LINES_MAX: usize = 5000;
/// Top modules that are longer. It only shrinks, too.
const LONG: &[&str] = &[];

/// Module -> modules of the same crate that it uses, with the file that does.
type Uses = BTreeMap<String, BTreeMap<String, String>>;

/// Finds circles among the top modules of crates, modules that are too long, and stale entries of the lists.
pub fn check(sources: &[Source]) -> Vec<Violation> {
    check_but(sources, CIRCLES)
}

/// [`check`] with modules whose circles are known, a path a line.
fn check_but(sources: &[Source], known: &str) -> Vec<Violation> {
    let mut known: BTreeSet<&str> = known.lines().collect();
    let mut violations = Vec::new();
    let folders: BTreeSet<&str> = sources.iter().map(|source| source.folder.as_str()).collect();
    for folder in folders {
        let members: Vec<&Source> = sources.iter().filter(|source| source.folder == folder).collect();
        let uses = uses(&members);
        for circle in strong_components(&uses).iter().filter(|circle| circle.len() > 1) {
            let new = circle.iter().filter(|module| !known.remove(format!("{folder}/src/{module}").as_str()));
            violations.extend(new.map(|module| in_circle(folder, module, circle, &uses[module])));
        }
        violations.extend(sizes(folder, &members));
    }
    let stale = "in no circle; remove it from xtask/data/circles.txt";
    violations.extend(known.into_iter().map(|module| Violation::new(module, 0, stale)));
    violations
}

fn in_circle(folder: &str, module: &str, circle: &BTreeSet<String>, uses: &BTreeMap<String, String>) -> Violation {
    let others: Vec<String> = uses
        .iter()
        .filter(|(other, _)| circle.contains(*other))
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
    let mut violations = Vec::new();
    for (module, lines) in lines {
        let path = format!("{folder}/src/{module}");
        let listed = LONG.contains(&path.as_str());
        if lines > LINES_MAX && !listed {
            let advice =
                format!("{lines} lines without tests in one top module, {LINES_MAX} is the bound; split by concept");
            violations.push(Violation::new(&path, 0, advice));
        } else if listed && lines <= LINES_MAX {
            violations.push(Violation::new(&path, 0, "short enough; remove it from LONG in xtask/src/tidy/modules.rs"));
        }
    }
    violations
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

/// Tarjan's strongly connected components (1972): sets of modules of which each reaches each.
fn strong_components(uses: &Uses) -> Vec<BTreeSet<String>> {
    struct Search<'a> {
        uses: &'a Uses,
        index: BTreeMap<&'a str, usize>,
        low: BTreeMap<&'a str, usize>,
        stack: Vec<&'a str>,
        found: Vec<BTreeSet<String>>,
    }
    impl<'a> Search<'a> {
        fn visit(&mut self, module: &'a str) {
            let number = self.index.len();
            self.index.insert(module, number);
            self.low.insert(module, number);
            self.stack.push(module);
            for other in self.uses.get(module).into_iter().flat_map(BTreeMap::keys) {
                if !self.index.contains_key(other.as_str()) {
                    self.visit(other);
                    self.lower(module, self.low[other.as_str()]);
                } else if self.stack.contains(&other.as_str()) {
                    self.lower(module, self.index[other.as_str()]);
                }
            }
            if self.low[module] == number
                && let Some(start) = self.stack.iter().position(|other| *other == module)
            {
                self.found.push(self.stack.drain(start..).map(str::to_owned).collect());
            }
        }

        fn lower(&mut self, module: &'a str, to: usize) {
            if let Some(low) = self.low.get_mut(module) {
                *low = to.min(*low);
            }
        }
    }
    let mut search =
        Search { uses, index: BTreeMap::new(), low: BTreeMap::new(), stack: Vec::new(), found: Vec::new() };
    for module in uses.keys() {
        if !search.index.contains_key(module.as_str()) {
            search.visit(module);
        }
    }
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{File, source};

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> =
            files.iter().map(|(path, text)| File { path: (*path).into(), text: (*text).into() }).collect();
        check_but(&source::parse(&files), "").iter().map(Violation::to_string).collect()
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
    fn what_is_known_passes_until_it_is_mended() {
        let circle = |text: &str| {
            let files = [("crates/x/src/a.rs", "use crate::b;"), ("crates/x/src/b.rs", text)];
            let files = files.map(|(path, text)| File { path: path.into(), text: text.into() });
            check_but(&source::parse(&files), "crates/x/src/a\ncrates/x/src/b").len()
        };
        assert_eq!(circle("use crate::a;"), 0);
        assert_eq!(circle(""), 2, "both are to be taken off the list");
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
