//! The files of the workspace that people write.
//!
//! Build outputs, version control and binary files are left out. Called once by `tidy::run`.

use std::path::Path;

use anyhow::Context as _;

/// Folders that hold nothing people write.
const SKIPPED: &[&str] = &["target", ".git", "node_modules", "dist"];
/// A file longer than this is data.
const SIZE_MAX: u64 = 1 << 20;

/// A text file of the workspace.
#[derive(Clone, Debug)]
pub struct File {
    /// Path from the workspace's root, with forward slashes.
    pub path: String,
    pub text: String,
}

/// Every text file under `root`, sorted by path.
pub fn read(root: &Path) -> anyhow::Result<Vec<File>> {
    let mut files = Vec::new();
    walk(root, root, &mut files)?;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        // In a further work tree of git, `.git` is a file.
        if SKIPPED.contains(&entry.file_name().to_string_lossy().as_ref()) {
            continue;
        }
        if kind.is_dir() {
            walk(root, &path, files)?;
        } else if kind.is_file() && entry.metadata()?.len() <= SIZE_MAX {
            // What is not text is of no interest, and neither is a file that went away since it was listed.
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let path = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
            files.push(File { path, text });
        }
    }
    Ok(())
}
