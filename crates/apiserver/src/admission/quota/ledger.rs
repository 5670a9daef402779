//! What the objects of one namespace use of its quotas, and the room that is set aside for those on their way.
//!
//! Invariant: an object counts from the moment room is set aside for it until the store no longer has it, with the most of
//! what is stored and what is on its way: no moment between counts it twice or not at all. Nothing is listed again while
//! the quotas stay as they are: changes come from the store's window. Owned by [`super::Quotas`] behind a lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pumice_objects::meta;
use pumice_objects::status::{GroupResource, Status};
use pumice_store::{EventKind, Store, Watch, WatchError};
use serde_json::Value;

use super::QUOTAS;
use super::rules::Quota;
use super::usage::{self, Usage};
use crate::admission::pod_resources::{Amounts, add, raise};
use crate::stored::{parse, parse_metadata};

/// The books of one namespace.
pub(crate) struct Ledger {
    namespace: Arc<str>,
    /// When quotas had last been changed when they were read.
    read_at: Option<u64>,
    quotas: Vec<Counted>,
    /// By the store's name of the resource.
    counted: BTreeMap<String, CountedResource>,
    ticket: u64,
}

/// How one quota stands: what it allows and what is used of that.
pub(crate) struct QuotaUsage {
    pub(crate) name: String,
    pub(crate) hard: Amounts,
    pub(crate) used: Amounts,
}

struct Counted {
    quota: Quota,
    used: Amounts,
}

/// The objects of one resource.
struct CountedResource {
    watch: Watch,
    /// By uid.
    entries: HashMap<String, Entry>,
}

#[derive(Default)]
struct Entry {
    stored: Option<Usage>,
    /// What is on its way, by ticket.
    reserved: Vec<(u64, Usage)>,
}

impl Entry {
    /// The most of what is stored and what may be, soon.
    fn counts(&self) -> Option<Usage> {
        let mut all = self.stored.iter().chain(self.reserved.iter().map(|(_, usage)| usage));
        let mut most = all.next()?.clone();
        for usage in all {
            raise(&mut most.amounts, &usage.amounts);
        }
        Some(most)
    }
}

impl Ledger {
    pub(crate) fn new(namespace: &str) -> Self {
        Self { namespace: Arc::from(namespace), read_at: None, quotas: Vec::new(), counted: BTreeMap::new(), ticket: 0 }
    }

    /// Takes in all that has happened. O(changes); where a quota's rules have changed, O(objects it counts).
    pub(crate) fn catch_up(&mut self, store: &Store) {
        let [changed] = store.changed([QUOTAS]);
        if self.read_at != Some(changed) {
            self.read_at = Some(changed);
            self.read_quotas(store);
        }
        let resources: Vec<String> = self.counted.keys().cloned().collect();
        for resource in resources {
            if self.follow(&resource).is_err() {
                self.list(store, &resource);
            }
        }
    }

    /// What each quota allows and what is used of it.
    pub(crate) fn stand(&self) -> impl Iterator<Item = QuotaUsage> {
        self.quotas.iter().map(|one| {
            let used = |name: &String| (name.clone(), one.used.get(name).copied().unwrap_or_default());
            let Quota { name, hard, .. } = &one.quota;
            QuotaUsage { name: name.clone(), hard: hard.clone(), used: hard.keys().map(used).collect() }
        })
    }

    /// The resources whose objects count.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &String> {
        self.counted.keys()
    }

    /// Sets room aside for an object that is to be stored as `new`, or refuses it. Of one that is stored already only what
    /// grows has to fit. Gives the ticket by which the room is given back; none where nothing counts it.
    pub(crate) fn set_aside(
        &mut self,
        resource: &str,
        name: GroupResource<'_>,
        new: &Value,
        is_new: bool,
    ) -> Result<Option<u64>, Status> {
        if !self.counted.contains_key(resource) {
            return Ok(None);
        }
        let wanted = usage::of(resource, new);
        let uid = meta::uid(new).unwrap_or_default();
        let before = self.counted[resource].entries.get(uid).and_then(Entry::counts).unwrap_or_default();
        let mut raised = wanted.amounts.clone();
        for (key, amount) in &mut raised {
            let held = before.amounts.get(key).copied().unwrap_or_default();
            *amount = amount.checked_sub(held).unwrap_or(*amount);
        }
        let covering = self.quotas.iter().filter(|one| one.quota.covers(&wanted));
        for one in covering.filter(|one| one.quota.resources().any(|of| of == resource)) {
            if is_new && wanted.pod.is_some() {
                one.quota.check_specified(name, new)?;
            }
            one.quota.check(&one.used, &raised, name, meta::name(new))?;
        }
        self.ticket += 1;
        let ticket = self.ticket;
        self.change(resource, uid, |entry| entry.reserved.push((ticket, wanted)));
        Ok(Some(ticket))
    }

    /// Gives room back that was set aside. What was stored meanwhile counts by itself.
    pub(crate) fn give_back(&mut self, store: &Store, resource: &str, uid: &str, ticket: u64) {
        self.catch_up(store);
        self.change(resource, uid, |entry| entry.reserved.retain(|(reserved, _)| *reserved != ticket));
    }

    fn read_quotas(&mut self, store: &Store) {
        let stored = store.list(QUOTAS, Some(&self.namespace)).items;
        let quotas: Vec<Quota> = stored.iter().map(|object| Quota::read(&parse(object))).collect();
        if self.quotas.iter().map(|one| &one.quota).eq(&quotas) {
            return;
        }
        let wanted: BTreeSet<String> = quotas.iter().flat_map(Quota::resources).collect();
        self.quotas = quotas.into_iter().map(|quota| Counted { quota, used: Amounts::new() }).collect();
        self.counted.retain(|resource, _| wanted.contains(resource));
        // What is followed already is only counted anew.
        for counted_resource in self.counted.values() {
            for usage in counted_resource.entries.values().filter_map(Entry::counts) {
                count(&mut self.quotas, &usage, 1);
            }
        }
        for resource in wanted {
            if !self.counted.contains_key(&resource) {
                self.list(store, &resource);
            }
        }
    }

    /// Begins to follow a resource, or begins again where its window has moved past.
    fn list(&mut self, store: &Store, resource: &str) {
        let listing = store.list(resource, Some(&self.namespace));
        let Ok(watch) = store.watch(resource, Some(&self.namespace), Some(listing.revision)) else {
            // The store has closed, or the window is passed at once: the next look lists again.
            self.read_at = None;
            return;
        };
        match self.counted.get_mut(resource) {
            Some(counted_resource) => counted_resource.watch = watch,
            None => drop(self.counted.insert(resource.to_owned(), CountedResource { watch, entries: HashMap::new() })),
        }
        let mut stored: HashMap<String, Usage> = HashMap::new();
        for object in &listing.items {
            let object = parse(object);
            stored.insert(meta::uid(&object).unwrap_or_default().to_owned(), usage::of(resource, &object));
        }
        let known: Vec<String> = self.counted[resource].entries.keys().cloned().collect();
        for uid in known.into_iter().filter(|uid| !stored.contains_key(uid)) {
            self.change(resource, &uid, |entry| entry.stored = None);
        }
        for (uid, usage) in stored {
            self.change(resource, &uid, |entry| entry.stored = Some(usage));
        }
    }

    fn follow(&mut self, resource: &str) -> Result<(), WatchError> {
        loop {
            let Some(counted_resource) = self.counted.get_mut(resource) else { return Ok(()) };
            let Some(event) = counted_resource.watch.try_next()? else { return Ok(()) };
            let gone = event.kind == EventKind::Deleted;
            let object = if gone { parse_metadata(&event.object) } else { parse(&event.object) };
            let uid = meta::uid(&object).unwrap_or_default();
            let usage = if gone { None } else { Some(usage::of(resource, &object)) };
            if self.counted[resource].entries.get(uid).is_some_and(|entry| entry.stored == usage && !gone) {
                continue;
            }
            self.change(resource, uid, |entry| entry.stored = usage);
        }
    }

    /// Changes an entry, and what is used with it.
    fn change(&mut self, resource: &str, uid: &str, change: impl FnOnce(&mut Entry)) {
        let Some(counted_resource) = self.counted.get_mut(resource) else { return };
        let entry = counted_resource.entries.entry(uid.to_owned()).or_default();
        let before = entry.counts();
        change(entry);
        let after = entry.counts();
        if after.is_none() {
            counted_resource.entries.remove(uid);
        }
        if before == after {
            return;
        }
        for (usage, sign) in [(before, -1), (after, 1)] {
            if let Some(usage) = usage {
                count(&mut self.quotas, &usage, sign);
            }
        }
    }
}

/// Adds a usage to each quota that counts it, or takes it away.
fn count(quotas: &mut [Counted], usage: &Usage, sign: i64) {
    for one in quotas.iter_mut().filter(|one| one.quota.covers(usage)) {
        let counted = usage.amounts.iter().filter(|(name, _)| one.quota.hard.contains_key(*name));
        let change = counted.filter_map(|(name, amount)| Some((name.clone(), amount.checked_mul(sign)?))).collect();
        add(&mut one.used, &change);
    }
}
