//! What others see of the history: whether there is one, what it answers, and how far it has written what the watches told.
//!
//! Invariant: a handle never waits for the database to be opened; while it isn't, it says why. Progress is told after the
//! transaction that wrote it, so what counts as taken in survives a crash. Held by the API server's side and by whoever watches
//! the component.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pumice_cluster::Vitals;

use crate::database::Database;
use crate::metrics::Numbers;
use crate::pending::{Cursor, Watched};

/// Asks the history; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Handle {
    state: Arc<RwLock<State>>,
    numbers: Numbers,
    progress: Progress,
}

#[derive(Debug, Clone, Default)]
enum State {
    /// Nobody has tried yet.
    #[default]
    Opening,
    Open(Database),
    /// Why it can't be opened.
    Failed(String),
}

impl Handle {
    /// Whether there is a history that is written, else why not. Waits for nothing.
    ///
    /// # Errors
    /// When the database is not open, or the last batch could not be written.
    pub fn look(&self) -> Result<(), String> {
        self.database()?;
        self.numbers.failing().map_or(Ok(()), |why| Err(format!("it could not be written: {why}")))
    }

    /// The database, if it is open.
    pub(crate) fn database(&self) -> Result<Database, String> {
        match &*self.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Opening => Err("it is starting".to_owned()),
            State::Open(database) => Ok(database.clone()),
            State::Failed(why) => Err(why.clone()),
        }
    }

    pub(crate) fn opened(&self, database: Database) {
        self.numbers.well();
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State::Open(database);
    }

    pub(crate) fn failed(&self, why: String) {
        self.numbers.failed(why.clone());
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State::Failed(why);
    }

    /// Whether all that was told of a kind up to a resource version is written, and every kind was listed. Waits for nothing.
    pub fn has_taken_in(&self, watched: Option<Watched>, version: &str) -> bool {
        self.look().is_ok() && self.progress.has(watched, version)
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }
}

impl Vitals for Handle {
    fn metrics(&self) -> String {
        self.numbers.render()
    }

    fn is_well(&self) -> bool {
        !matches!(&*self.state.read().unwrap_or_else(PoisonError::into_inner), State::Failed(_))
    }
}

/// The versions that were written; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<Mutex<BTreeMap<Watched, String>>>);

impl Progress {
    /// These cursors are in the database.
    pub(crate) fn written(&self, cursors: &BTreeMap<Watched, Cursor>) {
        let versions = cursors.iter().map(|(watched, cursor)| (*watched, cursor.version.clone())).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = versions;
    }

    /// Whether every kind was listed, and of this one all is written up to this version.
    pub(crate) fn has(&self, watched: Option<Watched>, version: &str) -> bool {
        let versions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = |text: &str| text.parse::<u64>().ok();
        let is_listed = |watched: &Watched| versions.get(watched).is_some_and(|version| !version.is_empty());
        let reaches = |watched: Watched| {
            let written = versions.get(&watched).and_then(|written| number(written));
            written.zip(number(version)).is_some_and(|(written, version)| written >= version)
        };
        Watched::ALL.iter().all(is_listed) && watched.is_none_or(reaches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_taken_in_once_all_kinds_were_listed() {
        let progress = Progress::default();
        assert!(!progress.has(None, "1"), "nothing was listed");
        let at = |version: &str| Cursor { version: version.to_owned(), ..Cursor::default() };
        let mut cursors: BTreeMap<_, _> = Watched::ALL.into_iter().map(|watched| (watched, at("90"))).collect();
        cursors.insert(Watched::Jobs, at("100"));
        progress.written(&cursors);
        for (watched, version, expected) in [
            (Some(Watched::Jobs), "99", true),
            (Some(Watched::Jobs), "100", true),
            (Some(Watched::Jobs), "101", false),
            (Some(Watched::Pods), "100", false),
            (Some(Watched::Jobs), "strange", false),
            (None, "500", true),
        ] {
            assert_eq!(progress.has(watched, version), expected, "{watched:?} {version}");
        }
        cursors.insert(Watched::Pods, at(""));
        progress.written(&cursors);
        assert!(!progress.has(Some(Watched::Jobs), "1"), "pods are being listed anew");
    }
}
