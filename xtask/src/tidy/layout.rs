//! The shape of source files: length, opening comment, no `mod.rs`, the workspace's lints.

use super::{File, Violation};

/// Lines of a source file, tests aside, from which on it must be split.
const LINES_MAX: usize = 600;

/// Finds files of the wrong shape.
pub fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        if file.path.ends_with(".rs") {
            violations.extend(source(file));
        } else if file.path.ends_with("/Cargo.toml") && !file.text.contains("[lints]\nworkspace = true") {
            violations.push(Violation::new(&file.path, 0, "add `[lints]` with `workspace = true`"));
        }
    }
    violations
}

fn source(file: &File) -> Vec<Violation> {
    let mut violations = Vec::new();
    if file.path.ends_with("/mod.rs") {
        violations.push(Violation::new(
            &file.path,
            0,
            "rename to the folder's name beside the folder: `foo.rs` and `foo/`",
        ));
    }
    if !file.text.starts_with("//!") {
        let advice = "start with a `//!` comment: what the file owns, its invariant, who calls it";
        violations.push(Violation::new(&file.path, 1, advice));
    }
    let lines = lines_without_tests(&file.text);
    if lines > LINES_MAX && !is_test(&file.path) && !is_generated(&file.path) {
        let advice = format!("{lines} lines without tests, {LINES_MAX} is the bound; split by concept");
        violations.push(Violation::new(&file.path, LINES_MAX, advice));
    }
    violations
}

/// Lines up to the unit tests, which stand at the end.
pub(super) fn lines_without_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with("mod tests {"));
    tests.unwrap_or(lines.len())
}

fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Nobody writes or reads these: a test says that they are fresh.
fn is_generated(path: &str) -> bool {
    path.contains("/src/generated/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = File { path: path.into(), text: text.into() };
        check(&[file]).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn well_formed_files_pass() {
        assert!(found("crates/a/src/b.rs", "//! Owns b.\n").is_empty());
        assert!(found("crates/a/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n").is_empty());
        let tests = format!("//! Owns b.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(LINES_MAX));
        assert!(found("crates/a/src/b.rs", &tests).is_empty());
        assert!(found("crates/a/tests/b.rs", &format!("//! b\n{}", "// x\n".repeat(LINES_MAX))).is_empty());
        assert!(found("crates/a/src/generated/b.rs", &format!("//! b\n{}", "// x\n".repeat(LINES_MAX))).is_empty());
    }

    #[test]
    fn ill_formed_files_are_named() {
        assert_eq!(found("crates/a/src/b/mod.rs", "//! b\n")[0].split(':').next(), Some("crates/a/src/b/mod.rs"));
        assert!(found("crates/a/src/b.rs", "use x;\n")[0].starts_with("crates/a/src/b.rs:1: start with"));
        let long = format!("//! b\n{}", "// x\n".repeat(LINES_MAX));
        assert_eq!(
            found("crates/a/src/b.rs", &long),
            ["crates/a/src/b.rs:600: 601 lines without tests, 600 is the bound; split by concept"]
        );
        assert!(found("crates/a/Cargo.toml", "[package]\n")[0].contains("[lints]"));
    }
}
