//! Statements, made from the list of columns.
//!
//! Invariant: an upsert does to a stored row what [`Row::merge`] does to one in memory, in SQLite and in Postgres. Every
//! name in a statement is a constant of this crate; every value is an argument. Pure.

use std::fmt::Write as _;

use crate::rows::{Cell, Keep, Later, Row, Table};

/// Rows written by one statement: few sizes, so that few statements have to be prepared.
const SIZES: [usize; 4] = [256, 32, 4, 1];

/// A statement and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The text, with `$1`, `$2` and so on, or `?` for each in turn.
    pub sql: String,
    /// What they stand for.
    pub arguments: Vec<Cell>,
}

impl Statement {
    /// Pairs a text with what its `$1`, `$2` and so on stand for, in order. Nothing checks that they are as many.
    pub fn new(sql: impl Into<String>, arguments: Vec<Cell>) -> Statement {
        Statement { sql: sql.into(), arguments }
    }
}

/// Which database it is for; they differ in few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

/// Statements that take rows in, which must be of different keys. O(rows).
pub fn upserts(dialect: Dialect, table: Table, rows: Vec<Row>) -> Vec<Statement> {
    let mut statements = Vec::new();
    let mut left = rows.into_iter();
    while left.len() > 0 {
        let size = SIZES.into_iter().find(|size| *size <= left.len()).unwrap_or(1);
        let cells = left.by_ref().take(size).flat_map(|row| row.cells);
        statements.push(Statement::new(upsert(dialect, table, size), cells.collect()));
    }
    statements
}

fn upsert(dialect: Dialect, table: Table, rows: usize) -> String {
    let (name, columns) = (table.name(), table.columns());
    let names = |all: &[crate::rows::Column]| all.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
    let mut sql = format!("INSERT INTO {name} ({}) VALUES ", names(columns));
    for row in 0..rows {
        let comma = if row == 0 { "" } else { ", " };
        let places = (1..=columns.len()).map(|place| match dialect {
            // To SQLite `$1` is a name like any other, and it goes through all names for each of a statement's thousands.
            Dialect::Sqlite => "?".to_owned(),
            Dialect::Postgres => format!("${}", row * columns.len() + place),
        });
        let places: Vec<String> = places.collect();
        let _ = write!(sql, "{comma}({})", places.join(", "));
    }
    let _ = write!(sql, " ON CONFLICT ({}) DO UPDATE SET ", names(&columns[..table.key_width()]));
    let larger = if dialect == Dialect::Sqlite { "MAX" } else { "GREATEST" };
    let sets = columns[table.key_width()..].iter().map(|column| {
        let column_name = column.name;
        let (old, new) = (format!("{name}.{column_name}"), format!("excluded.{column_name}"));
        let value = match column.keep {
            Keep::Key | Keep::Last => new,
            Keep::Known => format!("COALESCE({new}, {old})"),
            Keep::First => format!("COALESCE({old}, {new})"),
            // SQLite's has nothing to say where one of them is nothing.
            Keep::Most => format!("{larger}(COALESCE({old}, {new}), COALESCE({new}, {old}))"),
            Keep::Sum => format!("COALESCE({old} + {new}, {old}, {new})"),
        };
        format!("{column_name} = {value}")
    });
    let sets: Vec<String> = sets.collect();
    let later = match table.later() {
        Later::Version => {
            format!("(excluded.seen, excluded.version) >= ({name}.seen, {name}.version)")
        }
        Later::Sample => format!("excluded.sampled > {name}.sampled"),
    };
    let _ = write!(sql, "{} WHERE {later}", sets.join(", "));
    sql
}

/// What was there before a list and is not in it is gone: `from` is when it was last known to be there. `api` tells the two
/// kinds of jobs apart.
pub fn swept(table: Table, api: Option<&str>, seen: i64, from: i64, now: i64) -> Option<Statement> {
    let mut arguments = vec![Cell::Int(Some(now)), Cell::Int(Some(from)), Cell::Int(Some(seen))];
    let which = match (table, api) {
        (Table::Job, Some(api)) => {
            arguments.push(Cell::text(api));
            " AND api = $4"
        }
        (Table::Attempt, None) => "",
        _ => return None,
    };
    let sql = format!(
        "UPDATE {} SET gone = $1, unseen_from = CASE WHEN ended IS NULL THEN $2 ELSE unseen_from END, \
         phase = CASE WHEN ended IS NULL THEN '{}' ELSE phase END WHERE gone IS NULL AND seen < $3{which}",
        table.name(),
        pumice_api::history::END_UNKNOWN,
    );
    Some(Statement::new(sql, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upsert_says_of_each_column_how_it_is_kept() {
        insta::assert_snapshot!(
            [upsert(Dialect::Sqlite, Table::Used, 2), upsert(Dialect::Postgres, Table::Attempt, 1)].join("\n\n")
        );
    }

    #[test]
    fn any_number_of_rows_goes_into_few_sizes() {
        for count in [0, 1, 3, 4, 300, 1000] {
            let rows = (0..count).map(|n| Row::new(Table::Used).text("uid", &n.to_string())).collect();
            let made = upserts(Dialect::Sqlite, Table::Used, rows);
            let width = Table::Used.columns().len();
            let sizes: Vec<usize> = made.iter().map(|one| one.arguments.len() / width).collect();
            assert_eq!(sizes.iter().sum::<usize>(), count);
            assert!(sizes.iter().all(|size| SIZES.contains(size)), "{sizes:?}");
        }
    }
}
