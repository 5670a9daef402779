//! Links of the documentation: those to files and to headings resolve, the front page exists in both languages, and the summary
//! names each page.
//!
//! *Invariant*: an anchor is made of a heading as GitHub makes it: letters in lower case, digits, `-` and `_` stay, blanks become `-`.
//! *Called by* `tidy::run`; `translations` reads links with it.

use std::collections::HashMap;

use super::{File, Violation};

/// The table of contents, which names each page of its folder.
const SUMMARY: &str = "docs/SUMMARY.md";
/// Pages that must exist.
const FRONT_PAGES: &[&str] = &["README.md", "README.zh-CN.md"];

/// Finds missing front pages, pages that the summary leaves out, links to files for which `exists` is false, and links to headings that a page does not have. Paths
/// are from the workspace's root.
pub fn check(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let mut violations = Vec::new();
    for page in FRONT_PAGES.iter().filter(|page| !files.iter().any(|file| file.path == **page)) {
        violations.push(Violation::new(page, 0, "is missing; write it"));
    }
    let pages = || files.iter().filter(|file| file.path.ends_with(".md"));
    let anchors: HashMap<&str, Vec<String>> = pages().map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    for file in pages() {
        let mut fenced = false;
        for (index, line) in file.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if fenced {
                continue;
            }
            for link in targets(line) {
                let target = resolve(&file.path, link);
                if let Some(target) = target.as_ref().filter(|target| !exists(target)) {
                    let advice = format!("link to {target}, which does not exist");
                    violations.push(Violation::new(&file.path, index + 1, advice));
                }
                let Some((path, anchor)) = link.split_once('#') else { continue };
                let page = if path.is_empty() { file.path.as_str() } else { target.as_deref().unwrap_or_default() };
                if anchors.get(page).is_some_and(|there| !there.iter().any(|one| one == anchor)) {
                    let advice = format!("link to #{anchor}, which is no heading of {page}");
                    violations.push(Violation::new(&file.path, index + 1, advice));
                }
            }
        }
    }
    violations.extend(left_out(files));
    violations
}

/// Pages of the book that its table of contents does not name.
fn left_out(files: &[File]) -> Vec<Violation> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else { return Vec::new() };
    let named: Vec<String> = summary.text.lines().flat_map(targets).filter_map(|link| resolve(SUMMARY, link)).collect();
    let pages = files.iter().filter(|file| file.path.starts_with("docs/") && file.path.ends_with(".md"));
    pages
        .filter(|page| page.path != SUMMARY && !named.contains(&page.path))
        .map(|page| Violation::new(&page.path, 0, format!("name this page in {SUMMARY}")))
        .collect()
}

/// The anchors of a page's headings.
fn anchors(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut anchors: Vec<String> = Vec::new();
    for line in page.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |letter: &char| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter);
        let anchor = heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
        anchors.push(anchor);
    }
    anchors
}

/// Targets of `[text](target)` on one line.
pub(super) fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The path a link means, from the root; nothing for addresses and anchors.
pub(super) fn resolve(page: &str, target: &str) -> Option<String> {
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
    fn links_to_headings_that_are_not_there_are_named() {
        let files = [
            File { path: "README.md".into(), text: "[a](a.md#what-it-is) [b](a.md#gone)\n".into() },
            File {
                path: "README.zh-CN.md".into(),
                text: "# 没有 root：怎么办？\n[a](#没有-root怎么办) [b](#x)\n".into(),
            },
            File { path: "a.md".into(), text: "# What `it` is\n```sh\n# gone\n```\n".into() },
        ];
        let found: Vec<String> = check(&files, |_| true).iter().map(Violation::to_string).collect();
        let wanted = [
            "README.md:1: link to #gone, which is no heading of a.md",
            "README.zh-CN.md:2: link to #x, which is no heading of README.zh-CN.md",
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn pages_that_the_summary_leaves_out_are_named() {
        let pages = [(SUMMARY, "- [A](a.md)\n"), ("docs/a.md", ""), ("docs/b/c.md", ""), ("d.md", "")];
        let files = pages.map(|(path, text)| File { path: path.into(), text: text.into() });
        let found: Vec<String> = left_out(&files).iter().map(Violation::to_string).collect();
        assert_eq!(found, ["docs/b/c.md: name this page in docs/SUMMARY.md"]);
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
