//! Tables in Volcano's widths.
//!
//! Invariant: a column is as wide as Volcano makes it, or one more than its longest cell where that would touch the next
//! column. Cells never hold line breaks. Kept is the text of the cells, not what they are of. Called by [`crate::list`],
//! `pod` and `queue`.

use std::io::Write;

use jiff::Timestamp;
use serde_json::Value;

/// How wide a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    Fixed(usize),
    /// Its longest cell, or its heading, and so many characters more.
    Longest(usize),
    /// Its longest cell and so many characters more, or its heading and two more where that is wider.
    Cells(usize),
}

/// When a column is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    Always,
    /// In the wide form.
    Wide,
    /// In tables of all namespaces.
    AllNamespaces,
}

/// A column of objects.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub head: &'static str,
    pub width: Width,
    /// When it is shown.
    pub visibility: Visibility,
    pub cell: fn(&Value, Timestamp) -> String,
}

impl Column {
    /// A column of every table.
    pub const fn new(head: &'static str, width: Width, cell: fn(&Value, Timestamp) -> String) -> Self {
        Column { head, width, visibility: Visibility::Always, cell }
    }

    /// A column of the wide form.
    pub const fn wide(head: &'static str, cell: fn(&Value, Timestamp) -> String) -> Self {
        Column { head, width: Width::Longest(3), visibility: Visibility::Wide, cell }
    }

    /// The namespace, in tables of all of them.
    pub const fn namespace(width: Width) -> Self {
        Column {
            head: "Namespace",
            width,
            visibility: Visibility::AllNamespaces,
            cell: |object, _| text(object, "/metadata/namespace"),
        }
    }

    /// The column of names.
    pub const fn name(width: Width) -> Self {
        Column::new("Name", width, |object, _| text(object, "/metadata/name"))
    }
}

/// A table that is being filled.
#[derive(Debug, Clone, Default)]
pub struct Table {
    heads: Vec<(&'static str, Width)>,
    /// All cells, one after the other, row by row.
    text: String,
    /// Where in `text` each cell ends.
    ends: Vec<usize>,
}

impl Table {
    /// A table with these columns and no rows; there is at least one column.
    pub fn new(heads: Vec<(&'static str, Width)>) -> Self {
        assert!(!heads.is_empty(), "a table has columns");
        Table { heads, ..Table::default() }
    }

    /// Adds a row: a cell for each column.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let before = self.ends.len();
        for cell in cells {
            // A terminal must not obey what somebody wrote into a name.
            self.text.extend(cell.chars().map(|c| if c.is_control() { ' ' } else { c }));
            self.ends.push(self.text.len());
        }
        assert_eq!(self.ends.len() - before, self.heads.len(), "a row has as many cells as there are columns");
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Writes the heading and the rows, these in the order of their first `sorted_by` cells.
    pub fn write(&self, sorted_by: usize, out: &mut dyn Write) -> std::io::Result<()> {
        let widths = self.widths();
        let heads: Vec<&str> = self.heads.iter().map(|(head, _)| *head).collect();
        write_line(&heads, &widths, out)?;
        let mut rows: Vec<usize> = (0..self.ends.len() / self.heads.len()).collect();
        if sorted_by > 0 {
            rows.sort_by(|a, b| (0..sorted_by).map(|i| self.cell(*a, i)).cmp((0..sorted_by).map(|i| self.cell(*b, i))));
        }
        let mut cells = Vec::with_capacity(self.heads.len());
        for row in rows {
            cells.clear();
            cells.extend((0..self.heads.len()).map(|column| self.cell(row, column)));
            write_line(&cells, &widths, out)?;
        }
        Ok(())
    }

    fn cell(&self, row: usize, column: usize) -> &str {
        let index = row * self.heads.len() + column;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start..self.ends[index]]
    }

    fn widths(&self) -> Vec<usize> {
        let mut longest = vec![0; self.heads.len()];
        let mut start = 0;
        for (index, end) in self.ends.iter().enumerate() {
            let column = index % self.heads.len();
            longest[column] = self.text[start..*end].chars().count().max(longest[column]);
            start = *end;
        }
        let width = |((head, width), longest): (&(&str, Width), usize)| match *width {
            Width::Fixed(width) if longest.max(head.len()) < width => width,
            Width::Fixed(_) => longest.max(head.len()) + 1,
            Width::Longest(more) => longest.max(head.len()) + more,
            Width::Cells(more) => (longest + more).max(head.len() + 2),
        };
        self.heads.iter().zip(longest).map(width).collect()
    }
}

/// Cells padded to their widths; no space at the line's end.
fn write_line(cells: &[&str], widths: &[usize], out: &mut dyn Write) -> std::io::Result<()> {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        line.push_str(&format!("{cell:<width$}", width = *width));
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    out.write_all(line.as_bytes())
}

/// The text at a JSON pointer, empty if there is none.
pub fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The whole number at a JSON pointer, 0 if there is none.
pub fn number(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default().to_string()
}

/// The time since the moment at a JSON pointer, or `<unknown>`.
pub fn age(object: &Value, pointer: &str, now: Timestamp) -> String {
    let then = object.pointer(pointer).and_then(Value::as_str).and_then(|moment| moment.parse().ok());
    pumice_objects::table::age(then, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(heads: &[(&'static str, Width)], rows: &[&[&str]], sorted_by: usize) -> String {
        let mut table = Table::new(heads.to_vec());
        for row in rows {
            table.push(row.iter().map(|cell| (*cell).to_owned()));
        }
        let mut out = Vec::new();
        table.write(sorted_by, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn widths_are_volcanos() {
        for (width, cell, wanted) in [
            (Width::Fixed(8), "ab", "Head    |\nab      |\n"),
            (Width::Fixed(8), "abcdefgh", "Head     |\nabcdefgh |\n"),
            (Width::Fixed(4), "", "Head |\n     |\n"),
            (Width::Longest(3), "abcdef", "Head     |\nabcdef   |\n"),
            (Width::Longest(3), "é", "Head   |\né      |\n"),
            (Width::Cells(8), "1/1", "Head       |\n1/1        |\n"),
            (Width::Cells(1), "1", "Head  |\n1     |\n"),
        ] {
            let text = written(&[("Head", width), ("|", Width::Fixed(1))], &[&[cell, "|"]], 0);
            assert_eq!(text, wanted, "{width:?} {cell}");
        }
    }

    #[test]
    fn rows_are_sorted_by_their_first_cells() {
        let heads = [("Namespace", Width::Longest(1)), ("Name", Width::Longest(1)), ("N", Width::Longest(1))];
        let rows: &[&[&str]] = &[&["b", "a", "1"], &["a-b", "x", "2"], &["a", "y", "3"], &["a", "x", "4"]];
        let order = |sorted_by| -> String {
            written(&heads, rows, sorted_by).lines().skip(1).filter_map(|line| line.chars().last()).collect()
        };
        assert_eq!(order(0), "1234");
        assert_eq!(order(2), "4321");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text = written(&[("Name", Width::Fixed(10))], &[&["a\u{1b}[31m\nb"]], 0);
        assert_eq!(text, "Name\na [31m b\n");
    }
}
