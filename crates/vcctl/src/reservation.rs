//! Reservations by administrators: nodes kept for some or from everybody, and nodes that are drained.
//!
//! Invariant: times are said as RFC 3339 or from now on (`+2h`), and become moments before anything is sent. What names no node
//! is refused here as on the server; nodes that are not there are noted, for they may join. Called by the binary.

use jiff::{SignedDuration, Timestamp};
use pumice_jobs::json::text_at;
use pumice_jobs::platform::call;
use pumice_units::GoDuration;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::kinds::{NODE, RESERVATION};
use crate::list::Form;
use crate::objects;
use crate::session::{Scope, Session};
use crate::table::{Column, Width, text};

/// Nodes that a cell names.
const NAMED_MAX: usize = 5;
/// What the reservation of a drained node is called: this and the node's name.
const DRAIN_PREFIX: &str = "drain-";

/// Columns of `reserve list`.
pub const COLUMNS: &[Column] = &[
    Column::name(Width::Longest(3)),
    Column::new("From", Width::Longest(3), |object, _| text(object, "/spec/from")),
    Column::new("To", Width::Longest(3), |object, _| or(&text(object, "/spec/to"), "until deleted")),
    Column::new("Nodes", Width::Longest(3), |object, _| nodes_text(object)),
    Column::new("For", Width::Longest(3), |object, _| whom_text(object)),
    Column::wide("Reason", |object, _| text(object, "/spec/reason")),
];

/// A reservation as it is asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub name: String,
    /// Nodes by name.
    pub nodes: Vec<String>,
    /// Nodes by labels, `key=value`.
    pub selector: Vec<String>,
    /// When it begins; now where nothing is said.
    pub from: Option<String>,
    /// When it is over.
    pub to: Option<String>,
    /// Or how long it takes.
    pub long: Option<String>,
    pub queues: Vec<String>,
    pub namespaces: Vec<String>,
    pub reason: String,
}

impl Wanted {
    /// A node that takes nothing from `from` on, and is empty then.
    pub fn drain(node: &str, from: Option<String>, long: Option<String>, reason: String) -> Self {
        let name = format!("{DRAIN_PREFIX}{node}");
        Self { name, nodes: vec![node.to_owned()], from, long, reason, ..Self::default() }
    }

    fn manifest(&self, now: Timestamp) -> Result<Value, Error> {
        if self.nodes.is_empty() && self.selector.is_empty() {
            return Err(Error::usage("say which nodes, by --nodes or --selector: an empty reservation keeps nothing"));
        }
        let from = self.from.as_deref().map_or(Ok(now), |text| moment("--from", text, now))?;
        let to = match (&self.to, &self.long) {
            (Some(text), _) => Some(moment("--to", text, now)?),
            (None, Some(text)) => Some(later(from, duration("--for", text)?)?),
            (None, None) => None,
        };
        if let Some(to) = to.filter(|to| *to <= from) {
            return Err(Error::usage(format!("it would end at {to}, before it begins at {from}")));
        }
        let mut selector = Map::new();
        for pair in &self.selector {
            let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                return Err(Error::usage(format!("label {pair:?} is not of the form key=value")));
            };
            selector.insert(key.to_owned(), value.into());
        }
        let mut spec = json!({"from": seconds(from)});
        let lists = [("nodes", &self.nodes), ("queues", &self.queues), ("namespaces", &self.namespaces)];
        for (field, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
            spec[field] = json!(names);
        }
        if !selector.is_empty() {
            spec["nodeSelector"] = selector.into();
        }
        if let Some(to) = to {
            spec["to"] = seconds(to).into();
        }
        if !self.reason.is_empty() {
            spec["reason"] = self.reason.as_str().into();
        }
        Ok(json!({
            "apiVersion": RESERVATION.api_version(), "kind": RESERVATION.title,
            "metadata": {"name": self.name}, "spec": spec,
        }))
    }
}

/// Makes a reservation, and notes which of its nodes are not there.
pub async fn make(session: &mut Session<'_>, wanted: &Wanted, form: Option<Form>) -> Result<(), Error> {
    let manifest = wanted.manifest(session.now)?;
    let made = session.create(RESERVATION, "", &manifest).await?;
    note_unknown(session, &made).await;
    let begins = text(&made, "/spec/from");
    let said = format!("reservation {} keeps {} from {begins} on", wanted.name, nodes_text(&made));
    session.done(RESERVATION, made, form, &said)
}

/// Lists all of them.
pub async fn list(session: &mut Session<'_>, form: Form) -> Result<(), Error> {
    let listing = objects::Listing { kind: RESERVATION, columns: COLUMNS, scope: &Scope::All, keep: &|_| true };
    objects::list(session, listing, form).await
}

/// Shows one, and notes which of its nodes are not there.
pub async fn show(session: &mut Session<'_>, name: &str, form: Form) -> Result<(), Error> {
    let object = session.get(RESERVATION, "", name).await?;
    note_unknown(session, &object).await;
    objects::show(session, RESERVATION, COLUMNS, object, form)
}

/// Ends one: its nodes are everybody's again.
pub async fn delete(session: &mut Session<'_>, name: &str, form: Option<Form>) -> Result<(), Error> {
    let deleted = session.delete(RESERVATION, "", name, form).await?;
    session.done(RESERVATION, deleted, form, &format!("reservation {name} is deleted"))
}

/// Ends what `Wanted::drain` made.
pub async fn undrain(session: &mut Session<'_>, node: &str, form: Option<Form>) -> Result<(), Error> {
    let name = format!("{DRAIN_PREFIX}{node}");
    let deleted = session.delete(RESERVATION, "", &name, form).await?;
    session.done(RESERVATION, deleted, form, &format!("node {node} takes pods again"))
}

/// Whoever may make reservations need not see nodes: what can't be told is not.
async fn note_unknown(session: &mut Session<'_>, object: &Value) {
    let Ok(path) = NODE.collection(None) else { return };
    let Ok((nodes, _)) = call::list(&session.connection, &path, "", "list nodes").await else { return };
    let unknown = unknown_of(object, &nodes);
    if !unknown.is_empty() {
        session.note(&format!("not there, kept as soon as they join: {}", unknown.join(", ")));
    }
}

fn unknown_of<'o>(object: &'o Value, nodes: &[Value]) -> Vec<&'o str> {
    let there = |name: &str| nodes.iter().any(|node| text_at(node, "/metadata/name") == name);
    names(object, "/spec/nodes").into_iter().filter(|name| !there(name)).collect()
}

/// `RFC 3339`, or how long from now on.
fn moment(flag: &str, text: &str, now: Timestamp) -> Result<Timestamp, Error> {
    let relative = text.strip_prefix('+').map(|text| later(now, duration(flag, text)?));
    relative.unwrap_or_else(|| {
        text.parse().map_err(|_| {
            Error::usage(format!("{flag} {text:?} is no time: say 2026-01-31T18:00:00Z, or +2h for two hours from now"))
        })
    })
}

fn duration(flag: &str, text: &str) -> Result<SignedDuration, Error> {
    let read = text.parse::<GoDuration>().map(|duration| SignedDuration::from_millis(duration.as_millis()));
    let positive = read.ok().filter(|duration| duration.is_positive());
    positive.ok_or_else(|| Error::usage(format!("{flag} {text:?} is no length of time: say 90m, or 2h")))
}

fn later(time: Timestamp, long: SignedDuration) -> Result<Timestamp, Error> {
    time.checked_add(long).map_err(|_| Error::usage("that is beyond all calendars: say an earlier time"))
}

/// As the server keeps it, which counts in seconds.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

fn names<'o>(object: &'o Value, pointer: &str) -> Vec<&'o str> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn nodes_text(object: &Value) -> String {
    let all = names(object, "/spec/nodes");
    let mut parts: Vec<String> = all.iter().take(NAMED_MAX).map(|name| (*name).to_owned()).collect();
    if all.len() > NAMED_MAX {
        parts.push(format!("and {} more", all.len() - NAMED_MAX));
    }
    let labels = object.pointer("/spec/nodeSelector").and_then(Value::as_object).into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    if !labels.is_empty() {
        parts.push(format!("those with {}", labels.join(",")));
    }
    parts.join(", ")
}

fn whom_text(object: &Value) -> String {
    let (queues, namespaces) = (names(object, "/spec/queues"), names(object, "/spec/namespaces"));
    let told = |kind: &str, names: &[&str]| (!names.is_empty()).then(|| format!("{kind} {}", names.join(", ")));
    let parts = [told("queue", &queues), told("namespace", &namespaces)];
    or(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "), "nobody")
}

fn or(text: &str, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-31T12:00:00.9Z".parse().unwrap()
    }

    fn wanted() -> Wanted {
        Wanted { name: "upgrade".into(), nodes: vec!["n1".into()], ..Wanted::default() }
    }

    #[test]
    fn times_are_moments_or_from_now_on() {
        let from_to = |from: Option<&str>, to: Option<&str>, long: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let wanted = Wanted { from: text(from), to: text(to), long: text(long), ..wanted() };
            let spec = wanted.manifest(now()).map(|manifest| manifest["spec"].clone());
            spec.map(|spec| (spec["from"].as_str().unwrap().to_owned(), spec["to"].as_str().map(str::to_owned)))
        };
        let noon = || "2026-01-31T12:00:00Z".to_owned();
        assert_eq!(from_to(None, None, None).unwrap(), (noon(), None));
        let two = || "2026-01-31T14:00:00Z".to_owned();
        assert_eq!(from_to(Some("+2h"), None, Some("30m")).unwrap(), (two(), Some("2026-01-31T14:30:00Z".to_owned())));
        assert_eq!(from_to(None, Some("2026-01-31T15:00:00+01:00"), None).unwrap(), (noon(), Some(two())));
        for (from, to, long) in [
            (Some("soon"), None, None),
            (Some("+0s"), None, None),
            (Some("+-2h"), None, None),
            (Some("+2h"), Some("+1h"), None),
            (None, Some("+2h!"), None),
            (None, None, Some("-1h")),
            (None, None, Some("99999999h99999999h")),
        ] {
            let error = from_to(from, to, long).unwrap_err();
            assert!(matches!(error, Error::Usage { .. }), "{from:?} {to:?} {long:?}: {error:?}");
        }
    }

    #[test]
    fn a_manifest_says_what_was_asked_for() {
        let wanted = Wanted {
            selector: vec!["rack=a".into(), "empty=".into()],
            queues: vec!["q".into()],
            namespaces: vec!["ns".into()],
            reason: "new kernel".into(),
            ..wanted()
        };
        let spec = &wanted.manifest(now()).unwrap()["spec"];
        let expected = json!({
            "from": "2026-01-31T12:00:00Z", "nodes": ["n1"], "nodeSelector": {"rack": "a", "empty": ""},
            "queues": ["q"], "namespaces": ["ns"], "reason": "new kernel",
        });
        assert_eq!(*spec, expected);
        for faulty in [
            Wanted { nodes: Vec::new(), ..self::wanted() },
            Wanted { selector: vec!["rack".into()], ..self::wanted() },
            Wanted { selector: vec!["=a".into()], ..self::wanted() },
        ] {
            assert!(matches!(faulty.manifest(now()), Err(Error::Usage { .. })), "{faulty:?}");
        }
        let drain = Wanted::drain("n1", None, None, String::new());
        assert_eq!(drain.manifest(now()).unwrap()["metadata"]["name"], "drain-n1");
    }

    #[test]
    fn cells_say_which_nodes_and_for_whom() {
        let object = |spec: Value| json!({"metadata": {"name": "x"}, "spec": spec});
        let many: Vec<String> = (0..7).map(|index| format!("n{index}")).collect();
        for (spec, nodes, whom) in [
            (json!({"nodes": many}), "n0, n1, n2, n3, n4, and 2 more", "nobody"),
            (
                json!({"nodes": ["n1"], "nodeSelector": {"rack": "a"}, "queues": ["q"]}),
                "n1, those with rack=a",
                "queue q",
            ),
            (json!({"queues": ["q", "r"], "namespaces": ["ns"]}), "", "queue q, r; namespace ns"),
        ] {
            let object = object(spec);
            assert_eq!((nodes_text(&object), whom_text(&object)), (nodes.to_owned(), whom.to_owned()));
        }
        let nodes = [json!({"metadata": {"name": "n1"}})];
        assert_eq!(unknown_of(&object(json!({"nodes": ["n1", "n9"]})), &nodes), ["n9"]);
    }
}
