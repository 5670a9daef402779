//! Devices by Dynamic Resource Allocation: who has which, and who gets which.
//!
//! Invariant: `busy` counts each device once for the claim that has it and once for the claim that is to get it; a
//! claim without devices is given some the moment that a pod of it has a place, and loses them with its last pod if
//! they were not written yet. Called by `Tables`; asked by the plugin `predicates`.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::cluster::node_matching::matches_term;
use crate::cluster::nodes::NodeRow;
use crate::cluster::objects::Versioned;
use crate::cluster::table::key_of;
use crate::cluster::use_counts::{Change, Users};
use crate::facts::{DeviceClaimFacts, DeviceClassFacts, DeviceFacts, DeviceName, DeviceSliceFacts};
use crate::ids::QueueId;

mod selector;

use selector::Selector;

/// Devices for a claim: those of each request, by its name.
pub(crate) type Choice = Vec<(String, DeviceName)>;

/// Devices that a claim is to get.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) node: String,
    pub(crate) devices: Choice,
}

#[derive(Debug, Default)]
pub(crate) struct Devices {
    /// By `namespace/name`.
    pub(crate) claims: Versioned<DeviceClaimFacts>,
    pub(crate) classes: Versioned<DeviceClassFacts>,
    pub(crate) slices: Versioned<DeviceSliceFacts>,
    /// Pods with a place, by claim.
    users: Users,
    decided: FxHashMap<String, Decided>,
    busy: FxHashMap<DeviceName, u32>,
    pub(crate) charges: Charges,
}

/// Why a claim can't be met on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unmet {
    /// Nowhere, whatever the node.
    Refused(String),
    /// Too few devices of the class are free there.
    Short(String),
    /// Its devices are elsewhere.
    Elsewhere,
}

impl Devices {
    /// A claim as it is now; false if it was so already.
    pub(crate) fn upsert_claim(&mut self, facts: &DeviceClaimFacts) -> bool {
        let key = key_of(&facts.namespace, &facts.name);
        self.mark_allocated(&key, -1);
        if facts.allocated.is_some() {
            self.give_back(&key);
        }
        let changed = self.claims.upsert(key.clone(), facts);
        self.mark_allocated(&key, 1);
        changed
    }

    /// A claim is gone; false if it was not there.
    pub(crate) fn remove_claim(&mut self, key: &str) -> bool {
        self.mark_allocated(key, -1);
        self.give_back(key);
        self.claims.remove(key)
    }

    /// Counts a pod that has got a place on `node` (`sign` 1), or lost it (-1).
    pub(crate) fn count(&mut self, namespace: &str, claims: &[String], node: &NodeRow, sign: i32) {
        for name in claims {
            let key = key_of(namespace, name);
            match self.users.count(&key, sign) {
                Change::Last => self.give_back(&key),
                Change::First => self.decide(key, node),
                Change::Neither => {}
            }
        }
    }

    /// Counts what a pod claims against its queue (`sign` 1), or no longer (-1).
    pub(crate) fn charge(&mut self, queue: QueueId, namespace: &str, claims: &[String], sign: i32) {
        self.charges.count(queue, namespace, claims, sign);
    }

    /// What a claim is to get, if it was decided and not written yet.
    pub(crate) fn decided(&self, key: &str) -> Option<&Decided> {
        self.decided.get(key)
    }

    fn decide(&mut self, key: String, node: &NodeRow) {
        if let Ok(devices) = self.fit(&key, node, &mut FxHashSet::default())
            && !devices.is_empty()
        {
            devices.iter().for_each(|(_, device)| self.mark(device, 1));
            self.decided.insert(key, Decided { node: node.name.to_string(), devices });
        }
    }

    fn give_back(&mut self, key: &str) {
        for (_, device) in self.decided.remove(key).into_iter().flat_map(|decided| decided.devices) {
            self.mark(&device, -1);
        }
    }

    fn mark_allocated(&mut self, key: &str, sign: i32) {
        let allocated = self.claims.all.get(key).and_then(|claim| claim.allocated.clone());
        allocated.iter().flatten().for_each(|device| self.mark(device, sign));
    }

    fn mark(&mut self, device: &DeviceName, sign: i32) {
        let count = self.busy.entry(device.clone()).or_default();
        *count = count.saturating_add_signed(sign);
        if *count == 0 {
            self.busy.remove(device);
        }
    }

    /// The devices that a claim would get on the node, none if it has them already. `taken` are those that other
    /// claims of the same pod would get; what is found is added. O(slices).
    ///
    /// # Errors
    /// Why the claim can't be met there.
    pub(crate) fn fit(&self, key: &str, node: &NodeRow, taken: &mut FxHashSet<DeviceName>) -> Result<Choice, Unmet> {
        let name = key.rsplit('/').next().unwrap_or(key);
        let refuse = |text: String| Err(Unmet::Refused(text));
        let Some(claim) = self.claims.all.get(key) else {
            return refuse(format!("resource claim {name} does not exist"));
        };
        if claim.allocated.is_some() {
            let terms = claim.node_terms.as_ref();
            let reaches = terms.is_none_or(|terms| terms.iter().any(|term| matches_term(term, node)));
            return if reaches { Ok(Vec::new()) } else { Err(Unmet::Elsewhere) };
        }
        if let Some(decided) = self.decided.get(key) {
            return if decided.node == *node.name { Ok(Vec::new()) } else { Err(Unmet::Elsewhere) };
        }
        if claim.terminating {
            return refuse(format!("resource claim {name} is being deleted"));
        }
        if !claim.unsupported.is_empty() {
            return refuse(format!(
                "resource claim {name} asks for {}, which this version can't honour",
                claim.unsupported
            ));
        }
        let mut choice = Vec::new();
        for request in &claim.requests {
            let Some(class) = self.classes.all.get(&request.class) else {
                return refuse(format!("device class {} does not exist", request.class));
            };
            let expressions = class.selectors.iter().chain(&request.selectors);
            let selectors: Result<Vec<Selector>, String> = expressions.map(|text| Selector::parse(text)).collect();
            let selectors = match selectors {
                Ok(selectors) => selectors,
                Err(text) => return refuse(format!("selector needs all of CEL: {text}")),
            };
            let suits = |driver: &str, device: &DeviceFacts| {
                selectors.iter().all(|selector| selector.matches(driver, &device.attributes))
            };
            let all: Vec<DeviceName> = self.on_node(node, suits);
            let free: Vec<&DeviceName> =
                all.iter().filter(|device| !self.busy.contains_key(device) && !taken.contains(device)).collect();
            let wanted = if request.count == 0 { all.len().max(1) } else { request.count as usize };
            if free.len() < wanted {
                return Err(Unmet::Short(request.class.clone()));
            }
            let found: Vec<DeviceName> = free.into_iter().take(wanted).cloned().collect();
            for device in found {
                taken.insert(device.clone());
                choice.push((request.name.clone(), device));
            }
        }
        Ok(choice)
    }

    /// Devices that pods on the node can use, of the newest generation of each pool.
    fn on_node(&self, node: &NodeRow, suits: impl Fn(&str, &DeviceFacts) -> bool) -> Vec<DeviceName> {
        let reaches = |slice: &&DeviceSliceFacts| match (&slice.node, &slice.node_terms) {
            (Some(name), _) => *name == *node.name,
            (None, Some(terms)) => terms.iter().any(|term| matches_term(term, node)),
            (None, None) => true,
        };
        let newest = |slice: &&DeviceSliceFacts| {
            let same_pool = |other: &&DeviceSliceFacts| (&other.driver, &other.pool) == (&slice.driver, &slice.pool);
            self.slices.all.values().filter(same_pool).all(|other| other.generation <= slice.generation)
        };
        let slices = self.slices.all.values().filter(reaches).filter(newest);
        let devices = slices.flat_map(|slice| slice.devices.iter().map(move |device| (slice, device)));
        let suited = devices.filter(|(slice, device)| suits(&slice.driver, device));
        suited
            .map(|(slice, device)| DeviceName {
                driver: slice.driver.clone(),
                pool: slice.pool.clone(),
                device: device.name.clone(),
            })
            .collect()
    }
}

/// Which device claims count against which queue: a claim once for a queue, however many pods of the queue that have a place
/// or are promised one name it. Kept by `Tables`; read by the plugin `capacity`.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// How many times pods of the queue name a claim, by its `namespace/name`.
    of: FxHashMap<QueueId, BTreeMap<String, u32>>,
}

impl Charges {
    /// Counts a pod that names `claims` (`sign` 1), or no longer does (-1).
    pub(super) fn count(&mut self, queue: QueueId, namespace: &str, claims: &[String], sign: i32) {
        if claims.is_empty() {
            return;
        }
        let charged = self.of.entry(queue).or_default();
        for name in claims {
            let key = key_of(namespace, name);
            let pods = charged.entry(key.clone()).or_default();
            *pods = pods.checked_add_signed(sign).expect("charges follow the tasks' states");
            if *pods == 0 {
                charged.remove(&key);
            }
        }
        if charged.is_empty() {
            self.of.remove(&queue);
        }
    }

    /// The claims of each queue that has any, in no order that means anything.
    pub(crate) fn by_queue(&self) -> impl Iterator<Item = (QueueId, impl Iterator<Item = &str>)> {
        self.of.iter().map(|(queue, claims)| (*queue, claims.keys().map(String::as_str)))
    }
}

crate::save::saved! {
    Decided { node, devices };
    Devices { claims, classes, slices, users, decided, busy, charges };
    Charges { of };
}
