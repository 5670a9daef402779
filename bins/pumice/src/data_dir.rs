//! Where everything of one platform is kept, and the note that clients find it by.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::unistd::Uid;
use pumice_auth::write_private;
use pumice_jobs::platform::target::{Environment, KUBECONFIGS, RUN_FILE, RunFile, default_data_dir};
use pumice_store::DirectoryLock;

use crate::output;

/// The directory's mode, and what of a mode is for others than its owner.
const MODE: u32 = 0o700;
const OTHERS: u32 = 0o077;
const STICKY: u32 = 0o1000;
/// One of these is in every directory of a platform, an agent or a fleet.
const MARKS: [&str; 5] = ["store.redb", "lock", "node", "pki", "fleet.db"];
const CHOOSE: &str = "choose another with --data-dir";

/// The directory that a `pumice up` keeps everything in, by the paths inside it.
#[derive(Debug, Clone)]
pub struct DataDir {
    path: PathBuf,
}

impl DataDir {
    /// The directory asked for, else the default of this user. Reads the environment.
    pub fn choose(asked: Option<&Path>) -> Result<DataDir> {
        let environment = Environment::read(|name| std::env::var_os(name));
        let path = asked
            .map(Path::to_owned)
            .or_else(|| default_data_dir(&environment))
            .context("there is no home directory to keep data in: say where with --data-dir")?;
        let path = std::path::absolute(&path).with_context(|| format!("make {} absolute", path.display()))?;
        Ok(DataDir { path })
    }

    /// Keeps a second node agent away: two would fight over the pods.
    pub fn lock_node(&self) -> Result<DirectoryLock> {
        let folder = self.path.join("node");
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| format!("make {}", folder.display()))?;
        DirectoryLock::acquire(&folder).context("be the only node agent here")
    }

    /// Makes the directory, readable by its owner only. One that is there and open to others is closed to them, and said: if it
    /// is empty or a platform's. A folder that is shared with others, such as `/tmp`, is refused.
    pub fn create(&self) -> Result<()> {
        let path = self.path.display();
        let failed = || format!("create the data directory {path}: {CHOOSE}");
        fs::DirBuilder::new().recursive(true).mode(MODE).create(&self.path).with_context(failed)?;
        let found = fs::metadata(&self.path).with_context(failed)?;
        let mode = found.permissions().mode() & 0o7777;
        if mode & OTHERS == 0 {
            return Ok(());
        }
        let is_open = || format!("others can use the data directory {path} (mode {mode:o})");
        ensure!(found.uid() == Uid::effective().as_raw(), "{}, and its owner is somebody else: {CHOOSE}", is_open());
        ensure!(mode & STICKY == 0 && self.is_own()?, "{}, and it holds other files: {CHOOSE}", is_open());
        fs::set_permissions(&self.path, fs::Permissions::from_mode(mode & !OTHERS)).with_context(is_open)?;
        output::note(format_args!("pumice: {}; now only its owner can", is_open()));
        Ok(())
    }

    /// Whether the directory is empty, or has been a platform's.
    fn is_own(&self) -> Result<bool> {
        let mut names = fs::read_dir(&self.path).with_context(|| format!("read {}", self.path.display()))?;
        Ok(names.next().is_none() || MARKS.iter().any(|mark| self.path.join(mark).exists()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the certificate authority.
    pub fn pki(&self) -> PathBuf {
        self.path.join("pki")
    }

    /// The certificate of the authority, PEM, if there is one.
    pub fn authority(&self) -> Option<String> {
        fs::read_to_string(self.pki().join("ca.crt")).ok()
    }

    /// The API server's objects.
    pub fn store(&self) -> PathBuf {
        self.path.join("store.redb")
    }

    /// Jobs and pods that have ended.
    pub fn history(&self) -> PathBuf {
        self.path.join(crate::args::history::FILE)
    }

    /// The kubeconfigs of components that run by themselves.
    pub fn kubeconfigs(&self) -> PathBuf {
        self.path.join(KUBECONFIGS)
    }

    /// The kubeconfig with all rights, mode 0600.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Who did what, where nobody says where to write it.
    pub fn audit_log(&self) -> PathBuf {
        self.path.join("audit.log")
    }

    /// What a platform in the background says.
    pub fn log(&self) -> PathBuf {
        self.path.join("up.log")
    }

    /// Writes the note that says the platform runs. The kubeconfig is there already: who finds the note finds the rest.
    pub fn announce(&self, running: &RunFile) -> Result<()> {
        write_private(&self.path.join(RUN_FILE), &serde_json::to_vec_pretty(running)?)?;
        Ok(())
    }

    /// Takes the note back.
    pub fn withdraw(&self) -> Result<()> {
        let note = self.path.join(RUN_FILE);
        match fs::remove_file(&note) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", note.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Makes a database of SQLite its owner's alone before it is opened: SQLite gives what it makes beside it the same mode. One
/// that an earlier release made is closed to others.
pub fn keep_private(database: &Path) {
    let close = || -> std::io::Result<()> {
        fs::File::options().create(true).append(true).mode(0o600).open(database)?;
        for ending in ["", "-wal", "-shm"] {
            let mut path = database.as_os_str().to_owned();
            path.push(ending);
            match fs::set_permissions(&path, fs::Permissions::from_mode(0o600)) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                closed => closed?,
            }
        }
        Ok(())
    };
    // Whether it can be used is found when it is opened.
    if let Err(error) = close() {
        tracing::warn!(database = %database.display(), %error, "others may be able to read the database");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_jobs::platform::target::read_run_file;

    #[test]
    fn a_directory_that_is_open_to_others_is_closed_to_them() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("data");
        fs::create_dir(&path).unwrap();
        let data = DataDir::choose(Some(&path)).unwrap();
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        for open in [0o755, 0o770, 0o701, 0o700] {
            set(open);
            data.create().unwrap();
            assert_eq!(mode(), 0o700, "{open:o}");
        }
        fs::write(path.join("thesis.tex"), "").unwrap();
        set(0o755);
        let error = data.create().unwrap_err().to_string();
        assert!(error.contains("holds other files") && error.contains("--data-dir"), "{error}");
        assert_eq!(mode(), 0o755, "what is not a platform's alone is left as it is");
        fs::write(path.join("lock"), "").unwrap();
        data.create().unwrap();
        assert_eq!(mode(), 0o700);
        set(0o1777);
        data.create().unwrap_err();
        assert_eq!(mode(), 0o777);
    }

    #[test]
    fn databases_are_closed_to_others_new_ones_and_old_ones() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("history.db");
        let mode = |name: &str| fs::metadata(temporary.path().join(name)).unwrap().permissions().mode() & 0o777;
        keep_private(&path);
        assert_eq!(mode("history.db"), 0o600);
        fs::write(temporary.path().join("history.db-wal"), "").unwrap();
        for name in ["history.db", "history.db-wal"] {
            fs::set_permissions(temporary.path().join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        keep_private(&path);
        assert_eq!((mode("history.db"), mode("history.db-wal")), (0o600, 0o600));
        assert!(!temporary.path().join("history.db-shm").exists());
    }

    #[test]
    fn what_is_announced_is_found_private_and_withdrawn() {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDir::choose(Some(&temporary.path().join("new/data"))).unwrap();
        data.create().unwrap();
        let running = RunFile { pid: 1, url: "https://x".into(), kubeconfig: data.kubeconfig(), ..RunFile::default() };
        write_private(&data.kubeconfig(), b"secret").unwrap();
        data.announce(&running).unwrap();
        assert_eq!(read_run_file(data.path()).unwrap(), Some(running));
        for file in [data.kubeconfig(), data.path().join(RUN_FILE)] {
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
        }
        assert_eq!(fs::metadata(data.path()).unwrap().permissions().mode() & 0o777, 0o700);
        data.withdraw().unwrap();
        data.withdraw().unwrap();
        assert_eq!(read_run_file(data.path()).unwrap(), None);
    }
}
