//! Programs on libraries of others: each tries its behaviours and prints one a line, name and verdict apart by a tab.

use std::path::Path;

use pumice_testkit::{Clients, RealKube, python_client};

use super::{Column, Verdict};
use crate::operators::Server;

/// Tries client-go, by the program that `tests/realkube/build` makes.
pub fn client_go(server: Server, clients: &Clients) -> Column {
    let verdicts = read(clients, &RealKube::program("client-go"), &[]);
    Column::new("client-go", &["0.33"], "0.33", server, verdicts)
}

/// Tries fabric8's client for Java, by the classes that `tests/realkube/build` makes.
pub fn fabric8(server: Server, clients: &Clients) -> Column {
    let classes = RealKube::program("fabric8/target");
    let path = format!("{0}/classes:{0}/dependency/*", classes.display());
    let verdicts = read(clients, Path::new("java"), &["-cp", &path, "Main"]);
    Column::new("fabric8 (Java)", &["7.3"], "7.3", server, verdicts)
}

/// Tries the Python client, of the one version that tests use.
pub fn python(server: Server, clients: &Clients) -> Option<Column> {
    let interpreter = python_client()?;
    let verdicts = read(clients, &interpreter, &[concat!(env!("CARGO_MANIFEST_DIR"), "/python/client.py")]);
    Some(Column::new("Python", &["31"], "31", server, verdicts))
}

/// # Panics
/// When a behaviour fails, or the program says nothing.
fn read(clients: &Clients, program: &Path, args: &[&str]) -> Vec<Verdict> {
    let output = clients.run(program, args, None);
    let verdicts: Vec<Verdict> = output
        .stdout
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, said)| Verdict { name: name.to_owned(), wrong: (said != "yes").then(|| said.to_owned()) })
        .collect();
    let works = output.code == 0 && !verdicts.is_empty() && verdicts.iter().all(|verdict| verdict.wrong.is_none());
    assert!(works, "{}: {output:?}", program.display());
    verdicts
}
