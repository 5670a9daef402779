//! Paths within a root that is not ours.
//!
//! Invariant: whatever links and `..` a tree holds, a resolved path is below its root. Called before
//! mounting into a container's root and for volumes' sub-paths.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Links followed in one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Resolves `path` as a process would whose root is `root`; what does not exist stays as named.
pub(crate) fn resolve_in_root(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut resolved = PathBuf::new();
    let mut pending: VecDeque<OsString> = parts(path).collect();
    let mut links = 0;
    while let Some(part) = pending.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        let Ok(target) = root.join(&resolved).join(&part).read_link() else {
            resolved.push(part);
            continue;
        };
        links += 1;
        if links > LINKS_MAX {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        if target.is_absolute() {
            resolved.clear();
        }
        for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
            pending.push_front(part);
        }
    }
    Ok(root.join(resolved))
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

/// Whether a path given by a user is relative and never goes up.
pub(crate) fn is_plain_relative(path: &str) -> bool {
    Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_link_leads_out_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("run/x")).unwrap();
        std::fs::create_dir_all(root.join("var")).unwrap();
        symlink("/run", root.join("var/run")).unwrap();
        symlink("../../../../etc", root.join("run/out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let cases = [
            ("/var/run/x/new", "run/x/new"),
            ("/var/run/out/passwd", "etc/passwd"),
            ("../../a/./b/../c", "a/c"),
            ("/", ""),
        ];
        for (path, expected) in cases {
            assert_eq!(resolve_in_root(root, Path::new(path)).unwrap(), root.join(expected), "{path}");
        }
        assert_eq!(resolve_in_root(root, Path::new("/loop/a")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn users_paths_never_go_up() {
        for (path, plain) in [("a/b", true), ("./a", true), ("", true), ("/a", false), ("a/../b", false), ("..", false)]
        {
            assert_eq!(is_plain_relative(path), plain, "{path}");
        }
    }
}
