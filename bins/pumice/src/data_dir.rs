//! Where everything of one platform is kept, and the note that clients find it by.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pumice_auth::write_private;
use pumice_jobs::target::{Environment, RUN_FILE, RunFile, default_data_dir};

/// A platform's directory.
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

    /// Makes the directory, readable by its owner only.
    pub fn create(&self) -> Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).with_context(|| {
            format!("create the data directory {}: choose another with --data-dir", self.path.display())
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the certificate authority.
    pub fn pki(&self) -> PathBuf {
        self.path.join("pki")
    }

    /// The store's file.
    pub fn store(&self) -> PathBuf {
        self.path.join("store.redb")
    }

    /// The history's file.
    pub fn history(&self) -> PathBuf {
        self.path.join(crate::args::history::FILE)
    }

    /// The kubeconfigs of components that run by themselves.
    pub fn kubeconfigs(&self) -> PathBuf {
        self.path.join("kubeconfigs")
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// What a platform in the background says.
    pub fn log(&self) -> PathBuf {
        self.path.join("up.log")
    }

    /// Writes the kubeconfig, then the note that says the platform runs: who finds the note finds the rest.
    pub fn announce(&self, kubeconfig: &str, running: &RunFile) -> Result<()> {
        write_private(&self.kubeconfig(), kubeconfig.as_bytes())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    use pumice_jobs::target::read_run_file;

    #[test]
    fn what_is_announced_is_found_private_and_withdrawn() {
        let temporary = tempfile::tempdir().unwrap();
        let data = DataDir::choose(Some(&temporary.path().join("new/data"))).unwrap();
        data.create().unwrap();
        let running = RunFile {
            pid: 1,
            url: "https://x".into(),
            kubeconfig: data.kubeconfig(),
            started: jiff::Timestamp::UNIX_EPOCH,
        };
        data.announce("secret", &running).unwrap();
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
