//! Pages that map the tree name what exists: files, folders, items in files, and the tests that prove invariants.
//!
//! *Invariant*: a path in backticks is one from the workspace's root or from `crates/`; `path::item` names something that the file
//! defines. A row of invariants begins with `| INV-N |`, counts on from the row before, and its last cell names tests. Above each of
//! them a comment names the invariant, `// INV-N`, and no other test has such a comment.
//! *Called by* `tidy::run`.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, Violation};

/// Pages whose code names paths of the tree.
const PAGES: &[&str] = &["ARCHITECTURE.md", "docs/glossary.md"];
/// The page with the table of invariants.
const INVARIANTS: &str = "ARCHITECTURE.md";
/// What a word in backticks ends with if it is a path.
const ENDINGS: &[&str] = &[".rs", ".py", ".proto", "/"];
/// Words before the name of an item.
const DEFINES: &[&str] = &["fn", "struct", "enum", "trait", "const", "static", "type", "mod", "def", "class"];

/// Finds paths, items and tests that maps name and the tree does not have.
pub fn check(files: &[File]) -> Vec<Violation> {
    let mut tests = tests(files);
    let mut violations = Vec::new();
    for page in files.iter().filter(|file| PAGES.contains(&file.path.as_str())) {
        let mut fenced = false;
        let mut invariants = 0;
        for (line, text) in (1..).zip(page.text.lines()) {
            fenced ^= text.trim_start().starts_with("```");
            if fenced {
                continue;
            }
            let mut report = |advice: String| violations.push(Violation::new(&page.path, line, advice));
            for word in code(text) {
                if let Some(advice) = missing(word, files) {
                    report(advice);
                }
            }
            let Some(row) = text.strip_prefix("| INV-") else { continue };
            invariants += 1;
            if row.split(' ').next() != Some(&invariants.to_string()) {
                report(format!("number this invariant INV-{invariants}"));
            }
            let proof = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
            let named: Vec<&str> = code(proof).collect();
            if named.is_empty() {
                report("name in the last cell the tests that prove it".to_owned());
            }
            for test in named {
                let Some(said) = tests.get_mut(test) else {
                    report(format!("no test is called {test}; name one that proves this"));
                    continue;
                };
                if !said.remove(&invariants) {
                    report(format!("write `// INV-{invariants}` above the test {test}"));
                }
            }
        }
        if page.path != INVARIANTS {
            continue;
        }
        for (test, said) in &tests {
            for number in said {
                let advice = format!("name the test {test} beside INV-{number}, or take its comment away");
                violations.push(Violation::new(&page.path, 0, advice));
            }
        }
    }
    violations
}

/// Items by name, with the invariants that the comment above names.
fn tests(files: &[File]) -> BTreeMap<&str, BTreeSet<usize>> {
    let mut tests: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs") || file.path.ends_with(".py")) {
        let mut said = Vec::new();
        for line in file.text.lines() {
            let comment = line.trim_start().strip_prefix("// INV-").or(line.trim_start().strip_prefix("# INV-"));
            if let Some(numbers) = comment {
                said.extend(numbers.split(", INV-").filter_map(|number| number.parse::<usize>().ok()));
            } else if let Some(name) = defined(line) {
                tests.entry(name).or_default().extend(said.drain(..));
            }
        }
    }
    tests
}

/// Why a word is no path or item of the tree; `None` if it is one, or is none of a path's form.
fn missing(word: &str, files: &[File]) -> Option<String> {
    let (path, item) = word.split_once("::").map_or((word, None), |(path, item)| (path, Some(item)));
    let plain = path.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter));
    if !plain || path.starts_with(['/', '.']) || !ENDINGS.iter().any(|ending| path.ends_with(ending)) {
        return None;
    }
    let named = [path.to_owned(), format!("crates/{path}")];
    if path.ends_with('/') {
        let there = files.iter().any(|file| named.iter().any(|folder| file.path.starts_with(folder)));
        return (!there).then(|| format!("there is no folder {path}, from the root or from crates/"));
    }
    let Some(file) = files.iter().find(|file| named.contains(&file.path)) else {
        return Some(format!("there is no file {path}, from the root or from crates/"));
    };
    let item = item?;
    let there = file.text.lines().filter_map(defined).any(|name| name == item);
    (!there).then(|| format!("{} defines no {item}", file.path))
}

/// The name of the item that a line begins to define.
fn defined(line: &str) -> Option<&str> {
    if line.trim_start().starts_with(['/', '#', '"']) {
        return None;
    }
    let mut words = line.split([' ', '(', '<', ':', ';', '=', '{']).filter(|word| !word.is_empty());
    words.find(|word| DEFINES.contains(word))?;
    words.next()
}

/// What stands between backticks in a text.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let source = "pub(crate) async fn bind<T>(x: u8) {}\n    const LIMIT: u8 = 1;\n#[test]\nfn it_holds() {}\n";
        found_in(source, page)
    }

    fn found_in(source: &str, page: &str) -> Vec<String> {
        let files = [("ARCHITECTURE.md", page), ("crates/a/src/b.rs", source)];
        let files = files.map(|(path, text)| File { path: path.to_owned(), text: text.to_owned() });
        check(&files).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn what_exists_passes() {
        let page =
            "`a/src/b.rs` `crates/a/src/b.rs::bind` `a/src/b.rs::LIMIT` `a/src/` `/etc/x/` `batch/v1` `a b.rs`\n";
        assert_eq!(found(page), Vec::<String>::new());
        let source = "    // INV-1, INV-2\n    #[test]\n    fn it_holds() {}\n# INV-2\ndef bind():\n";
        let page = "| INV-1 | it | `it_holds` |\n\n| INV-2 | so | `it_holds`, `bind` |\n";
        assert_eq!(found_in(source, page), Vec::<String>::new());
        assert_eq!(found("```\n`a/c.rs`\n```\n"), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let cases = [
            ("`a/src/c.rs`", "there is no file a/src/c.rs, from the root or from crates/"),
            ("`a/c/`", "there is no folder a/c/, from the root or from crates/"),
            ("`a/src/b.rs::evict`", "crates/a/src/b.rs defines no evict"),
            ("| INV-1 | it | `it_holds` |", "write `// INV-1` above the test it_holds"),
            ("| INV-1 | `it` | by hand |", "name in the last cell the tests that prove it"),
            ("| INV-1 | it | `it_fails` |", "no test is called it_fails; name one that proves this"),
        ];
        for (page, advice) in cases {
            assert_eq!(found(page), [format!("ARCHITECTURE.md:1: {advice}")], "{page}");
        }
        let wanted = [
            "ARCHITECTURE.md:1: number this invariant INV-1",
            "ARCHITECTURE.md: name the test it_holds beside INV-2, or take its comment away",
        ];
        assert_eq!(found_in("// INV-1, INV-2\nfn it_holds() {}\n", "| INV-3 | it | `it_holds` |"), wanted);
    }
}
