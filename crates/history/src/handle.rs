//! What others see of the history: whether there is one, and what it answers.
//!
//! Invariant: a handle never waits for the database to be opened; while it isn't, it says why. Held by the API server's side
//! and by whoever watches the component.

use std::sync::{Arc, PoisonError, RwLock};

use pumice_cluster::Vitals;

use crate::database::Database;
use crate::metrics::Numbers;
use crate::pending::Watched;
use crate::progress::Progress;

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
