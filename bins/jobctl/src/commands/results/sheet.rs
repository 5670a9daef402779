//! Rows of results as a table, as CSV, as JSON or as keys.
//!
//! Invariant: what is held is one row, of a table a page of them: their number and the size of results don't matter.

use pumice_jobs::output::table::{Table, Tint};
use pumice_jobs::results::{Row, word};
use serde::Serialize;

use crate::args::ResultsForm;
use crate::failure::Failure;
use crate::output;

/// Rows of a table that line up with each other.
const PAGE_ROWS: usize = 1000;
/// Bytes that are written in one go.
const WRITTEN_BYTES: usize = 64 << 10;
/// Characters of a result in a table.
const CELL_CHARACTERS: usize = 60;
/// The first line of CSV.
const CSV_HEAD: &str = "key,status,attempts,exit_code,signal,node,problem,result_bytes,result\n";

/// Rows of results as they are printed, a page of text at a time.
pub struct Sheet {
    form: ResultsForm,
    colours: bool,
    text: String,
    page: Table,
    rows: usize,
}

/// A row as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'r> {
    key: &'r str,
    status: &'r str,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    node: &'r str,
    #[serde(skip_serializing_if = "str::is_empty")]
    problem: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_bytes: Option<usize>,
    /// Missing where it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'r str>,
}

impl Sheet {
    pub fn new(form: ResultsForm, colours: bool) -> Sheet {
        let text = if form == ResultsForm::Csv { CSV_HEAD.to_owned() } else { String::new() };
        Sheet { form, colours, text, page: page(), rows: 0 }
    }

    /// Takes the next row; a full page of a table is turned to text.
    pub fn push(&mut self, row: &Row) -> Result<(), Failure> {
        match self.form {
            ResultsForm::Table => {
                self.page.push(cells(row));
                self.rows += 1;
                if self.rows.is_multiple_of(PAGE_ROWS) {
                    self.turn_page();
                }
            }
            ResultsForm::Csv => self.text.push_str(&csv(row)),
            ResultsForm::Json => {
                let line = serde_json::to_string(&Line::of(row)).map_err(|error| Failure::Machine(error.into()))?;
                self.text.push_str(&line);
                self.text.push('\n');
            }
            ResultsForm::Keys => {
                self.text.push_str(&row.key);
                self.text.push('\n');
            }
        }
        if self.text.len() < WRITTEN_BYTES { Ok(()) } else { output::text(&std::mem::take(&mut self.text)) }
    }

    /// Prints what is left.
    pub fn end(mut self) -> Result<(), Failure> {
        if self.form == ResultsForm::Table && !(self.rows > 0 && self.page.is_empty()) {
            self.turn_page();
        }
        output::text(&self.text)
    }

    fn turn_page(&mut self) {
        let text = std::mem::replace(&mut self.page, page()).render(self.colours);
        // The head stands above the first page.
        let text = if self.rows > PAGE_ROWS { text.split_once('\n').map_or("", |(_, rows)| rows) } else { &text };
        self.text.push_str(text);
    }
}

impl<'r> Line<'r> {
    fn of(row: &'r Row) -> Self {
        let report = &row.report;
        Line {
            key: &row.key,
            status: row.word(),
            attempts: row.attempts,
            exit_code: report.code,
            signal: report.signal,
            node: &report.node,
            problem: &report.problem,
            result_bytes: report.result.as_ref().map(|result| result.len()),
            result: report.text(),
        }
    }
}

fn page() -> Table {
    let mut page = Table::new(["KEY", "STATUS", "ATTEMPTS", "CODE", "NODE", "RESULT"]);
    page.tint(1, |status| match status {
        "succeeded" => Tint::Good,
        "failed" => Tint::Bad,
        _ => Tint::Waits,
    });
    page
}

fn cells(row: &Row) -> [String; 6] {
    let Line { key, attempts, exit_code, node, problem, result_bytes, result, .. } = Line::of(row);
    let result = match (problem, result_bytes) {
        ("", Some(bytes)) => result.map_or_else(|| format!("({bytes} bytes)"), first_line),
        (problem, _) => first_line(problem),
    };
    let told = |number: Option<String>| number.unwrap_or_default();
    let attempts = told((attempts > 0).then(|| attempts.to_string()));
    let code = told(exit_code.map(|code| code.to_string()));
    [key.to_owned(), word(row.status).to_owned(), attempts, code, node.to_owned(), result]
}

fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut: String = line.chars().take(CELL_CHARACTERS).collect();
    if cut.len() < text.len() { format!("{cut} ...") } else { cut }
}

/// As RFC 4180 has it, with `\n` at the ends of lines; a result keeps its own.
fn csv(row: &Row) -> String {
    let Line { key, status, attempts, exit_code, signal, node, problem, result_bytes, result } = Line::of(row);
    let number = |number: Option<String>| number.unwrap_or_default();
    let (code, signal) = (exit_code.map(|code| code.to_string()), signal.map(|signal| signal.to_string()));
    let bytes = result_bytes.map(|bytes| bytes.to_string());
    let [key, node, problem, result] = [key, node, problem, result.unwrap_or_default()].map(field);
    let [code, signal, bytes] = [code, signal, bytes].map(number);
    format!("{key},{status},{attempts},{code},{signal},{node},{problem},{bytes},{result}\n")
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
