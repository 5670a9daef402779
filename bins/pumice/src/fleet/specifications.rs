//! Files of specifications: by name, by folder, or by pattern.
//!
//! Invariant: files come in alphabetical order, and folders are not followed for ever.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Folders within folders.
pub const DEPTH_MAX: usize = 32;

/// Names and paths of the specifications below `path`, in order. Names are relative to the folder that was given.
pub fn find(path: &Path, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    below(path, path, DEPTH_MAX, files)
}

fn below(base: &Path, path: &Path, depth: usize, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    ensure!(depth > 0, "{} is {DEPTH_MAX} folders deep: give one of them", path.display());
    if !path.is_dir() {
        // One that is named itself is not below what was named.
        let alone = || Path::new(path.file_name().unwrap_or_default());
        let name = if path == base { alone() } else { path.strip_prefix(base).unwrap_or(path) };
        files.push((name.with_extension("").display().to_string(), path.to_owned()));
        return Ok(());
    }
    let reading = || format!("read the folder {}", path.display());
    let entries = fs::read_dir(path).with_context(reading)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().with_context(reading)?;
    paths.sort();
    for path in paths {
        let is_yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        if is_yaml || path.is_dir() {
            below(base, &path, depth - 1, files)?;
        }
    }
    Ok(())
}

/// As [`find`], of a file, a folder, or a pattern such as `specs/**/big-*.yaml`: `*` is any text in a name, `?` one letter, `**` any
/// folders.
pub fn find_like(pattern: &str, files: &mut Vec<(String, PathBuf)>) -> Result<()> {
    let is_wild = |part: &str| part.contains(['*', '?']);
    if Path::new(pattern).exists() || !is_wild(pattern) {
        ensure!(Path::new(pattern).exists(), "there is no file or folder {pattern}");
        return find(Path::new(pattern), files);
    }
    let parts: Vec<&str> = pattern.split('/').collect();
    let plain = parts.iter().position(|part| is_wild(part)).unwrap_or(parts.len());
    let base = match parts[..plain].join("/") {
        base if base.is_empty() && pattern.starts_with('/') => PathBuf::from("/"),
        base if base.is_empty() => PathBuf::from("."),
        base => PathBuf::from(base),
    };
    ensure!(base.is_dir(), "there is no folder {}", base.display());
    let mut all = Vec::new();
    find(&base, &mut all)?;
    let before = files.len();
    files.extend(all.into_iter().filter(|(_, path)| {
        let within = path.strip_prefix(&base).unwrap_or(path);
        let names: Vec<String> = within.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        is_like(&parts[plain..], &names)
    }));
    ensure!(files.len() > before, "no file ending in .yaml or .yml is like {pattern}");
    Ok(())
}

/// Whether names of folders and a file are as a pattern says. Folders are at most [`DEPTH_MAX`] deep.
fn is_like(pattern: &[&str], names: &[&str]) -> bool {
    match (pattern, names) {
        ([], names) => names.is_empty(),
        (["**", rest @ ..], names) => (0..=names.len()).any(|skipped| is_like(rest, &names[skipped..])),
        ([part, rest @ ..], [name, names @ ..]) => is_name_like(part, name) && is_like(rest, names),
        (_, []) => false,
    }
}

/// One name. O(pattern x name).
fn is_name_like(pattern: &str, name: &str) -> bool {
    let name: Vec<char> = name.chars().collect();
    // After how many letters of the name what was read of the pattern can end.
    let mut ends = vec![false; name.len() + 1];
    ends[0] = true;
    for wanted in pattern.chars() {
        let mut next = vec![false; name.len() + 1];
        for place in 0..=name.len() {
            next[place] = match wanted {
                '*' => ends[place] || (place > 0 && next[place - 1]),
                '?' => place > 0 && ends[place - 1],
                letter => place > 0 && ends[place - 1] && name[place - 1] == letter,
            };
        }
        ends = next;
    }
    ends[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("basic/deep")).unwrap();
        for file in ["b.yml", "a.yaml", "README.md", "basic/c.yaml", "basic/deep/d.yaml"] {
            fs::write(root.join(file), "").unwrap();
        }
        directory
    }

    fn names(files: &[(String, PathBuf)]) -> Vec<&str> {
        files.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn files_are_found_in_folders_and_have_names() {
        let directory = folder();
        let root = directory.path();
        let mut files = Vec::new();
        find(root, &mut files).unwrap();
        find(&root.join("basic/c.yaml"), &mut files).unwrap();
        assert_eq!(names(&files), ["a", "b", "basic/c", "basic/deep/d", "c"]);
        assert!(below(root, root, 2, &mut files).is_err());
    }

    #[test]
    fn files_are_found_by_pattern() {
        let directory = folder();
        let root = directory.path().display();
        for (pattern, found) in [
            ("*.yaml", vec!["a"]),
            ("?.y*ml", vec!["a", "b"]),
            ("**/*.yaml", vec!["a", "basic/c", "basic/deep/d"]),
            ("*/[a-z].yaml", vec![]),
            ("b*/*.yaml", vec!["c"]),
            ("basic/**/d.yaml", vec!["deep/d"]),
            ("basic", vec!["c", "deep/d"]),
            ("nothing*", vec![]),
            ("nothing.yaml", vec![]),
        ] {
            let mut files = Vec::new();
            let done = find_like(&format!("{root}/{pattern}"), &mut files);
            let names: Vec<&str> = names(&files).into_iter().map(|name| name.trim_start_matches("basic/")).collect();
            let wanted: Vec<&str> = found.iter().map(|name| name.trim_start_matches("basic/")).collect();
            assert_eq!(names, wanted, "{pattern}");
            assert_eq!(done.is_ok(), !found.is_empty(), "{pattern}");
        }
    }

    #[test]
    fn long_patterns_end() {
        assert!(!is_name_like(&"*a".repeat(60), &"a".repeat(59)));
        assert!(is_name_like(&"*a".repeat(60), &"a".repeat(60)));
    }
}
