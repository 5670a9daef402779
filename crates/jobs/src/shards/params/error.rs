//! What can be wrong with a file of parameters: where, what, and what to do.

use super::super::{KEY_BYTES_MAX, RECORDS_MAX};
use super::{COLUMNS_MAX, NAME_BYTES_MAX, NAMES_BYTES_MAX, ROW_BYTES_MAX};
use crate::error::{CORRECT, Failure, Remedy};
use crate::exit_code::Exit;

/// A file that can't be used as a whole.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    /// It can't be read.
    #[error("cannot read {origin} beyond line {line}")]
    Read {
        origin: String,
        /// The last line that was read, 0 for none.
        line: u64,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("{origin}:{line}: {fault}")]
    Line {
        origin: String,
        /// From 1; a row's first line.
        line: u64,
        /// What is wrong with it.
        fault: Fault,
    },
    /// The file has no such column.
    #[error("{origin} has no column {column:?} for --key; its columns are {known}")]
    NoKeyColumn {
        origin: String,
        /// The column asked for.
        column: String,
        /// The columns there are.
        known: String,
    },
    /// It has no rows.
    #[error("{origin} has no rows; each row is one run")]
    NoRows { origin: String },
}

impl Failure for ParamsError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn remedy(&self) -> Remedy {
        Remedy::from_text(CORRECT)
    }
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No names at all.
    #[error("there is no row of column names; write one first, such as lr,seed")]
    NoHeader,
    /// A row of CSV without a field.
    #[error("the line is empty; remove it, or write \"\" for an empty value of an only column")]
    EmptyRow,
    /// A line without JSON.
    #[error("the line is empty; remove it")]
    EmptyLine,
    /// Over the bound of a row.
    #[error("the row has more than {ROW_BYTES_MAX} bytes; put large values into files and name these")]
    RowTooLong,
    /// Over the bound of rows.
    #[error("there are more than {RECORDS_MAX} rows; submit them in several jobs")]
    TooManyRows,
    /// Not UTF-8.
    #[error("the text is not UTF-8 (byte {byte} of the row); save the file as UTF-8")]
    NotUtf8 {
        /// The first bad byte of the row, from 1.
        byte: usize,
    },
    /// A quote where none may be.
    #[error("field {field} has a quote inside; write the whole field in quotes and each quote in it twice")]
    Quote {
        /// From 1.
        field: usize,
    },
    /// Text behind a quoted field.
    #[error(
        "field {field} goes on after its closing quote; put a comma between fields, and write a quote inside twice"
    )]
    AfterQuote {
        /// From 1.
        field: usize,
    },
    /// A quoted field without an end.
    #[error("the quote that opens field {field} is never closed; close it")]
    OpenQuote {
        /// From 1.
        field: usize,
    },
    /// A lone carriage return.
    #[error("field {field} has a carriage return; end lines by a line feed, or quote the field")]
    CarriageReturn {
        /// From 1.
        field: usize,
    },
    /// A row of another length.
    #[error("fields in the row: {found}, columns: {expected}; correct the commas or quote the fields")]
    Ragged {
        /// How many the row has.
        found: usize,
        /// How many the header has.
        expected: usize,
    },
    /// Not JSON.
    #[error("the line is not JSON: {text} (byte {column} of the line); write one object a line")]
    NotJson {
        /// Where, in bytes from 1.
        column: usize,
        /// What the parser says.
        text: String,
    },
    /// JSON, but not an object.
    #[error("the line is no JSON object; write one such as {{\"lr\": 0.1, \"seed\": 1}}")]
    NotObject,
    /// A list or an object as a value.
    #[error("{column:?} is {what}; values are texts, numbers, true, false or null")]
    Nested {
        column: String,
        /// `a list` or `an object`.
        what: &'static str,
    },
    /// A number that would be changed by reading it.
    #[error("{column:?} is a whole number beyond 64 bits; write it in quotes")]
    BigNumber { column: String },
    /// A column that the first row has.
    #[error("{column:?} is missing, which the first row has; write null for no value")]
    MissingColumn { column: String },
    /// A column that the first row lacks.
    #[error("{column:?} is not in the first row; all rows have the same names")]
    UnknownColumn { column: String },
    /// Over the bound of columns.
    #[error("there are {found} columns, at most {COLUMNS_MAX} may be")]
    TooManyColumns {
        /// How many there are.
        found: usize,
    },
    /// Names that would not fit in a rule.
    #[error("the column names take {found} bytes together, at most {NAMES_BYTES_MAX} may be; shorten them")]
    NamesTooLong {
        /// How many they take.
        found: usize,
    },
    /// Not a name.
    #[error(
        "column {position} is named {name:?}; a name has letters of ASCII, digits, '_', '-' and '.', begins with a letter or '_', and has at most {NAME_BYTES_MAX} characters"
    )]
    Name {
        /// From 1.
        position: usize,
        /// The name, cut to 80 characters.
        name: String,
    },
    /// A name that stands for something else.
    #[error("column {position} is named {name:?}, which stands for a record's own {name}; rename it")]
    Reserved {
        /// From 1.
        position: usize,
        name: String,
    },
    /// Names that are one variable.
    #[error("columns {first:?} and {second:?} are both {variable} in a program's environment; rename one")]
    SameVariable {
        /// The one before.
        first: String,
        /// The one after.
        second: String,
        variable: String,
    },
    /// A value that no variable can hold.
    #[error("{column:?} has a zero byte, which no variable can hold; remove it")]
    ZeroByte { column: String },
    /// A key that can't be one.
    #[error("{column:?} is {key:?}, which is no key: a key has 1 to {KEY_BYTES_MAX} bytes and no control characters")]
    Key {
        column: String,
        /// Its text, cut to 80 characters.
        key: String,
    },
    /// Two rows with one key.
    #[error("key {key:?} is that of line {first}, too; {advice}")]
    Duplicate {
        key: String,
        /// The row that had it first.
        first: u64,
        /// What to do, by where keys are from.
        advice: &'static str,
    },
}
