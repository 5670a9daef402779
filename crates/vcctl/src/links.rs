//! The names under which Volcano's users know this program: links to it in a directory.
//!
//! Invariant: nothing that exists is touched; either all names are free or ours already, or none is made. Called by
//! `pumice links`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Volcano's program with all groups, and its Slurm-like ones.
pub const NAMES: &[&str] = &["vcctl", "vsub", "vjobs", "vqueues", "vcancel", "vsuspend", "vresume"];

/// Makes a link to `program` for each name in `directory`; gives their paths. Those that are there already stay.
pub fn make(directory: &Path, program: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |path: &Path, source| Error::Link { path: path.display().to_string(), source };
    // Beside the program a link without a path stays good when the whole folder is moved.
    let beside = program.parent().is_some_and(|parent| same(parent, directory));
    let target = match program.file_name() {
        Some(name) if beside => PathBuf::from(name),
        _ => program.to_owned(),
    };
    let mut links = Vec::new();
    for name in NAMES {
        let path = directory.join(name);
        let ours = match fs::read_link(&path) {
            Ok(to) => Some(to == target || same(&directory.join(to), program)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Some(false),
            Err(error) => return Err(failed(&path, error)),
        };
        if ours == Some(false) {
            let taken = io::Error::other("something else has that name; remove it, or choose another --dir");
            return Err(failed(&path, taken));
        }
        links.push((path, ours.is_some()));
    }
    for (path, _) in links.iter().filter(|(_, there)| !there) {
        std::os::unix::fs::symlink(&target, path).map_err(|error| failed(path, error))?;
    }
    Ok(links.into_iter().map(|(path, _)| path).collect())
}

fn same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_once_and_others_things_stay() {
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("bin/pumice");
        let elsewhere = home.path().join("links");
        fs::create_dir(home.path().join("bin")).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        fs::write(&program, "program").unwrap();
        for directory in [program.parent().unwrap(), &elsewhere] {
            assert_eq!(make(directory, &program).unwrap().len(), NAMES.len());
            assert_eq!(make(directory, &program).unwrap().len(), NAMES.len(), "a second time is the same");
            assert_eq!(fs::read_to_string(directory.join("vsub")).unwrap(), "program");
        }
        assert_eq!(fs::read_link(program.parent().unwrap().join("vsub")).unwrap(), Path::new("pumice"));
        assert_eq!(fs::read_link(elsewhere.join("vsub")).unwrap(), program);

        let taken = home.path().join("taken");
        fs::create_dir(&taken).unwrap();
        fs::write(taken.join("vqueues"), "somebody's").unwrap();
        let error = make(&taken, &program).unwrap_err();
        assert!(error.sentence().contains("vqueues: something else has that name"), "{}", error.sentence());
        assert_eq!(fs::read_dir(&taken).unwrap().count(), 1, "nothing was made");
        assert!(make(&home.path().join("missing"), &program).is_err());
    }
}
