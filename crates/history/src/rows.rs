//! The tables as data: their columns, and how a row meets the one that is there.
//!
//! Invariant: this list is the only place that knows the columns; the statements that make and fill the tables, and the
//! merging of rows within a batch, follow from it and agree. Merging the same rows again changes nothing. Pure.

use std::cmp::Ordering;

/// Longest text of a cell, in bytes; what is longer is cut.
pub const TEXT_MAX: usize = 1024;

/// What a cell holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// A number, or nothing.
    Int(Option<i64>),
    /// A text, or nothing.
    Text(Option<String>),
}

impl Cell {
    /// A text, cut to [`TEXT_MAX`]. NUL, which Postgres does not take, becomes a space.
    pub fn text(text: &str) -> Cell {
        let mut end = text.len().min(TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Cell::Text(Some(text[..end].replace('\0', " ")))
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Cell::Int(None) | Cell::Text(None))
    }
}

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 64 bits with a sign.
    Int,
    /// UTF-8.
    Text,
}

/// How a new value meets the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// A part of the key.
    Key,
    /// The new one counts.
    Last,
    /// The new one counts unless it is nothing.
    Known,
    /// The old one counts unless it is nothing.
    First,
    /// The larger one counts.
    Most,
    Sum,
}

/// A column of a table, and what becomes of its value when a row is written again.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its name, in SQL.
    pub name: &'static str,
    pub kind: Kind,
    pub keep: Keep,
}

/// The tables that rows of facts go to. Cursors and the format have tables of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Jobs by uid.
    Job,
    /// Tasks by their job's uid and their name.
    Task,
    /// Attempts by their pod's uid.
    Attempt,
    /// Waits by their group's uid, when they began, and the class of their reason.
    Waits,
    /// What attempts used, by their pod's uid.
    Used,
}

/// Which of two rows is later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Later {
    /// The one of a later list (`seen`), else of a later or the same version (`version`).
    Version,
    /// The one that was sampled later (`sampled`), and never the same again.
    Sample,
}

const fn column(name: &'static str, kind: Kind, keep: Keep) -> Column {
    Column { name, kind, keep }
}

const fn int(name: &'static str, keep: Keep) -> Column {
    column(name, Kind::Int, keep)
}

const fn text(name: &'static str, keep: Keep) -> Column {
    column(name, Kind::Text, keep)
}

use Keep::{First, Key, Known, Last, Most, Sum};

const JOB: &[Column] = &[
    text("uid", Key),
    text("api", Last),
    text("namespace", Last),
    text("name", Last),
    text("profile", Last),
    text("submitter", Known),
    text("queue", Known),
    text("priority_class", Last),
    text("phase", Last),
    text("reason", Last),
    text("message", Last),
    int("submitted", First),
    int("started", First),
    int("ended", Last),
    int("gone", First),
    int("unseen_from", First),
    int("replicas", Last),
    int("succeeded", Last),
    int("failed", Last),
    int("retries", Last),
    int("cpu_milli", Last),
    int("memory_bytes", Last),
    int("version", Last),
    int("seen", Last),
];

const TASK: &[Column] = &[
    text("job_uid", Key),
    text("name", Key),
    int("replicas", Last),
    int("succeeded", Last),
    int("failed", Last),
    int("cpu_milli", Last),
    int("memory_bytes", Last),
    int("version", Last),
    int("seen", Last),
];

const ATTEMPT: &[Column] = &[
    text("uid", Key),
    text("job_uid", Last),
    text("namespace", Last),
    text("name", Last),
    text("task", Last),
    int("task_index", Known),
    text("node", Known),
    text("phase", Last),
    text("reason", Last),
    text("message", Last),
    int("exit_code", Known),
    int("restarts", Last),
    int("created", First),
    int("scheduled", First),
    int("started", First),
    int("ended", Known),
    int("gone", First),
    int("unseen_from", First),
    int("cpu_milli", Last),
    int("memory_bytes", Last),
    text("evicted", Known),
    int("version", Last),
    int("seen", Last),
];

const WAITS: &[Column] = &[
    text("group_uid", Key),
    int("since", Key),
    text("class", Key),
    text("job_uid", Last),
    text("summary", Last),
    int("version", Last),
    int("seen", Last),
];

const USED: &[Column] = &[
    text("uid", Key),
    int("sampled", Last),
    int("samples", Sum),
    int("cpu_milli_sum", Sum),
    int("cpu_milli_max", Most),
    int("memory_bytes_sum", Sum),
    int("memory_bytes_max", Most),
];

impl Table {
    /// Every table, in the order in which a transaction writes them.
    pub const ALL: [Table; 5] = [Table::Job, Table::Task, Table::Attempt, Table::Waits, Table::Used];

    /// Its name, in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Table::Job => "job",
            Table::Task => "task",
            Table::Attempt => "attempt",
            Table::Waits => "waits",
            Table::Used => "used",
        }
    }

    /// Its columns; those of the key come first.
    pub fn columns(self) -> &'static [Column] {
        match self {
            Table::Job => JOB,
            Table::Task => TASK,
            Table::Attempt => ATTEMPT,
            Table::Waits => WAITS,
            Table::Used => USED,
        }
    }

    /// How many columns its key has.
    pub fn key_width(self) -> usize {
        self.columns().iter().take_while(|column| column.keep == Key).count()
    }

    /// Which of two of its rows is later.
    pub fn later(self) -> Later {
        if self == Table::Used { Later::Sample } else { Later::Version }
    }

    /// The place of a column. O(columns).
    pub fn column_index(self, name: &str) -> Option<usize> {
        self.columns().iter().position(|column| column.name == name)
    }
}

/// A row; one cell for each column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub table: Table,
    /// The cells, in the order of the columns.
    pub cells: Vec<Cell>,
}

impl Row {
    /// A row of nothing but its table.
    pub fn new(table: Table) -> Row {
        let nothing = |column: &Column| match column.kind {
            Kind::Int => Cell::Int(None),
            Kind::Text => Cell::Text(None),
        };
        Row { table, cells: table.columns().iter().map(nothing).collect() }
    }

    /// With this cell.
    ///
    /// # Panics
    /// When the table has no such column of that kind: names are constants of this crate.
    #[must_use]
    pub fn with(mut self, name: &str, cell: Cell) -> Row {
        let place =
            self.table.column_index(name).unwrap_or_else(|| panic!("{} has no column {name}", self.table.name()));
        let fits = matches!(
            (self.table.columns()[place].kind, &cell),
            (Kind::Int, Cell::Int(_)) | (Kind::Text, Cell::Text(_))
        );
        assert!(fits, "{cell:?} is no value of {}.{name}", self.table.name());
        self.cells[place] = cell;
        self
    }

    /// The row with a number in this column; `None` is SQL's NULL. Panics as [`Row::with`] does.
    #[must_use]
    pub fn int(self, name: &str, value: impl Into<Option<i64>>) -> Row {
        self.with(name, Cell::Int(value.into()))
    }

    /// The row with a text in this column, an empty one too. Panics as [`Row::with`] does.
    #[must_use]
    pub fn text(self, name: &str, value: &str) -> Row {
        self.with(name, Cell::text(value))
    }

    /// With this text, or nothing where it is empty.
    #[must_use]
    pub fn text_if(self, name: &str, value: &str) -> Row {
        if value.is_empty() { self } else { self.text(name, value) }
    }

    /// The cells that tell it from others.
    pub fn key(&self) -> &[Cell] {
        &self.cells[..self.table.key_width()]
    }

    /// Takes a row of the same key in; one that is older changes nothing.
    pub fn merge(&mut self, newer: Row) {
        debug_assert_eq!((self.table, self.key()), (newer.table, newer.key()));
        if !newer.counts_after(self) {
            return;
        }
        for ((column, old), new) in self.table.columns().iter().zip(&mut self.cells).zip(newer.cells) {
            let takes = match column.keep {
                Key => false,
                Last => true,
                Known => !new.is_nothing(),
                First => old.is_nothing(),
                Most => new > *old,
                Sum => {
                    if let (Cell::Int(Some(old)), Cell::Int(Some(new))) = (&mut *old, &new) {
                        *old = old.saturating_add(*new);
                        continue;
                    }
                    old.is_nothing()
                }
            };
            if takes {
                *old = new;
            }
        }
    }

    fn counts_after(&self, older: &Row) -> bool {
        let of = |row: &Row, name| row.table.column_index(name).map(|place| row.cells[place].clone());
        let order = |name| of(self, name).cmp(&of(older, name));
        match self.table.later() {
            Later::Version => order("seen").then_with(|| order("version")) != Ordering::Less,
            Later::Sample => order("sampled") == Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(version: i64, seen: i64) -> Row {
        Row::new(Table::Attempt).text("uid", "p").int("version", version).int("seen", seen)
    }

    fn cell(row: &Row, name: &str) -> Cell {
        row.cells[row.table.column_index(name).unwrap()].clone()
    }

    #[test]
    fn keys_come_first_and_each_table_knows_what_is_later() {
        for table in Table::ALL {
            assert!(table.key_width() > 0);
            assert!(table.columns()[table.key_width()..].iter().all(|column| column.keep != Key));
            let guards: &[&str] = if table.later() == Later::Version { &["version", "seen"] } else { &["sampled"] };
            assert!(guards.iter().all(|name| table.column_index(name).is_some()), "{}", table.name());
        }
    }

    #[test]
    fn each_way_to_keep() {
        let mut row = attempt(5, 1).text("phase", "Running").int("started", 10).text("node", "a").int("ended", 3);
        row.merge(attempt(6, 1).text("phase", "Failed").int("started", 20));
        let now = |row: &Row| ["phase", "started", "node", "ended"].map(|name| cell(row, name));
        let kept = [Cell::text("Failed"), Cell::Int(Some(10)), Cell::text("a"), Cell::Int(Some(3))];
        assert_eq!(now(&row), kept);
        row.merge(attempt(5, 1).text("phase", "Running"));
        assert_eq!(now(&row), kept, "an older version changes nothing");
        row.merge(attempt(2, 2).text("phase", "Pending"));
        assert_eq!(cell(&row, "phase"), Cell::text("Pending"), "a later list is believed");

        let sample = |at: i64, cpu: i64| {
            Row::new(Table::Used)
                .text("uid", "p")
                .int("sampled", at)
                .int("samples", 1)
                .int("cpu_milli_sum", cpu)
                .int("cpu_milli_max", cpu)
        };
        let mut used = sample(1, 5);
        used.merge(sample(2, 3));
        used.merge(sample(2, 3));
        let sums = ["sampled", "samples", "cpu_milli_sum", "cpu_milli_max"].map(|name| cell(&used, name));
        assert_eq!(sums, [2, 2, 8, 5].map(|n| Cell::Int(Some(n))));
    }

    #[test]
    fn texts_are_cut_between_letters() {
        let long = "é".repeat(TEXT_MAX);
        let Cell::Text(Some(cut)) = Cell::text(&long) else { panic!("a text") };
        assert_eq!((cut.len(), cut.chars().all(|c| c == 'é')), (TEXT_MAX, true));
        assert_eq!(Cell::text("a\0b"), Cell::text("a b"));
    }
}
