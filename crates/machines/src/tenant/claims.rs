//! What each Tenant claims for itself alone: its uid, its namespace, its user. Of several the oldest has it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use pumice_api::tenant::Tenant;

use super::Refusal;

/// A thing that one Tenant has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Uid(i64),
    Namespace(String),
    User(String),
}

/// When a Tenant was made, and its name: who is less was first.
type Turn = (Timestamp, String);

/// All claims of all Tenants.
#[derive(Clone, Debug, Default)]
pub struct Claims {
    turns: BTreeMap<Thing, BTreeSet<Turn>>,
    /// What each Tenant claims now, by its name.
    things: BTreeMap<String, (Timestamp, Vec<Thing>)>,
}

impl Claims {
    /// Takes in what a Tenant claims now. Names all others who claimed or claim the same: their refusals may be others now.
    pub fn put(&mut self, tenant: &Tenant) -> BTreeSet<String> {
        let name = tenant.metadata.name.clone().unwrap_or_default();
        let created = tenant.metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0);
        let spec = &tenant.spec;
        let mut things = vec![Thing::Uid(spec.uid), Thing::Namespace(spec.namespace.clone())];
        if !spec.user.is_empty() {
            things.push(Thing::User(spec.user.clone()));
        }
        if self.things.get(&name).is_some_and(|before| *before == (created, things.clone())) {
            return BTreeSet::new();
        }
        let mut others = self.remove(&name);
        for thing in &things {
            self.turns.entry(thing.clone()).or_default().insert((created, name.clone()));
            others.extend(self.turns[thing].iter().map(|(_, other)| other.clone()));
        }
        self.things.insert(name.clone(), (created, things));
        others.remove(&name);
        others
    }

    /// Forgets a Tenant. Names all others who claim something that it claimed.
    pub fn remove(&mut self, name: &str) -> BTreeSet<String> {
        let mut others = BTreeSet::new();
        let Some((created, things)) = self.things.remove(name) else { return others };
        for thing in things {
            if let Some(turns) = self.turns.get_mut(&thing) {
                turns.remove(&(created, name.to_owned()));
                others.extend(turns.iter().map(|(_, other)| other.clone()));
                if turns.is_empty() {
                    self.turns.remove(&thing);
                }
            }
        }
        others
    }

    /// Why a Tenant may not have what it claims, if another was first.
    pub fn refusal(&self, name: &str) -> Option<Refusal> {
        let (_, things) = self.things.get(name)?;
        things.iter().find_map(|thing| {
            let (_, first) = self.turns.get(thing)?.first()?;
            let (field, value) = match thing {
                Thing::Uid(uid) => ("spec.uid", uid.to_string()),
                Thing::Namespace(namespace) => ("spec.namespace", namespace.clone()),
                Thing::User(user) => ("spec.user", user.clone()),
            };
            (first != name).then(|| Refusal::taken(field, &value, first))
        })
    }

    /// The Tenant whose a namespace is.
    pub fn of_namespace(&self, namespace: &str) -> Option<&str> {
        let turns = self.turns.get(&Thing::Namespace(namespace.to_owned()))?;
        turns.first().map(|(_, name)| name.as_str())
    }
}
