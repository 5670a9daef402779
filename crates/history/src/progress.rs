//! How far the history has written what the watches told.
//!
//! Invariant: told after the transaction that wrote it, so what counts as taken in survives a crash. Written by the writer,
//! asked by whoever removes what the history should know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::pending::{Cursor, Watched};

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
