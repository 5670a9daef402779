//! What waits to be written: entries of the feed, as the statements of one transaction.
//!
//! Invariant: rows and the cursors that say how far they go are in the same statements; of one key there is one row, or one for each sample; what a
//! list lacked is swept after its rows are in. Pure. Owned by the writer.

use std::collections::{BTreeMap, HashMap};

use crate::rows::{Cell, Later, Row, Table};
use crate::statements::{Dialect, Statement, swept, upserts};

/// The kinds that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Watched {
    /// Jobs of `batch.volcano.sh`.
    Jobs,
    /// Jobs of `batch`.
    KubernetesJobs,
    Groups,
    Pods,
}

impl Watched {
    /// Every kind, in the order of its variants: the history is complete only once each was listed.
    pub const ALL: [Watched; 4] = [Watched::Jobs, Watched::KubernetesJobs, Watched::Groups, Watched::Pods];

    /// How its cursor is called.
    pub fn word(self) -> &'static str {
        match self {
            Watched::Jobs => "jobs.batch.volcano.sh",
            Watched::KubernetesJobs => "jobs.batch",
            Watched::Groups => "podgroups.scheduling.volcano.sh",
            Watched::Pods => "pods",
        }
    }

    fn swept(self, seen: i64, from: i64, now: i64) -> Option<Statement> {
        match self {
            Watched::Jobs => swept(Table::Job, Some("batch.volcano.sh"), seen, from, now),
            Watched::KubernetesJobs => swept(Table::Job, Some("batch"), seen, from, now),
            Watched::Groups => None,
            Watched::Pods => swept(Table::Attempt, None, seen, from, now),
        }
    }
}

/// How far the rows of a kind go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Up to this version; empty while there is a list to be made.
    pub version: String,
    /// The number of the last list that was begun.
    pub seen: i64,
    /// When this was last known to be so, in milliseconds since 1970; 0 = never.
    pub at: i64,
}

/// What the feed tells the writer.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    ListBegins {
        /// The kind that is listed.
        watched: Watched,
        /// The number of the rows up to its end.
        seen: i64,
    },
    /// Rows of a list.
    Listed(Vec<Row>),
    /// A list is complete.
    ListEnds {
        /// The kind that was listed.
        watched: Watched,
        /// The number that it began with.
        seen: i64,
        /// The version that the list is of.
        version: String,
    },
    /// What a change says; also that the watch goes on, with no rows.
    Changed {
        /// The kind that is watched.
        watched: Watched,
        /// The version that the watch has come to.
        version: String,
        /// What became of the object.
        rows: Vec<Row>,
    },
    Used(Vec<Row>),
    /// The watches are well: nothing that happened before now is missing.
    Well,
}

impl Entry {
    /// How many rows it brings, and never 0, so that any number of entries ends a batch.
    pub fn weight(&self) -> usize {
        match self {
            Entry::Listed(rows) | Entry::Changed { rows, .. } | Entry::Used(rows) => rows.len().max(1),
            _ => 1,
        }
    }
}

/// Entries folded together. `cursors` are those of the database once it is written.
#[derive(Debug, Default)]
pub struct Pending {
    cursors: BTreeMap<Watched, Cursor>,
    changed: bool,
    rows: HashMap<(Table, Vec<Cell>), Row>,
    statements: Vec<Statement>,
}

impl Pending {
    /// Nothing, after these cursors.
    pub fn new(cursors: BTreeMap<Watched, Cursor>) -> Pending {
        Pending { cursors, ..Pending::default() }
    }

    /// How far the rows go that were added.
    pub fn cursors(&self) -> &BTreeMap<Watched, Cursor> {
        &self.cursors
    }

    /// Adds an entry that came at `now`.
    pub fn add(&mut self, dialect: Dialect, entry: Entry, now: i64) {
        match entry {
            Entry::ListBegins { watched, seen } => {
                // Rows with a number that no cursor has would be deaf to what a resumed watch tells.
                let cursor = self.cursors.entry(watched).or_default();
                (cursor.version, cursor.seen) = (String::new(), seen);
                self.changed = true;
            }
            Entry::Listed(rows) | Entry::Used(rows) => self.put(rows),
            Entry::ListEnds { watched, seen, version } => {
                let cursor = self.cursors.entry(watched).or_default();
                let from = if cursor.at == 0 { now } else { cursor.at };
                *cursor = Cursor { version, seen, at: now };
                self.changed = true;
                if let Some(sweep) = watched.swept(seen, from, now) {
                    self.settle(dialect);
                    self.statements.push(sweep);
                }
            }
            Entry::Changed { watched, version, rows } => {
                let cursor = self.cursors.entry(watched).or_default();
                (cursor.version, cursor.at) = (version, now);
                self.changed = true;
                self.put(rows);
            }
            Entry::Well => {
                let known = self.cursors.values_mut().filter(|cursor| !cursor.version.is_empty());
                known.for_each(|cursor| cursor.at = now);
                self.changed = true;
            }
        }
    }

    fn put(&mut self, rows: Vec<Row>) {
        for row in rows {
            // Samples are not added up here: one of them may be in the database already.
            let width = row.table.key_width() + usize::from(row.table.later() == Later::Sample);
            let key = (row.table, row.cells[..width].to_vec());
            match self.rows.get_mut(&key) {
                Some(there) => there.merge(row),
                None => drop(self.rows.insert(key, row)),
            }
        }
    }

    /// Makes statements of the rows that are gathered.
    fn settle(&mut self, dialect: Dialect) {
        let mut by_table: BTreeMap<Table, Vec<Row>> = BTreeMap::new();
        for (_, row) in self.rows.drain() {
            by_table.entry(row.table).or_default().push(row);
        }
        for (table, mut rows) in by_table {
            // In one order, whoever else writes: two that wait for each other would stop both.
            rows.sort_by(|left, right| left.cells.cmp(&right.cells));
            // Samples of one pod go into statements of their own: none may meet the same row twice.
            while !rows.is_empty() {
                let mut later = Vec::new();
                let mut now: Vec<Row> = Vec::with_capacity(rows.len());
                for row in rows {
                    let again = now.last().is_some_and(|last| last.key() == row.key());
                    if again { later.push(row) } else { now.push(row) }
                }
                self.statements.extend(upserts(dialect, table, now));
                rows = later;
            }
        }
    }

    /// Everything as the statements of one transaction; empty if there is nothing to write. What was added is forgotten, the
    /// cursors go on.
    pub fn take(&mut self, dialect: Dialect) -> Vec<Statement> {
        self.settle(dialect);
        if std::mem::take(&mut self.changed) {
            for (watched, cursor) in &self.cursors {
                self.statements.push(Statement::new(
                    "INSERT INTO cursor_of (kind, version, seen, at) VALUES ($1, $2, $3, $4) ON CONFLICT (kind) \
                     DO UPDATE SET version = excluded.version, seen = excluded.seen, at = excluded.at",
                    vec![
                        Cell::text(watched.word()),
                        Cell::text(&cursor.version),
                        Cell::Int(Some(cursor.seen)),
                        Cell::Int(Some(cursor.at)),
                    ],
                ));
            }
        }
        std::mem::take(&mut self.statements)
    }
}
