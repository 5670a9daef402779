//! Tables of text for terminals, and the same as CSV.
//!
//! Invariant: cells hold no control characters, so a terminal obeys nothing that somebody wrote into a name; colours are added
//! after the widths are counted. Pure. Called by `job::list_columns` and by everything else of `jobctl` that prints rows.

/// What a cell should look like. Terminals have their own idea of each colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tint {
    Good,
    Bad,
    Busy,
    Waits,
    Faint,
}

impl Tint {
    /// The parameter of ECMA-48's "select graphic rendition".
    fn code(self) -> u8 {
        match self {
            Tint::Good => 32,
            Tint::Bad => 31,
            Tint::Busy => 36,
            Tint::Waits => 33,
            Tint::Faint => 2,
        }
    }
}

impl Tint {
    /// The text in this colour.
    pub fn paint(self, text: &str) -> String {
        format!("\u{1b}[{}m{text}\u{1b}[0m", self.code())
    }
}

/// What stands between two columns.
const GAP: &str = "   ";

/// A head and rows as wide as it.
#[derive(Debug, Clone, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    tinted: Option<Tinted>,
}

/// A column that has colours.
#[derive(Debug, Clone, Copy)]
struct Tinted {
    column: usize,
    by: fn(&str) -> Tint,
}

impl Table {
    /// A table without rows.
    pub fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Table { head: head.into_iter().map(Into::into).collect(), ..Table::default() }
    }

    /// Colours the cells of a column by their text.
    pub fn tint(&mut self, column: usize, tint: fn(&str) -> Tint) {
        self.tinted = Some(Tinted { column, by: tint });
    }

    /// Adds a row; missing cells are empty.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| cell.replace(char::is_control, " ")).collect();
        row.resize(self.head.len(), String::new());
        self.rows.push(row);
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Columns padded to their widest cell, no space at a line's end.
    pub fn render(&self, colours: bool) -> String {
        let mut widths: Vec<usize> = self.head.iter().map(|cell| cell.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        self.line(&self.head, &widths, None, &mut text);
        let tinted = if colours { self.tinted } else { None };
        for row in &self.rows {
            self.line(row, &widths, tinted, &mut text);
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize], tinted: Option<Tinted>, text: &mut String) {
        let last = cells.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
        for (index, (cell, width)) in cells.iter().zip(widths).enumerate().take(last + 1) {
            match tinted {
                Some(Tinted { column, by }) if column == index => {
                    text.push_str(&by(cell).paint(cell));
                }
                _ => text.push_str(cell),
            }
            if index < last {
                let missing = width.saturating_sub(cell.chars().count());
                text.extend(std::iter::repeat_n(' ', missing));
                text.push_str(GAP);
            }
        }
        text.push('\n');
    }

    /// Comma-separated values as RFC 4180 has them, with `\n` at the ends of lines.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let cells: Vec<String> = row.iter().map(|cell| field(cell)).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }
}

fn field(cell: &str) -> String {
    if cell.contains([',', '"']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_with_and_without_colours() {
        let mut table = Table::new(["NAME", "STATE", "NOTE"]);
        table.tint(1, |state| if state == "ok" { Tint::Good } else { Tint::Bad });
        table.push(["é".to_owned(), "ok".to_owned(), String::new()]);
        table.push(["longer\u{1b}[2J".to_owned(), "broken".to_owned(), "a, \"b\"".to_owned()]);
        assert!(!table.is_empty());
        let shown = table.render(true).replace('\u{1b}', "ESC");
        insta::assert_snapshot!([table.render(false), shown, table.csv()].join("\n"));
    }
}
