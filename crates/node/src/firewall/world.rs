//! What rules follow from namespaces, policies and the pods of this node.
//!
//! Invariant: the rules are those that the same facts would give from nothing, in whatever order they came. A pod that comes or goes
//! costs a look at the policies of its namespace and at the peers that policies name; a policy costs a look at the pods. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

use pumice_api::names::TENANT;
use pumice_objects::selector::LabelSelector;

use super::interned::Interned;
use super::policy::{GroupKey, Namespaces, PeerRule, Policy, PortName, PortRule, Rule};
use super::rule_set::{Allow, Chain, Direction, Element, Peers, Ports, Protocol, RuleSet};

pub(crate) type Labels = BTreeMap<String, String>;

/// What policies may allow a pod in a direction, all together; what is beyond is not allowed.
pub(crate) const CHAIN_MAX: usize = 16_384;

/// A pod with a network of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodFacts {
    pub namespace: String,
    pub labels: Labels,
    pub address: Ipv4Addr,
    pub ports: Vec<(PortName, u16)>,
}

/// All that the rules follow from, and the rules.
#[derive(Debug, Default)]
pub(crate) struct World {
    namespaces: HashMap<String, Labels>,
    /// By namespace and name.
    policies: HashMap<String, BTreeMap<String, Policy>>,
    pods: BTreeMap<String, PodFacts>,
    tenants: Interned<String>,
    groups: Interned<GroupKey>,
    named: Interned<PortName>,
    chains: Interned<(Direction, Vec<Allow>)>,
    rules: RuleSet,
    /// Pods that policies allow more than is looked at, until they are told of.
    cut: BTreeSet<String>,
}

impl World {
    /// Pods that policies allow more than [`CHAIN_MAX`] pairs in a direction, since this was asked before.
    pub(crate) fn take_cut(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.cut)
    }

    /// As they are to be in force now.
    pub(crate) fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Whether there are rules about a pod.
    pub(crate) fn concerns(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| self.rules.elements.contains_key(&pod.address))
    }

    pub(crate) fn knows_namespace(&self, name: &str) -> bool {
        self.namespaces.contains_key(name)
    }

    /// These are all the namespaces.
    pub(crate) fn replace_namespaces(&mut self, all: HashMap<String, Labels>) {
        let gone: Vec<String> = self.namespaces.keys().filter(|name| !all.contains_key(*name)).cloned().collect();
        gone.iter().for_each(|name| self.set_namespace(name, None));
        all.into_iter().for_each(|(name, labels)| self.set_namespace(&name, Some(labels)));
    }

    /// A namespace came, changed or went.
    pub(crate) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let before = self.namespaces.get(name);
        if before == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => drop(self.namespaces.insert(name.to_owned(), labels)),
            None => drop(self.namespaces.remove(name)),
        }
        let within = self.pods.iter().filter(|(_, pod)| pod.namespace == name);
        let uids: Vec<String> = within.map(|(uid, _)| uid.clone()).collect();
        uids.iter().for_each(|uid| self.look_at_pod(uid));
    }

    /// These are all the policies.
    pub(crate) fn replace_policies(&mut self, all: Vec<(String, Policy)>) {
        let keys: BTreeSet<(&str, &str)> =
            all.iter().map(|(name, policy)| (policy.namespace.as_str(), name.as_str())).collect();
        let known = self.policies.iter().flat_map(|(namespace, of)| of.keys().map(move |name| (namespace, name)));
        let gone = known.filter(|(namespace, name)| !keys.contains(&(namespace.as_str(), name.as_str())));
        let gone: Vec<(String, String)> = gone.map(|(namespace, name)| (namespace.clone(), name.clone())).collect();
        gone.iter().for_each(|(namespace, name)| self.set_policy(namespace, name, None));
        for (name, policy) in all {
            let namespace = policy.namespace.clone();
            self.set_policy(&namespace, &name, Some(policy));
        }
    }

    /// A policy came, changed or went.
    pub(crate) fn set_policy(&mut self, namespace: &str, name: &str, policy: Option<Policy>) {
        let of_namespace = self.policies.entry(namespace.to_owned()).or_default();
        if of_namespace.get(name) == policy.as_ref() {
            return;
        }
        // What both name stays.
        if let Some(policy) = &policy {
            for (peer, port) in pairs(policy) {
                self.acquire(peer, port);
            }
        }
        let of_namespace = self.policies.entry(namespace.to_owned()).or_default();
        let before = match policy.clone() {
            Some(policy) => of_namespace.insert(name.to_owned(), policy),
            None => of_namespace.remove(name),
        };
        if of_namespace.is_empty() {
            self.policies.remove(namespace);
        }
        if let Some(before) = &before {
            for (peer, port) in pairs(before) {
                self.release(peer, port);
            }
        }
        let selectors: Vec<LabelSelector> =
            [before, policy].into_iter().flatten().map(|policy| policy.selector).collect();
        let selected = |pod: &PodFacts| selectors.iter().any(|selector| selects(selector, &pod.labels));
        let about = self.pods.iter().filter(|(_, pod)| pod.namespace == namespace && selected(pod));
        let uids: Vec<String> = about.map(|(uid, _)| uid.clone()).collect();
        uids.iter().for_each(|uid| self.look_at_chains(uid));
    }

    /// A pod came, changed or went.
    pub(crate) fn set_pod(&mut self, uid: &str, pod: Option<PodFacts>) {
        if self.pods.get(uid) == pod.as_ref() {
            return;
        }
        if let Some(before) = self.pods.remove(uid) {
            self.forget(before.address);
        }
        if let Some(pod) = pod {
            self.pods.insert(uid.to_owned(), pod);
            self.look_at_pod(uid);
        }
    }

    /// Begins to use what a rule names; what nobody named before is looked for among the pods.
    fn acquire(&mut self, peer: &PeerRule, port: &PortRule) {
        if let PeerRule::Pods(key) = peer
            && let (number, true) = self.groups.acquire(key)
        {
            self.rules.groups.insert(number);
            for pod in self.pods.values().filter(|pod| is_in(key, pod, &self.namespaces)) {
                self.rules.elements.entry(pod.address).or_default().insert(Element::Group(number));
            }
        }
        if let PortRule::Named(key) = port
            && let (number, true) = self.named.acquire(key)
        {
            self.rules.named.insert(number);
            for pod in self.pods.values() {
                let elements = ports_of(pod, key, number);
                let mut elements = elements.peekable();
                if elements.peek().is_some() {
                    self.rules.elements.entry(pod.address).or_default().extend(elements);
                }
            }
        }
    }

    fn release(&mut self, peer: &PeerRule, port: &PortRule) {
        if let PeerRule::Pods(key) = peer
            && let Some(number) = self.groups.release(key)
        {
            self.rules.groups.remove(&number);
            self.remove_elements(|element| *element == Element::Group(number));
        }
        if let PortRule::Named(key) = port
            && let Some(number) = self.named.release(key)
        {
            self.rules.named.remove(&number);
            self.remove_elements(|element| matches!(element, Element::Named { set, .. } if *set == number));
        }
    }

    fn remove_elements(&mut self, is_over: impl Fn(&Element) -> bool) {
        self.rules.elements.retain(|_, elements| {
            elements.retain(|element| !is_over(element));
            !elements.is_empty()
        });
    }

    /// Takes all elements of an address away.
    fn forget(&mut self, address: Ipv4Addr) {
        for element in self.rules.elements.remove(&address).into_iter().flatten() {
            self.leave(element);
        }
    }

    /// A pod uses a tenant's number, or a chain, no more.
    fn leave(&mut self, element: Element) {
        match element {
            Element::Ingress(number) | Element::Egress(number) => {
                let Some(Chain { direction, allowed }) = self.rules.chains.get(&number).cloned() else { return };
                if self.chains.release(&(direction, allowed)).is_some() {
                    self.rules.chains.remove(&number);
                }
            }
            Element::Tenant(number) => {
                let key = self.tenants.iter().find(|(_, other)| *other == number).map(|(key, _)| key.clone());
                if key.and_then(|key| self.tenants.release(&key)).is_some() {
                    self.rules.tenants.remove(&number);
                }
            }
            Element::Group(_) | Element::Named { .. } => {}
        }
    }

    /// Finds out all that a pod is in.
    fn look_at_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid).cloned() else { return };
        self.forget(pod.address);
        let mut elements = BTreeSet::new();
        if let Some(tenant) = self.namespaces.get(&pod.namespace).and_then(|labels| labels.get(TENANT)) {
            let (number, _) = self.tenants.acquire(tenant);
            self.rules.tenants.insert(number);
            elements.insert(Element::Tenant(number));
        }
        let groups = self.groups.iter().filter(|(key, _)| is_in(key, &pod, &self.namespaces));
        elements.extend(groups.map(|(_, number)| Element::Group(number)));
        if !pod.ports.is_empty() {
            elements.extend(self.named.iter().flat_map(|(key, number)| ports_of(&pod, key, number)));
        }
        if !elements.is_empty() {
            self.rules.elements.insert(pod.address, elements);
        }
        self.look_at_chains(uid);
    }

    /// Finds out which chains a pod has.
    fn look_at_chains(&mut self, uid: &str) {
        let Some(pod) = self.pods.get(uid).cloned() else { return };
        let new: Vec<Element> = [Direction::Ingress, Direction::Egress]
            .into_iter()
            .filter_map(|direction| {
                let (allowed, is_cut) = self.allowed(&pod, direction)?;
                if is_cut {
                    self.cut.insert(uid.to_owned());
                }
                let (number, _) = self.chains.acquire(&(direction, allowed.clone()));
                self.rules.chains.insert(number, Chain { direction, allowed });
                Some(match direction {
                    Direction::Ingress => Element::Ingress(number),
                    Direction::Egress => Element::Egress(number),
                })
            })
            .collect();
        let is_chain = |element: &Element| matches!(element, Element::Ingress(_) | Element::Egress(_));
        let elements = self.rules.elements.entry(pod.address).or_default();
        let before: Vec<Element> = elements.iter().filter(|element| is_chain(element)).copied().collect();
        elements.retain(|element| !is_chain(element));
        elements.extend(new);
        if elements.is_empty() {
            self.rules.elements.remove(&pod.address);
        }
        before.into_iter().for_each(|element| self.leave(element));
    }

    /// What the policies that select a pod allow it together, and whether it is more than is looked at; none where none says anything
    /// about that direction.
    fn allowed(&self, pod: &PodFacts, direction: Direction) -> Option<(Vec<Allow>, bool)> {
        let policies = self.policies.get(&pod.namespace)?.values();
        let rules = policies.filter_map(|policy| {
            let rules = policy.rules(direction)?;
            selects(&policy.selector, &pod.labels).then_some(rules)
        });
        let mut rules = rules.peekable();
        rules.peek()?;
        let (mut allowed, mut is_cut) = (BTreeSet::new(), false);
        for (peer, port) in rules.flatten().flat_map(pairs_of) {
            if allowed.len() >= CHAIN_MAX {
                is_cut = true;
                break;
            }
            allowed.extend(self.allow(peer, port));
        }
        let everything = Allow { peers: Peers::Anybody, ports: Ports::Any };
        if allowed.contains(&everything) {
            return Some((vec![everything], false));
        }
        Some((allowed.into_iter().collect(), is_cut))
    }

    fn allow(&self, peer: &PeerRule, port: &PortRule) -> Option<Allow> {
        let peers = match peer {
            PeerRule::Anybody => Peers::Anybody,
            PeerRule::Pods(key) => Peers::Group(self.groups.number(key)?),
            PeerRule::Block { within, except } => Peers::Block { within: *within, except: except.clone() },
        };
        let ports = match port {
            PortRule::Any => Ports::Any,
            PortRule::Range { protocol, ports } => Ports::Range { protocol: *protocol, ports: *ports },
            PortRule::Named(key) => Ports::Named(self.named.number(key)?),
        };
        Some(Allow { peers, ports })
    }
}

/// All pairs of a peer and a port that a policy names.
fn pairs(policy: &Policy) -> impl Iterator<Item = (&PeerRule, &PortRule)> {
    let directions = [Direction::Ingress, Direction::Egress].into_iter();
    directions.filter_map(|direction| policy.rules(direction)).flatten().flat_map(pairs_of)
}

fn pairs_of(rule: &Rule) -> impl Iterator<Item = (&PeerRule, &PortRule)> {
    rule.peers.iter().flat_map(|peer| rule.ports.iter().map(move |port| (peer, port)))
}

fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key).map(String::as_str))
}

fn is_in(key: &GroupKey, pod: &PodFacts, namespaces: &HashMap<String, Labels>) -> bool {
    let of_namespace = match &key.namespaces {
        Namespaces::Named(name) => *name == pod.namespace,
        Namespaces::Labelled(selector) => {
            namespaces.get(&pod.namespace).is_some_and(|labels| selects(selector, labels))
        }
    };
    of_namespace && selects(&key.pods, &pod.labels)
}

/// The ports of a pod that have this name.
fn ports_of(pod: &PodFacts, key: &PortName, set: u32) -> impl Iterator<Item = Element> {
    let protocol: Protocol = key.protocol;
    pod.ports.iter().filter(move |(name, _)| name == key).map(move |(_, port)| Element::Named {
        set,
        protocol,
        port: *port,
    })
}
