//! Pseudonyms for the names in a recording: equal names get equal ones, and the order of names is kept, as ties are
//! broken by it.
//!
//! Invariant: all text is a name unless `words` knows it. Amounts, times, counts and the words of the platform and of
//! Kubernetes stay; what people write for people goes. First all names are collected, then each gets its number among
//! them in order. Called by `cut`, which plays what comes out beside what was recorded and compares.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use pumice_engine::{Plan, Texts};
use serde_json::Value;

use crate::entry::{Beginning, Entry};

mod words;

/// What stands between the names in a text of several, such as `namespace/name` or `image:tag`.
const BETWEEN: &[char] = &['/', ',', ':', ';', '|', '=', '@', '#'];

/// Gathers all names that occur in a stretch, before any gets its pseudonym.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeSet<String>);

/// Gives names their pseudonyms.
#[derive(Debug)]
pub(crate) struct Redaction {
    names: BTreeMap<String, String>,
    /// What is said to people. What the engine says of pseudonyms stands for what it said of the names.
    prose: HashMap<String, String>,
}

impl Texts for Names {
    fn text(&mut self, text: &str) -> String {
        if !is_prose(text) {
            each_name(text, |name| {
                self.0.insert(head(name).0.to_owned());
                name.to_owned()
            });
        }
        text.to_owned()
    }

    fn facts(&mut self, facts: &mut Value) {
        // What is no more than a text is a variant.
        if !facts.is_string() {
            walk(self, "", facts);
        }
    }
}

impl Texts for Redaction {
    fn text(&mut self, text: &str) -> String {
        if is_prose(text) {
            let next = self.prose.len() + 1;
            return self.prose.entry(text.to_owned()).or_insert_with(|| format!("text {next}")).clone();
        }
        each_name(text, |name| {
            let (head, index) = head(name);
            let pseudonym = self.names.get(head).cloned().unwrap_or_else(|| "x".to_owned());
            pseudonym + index
        })
    }

    fn facts(&mut self, facts: &mut Value) {
        // What is no more than a text is a variant.
        if !facts.is_string() {
            walk(self, "", facts);
        }
    }
}

/// Sentences are no names.
fn is_prose(text: &str) -> bool {
    text.contains(char::is_whitespace)
}

/// Rewrites the names in a text, not the words.
fn each_name(text: &str, mut rewrite: impl FnMut(&str) -> String) -> String {
    if words::is_word(text) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for part in text.split_inclusive(BETWEEN) {
        let name = part.trim_end_matches(BETWEEN);
        match words::is_word(name) {
            true => out.push_str(name),
            false => out.push_str(&rewrite(name)),
        }
        out.push_str(&part[name.len()..]);
    }
    out
}

/// A name without the number that pods of a job end in, and that number: the engine reads it.
fn head(name: &str) -> (&str, &str) {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match name.rfind('-') {
        Some(at) if at > 0 && is_number(&name[at + 1..]) => name.split_at(at),
        _ => (name, ""),
    }
}

/// Goes through facts as serde shows them. Keys are texts only where facts have maps by name.
fn walk(texts: &mut impl Texts, field: &str, value: &mut Value) {
    match value {
        Value::String(text) => {
            if words::HOLDS_OURS.contains(&field) {
                return;
            }
            let is_variant = words::HOLDS_VARIANTS.contains(&field) && text.bytes().all(|b| b.is_ascii_alphabetic());
            if !is_variant {
                *text = texts.text(text);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| walk(texts, &format!("[{field}]"), one)),
        Value::Object(fields) if words::HOLDS_NAMES.contains(&field) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(key, mut value)| {
                    walk(texts, "", &mut value);
                    (texts.text(&key), value)
                })
                .collect();
        }
        Value::Object(fields) => fields.iter_mut().for_each(|(field, value)| walk(texts, field, value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Rewrites all names of an entry that is no configuration.
fn entry(texts: &mut impl Texts, entry: &Entry) -> Result<Entry, serde_json::Error> {
    let mut value = serde_json::to_value(entry)?;
    // The variant is a key.
    if let Value::Object(fields) = &mut value {
        fields.values_mut().for_each(|value| walk(texts, "", value));
    }
    serde_json::from_value(value)
}

fn flags(texts: &mut impl Texts, beginning: &Beginning) -> Beginning {
    let mut beginning = beginning.clone();
    let flags = &mut beginning.flags;
    flags.default_queue = texts.text(&flags.default_queue);
    if let Some((name, _)) = &mut flags.shard {
        *name = texts.text(name);
    }
    beginning.schedulers.iter_mut().for_each(|name| *name = texts.text(name));
    beginning
}

impl Names {
    /// Gathers those of what a World begins with. What is configured names them only.
    pub(crate) fn beginning(&mut self, beginning: &Beginning) {
        flags(self, beginning);
    }

    /// Gathers those of an entry.
    pub(crate) fn entry(&mut self, of: &Entry) -> Result<(), serde_json::Error> {
        match of {
            Entry::Begin(beginning) => self.beginning(beginning),
            Entry::Config(_) => {}
            of => drop(entry(self, of)?),
        }
        Ok(())
    }

    /// Each gets its number.
    pub(crate) fn number(self) -> Redaction {
        let digits = self.0.len().to_string().len();
        let numbered = self.0.into_iter().enumerate().map(|(number, name)| {
            // A pod has an index only where its name has two of these.
            let dash = if name.contains('-') { "-x" } else { "" };
            let pseudonym = format!("x{number:0digits$}{dash}");
            (name, pseudonym)
        });
        Redaction { names: numbered.collect(), prose: HashMap::new() }
    }
}

impl Redaction {
    pub(crate) fn beginning(&mut self, beginning: &Beginning) -> Result<Beginning, serde_json::Error> {
        let mut renamed = flags(self, beginning);
        renamed.config = beginning.config.as_deref().map(|text| self.config(text)).transpose()?;
        Ok(renamed)
    }

    pub(crate) fn entry(&mut self, of: &Entry) -> Result<Entry, serde_json::Error> {
        Ok(match of {
            Entry::Begin(beginning) => Entry::Begin(Box::new(self.beginning(beginning)?)),
            Entry::Config(text) => Entry::Config(self.config(text)?),
            of => entry(self, of)?,
        })
    }

    /// A configuration: its words stay, but for names of the cluster and where measurements come from, which no
    /// decision reads.
    fn config(&self, text: &str) -> Result<String, serde_json::Error> {
        use serde::de::Error as _;
        let mut config: Value = serde_saphyr::from_str(text).map_err(serde_json::Error::custom)?;
        if let Value::Object(fields) = &mut config {
            fields.remove("metrics");
            fields.values_mut().for_each(|value| self.configured(value));
        }
        Ok(config.to_string())
    }

    fn configured(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.named_in(text),
            Value::Array(all) => all.iter_mut().for_each(|one| self.configured(one)),
            Value::Object(fields) => {
                *fields = std::mem::take(fields)
                    .into_iter()
                    .map(|(key, mut value)| {
                        self.configured(&mut value);
                        (self.named_in(&key), value)
                    })
                    .collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Known names in a text that is mostly words.
    fn named_in(&self, text: &str) -> String {
        let is_between = |letter: char| letter.is_whitespace() || letter == '.' || BETWEEN.contains(&letter);
        let renamed = |name: &str| -> Option<String> {
            let (head, index) = head(name);
            if words::is_word(name) || words::is_configured(name) {
                return None;
            }
            self.names.get(head).map(|pseudonym| format!("{pseudonym}{index}"))
        };
        if let Some(whole) = renamed(text) {
            return whole;
        }
        let mut out = String::with_capacity(text.len());
        for part in text.split_inclusive(is_between) {
            let name = part.trim_end_matches(is_between);
            out.push_str(&renamed(name).unwrap_or_else(|| name.to_owned()));
            out.push_str(&part[name.len()..]);
        }
        out
    }

    /// What the engine said of names, and what it says of pseudonyms in the same place.
    pub(crate) fn learn(&mut self, said: &Plan, says: &Plan) {
        let mut pair = |said: &str, says: &str| {
            if is_prose(said) {
                self.prose.insert(said.to_owned(), says.to_owned());
            }
        };
        for (said, says) in said.groups.iter().zip(&says.groups) {
            for (said, says) in said.status.conditions.iter().zip(&says.status.conditions) {
                pair(&said.message, &says.message);
            }
        }
        for (said, says) in said.pods.iter().zip(&says.pods) {
            pair(&said.message, &says.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redaction(texts: &[&str]) -> Redaction {
        let mut names = Names::default();
        texts.iter().for_each(|text| drop(names.text(text)));
        names.number()
    }

    #[test]
    fn names_become_numbers_in_their_order_and_words_stay() {
        let mut redaction = redaction(&["team-b/train-main-10", "team-a", "reg.example/train:2026.11", "n1"]);
        for (text, wanted) in [
            ("n1", "x0"),
            ("reg.example", "x1"),
            ("team-a/n1", "x2-x/x0"),
            ("team-b/train-main-10", "x3-x/x5-x-10"),
            ("train-main-9", "x5-x-9"),
            ("reg.example/train:2026.11", "x1/x4:2026.11"),
            ("kubernetes.io/hostname", "kubernetes.io/hostname"),
            ("nvidia.com/gpu", "nvidia.com/gpu"),
            ("cpu", "cpu"),
            ("true", "true"),
            ("30m", "30m"),
            ("", ""),
            ("0/3 nodes fit team-a/n1", "text 1"),
            ("something else", "text 2"),
            ("0/3 nodes fit team-a/n1", "text 1"),
        ] {
            assert_eq!(redaction.text(text), wanted, "{text}");
        }
    }

    #[test]
    fn facts_keep_their_fields_and_variants() {
        let mut facts = json!({
            "name": "n1", "labels": {"name": "n1", "kubernetes.io/hostname": "n1"}, "phase": "Running",
            "allocatable": {"cpu": 4}, "annotations": {"volcano.sh/x": "true"}, "taints": [{"key": "n1", "effect": "NoSchedule"}],
        });
        let mut redaction = redaction(&["n1", "name"]);
        redaction.facts(&mut facts);
        assert_eq!(
            facts,
            json!({
                "name": "x0", "labels": {"x1": "x0", "kubernetes.io/hostname": "x0"}, "phase": "Running",
                "allocatable": {"cpu": 4}, "annotations": {"volcano.sh/x": "true"}, "taints": [{"key": "x0", "effect": "NoSchedule"}],
            })
        );
    }

    #[test]
    fn configurations_keep_their_words_and_lose_comments_and_addresses() {
        let redaction = redaction(&["team-a", "rz1", "gang"]);
        let text = "actions: enqueue, allocate # of team-a\ntiers:\n- plugins:\n  - name: gang\n  - name: tdm\n    \
                    arguments: {tdm.revocable-zone.rz1: '10:00-21:00', of: 'team-a, others'}\nmetrics: {address: https://secret}\n";
        let config: Value = serde_json::from_str(&redaction.config(text).unwrap()).unwrap();
        assert_eq!(
            config,
            json!({"actions": "enqueue, allocate", "tiers": [{"plugins": [{"name": "gang"}, {"name": "tdm", "arguments":
                {"tdm.revocable-zone.x1": "10:00-21:00", "of": "x2-x, others"}}]}]})
        );
        assert!(redaction.config("a: [").is_err());
    }
}
