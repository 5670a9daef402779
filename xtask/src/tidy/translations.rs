//! Pages in two languages agree: the same headings by level, the same blocks of code, links to each other.
//!
//! *Invariant*: of a block of code only its comments may differ, since people read those; a comment is `# ` and what follows it. Lines
//! such as `#!/bin/sh` and `#PUMICE --cpu 2` are no comments. A Chinese page links to Chinese pages where there are some.
//! *Called by* `tidy::run`.

use super::links::{resolve, targets};
use super::{File, Violation};

/// How the name of a page in Chinese ends.
const CHINESE: &str = ".zh-CN.md";

/// What of a page is the same in each language.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Heading(usize),
    Code(Vec<String>),
}

/// Finds pages in Chinese that differ from the page that they translate.
pub fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for chinese in files.iter().filter(|file| file.path.ends_with(CHINESE)) {
        let original = chinese.path.replace(CHINESE, ".md");
        let Some(english) = files.iter().find(|file| file.path == original) else {
            violations.push(Violation::new(&chinese.path, 0, format!("translates {original}, which does not exist")));
            continue;
        };
        violations.extend(difference(english, chinese));
        for (page, other) in [(english, chinese), (chinese, english)] {
            if !links(page).any(|(_, target)| target == other.path) {
                violations.push(Violation::new(&page.path, 0, format!("link to {}", other.path)));
            }
        }
        for (line, target) in links(chinese).filter(|(_, target)| *target != original) {
            let translated = target.replace(".md", CHINESE);
            if translated != target && files.iter().any(|file| file.path == translated) {
                violations.push(Violation::new(&chinese.path, line, format!("link to {translated}, not to {target}")));
            }
        }
    }
    violations
}

/// The first part in which both pages differ.
fn difference(english: &File, chinese: &File) -> Option<Violation> {
    let (ours, theirs) = (parts(&chinese.text), parts(&english.text));
    let same = ours.iter().zip(&theirs).take_while(|((_, one), (_, other))| one == other).count();
    let advice = match (ours.get(same), theirs.get(same)) {
        (None, None) => return None,
        (_, Some((line, Part::Heading(level)))) => {
            format!("expected here: the heading of level {level} at {}:{line}", english.path)
        }
        (_, Some((line, Part::Code(_)))) => {
            format!("expected here: the block of code at {}:{line}, the same but for comments", english.path)
        }
        (Some(_), None) => format!("{} has neither heading nor code here; remove it, or add it there", english.path),
    };
    Some(Violation::new(&chinese.path, ours.get(same).map_or(0, |(line, _)| *line), advice))
}

/// Headings and blocks of code of a page, each with the line where it starts.
fn parts(page: &str) -> Vec<(usize, Part)> {
    let mut parts = Vec::new();
    let mut block: Option<(usize, Vec<String>)> = None;
    for (line, text) in (1..).zip(page.lines()) {
        let fence = text.trim_start().starts_with("```");
        match &mut block {
            None if fence => block = Some((line, vec![text.to_owned()])),
            None => {
                let level = text.chars().take_while(|letter| *letter == '#').count();
                if level > 0 && text[level..].starts_with(' ') {
                    parts.push((line, Part::Heading(level)));
                }
            }
            Some(_) if fence => parts.extend(block.take().map(|(start, code)| (start, Part::Code(code)))),
            Some((_, code)) => code.push(without_comment(text).to_owned()),
        }
    }
    parts
}

fn without_comment(line: &str) -> &str {
    let comment = line.match_indices("# ").find(|(at, _)| *at == 0 || line[..*at].ends_with([' ', '\t']));
    comment.map_or(line, |(at, _)| line[..at].trim_end())
}

/// Lines with a link to a file, and the file.
fn links(page: &File) -> impl Iterator<Item = (usize, String)> {
    (1..).zip(page.text.lines()).flat_map(move |(line, text)| {
        targets(text).filter_map(move |target| resolve(&page.path, target)).map(move |target| (line, target))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGLISH: &str = "# One\n[zh](a.zh-CN.md)\n```sh\nrun  # fast\n#SBATCH -n 1\n```\n## Two\n";

    fn found(english: &str, chinese: &str) -> Vec<String> {
        let pages = [("docs/a.md", english), ("docs/a.zh-CN.md", chinese), ("docs/b.md", ""), ("docs/c.md", "")];
        let mut files: Vec<File> =
            pages.map(|(path, text)| File { path: path.to_owned(), text: text.to_owned() }).into();
        files.push(File { path: "docs/b.zh-CN.md".to_owned(), text: "[en](b.md)\n".to_owned() });
        files[2].text = "[zh](b.zh-CN.md)\n".to_owned();
        check(&files).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn comments_may_differ() {
        let chinese = "# 一\n[en](a.md) [b](b.zh-CN.md#x) [c](c.md)\n```sh\nrun # 快\n#SBATCH -n 1\n```\n## 二\n";
        assert_eq!(found(ENGLISH, chinese), Vec::<String>::new());
    }

    #[test]
    fn differences_are_named() {
        let code = "expected here: the block of code at docs/a.md:3, the same but for comments";
        let cases = [
            ("# 一\n[en](a.md)\n```sh\nrun -x # 快\n#SBATCH -n 1\n```\n## 二\n", format!(":3: {code}")),
            ("# 一\n[en](a.md)\n```sh\nrun\n#SBATCH -n 2\n```\n## 二\n", format!(":3: {code}")),
            ("# 一\n[en](a.md)\n## 二\n", format!(":3: {code}")),
            (
                "# 一\n[en](a.md)\n```sh\nrun\n#SBATCH -n 1\n```\n### 二\n",
                ":7: expected here: the heading of level 2 at docs/a.md:7".to_owned(),
            ),
            (
                "# 一\n[en](a.md)\n```sh\nrun\n#SBATCH -n 1\n```\n",
                ": expected here: the heading of level 2 at docs/a.md:7".to_owned(),
            ),
            (
                "# 一\n[en](a.md)\n```sh\nrun\n#SBATCH -n 1\n```\n## 二\n## 三\n",
                ":8: docs/a.md has neither heading nor code here; remove it, or add it there".to_owned(),
            ),
            ("# 一\n```sh\nrun\n#SBATCH -n 1\n```\n## 二\n", ": link to docs/a.md".to_owned()),
            (
                "# 一\n[en](a.md)\n[b](b.md)\n```sh\nrun\n#SBATCH -n 1\n```\n## 二\n",
                ":3: link to docs/b.zh-CN.md, not to docs/b.md".to_owned(),
            ),
        ];
        for (chinese, wanted) in cases {
            assert_eq!(found(ENGLISH, chinese), [format!("docs/a.zh-CN.md{wanted}")], "{chinese}");
        }
    }

    #[test]
    fn a_page_without_an_original_is_named() {
        let file = File { path: "docs/a.zh-CN.md".to_owned(), text: "# 一\n".to_owned() };
        let wanted = "docs/a.zh-CN.md: translates docs/a.md, which does not exist";
        assert_eq!(check(&[file]).iter().map(Violation::to_string).collect::<Vec<_>>(), [wanted]);
    }
}
