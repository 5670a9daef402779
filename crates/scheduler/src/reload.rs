//! The configuration file, read at the start and again when it changes.
//!
//! Invariant: a file that is refused changes nothing: the configuration before it goes on, with one warning per change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pumice_engine::Config;
use pumice_engine::plugin::Registry;

use crate::Error;

/// How often the file is looked at. Files of ConfigMaps are swapped by links, which a watch of the file itself misses.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads the configuration for the first time.
pub(crate) fn load(path: &Path, plugins: &Registry) -> Result<Config, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::ReadConfig { path: path.to_owned(), source })?;
    let (config, warnings) = Config::parse_with(&text, plugins).map_err(Error::ParseConfig)?;
    for warning in warnings {
        tracing::warn!(%warning, "scheduler configuration");
    }
    Ok(config)
}

/// Looks for changes of the file.
pub(crate) struct Reload {
    path: Option<PathBuf>,
    /// The text that was read last, good or bad.
    last: Option<String>,
    plugins: Registry,
}

impl Reload {
    pub(crate) fn new(path: Option<PathBuf>, plugins: Registry) -> Self {
        // What `load` read is read once more: a change in between must not be missed.
        Self { path, last: None, plugins }
    }

    /// Whether there is a file to look at.
    pub(crate) fn is_on(&self) -> bool {
        self.path.is_some()
    }

    /// The new configuration, if the file has changed to a good one.
    pub(crate) async fn look(&mut self) -> Option<Config> {
        let path = self.path.as_ref()?;
        let text = match tokio::fs::read_to_string(path).await {
            Ok(text) => text,
            Err(error) => {
                // A file that is being swapped is back in a moment.
                tracing::debug!(path = %path.display(), %error, "scheduler configuration could not be read");
                return None;
            }
        };
        if self.last.as_ref() == Some(&text) {
            return None;
        }
        let parsed = Config::parse_with(&text, &self.plugins);
        self.last = Some(text);
        match parsed {
            Ok((config, warnings)) => {
                for warning in warnings {
                    tracing::warn!(%warning, "scheduler configuration");
                }
                Some(config)
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "scheduler configuration refused, the one before goes on");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bad_file_changes_nothing_and_a_good_one_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("volcano-scheduler.conf");
        std::fs::write(&path, "actions: allocate\n").unwrap();
        assert_eq!(load(&path, &Registry::default()).unwrap().actions.len(), 1);
        let mut reload = Reload::new(Some(path.clone()), Registry::default());
        assert!(reload.look().await.is_some());
        assert!(reload.look().await.is_none());
        std::fs::write(&path, "actions: fly\n").unwrap();
        assert!(reload.look().await.is_none());
        std::fs::remove_file(&path).unwrap();
        assert!(reload.look().await.is_none());
        std::fs::write(&path, "actions: enqueue, allocate\n").unwrap();
        assert_eq!(reload.look().await.unwrap().actions.len(), 2);
    }

    #[test]
    fn a_missing_or_refused_file_is_an_error_at_the_start() {
        assert!(matches!(
            load(Path::new("/nonexistent/scheduler.conf"), &Registry::default()),
            Err(Error::ReadConfig { .. })
        ));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scheduler.conf");
        std::fs::write(&path, "actions: fly\n").unwrap();
        assert!(matches!(load(&path, &Registry::default()), Err(Error::ParseConfig(_))));
    }
}
