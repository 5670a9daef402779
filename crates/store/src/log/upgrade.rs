//! Brings a file of an older format to this one.
//!
//! Invariant: the file is copied before it is touched, and all steps happen in one transaction, so
//! an interrupted upgrade is one that did not begin. Called by the disk log while it loads.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use redb::{Database, WriteTransaction};

use crate::log::LogError;
use crate::log::disk::{FORMAT_KEY, NUMBERS, begin, corrupt, guarded, io_error};

/// The change from one format to the next.
pub(super) struct Step {
    /// The format before; the one after is this plus one.
    pub from: u64,
    pub rewrite: fn(&WriteTransaction) -> Result<(), redb::Error>,
}

/// One step for each format that ever shipped, oldest first. Format 1 is the first.
pub(super) const STEPS: &[Step] = &[];

/// Copies the file at `path`, then takes `database`, which is open on it, from format `found` to
/// `target`.
pub(super) fn run(path: &Path, database: &Database, found: u64, target: u64, steps: &[Step]) -> Result<(), LogError> {
    let steps: Vec<&Step> = (found..target).map_while(|from| steps.iter().find(|step| step.from == from)).collect();
    if steps.len() as u64 != target - found {
        return Err(corrupt(path, format!("format {found} cannot be upgraded")));
    }
    let copy = copy_path(path, found);
    fs::copy(path, &copy).and_then(|_| File::open(&copy)?.sync_all()).map_err(|error| io_error("copy", path, error))?;
    tracing::info!(copy = %copy.display(), found, target, "upgrading the store");
    guarded("upgrade", path, || {
        let transaction = begin(database)?;
        for step in steps {
            (step.rewrite)(&transaction)?;
        }
        transaction.open_table(NUMBERS)?.insert(FORMAT_KEY, target)?;
        Ok(transaction.commit()?)
    })
}

fn copy_path(path: &Path, format: u64) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".format-{format}"));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use redb::{ReadableDatabase, ReadableTable, TableDefinition};

    use super::*;

    const THINGS: TableDefinition<'_, &str, u64> = TableDefinition::new("things");

    const TEST_STEPS: &[Step] = &[
        Step {
            from: 1,
            rewrite: |transaction| {
                transaction.open_table(THINGS)?.insert("first", 1)?;
                Ok(())
            },
        },
        Step {
            from: 2,
            rewrite: |transaction| {
                let mut things = transaction.open_table(THINGS)?;
                let first = things.get("first")?.map(|value| value.value());
                things.insert("second", first.unwrap_or_default() + 1)?;
                Ok(())
            },
        },
    ];

    fn format_of(database: &Database) -> Option<u64> {
        let numbers = database.begin_read().unwrap().open_table(NUMBERS).unwrap();
        numbers.get(FORMAT_KEY).unwrap().map(|value| value.value())
    }

    fn old_store(path: &Path) -> Database {
        let database = Database::create(path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(NUMBERS).unwrap().insert(FORMAT_KEY, 1).unwrap();
        transaction.commit().unwrap();
        database
    }

    #[test]
    fn steps_run_in_order_after_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.redb");
        let database = old_store(&path);
        run(&path, &database, 1, 3, TEST_STEPS).unwrap();
        assert_eq!(format_of(&database), Some(3));
        let things = database.begin_read().unwrap().open_table(THINGS).unwrap();
        assert_eq!(things.get("second").unwrap().unwrap().value(), 2);
        let copy = Database::open(dir.path().join("store.redb.format-1")).unwrap();
        assert_eq!(format_of(&copy), Some(1));
    }

    #[test]
    fn a_gap_in_the_steps_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.redb");
        let database = old_store(&path);
        assert!(run(&path, &database, 1, 4, TEST_STEPS).is_err());
        assert_eq!(format_of(&database), Some(1));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
