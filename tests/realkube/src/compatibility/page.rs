//! The page `docs/clients.md`: one table a client, one column a version of it on an API server.
//!
//! Invariant: what is above the first table is written by hand, all else by [`settle`], which is the only one to write it.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::Verdict;
use crate::operators::Server;

/// What a cell holds before a run has seen it.
const UNSEEN: &str = "not tried";
/// What one holds where it works.
const WORKS: &str = "yes";

/// A column of a table.
pub struct Column {
    /// Heading of the table: the client.
    pub client: String,
    /// All columns that the table has, in order.
    pub all: Vec<String>,
    /// The one that was seen.
    pub seen: String,
    /// What was seen, in the order of the rows.
    pub verdicts: Vec<Verdict>,
}

impl Column {
    /// What was seen of a version of a client on a server; the table has two columns for each of its versions.
    pub fn new(client: &str, versions: &[&str], version: &str, server: Server, verdicts: Vec<Verdict>) -> Column {
        let title = |version: &str, server: Server| match server {
            Server::Ours => version.to_owned(),
            Server::Kubernetes => format!("{version} on kube-apiserver"),
        };
        let all = [Server::Ours, Server::Kubernetes].into_iter();
        let all = all.flat_map(|server| versions.iter().map(move |version| title(version, server)));
        Column { client: client.to_owned(), all: all.collect(), seen: title(version, server), verdicts }
    }
}

/// Compares what was seen with the page, or writes it there when `UPDATE` is set.
///
/// # Panics
/// When the page says something else; the message says how it is made anew.
#[allow(clippy::disallowed_methods)] // whether the page is to be written is the caller's choice
pub fn settle(column: &Column) {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/clients.md"));
    let update = std::env::var_os("UPDATE").is_some();
    // Tests of several binaries may run at the same time.
    let lock = std::fs::File::open(&path).expect("docs/clients.md");
    lock.lock().expect("lock the page");
    let page = std::fs::read_to_string(&path).expect("docs/clients.md");
    let wanted = with(&page, column);
    if page == wanted {
        return;
    }
    if update {
        std::fs::write(&path, wanted).expect("write docs/clients.md");
        return;
    }
    let lines = wanted.lines().filter(|line| !page.lines().any(|old| old == *line));
    let lines: Vec<&str> = lines.collect();
    panic!("docs/clients.md does not say what was seen; with UPDATE=1 this test writes it:\n{}", lines.join("\n"));
}

/// The page with this column as it was seen.
fn with(page: &str, column: &Column) -> String {
    let heading = format!("## {}\n", column.client);
    let (before, rest) = page.split_once(&heading).map_or((page, ""), |(before, rest)| (before, rest));
    let (table, after) = rest.find("\n## ").map_or((rest, ""), |end| rest.split_at(end));
    let old = |row: &str, at: usize| {
        let titles = cells(table.lines().find(|line| line.starts_with("| "))?);
        let at = titles.iter().position(|title| *title == column.all.get(at).map_or("", String::as_str))?;
        let row = table.lines().map(cells).find(|cells| cells.first() == Some(&row))?;
        row.get(at).map(|cell| (*cell).to_owned())
    };
    let mut text = format!("{}\n{heading}\n| Behaviour |", before.trim_end_matches('\n').to_owned() + "\n");
    let titles = column.all.iter().map(|title| format!(" {title} |"));
    text.extend(titles);
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(column.all.len()));
    text.push('\n');
    for verdict in &column.verdicts {
        let _ = write!(text, "| {} |", verdict.name);
        for (at, title) in column.all.iter().enumerate() {
            let cell = if *title == column.seen {
                verdict.wrong.clone().unwrap_or_else(|| WORKS.to_owned())
            } else {
                old(&verdict.name, at).unwrap_or_else(|| UNSEEN.to_owned())
            };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text + after
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(seen: &str, verdicts: &[(&str, Option<&str>)]) -> Column {
        Column {
            client: "kubectl".into(),
            all: vec!["a".into(), "b".into()],
            seen: seen.into(),
            verdicts: verdicts
                .iter()
                .map(|(name, wrong)| Verdict { name: (*name).into(), wrong: wrong.map(str::to_owned) })
                .collect(),
        }
    }

    #[test]
    fn a_column_is_written_and_the_others_stay() {
        let page = with("# Clients\n\nBy hand.\n", &column("a", &[("get", None), ("attach", Some("none"))]));
        let first = "# Clients\n\nBy hand.\n\n## kubectl\n\n| Behaviour | a | b |\n|---|---|---|\n| get | yes | not tried |\n\
                     | attach | none | not tried |\n";
        assert_eq!(page, first);
        let more = format!("{page}\n## other\n\n| Behaviour | x |\n|---|---|\n| get | yes |\n");
        let page = with(&more, &column("b", &[("get", None), ("new", None)]));
        let second = "# Clients\n\nBy hand.\n\n## kubectl\n\n| Behaviour | a | b |\n|---|---|---|\n| get | yes | yes |\n\
                      | new | not tried | yes |\n\n## other\n\n| Behaviour | x |\n|---|---|\n| get | yes |\n";
        assert_eq!(page, second);
        assert_eq!(with(second, &column("b", &[("get", None), ("new", None)])), second);
    }
}
