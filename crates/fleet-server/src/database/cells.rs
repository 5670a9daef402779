//! Statements and rows of either database, without words of either above this file.
//!
//! Invariant: many rows go in one statement, whose text depends on few sizes, so that it is prepared once. Text never has
//! the letter that Postgres can't store.

use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Postgres, Row as _, Sqlite};

use super::Error;

/// Rows of one statement of SQLite: its parameters are limited, and each size is a statement of its own.
const SQLITE_ROWS: [usize; 3] = [128, 16, 1];

/// What a cell is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Text,
    Bytes,
}

/// A value, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    Int(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// What is stored in place of the letter that Postgres can't store.
const IN_PLACE_OF_NUL: &str = "\u{fffd}";

/// How many bytes a text has once it is a cell.
pub(super) fn stored_bytes(text: &str) -> usize {
    text.len() + text.bytes().filter(|byte| *byte == 0).count() * (IN_PLACE_OF_NUL.len() - 1)
}

impl Cell {
    pub(super) fn text(text: &str) -> Cell {
        Cell::Text(Some(text.replace('\0', IN_PLACE_OF_NUL)))
    }

    pub(super) fn text_if(text: Option<&str>) -> Cell {
        text.map_or(Cell::Text(None), Cell::text)
    }

    pub(super) fn int(value: impl Into<i64>) -> Cell {
        Cell::Int(Some(value.into()))
    }

    pub(super) fn id(value: u128) -> Cell {
        Cell::Bytes(Some(value.to_be_bytes().to_vec()))
    }

    /// As JSON, whose text has no letter that can't be stored.
    pub(super) fn json_if(value: Option<&(impl serde::Serialize + ?Sized)>) -> Result<Cell, Error> {
        value.map(serde_json::to_string).transpose().map(Cell::Text).map_err(|_| Error::Unwritable)
    }
}

/// The cells of a row, taken in order.
pub(super) struct Cells {
    table: &'static str,
    cells: std::vec::IntoIter<Cell>,
}

impl Cells {
    fn wrong(&self) -> Error {
        Error::Unreadable { table: self.table }
    }

    pub(super) fn int_if(&mut self) -> Result<Option<i64>, Error> {
        match self.cells.next() {
            Some(Cell::Int(value)) => Ok(value),
            _ => Err(self.wrong()),
        }
    }

    pub(super) fn int(&mut self) -> Result<i64, Error> {
        self.int_if()?.ok_or_else(|| self.wrong())
    }

    pub(super) fn count(&mut self) -> Result<u32, Error> {
        let value = self.int()?;
        u32::try_from(value).map_err(|_| self.wrong())
    }

    pub(super) fn text_if(&mut self) -> Result<Option<String>, Error> {
        match self.cells.next() {
            Some(Cell::Text(value)) => Ok(value),
            _ => Err(self.wrong()),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, Error> {
        self.text_if()?.ok_or_else(|| self.wrong())
    }

    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        match self.cells.next() {
            Some(Cell::Bytes(Some(value))) => Ok(value),
            _ => Err(self.wrong()),
        }
    }

    pub(super) fn id(&mut self) -> Result<u128, Error> {
        let bytes = self.bytes()?;
        bytes.try_into().map(u128::from_be_bytes).map_err(|_| self.wrong())
    }

    pub(super) fn json_if<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        let text = self.text_if()?;
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(|_| self.wrong())
    }

    pub(super) fn word<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
        let text = self.text()?;
        parse(&text).ok_or_else(|| self.wrong())
    }
}

/// A table's columns that a statement names.
pub(super) type Columns = [(&'static str, Kind)];

/// `a, b, c`, each with `before` it.
pub(super) fn names(columns: &Columns, before: &str) -> String {
    columns.iter().map(|(name, _)| format!("{before}{name}")).collect::<Vec<_>>().join(", ")
}

/// A transaction of either database.
pub(super) enum Transaction {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

macro_rules! bound {
    ($sql:expr, $arguments:expr) => {{
        let mut query = sqlx::query(AssertSqlSafe($sql));
        for cell in $arguments {
            query = match cell {
                Cell::Int(value) => query.bind(value),
                Cell::Text(value) => query.bind(value),
                Cell::Bytes(value) => query.bind(value),
            };
        }
        query
    }};
}

/// Gives each row of a query to `$take`.
macro_rules! each {
    ($query:expr, $transaction:expr, $table:expr, $columns:expr, $take:expr) => {{
        let mut rows = $query.fetch(&mut **$transaction);
        while let Some(row) = rows.try_next().await.map_err(Error::failed)? {
            let mut cells = Vec::with_capacity($columns.len());
            for (place, (_, kind)) in $columns.iter().enumerate() {
                let cell = match kind {
                    Kind::Int => row.try_get(place).map(Cell::Int),
                    Kind::Text => row.try_get(place).map(Cell::Text),
                    Kind::Bytes => row.try_get(place).map(Cell::Bytes),
                };
                cells.push(cell.map_err(Error::failed)?);
            }
            $take(Cells { table: $table, cells: cells.into_iter() })?;
        }
        Ok(())
    }};
}

impl Transaction {
    pub(super) fn is_postgres(&self) -> bool {
        matches!(self, Transaction::Postgres(_))
    }

    pub(super) async fn commit(self) -> Result<(), Error> {
        match self {
            Transaction::Sqlite(transaction) => transaction.commit().await,
            Transaction::Postgres(transaction) => transaction.commit().await,
        }
        .map_err(Error::failed)
    }

    /// Runs a statement; tells how many rows changed.
    pub(super) async fn execute(&mut self, sql: &str, arguments: Vec<Cell>) -> Result<u64, Error> {
        let sql = sql.to_owned();
        match self {
            Transaction::Sqlite(t) => bound!(sql, arguments).execute(&mut **t).await.map(|done| done.rows_affected()),
            Transaction::Postgres(t) => bound!(sql, arguments).execute(&mut **t).await.map(|done| done.rows_affected()),
        }
        .map_err(Error::failed)
    }

    /// Gives each row of what `sql` selects, which are `columns` of `table`.
    pub(super) async fn each(
        &mut self,
        table: &'static str,
        columns: &Columns,
        sql: String,
        arguments: Vec<Cell>,
        mut take: impl FnMut(Cells) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Transaction::Sqlite(t) => each!(bound!(sql, arguments), t, table, columns, take),
            Transaction::Postgres(t) => each!(bound!(sql, arguments), t, table, columns, take),
        }
    }

    /// Runs `rest`, which reads the rows as the table `v` of `columns`; tells how many rows changed.
    pub(super) async fn with(&mut self, columns: &Columns, rows: Vec<Vec<Cell>>, rest: &str) -> Result<u64, Error> {
        let mut changed = 0;
        match self {
            Transaction::Sqlite(t) => {
                for (sql, arguments) in chunks(columns, rows, rest) {
                    let done = bound!(sql, arguments).execute(&mut **t).await.map_err(Error::failed)?;
                    changed += done.rows_affected();
                }
            }
            Transaction::Postgres(_) if rows.is_empty() => {}
            Transaction::Postgres(t) => {
                let mut query = sqlx::query(AssertSqlSafe(unnested(columns, rest)));
                for column in by_column(columns, rows) {
                    query = match column {
                        Column::Int(values) => query.bind(values),
                        Column::Text(values) => query.bind(values),
                        Column::Bytes(values) => query.bind(values),
                    };
                }
                changed = query.execute(&mut **t).await.map_err(Error::failed)?.rows_affected();
            }
        }
        Ok(changed)
    }

    /// Gives each row of what `rest` selects, which are `selected` of `table`; reads the rows as [`Self::with`] does.
    pub(super) async fn each_with(
        &mut self,
        columns: &Columns,
        rows: Vec<Vec<Cell>>,
        rest: &str,
        table: &'static str,
        selected: &Columns,
        mut take: impl FnMut(Cells) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Transaction::Sqlite(t) => {
                for (sql, arguments) in chunks(columns, rows, rest) {
                    let read: Result<(), Error> = each!(bound!(sql, arguments), t, table, selected, take);
                    read?;
                }
                Ok(())
            }
            Transaction::Postgres(_) if rows.is_empty() => Ok(()),
            Transaction::Postgres(t) => {
                let mut query = sqlx::query(AssertSqlSafe(unnested(columns, rest)));
                for column in by_column(columns, rows) {
                    query = match column {
                        Column::Int(values) => query.bind(values),
                        Column::Text(values) => query.bind(values),
                        Column::Bytes(values) => query.bind(values),
                    };
                }
                each!(query, t, table, selected, take)
            }
        }
    }
}

/// SQLite's statements for these rows, with their arguments.
fn chunks(columns: &Columns, rows: Vec<Vec<Cell>>, rest: &str) -> impl Iterator<Item = (String, Vec<Cell>)> {
    let before = format!("WITH v ({}) AS (VALUES ", names(columns, ""));
    let row = format!("({})", vec!["?"; columns.len()].join(","));
    let rest = rest.to_owned();
    let mut rows = rows.into_iter();
    std::iter::from_fn(move || {
        let size = SQLITE_ROWS.into_iter().find(|size| *size <= rows.len())?;
        let sql = format!("{before}{}) {rest}", vec![row.as_str(); size].join(","));
        Some((sql, rows.by_ref().take(size).flatten().collect()))
    })
}

/// Postgres' statement for any number of rows.
fn unnested(columns: &Columns, rest: &str) -> String {
    let kinds = columns.iter().enumerate().map(|(place, (_, kind))| {
        let name = match kind {
            Kind::Int => "bigint",
            Kind::Text => "text",
            Kind::Bytes => "bytea",
        };
        format!("${}::{name}[]", place + 1)
    });
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    format!("WITH v ({}) AS (SELECT * FROM UNNEST({kinds})) {rest}", names(columns, ""))
}

enum Column {
    Int(Vec<Option<i64>>),
    Text(Vec<Option<String>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

fn by_column(columns: &Columns, rows: Vec<Vec<Cell>>) -> Vec<Column> {
    let mut all: Vec<Column> = columns
        .iter()
        .map(|(_, kind)| match kind {
            Kind::Int => Column::Int(Vec::with_capacity(rows.len())),
            Kind::Text => Column::Text(Vec::with_capacity(rows.len())),
            Kind::Bytes => Column::Bytes(Vec::with_capacity(rows.len())),
        })
        .collect();
    for row in rows {
        assert_eq!(row.len(), columns.len(), "a row has a cell for each column of {columns:?}");
        for (column, cell) in all.iter_mut().zip(row) {
            match (column, cell) {
                (Column::Int(values), Cell::Int(value)) => values.push(value),
                (Column::Text(values), Cell::Text(value)) => values.push(value),
                (Column::Bytes(values), Cell::Bytes(value)) => values.push(value),
                (_, cell) => panic!("{cell:?} is not of its column's kind"),
            }
        }
    }
    all
}
