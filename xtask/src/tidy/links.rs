//! Links of the documentation: those to files resolve, and the front page exists in both languages.

use super::{File, Violation};

/// Pages that must exist.
const FRONT_PAGES: &[&str] = &["README.md", "README.zh-CN.md"];

/// Finds missing front pages and links to files for which `exists` is false. Paths are from the workspace's root.
pub fn check(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let mut violations = Vec::new();
    for page in FRONT_PAGES.iter().filter(|page| !files.iter().any(|file| file.path == **page)) {
        violations.push(Violation::new(page, 0, "is missing; write it"));
    }
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        let mut fenced = false;
        for (index, line) in file.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if fenced {
                continue;
            }
            for target in targets(line).filter_map(|target| resolve(&file.path, target)) {
                if !exists(&target) {
                    violations.push(Violation::new(
                        &file.path,
                        index + 1,
                        format!("link to {target}, which does not exist"),
                    ));
                }
            }
        }
    }
    violations
}

/// Targets of `[text](target)` on one line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The path a link means, from the root; nothing for addresses and anchors.
fn resolve(page: &str, target: &str) -> Option<String> {
    let target = target.split(['#', ' ']).next().unwrap_or_default();
    if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => page.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev().collect(),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_resolve_from_their_page() {
        let cases = [
            ("README.md", "docs/a.md#x", Some("docs/a.md")),
            ("docs/zh/a.md", "../b.md", Some("docs/b.md")),
            ("docs/a.md", "/LICENSE", Some("LICENSE")),
            ("docs/a.md", "#part", None),
            ("docs/a.md", "https://example.org/x", None),
        ];
        for (page, target, wanted) in cases {
            assert_eq!(resolve(page, target).as_deref(), wanted, "{page} {target}");
        }
    }

    #[test]
    fn dead_links_and_missing_pages_are_named() {
        let text = "# x\n[a](docs/a.md) and [b](docs/b.md)\n```\n[c](nowhere)\n```\n";
        let files = [File { path: "README.md".into(), text: text.into() }];
        let found: Vec<String> = check(&files, |path| path == "docs/a.md").iter().map(Violation::to_string).collect();
        assert_eq!(
            found,
            ["README.zh-CN.md: is missing; write it", "README.md:2: link to docs/b.md, which does not exist"]
        );
    }
}
