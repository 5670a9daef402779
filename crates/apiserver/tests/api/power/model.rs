//! What clients were told, and what may be found after the power went.

use std::collections::BTreeMap;

use serde_json::Value;

use super::objects::{Kind, Said, revision};

/// A change whose answer has not come.
#[derive(Clone, Debug)]
pub enum Change {
    Main(String),
    Status(String),
    Node(String),
    Gone,
}

/// One object of one writer.
#[derive(Debug, Default)]
struct Known {
    /// As last answered; none for gone or never there.
    settled: Option<Value>,
    unanswered: Option<Change>,
}

/// A change that the server said it had made.
#[derive(Debug)]
pub struct Written {
    pub kind: Kind,
    pub name: String,
    pub revision: u64,
}

/// Everything that clients know.
#[derive(Debug, Default)]
pub struct Model {
    objects: BTreeMap<(Kind, String), Known>,
    pub answered: Vec<Written>,
    /// Increments of the shared counter: answered ones, and those without an answer.
    pub counted: u64,
    pub counted_perhaps: u64,
    /// The newest revision that anybody was shown.
    pub revision_seen: u64,
    /// Unanswered changes that were found made, and not made.
    pub made: u64,
    pub not_made: u64,
}

impl Model {
    pub fn saw(&mut self, revision: u64) {
        self.revision_seen = self.revision_seen.max(revision);
    }

    pub fn settled(&self, kind: Kind, name: &str) -> Option<Value> {
        self.objects.get(&(kind, name.to_owned()))?.settled.clone()
    }

    /// A change is asked for.
    pub fn begin(&mut self, kind: Kind, name: &str, change: Change) {
        self.objects.entry((kind, name.to_owned())).or_default().unanswered = Some(change);
    }

    /// It was answered with what is there now.
    pub fn answer(&mut self, kind: Kind, name: &str, object: Option<&Value>) {
        let known = self.objects.entry((kind, name.to_owned())).or_default();
        let before = known.settled.as_ref().map(revision);
        *known = Known { settled: object.map(bare), unanswered: None };
        if let Some(object) = object {
            let revision = revision(object);
            assert!(before.is_none_or(|before| before < revision), "{name} was answered with an old revision");
            self.saw(revision);
            self.answered.push(Written { kind, name: name.to_owned(), revision });
        }
    }

    /// Compares what a start finds with what was told, and takes it for what is known from now on.
    pub fn check(&mut self, kind: Kind, found: &BTreeMap<String, Value>, told: &str) {
        for ((_, name), known) in self.objects.iter_mut().filter(|((of, _), _)| *of == kind) {
            let found = found.get(name).map(bare);
            let said = found.as_ref().map(|found| kind.said(found));
            let was_asked = known.unanswered.take();
            if found == known.settled {
                self.not_made += u64::from(was_asked.is_some());
                continue;
            }
            let made = was_asked.as_ref().map(|change| made(kind, known.settled.as_ref(), change));
            let is_newer = match (&found, &known.settled) {
                (Some(found), Some(settled)) => revision(found) > revision(settled),
                _ => true,
            };
            assert!(
                kind == Kind::Lease || (made == Some(said) && is_newer),
                "{told}: {kind:?} {name} is {found:?}, answered was {:?}, asked for {was_asked:?}",
                known.settled
            );
            self.made += u64::from(was_asked.is_some());
            known.settled = found;
        }
        let strange = found.keys().find(|name| !self.objects.contains_key(&(kind, (*name).clone())));
        assert_eq!(strange, None, "{told}: nobody made that");
    }

    /// Compares the shared counter.
    pub fn check_counter(&mut self, found: u64, told: &str) {
        let possible = self.counted..=self.counted + self.counted_perhaps;
        assert!(possible.contains(&found), "{told}: the counter is {found}, not in {possible:?}");
        (self.counted, self.counted_perhaps) = (found, 0);
    }
}

/// What an object says once the change is made.
fn made(kind: Kind, before: Option<&Value>, change: &Change) -> Option<Said> {
    let before = before.map(|before| kind.said(before)).unwrap_or_default();
    match change.clone() {
        Change::Main(main) => Some(Said { main, ..before }),
        Change::Status(status) => Some(Said { status: Some(status), ..before }),
        Change::Node(node) => Some(Said { node: Some(node), ..before }),
        Change::Gone => None,
    }
}

/// An object without what lists leave out of their items.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}
