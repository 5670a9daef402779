//! The configuration file, read at the start and again when it changes.
//!
//! Invariant: a file that is refused changes nothing: the configuration before it goes on, with one warning per change.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pumice_engine::plugin::Registry;
use pumice_engine::{Config, ConfigError};
use pumice_recording::Flags;

use crate::Error;

/// How often the file is looked at. Files of ConfigMaps are swapped by links, which a watch of the file itself misses.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the file is read with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) flags: Flags,
    pub(crate) plugins: Registry,
}

impl Settings {
    /// Reads the configuration for the first time, and gives its text besides.
    pub(crate) fn load(&self, path: &Path) -> Result<(Config, String), Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::ReadConfig { path: path.to_owned(), source })?;
        let config = self.parse(&text).map_err(Error::ParseConfig)?;
        Ok((config, text))
    }

    /// A text of the file, with what the flags add. Warnings are logged.
    fn parse(&self, text: &str) -> Result<Config, ConfigError> {
        self.flags.parse(text, &self.plugins)
    }
}

/// A file's state as the file system tells it: as long as it is the same, the file need not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

/// Looks for changes of the file.
pub(crate) struct Reload {
    path: Option<PathBuf>,
    state: Option<FileState>,
    /// The text that was read last, good or bad.
    last: Option<String>,
    /// The text that is followed.
    good: Option<String>,
    settings: Settings,
}

impl Reload {
    /// `text` is what `load` read.
    pub(crate) fn new(path: Option<PathBuf>, settings: Settings, text: Option<String>) -> Self {
        // It is read once more: a change in between must not be missed.
        Self { path, state: None, last: None, good: text, settings }
    }

    /// The text of the configuration that is followed; none where there is no file.
    pub(crate) fn text(&self) -> Option<&str> {
        self.good.as_deref()
    }

    /// What flags say beside the file.
    pub(crate) fn flags(&self) -> &Flags {
        &self.settings.flags
    }

    /// Whether there is a file to look at.
    pub(crate) fn is_on(&self) -> bool {
        self.path.is_some()
    }

    /// The new configuration, if the file has changed to a good one.
    pub(crate) async fn look(&mut self) -> Option<Config> {
        let path = self.path.as_ref()?;
        let unread = |error| {
            // A file that is being swapped is back in a moment.
            tracing::debug!(path = %path.display(), %error, "scheduler configuration could not be read");
        };
        let about = tokio::fs::metadata(path).await.map_err(unread).ok()?;
        let state = FileState { modified: about.modified().ok(), bytes: about.len(), inode: about.ino() };
        if self.state == Some(state) {
            return None;
        }
        let text = tokio::fs::read_to_string(path).await.map_err(unread).ok()?;
        // A clock too coarse to tell two writes apart is made up for: a fresh file is read once more.
        let is_fresh = about.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age < 2 * LOOK_EVERY));
        self.state = if is_fresh { None } else { Some(state) };
        if self.last.as_ref() == Some(&text) {
            return None;
        }
        let parsed = self.settings.parse(&text);
        if parsed.is_ok() {
            self.good = Some(text.clone());
        }
        self.last = Some(text);
        parsed
            .inspect_err(|error| {
                let path = path.display();
                tracing::warn!(%path, %error, "scheduler configuration refused, the one before goes on");
            })
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let flags = Flags { default_queue: "default".into(), ..Flags::default() };
        Settings { flags, plugins: Registry::default() }
    }

    #[tokio::test]
    async fn a_bad_file_changes_nothing_and_a_good_one_is_taken_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("volcano-scheduler.conf");
        std::fs::write(&path, "actions: allocate\n").unwrap();
        assert_eq!(settings().load(&path).unwrap().0.actions.len(), 1);
        let mut reload = Reload::new(Some(path.clone()), settings(), None);
        assert!(reload.look().await.is_some());
        assert!(reload.look().await.is_none());
        std::fs::write(&path, "actions: fly\n").unwrap();
        assert!(reload.look().await.is_none());
        assert_eq!(reload.text(), Some("actions: allocate\n"), "the one before goes on");
        std::fs::remove_file(&path).unwrap();
        assert!(reload.look().await.is_none());
        std::fs::write(&path, "actions: enqueue, allocate\n").unwrap();
        assert_eq!(reload.look().await.unwrap().actions.len(), 2);
    }

    #[test]
    fn a_missing_or_refused_file_is_an_error_at_the_start() {
        assert!(matches!(settings().load(Path::new("/nonexistent/scheduler.conf")), Err(Error::ReadConfig { .. })));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scheduler.conf");
        std::fs::write(&path, "actions: fly\n").unwrap();
        assert!(matches!(settings().load(&path), Err(Error::ParseConfig(_))));
    }
}
