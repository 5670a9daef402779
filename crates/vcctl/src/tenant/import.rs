//! Many tenants from a file: a table with commas, or Tenants in YAML or JSON.
//!
//! Invariant: the file is read whole and found well-formed before anything is sent. It may be imported again: who is there as the file
//! says is left alone, who differs is changed in what the file says of him and nothing else, and nobody is deleted. A line that is
//! refused does not keep the others from being tried.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use futures::{StreamExt as _, stream};
use pumice_jobs::json::text_at;
use pumice_jobs::manifest;
use pumice_jobs::platform::call;
use serde_json::{Value, json};

use super::Wanted;
use crate::error::Error;
use crate::kinds::TENANT;
use crate::session::Session;

/// Largest table.
const TABLE_BYTES_MAX: u64 = 16 << 20;
/// Most lines of one.
const LINES_MAX: usize = 100_000;
/// Calls at once: the server writes those together that come together.
const CALLS_MAX: usize = 16;
/// Columns of a table.
const COLUMNS: [&str; 13] = [
    "name",
    "user",
    "uid",
    "gid",
    "groups",
    "namespace",
    "home",
    "members",
    "membergroups",
    "queues",
    "roles",
    "devices",
    "limits",
];

/// A tenant of the file, and where it stands there.
#[derive(Debug, PartialEq)]
struct Entry {
    origin: String,
    name: String,
    manifest: Value,
}

/// What was done about a tenant.
enum Outcome {
    Made,
    Changed,
    Same,
}

/// What became of them.
#[derive(Default)]
struct Counts {
    made: usize,
    changed: usize,
    same: usize,
    failed: usize,
}

/// Makes and changes the tenants of a file; `-` is `stdin`.
pub async fn import(session: &mut Session<'_>, path: &Path, stdin: &mut dyn Read) -> Result<(), Error> {
    let entries = read(path, stdin)?;
    let all = entries.len();
    let there = existing(session).await?;
    let (mut counts, mut code) = (Counts::default(), 0);
    let connected = &*session;
    let outcomes = stream::iter(&entries).map(|entry| one(connected, entry, there.get(&entry.name)));
    let outcomes: Vec<Result<Outcome, Error>> = outcomes.buffered(CALLS_MAX).collect().await;
    for (entry, outcome) in entries.iter().zip(outcomes) {
        match outcome {
            Ok(Outcome::Made) => counts.made += 1,
            Ok(Outcome::Changed) => counts.changed += 1,
            Ok(Outcome::Same) => counts.same += 1,
            Err(error) => {
                session.note(&format!("Failed to import {} ({}): {}", entry.origin, entry.name, error.sentence()));
                counts.failed += 1;
                code = if code == 0 { error.code() } else { code };
            }
        }
    }
    let Counts { made, changed, same, failed } = counts;
    session.say(&format!("{made} made, {changed} changed, {same} as they were, {failed} refused"))?;
    if failed == 0 { Ok(()) } else { Err(Error::Documents { failed, all, code }) }
}

/// All Tenants by name.
async fn existing(session: &Session<'_>) -> Result<BTreeMap<String, Value>, Error> {
    let path = TENANT.collection(None)?;
    let (all, _) = call::list(&session.connection, &path, "", "list tenants").await?;
    Ok(all.into_iter().map(|tenant| (text_at(&tenant, "/metadata/name").to_owned(), tenant)).collect())
}

async fn one(session: &Session<'_>, entry: &Entry, there: Option<&Value>) -> Result<Outcome, Error> {
    let Some(there) = there else {
        session.create(TENANT, "", &entry.manifest).await?;
        return Ok(Outcome::Made);
    };
    let wanted = &entry.manifest["spec"];
    if says(&there["spec"], wanted) {
        return Ok(Outcome::Same);
    }
    session.merge(TENANT, "", &entry.name, &json!({"spec": wanted})).await?;
    Ok(Outcome::Changed)
}

/// Whether an object has all that `wanted` says.
fn says(object: &Value, wanted: &Value) -> bool {
    match (object, wanted) {
        (Value::Object(object), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| object.get(key).is_some_and(|present| says(present, value)))
        }
        (object, wanted) => object == wanted,
    }
}

fn read(path: &Path, stdin: &mut dyn Read) -> Result<Vec<Entry>, Error> {
    let is_table = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
    let entries = if is_table { read_table(path)? } else { read_manifests(path, stdin)? };
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for entry in &entries {
        if let Some(other) = first.insert(&entry.name, &entry.origin) {
            return Err(Error::usage(format!("{}: {} stands at {other}, too", entry.origin, entry.name)));
        }
    }
    if entries.is_empty() {
        return Err(Error::usage(format!("{} has no tenants", path.display())));
    }
    Ok(entries)
}

fn read_manifests(path: &Path, stdin: &mut dyn Read) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    for object in manifest::read(path, stdin)? {
        let [title, version] = ["/kind", "/apiVersion"].map(|pointer| text_at(&object.body, pointer));
        if title != TENANT.title || version != TENANT.api_version() {
            let wanted = (TENANT.title, TENANT.api_version());
            return Err(Error::usage(format!(
                "{}: a {title} of {version}; here goes a {} of {}",
                object.origin, wanted.0, wanted.1
            )));
        }
        let name = text_at(&object.body, "/metadata/name").to_owned();
        entries.push(Entry { origin: object.origin, name, manifest: object.body });
    }
    Ok(entries)
}

fn read_table(path: &Path) -> Result<Vec<Entry>, Error> {
    let origin = path.display().to_string();
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(TABLE_BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| Error::usage(format!("cannot read {origin}: {error}")))?;
    if text.len() as u64 > TABLE_BYTES_MAX {
        return Err(Error::usage(format!("{origin}: larger than {} MiB; split the file", TABLE_BYTES_MAX >> 20)));
    }
    parse_table(&origin, &text)
}

/// A first line of names of columns, then one line for each tenant. Within a field several values stand with spaces between them.
fn parse_table(origin: &str, text: &str) -> Result<Vec<Entry>, Error> {
    let at = |line: usize, what: &str| Error::usage(format!("{origin}:{line}: {what}"));
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let (line, head) = lines.next().ok_or_else(|| at(1, "the file is empty"))?;
    let head = fields(head).map_err(|what| at(line, what))?;
    let head: Vec<String> = head.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    for name in &head {
        if !COLUMNS.contains(&name.as_str()) {
            return Err(at(line, &format!("there is no column {name:?}; there are {}", COLUMNS.join(", "))));
        }
    }
    if !head.iter().any(|name| name == "name") {
        return Err(at(line, "the first line names the columns, and one of them is name"));
    }
    let mut entries = Vec::new();
    for (line, row) in lines {
        if entries.len() == LINES_MAX {
            return Err(at(line, "more than 100000 lines; split the file"));
        }
        let row = fields(row).map_err(|what| at(line, what))?;
        if row.len() != head.len() {
            return Err(at(line, &format!("{} fields, and there are {} columns", row.len(), head.len())));
        }
        let mut wanted = Wanted::default();
        for (name, value) in head.iter().zip(&row) {
            fill(&mut wanted, name, value.trim()).map_err(|what| at(line, &what))?;
        }
        if wanted.name.is_empty() {
            return Err(at(line, "the tenant has no name"));
        }
        let manifest = wanted.manifest(None).map_err(|error| match error {
            Error::Usage { .. } if wanted.uid.is_none() || wanted.gid.is_none() => {
                at(line, "uid and gid must be there")
            }
            error => at(line, &error.to_string()),
        })?;
        entries.push(Entry { origin: format!("{origin}:{line}"), name: wanted.name, manifest });
    }
    Ok(entries)
}

/// Puts a field of a table in its place.
fn fill(wanted: &mut Wanted, column: &str, value: &str) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let number = |text: &str| text.parse::<i64>().map_err(|_| format!("{column} {text:?} is no number"));
    let names = || value.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    match column {
        "name" => value.clone_into(&mut wanted.name),
        "user" => wanted.user = Some(value.to_owned()),
        "uid" => wanted.uid = Some(number(value)?),
        "gid" => wanted.gid = Some(number(value)?),
        "groups" => wanted.groups = Some(value.split_whitespace().map(number).collect::<Result<_, _>>()?),
        "namespace" => wanted.namespace = Some(value.to_owned()),
        "home" => wanted.home = Some(value.to_owned()),
        "members" => wanted.members = names(),
        "membergroups" => wanted.member_groups = names(),
        "queues" => wanted.queues = names(),
        "roles" => wanted.roles = names(),
        "devices" => wanted.devices = names(),
        _ => wanted.limits = names(),
    }
    Ok(())
}

/// The fields of a line, as RFC 4180 writes them; a field does not go over the end of a line.
fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut letters = line.chars().peekable();
    loop {
        let mut field = String::new();
        if letters.next_if_eq(&'"').is_some() {
            loop {
                match letters.next() {
                    Some('"') if letters.next_if_eq(&'"').is_some() => field.push('"'),
                    Some('"') => break,
                    Some(letter) => field.push(letter),
                    None => return Err("a quotation mark is not closed"),
                }
            }
        } else {
            while let Some(letter) = letters.next_if(|letter| *letter != ',') {
                field.push(letter);
            }
        }
        fields.push(field);
        match letters.next() {
            Some(',') => {}
            None => return Ok(fields),
            Some(_) => return Err("text after a closed quotation mark"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_line_by_line() {
        let table = "\u{feff}name,uid,gid,groups,home,limits\r\n# the desk\n\nalice,4001,4001,5000 5001,/home/alice,requests.cpu=64 pods=10\n\
                     \"bob\",4002,4002,,\"/srv/b,b:/home/bob\",\n";
        let entries = parse_table("users.csv", table).unwrap();
        let origins: Vec<_> = entries.iter().map(|entry| (entry.origin.as_str(), entry.name.as_str())).collect();
        assert_eq!(origins, [("users.csv:4", "alice"), ("users.csv:5", "bob")]);
        let expected = json!({
            "user": "alice", "uid": 4001, "gid": 4001, "groups": [5000, 5001], "namespace": "alice",
            "home": {"mountPath": "/home/alice", "hostPath": "/home/alice"}, "limits": {"pods": "10", "requests.cpu": "64"},
        });
        assert_eq!(entries[0].manifest["spec"], expected);
        assert_eq!(entries[1].manifest["spec"]["home"]["hostPath"], "/srv/b,b");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (table, expected) in [
            ("", "users.csv:1: the file is empty"),
            ("name,shoe\n", "users.csv:1: there is no column \"shoe\""),
            ("uid,gid\n", "users.csv:1: the first line names the columns"),
            ("name,uid,gid\nalice,4001\n", "users.csv:2: 2 fields, and there are 3 columns"),
            ("name,uid,gid\nalice,4001,x\n", "users.csv:2: gid \"x\" is no number"),
            ("name,uid,gid\nalice,4001,\n", "users.csv:2: uid and gid must be there"),
            ("name,uid,gid\n,4001,4001\n", "users.csv:2: the tenant has no name"),
            ("name,uid,gid\n\"alice,4001,4001\n", "users.csv:2: a quotation mark is not closed"),
            ("name,uid,gid,home\nalice,4001,4001,home\n", "users.csv:2: home \"home\" is no folder"),
        ] {
            let error = parse_table("users.csv", table).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn only_what_the_file_says_is_compared() {
        let there = json!({"uid": 4001, "groups": [5000], "queues": ["default"], "home": {"mountPath": "/h", "hostPath": "/h"}});
        assert!(says(&there, &json!({"uid": 4001, "home": {"hostPath": "/h"}})));
        for other in [json!({"uid": 4002}), json!({"groups": [5000, 5001]}), json!({"members": ["bob"]})] {
            assert!(!says(&there, &other), "{other}");
        }
    }
}
