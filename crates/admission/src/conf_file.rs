//! The file of resource groups (`--admission-conf`), read at the start and again when it changes.
//!
//! Invariant: a file that is refused later on changes nothing: the groups before it stay, with one warning per change.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;

use crate::LiveRules;
use crate::pod::{ResourceGroups, ResourceGroupsError};

/// How often the file is read. Files of ConfigMaps are swapped by links, which a watch of the file itself misses.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Bytes that are read of a file, one more than any may have.
const READ_MAX: u64 = (1 << 20) + 1;

/// Why the file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfFileError {
    /// It can't be read.
    #[error("cannot read {path}")]
    Read {
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// It is no such file.
    #[error("{path} is not taken")]
    Parse {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: ResourceGroupsError,
    },
}

/// The file, and the rules that its groups are part of.
#[derive(Debug)]
pub struct ConfFile {
    path: PathBuf,
    rules: LiveRules,
    /// What was read last, good or bad; nothing where it could not be read.
    last: Option<String>,
}

impl ConfFile {
    /// Reads the file for the first time, and puts its groups into the rules.
    pub async fn open(path: PathBuf, rules: LiveRules) -> Result<Self, ConfFileError> {
        let text = read(&path).await.map_err(|source| ConfFileError::Read { path: path.clone(), source })?;
        set(&rules, &text).map_err(|source| ConfFileError::Parse { path: path.clone(), source })?;
        Ok(Self { path, rules, last: Some(text) })
    }

    /// Follows the file for as long as it is polled. Cancel safe.
    pub async fn follow(mut self) -> Infallible {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let path = self.path.display();
        match read(&self.path).await {
            Ok(text) if self.last.as_ref() == Some(&text) => {}
            Ok(text) => {
                match set(&self.rules, &text) {
                    Ok(()) => tracing::info!(%path, "the resource groups have changed"),
                    Err(error) => tracing::warn!(%path, %error, "the resource groups of before stay"),
                }
                self.last = Some(text);
            }
            Err(error) => {
                if self.last.take().is_some() {
                    tracing::warn!(%path, %error, "the file can't be read; the resource groups of before stay");
                }
            }
        }
    }
}

async fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    tokio::fs::File::open(path).await?.take(READ_MAX).read_to_string(&mut text).await?;
    Ok(text)
}

fn set(rules: &LiveRules, text: &str) -> Result<(), ResourceGroupsError> {
    let resource_groups = ResourceGroups::parse(text)?;
    rules.change(|rules| rules.resource_groups = resource_groups);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn groups_follow_the_file_and_mistakes_change_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("conf");
        let rules = LiveRules::default();
        let error = ConfFile::open(path.clone(), rules.clone()).await.unwrap_err();
        assert!(matches!(error, ConfFileError::Read { .. }), "{error}");
        std::fs::write(&path, "resourceGroups: [{object: {key: x}}]").unwrap();
        let error = ConfFile::open(path.clone(), rules.clone()).await.unwrap_err();
        assert!(matches!(error, ConfFileError::Parse { .. }), "{error}");

        let [one, two] =
            ["one", "two"].map(|name| format!("resourceGroups: [{{resourceGroup: {name}, schedulerName: {name}}}]"));
        std::fs::write(&path, &one).unwrap();
        let mut file = ConfFile::open(path.clone(), rules.clone()).await.unwrap();
        let is = |text: &str| rules.get().resource_groups == ResourceGroups::parse(text).unwrap();
        assert!(is(&one));
        for (text, wanted) in [(two.as_str(), &two), ("resourceGroups: 7", &two), (&one, &one)] {
            std::fs::write(&path, text).unwrap();
            file.look().await;
            assert!(is(wanted), "{text}");
        }
        std::fs::remove_file(&path).unwrap();
        file.look().await;
        assert!(is(&one), "a file that is swapped may be missing for a moment");
        std::fs::write(&path, &two).unwrap();
        file.look().await;
        assert!(is(&two));
    }
}
