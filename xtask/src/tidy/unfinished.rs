//! Text that must not be committed: paths of one machine, unfinished work.

use super::{File, Violation};

/// A piece of text, the files it is looked for in, and what to do instead. Spelled in parts so that this file passes.
const BANNED: &[(&str, &[&str], &str)] = &[
    (concat!("/wo", "rk/"), &[], "a path of one machine; find files from CARGO_MANIFEST_DIR or by an option"),
    (concat!("/tmp/", "plan"), &[], "a path of one machine; remove it"),
    (concat!("/root/", ".cargo"), &[], "a path of one machine; remove it"),
    (concat!("to", "do!("), &[".rs"], "unfinished; finish it or leave it out"),
    (concat!("unimple", "mented!("), &[".rs"], "unfinished; finish it or leave it out"),
    (concat!("TO", "DO"), &[".rs"], "unfinished; finish it or open an issue"),
    (concat!("FIX", "ME"), &[".rs", ".md", ".toml", ".yaml", ".sh"], "unfinished; fix it or open an issue"),
];

/// Finds banned text, line by line.
pub fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    // Lists of paths within the project name folders that may be called anything.
    for file in files.iter().filter(|file| !file.path.starts_with("xtask/data/")) {
        for (text, endings, advice) in BANNED {
            if !endings.is_empty() && !endings.iter().any(|ending| file.path.ends_with(ending)) {
                continue;
            }
            for (index, _) in file.text.lines().enumerate().filter(|(_, line)| line.contains(text)) {
                violations.push(Violation::new(&file.path, index + 1, format!("`{text}`: {advice}")));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_text_is_found_with_its_line() {
        let text = format!("//! a\nlet p = \"{}main\";\n{}\n", BANNED[0].0, BANNED[3].0);
        let file = File { path: "a.rs".into(), text: text.clone() };
        let lines: Vec<usize> = check(&[file]).iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [2, 3]);
        let file = File { path: "a.md".into(), text };
        assert_eq!(check(&[file]).len(), 1, "only the path counts in prose");
        assert!(check(&[File { path: "a.rs".into(), text: "let method = \"/works\";".into() }]).is_empty());
    }
}
