//! The rules of a node's firewall as data: what each pod's address is in, and what the chains allow.
//!
//! Invariant: a chain's content never changes under its number, so that a change of rules is other elements, new chains and no more.
//! Pure. Made by [`world`](super::world), written by [`transaction`](super::transaction).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Those of whose packets a policy can name ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl Protocol {
    /// As Kubernetes writes it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "SCTP" => Some(Protocol::Sctp),
            _ => None,
        }
    }

    /// As packets say it.
    pub(crate) fn number(self) -> u8 {
        let number = match self {
            Protocol::Tcp => libc::IPPROTO_TCP,
            Protocol::Udp => libc::IPPROTO_UDP,
            Protocol::Sctp => libc::IPPROTO_SCTP,
        };
        number as u8
    }
}

/// Which way traffic goes, from the pod that a policy selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block {
    pub base: Ipv4Addr,
    /// Its length in bits.
    pub prefix: u8,
}

impl Block {
    /// `10.0.0.0/8`; none of another family.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (base, prefix) = text.split_once('/')?;
        let (base, prefix) = (base.parse().ok()?, prefix.parse().ok()?);
        (prefix <= 32).then_some(Block { base, prefix })
    }

    /// The bits of its prefix.
    pub(crate) fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }

    /// Its first address.
    pub(crate) fn network(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base.to_bits() & self.mask())
    }
}

/// The other side of traffic.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Peers {
    Anybody,
    /// Addresses of pods in a set.
    Group(u32),
    Block {
        within: Block,
        except: Vec<Block>,
    },
}

/// The port that traffic goes to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ports {
    /// Of whatever protocol, and of those without ports.
    Any,
    /// All of a protocol, or from the first to the second.
    Range { protocol: Protocol, ports: Option<(u16, u16)> },
    /// Those in a set of addresses with a protocol and a port.
    Named(u32),
}

/// Traffic that a policy allows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Allow {
    pub peers: Peers,
    pub ports: Ports,
}

/// What a pod's address is, or is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// The pod is a tenant's.
    Tenant(u32),
    /// Policies name it as a peer.
    Group(u32),
    /// It has a port of this name.
    Named { set: u32, protocol: Protocol, port: u16 },
    /// What comes to it is allowed by this chain only.
    Ingress(u32),
    /// What it sends is allowed by this chain only.
    Egress(u32),
}

/// What traffic in a direction a pod may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    pub direction: Direction,
    pub allowed: Vec<Allow>,
}

/// All rules about the pods of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RuleSet {
    /// Numbers of tenants who have pods.
    pub tenants: BTreeSet<u32>,
    /// Numbers of the sets of addresses.
    pub groups: BTreeSet<u32>,
    /// Numbers of the sets of named ports.
    pub named: BTreeSet<u32>,
    pub chains: BTreeMap<u32, Chain>,
    pub elements: BTreeMap<Ipv4Addr, BTreeSet<Element>>,
}

/// What makes one rule set of another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub added: RuleSet,
    pub removed: RuleSet,
}

impl Changes {
    /// From `before` to `after`.
    pub(crate) fn between(before: &RuleSet, after: &RuleSet) -> Changes {
        Changes { added: without(after, before), removed: without(before, after) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Changes::default()
    }

    /// Makes the one of the other.
    pub(crate) fn apply(self, rules: &mut RuleSet) {
        let Changes { added, removed } = self;
        for (address, elements) in removed.elements {
            let Some(left) = rules.elements.get_mut(&address) else { continue };
            left.retain(|element| !elements.contains(element));
            if left.is_empty() {
                rules.elements.remove(&address);
            }
        }
        rules.chains.retain(|number, _| !removed.chains.contains_key(number));
        rules.tenants.retain(|number| !removed.tenants.contains(number));
        rules.tenants.extend(added.tenants);
        rules.groups.retain(|number| !removed.groups.contains(number));
        rules.named.retain(|number| !removed.named.contains(number));
        rules.groups.extend(added.groups);
        rules.named.extend(added.named);
        rules.chains.extend(added.chains);
        for (address, elements) in added.elements {
            rules.elements.entry(address).or_default().extend(elements);
        }
    }
}

/// What of `rules` is not in `other`.
fn without(rules: &RuleSet, other: &RuleSet) -> RuleSet {
    let elements = rules.elements.iter().filter_map(|(address, elements)| {
        let left: BTreeSet<Element> = match other.elements.get(address) {
            Some(others) if others == elements => return None,
            Some(others) => elements.difference(others).copied().collect(),
            None => elements.clone(),
        };
        (!left.is_empty()).then_some((*address, left))
    });
    let chains = rules.chains.iter().filter(|(number, _)| !other.chains.contains_key(number));
    RuleSet {
        tenants: rules.tenants.difference(&other.tenants).copied().collect(),
        groups: rules.groups.difference(&other.groups).copied().collect(),
        named: rules.named.difference(&other.named).copied().collect(),
        chains: chains.map(|(number, chain)| (*number, chain.clone())).collect(),
        elements: elements.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(elements: &[(u8, Element)], chains: &[u32]) -> RuleSet {
        let mut rules = RuleSet::default();
        for (last, element) in elements {
            rules.elements.entry(Ipv4Addr::new(10, 0, 0, *last)).or_default().insert(*element);
            if let Element::Group(number) = element {
                rules.groups.insert(*number);
            }
        }
        let empty = Chain { direction: Direction::Ingress, allowed: Vec::new() };
        rules.chains.extend(chains.iter().map(|number| (*number, empty.clone())));
        rules
    }

    #[test]
    fn changes_lead_from_one_to_the_other_and_hold_no_more() {
        let cases = [
            rules(&[], &[]),
            rules(&[(1, Element::Tenant(1)), (2, Element::Group(4))], &[1]),
            rules(&[(1, Element::Tenant(1)), (1, Element::Group(4)), (3, Element::Ingress(2))], &[2]),
        ];
        for before in &cases {
            for after in &cases {
                let changes = Changes::between(before, after);
                assert_eq!(changes.is_empty(), before == after);
                let mut changed = before.clone();
                changes.apply(&mut changed);
                assert_eq!(changed, *after);
            }
        }
        let changes = Changes::between(&cases[1], &cases[2]);
        assert_eq!(changes.added.elements.values().flatten().count(), 2, "a pod that stays is not written again");
    }

    #[test]
    fn blocks_are_read() {
        let block = Block::parse("10.1.2.3/8").unwrap();
        assert_eq!((block.network(), block.mask()), (Ipv4Addr::new(10, 0, 0, 0), 0xff00_0000));
        assert_eq!(Block::parse("0.0.0.0/0").unwrap().mask(), 0);
        for text in ["10.0.0.0", "10.0.0.0/33", "fd00::/8", "/8", "10.0.0.0/x"] {
            assert_eq!(Block::parse(text), None, "{text}");
        }
    }
}
