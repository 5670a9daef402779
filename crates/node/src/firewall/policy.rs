//! A NetworkPolicy as the firewall reads it: what it selects, and what it allows.
//!
//! Invariant: what can't be read allows nothing, so that a policy never opens more than it says. Pure.

use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pumice_objects::selector::{LabelOperator, LabelRequirement, LabelSelector};

use super::rule_set::{Block, Direction, Protocol};

/// Pairs of a peer and a port that a policy may allow in a direction; what is beyond is not allowed.
pub(crate) const ALLOWS_MAX: usize = 4096;

/// Whose pods are peers: those in certain namespaces with certain labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    pub namespaces: Namespaces,
    pub pods: LabelSelector,
}

/// Namespaces by name or by their labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Namespaces {
    Named(String),
    Labelled(LabelSelector),
}

/// The other side of what a rule allows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PeerRule {
    Anybody,
    Pods(GroupKey),
    Block { within: Block, except: Vec<Block> },
}

/// The ports that a rule allows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PortRule {
    Any,
    Range { protocol: Protocol, ports: Option<(u16, u16)> },
    Named(PortName),
}

/// A port that containers have a name for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PortName {
    pub name: String,
    pub protocol: Protocol,
}

/// Peers and ports, of which each pair is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub peers: Vec<PeerRule>,
    pub ports: Vec<PortRule>,
}

/// What a NetworkPolicy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    pub namespace: String,
    /// Which pods of its namespace it is about.
    pub selector: LabelSelector,
    /// None where it says nothing about this direction.
    ingress: Option<Vec<Rule>>,
    egress: Option<Vec<Rule>>,
    /// Whether it allows more than [`ALLOWS_MAX`], of which the rest is left out.
    pub is_cut: bool,
}

impl Policy {
    /// What it allows in a direction; none where it says nothing about that.
    pub(crate) fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }

    pub(crate) fn of(object: &NetworkPolicy) -> Policy {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let spec = object.spec.clone().unwrap_or_default();
        let reads = Reads { namespace: &namespace };
        let (types, mut is_cut) = (types(&spec), false);
        let mut of = |direction, rules: Vec<Rule>| types.contains(&direction).then(|| cut(rules, &mut is_cut));
        let ingress = spec.ingress.iter().flatten();
        let ingress = ingress.map(|rule| reads.rule(rule.from.as_deref(), rule.ports.as_deref()));
        let egress = spec.egress.iter().flatten();
        let egress = egress.map(|rule| reads.rule(rule.to.as_deref(), rule.ports.as_deref()));
        Policy {
            selector: spec.pod_selector.as_ref().map_or_else(LabelSelector::everything, selector),
            ingress: of(Direction::Ingress, ingress.collect()),
            egress: of(Direction::Egress, egress.collect()),
            namespace,
            is_cut,
        }
    }
}

/// The directions that a policy is about. The API server fills them in; where it has not, ingress, and egress where there are rules.
fn types(spec: &NetworkPolicySpec) -> Vec<Direction> {
    let Some(types) = spec.policy_types.as_ref().filter(|types| !types.is_empty()) else {
        return if spec.egress.is_some() {
            vec![Direction::Ingress, Direction::Egress]
        } else {
            vec![Direction::Ingress]
        };
    };
    let direction = |kind: &String| match kind.as_str() {
        "Ingress" => Some(Direction::Ingress),
        "Egress" => Some(Direction::Egress),
        _ => None,
    };
    types.iter().filter_map(direction).collect()
}

/// As much of rules as may be.
fn cut(rules: Vec<Rule>, is_cut: &mut bool) -> Vec<Rule> {
    let mut room = ALLOWS_MAX;
    let mut taken = Vec::new();
    for mut rule in rules {
        *is_cut |= rule.ports.len() > room;
        rule.ports.truncate(room);
        let peers_max = room.checked_div(rule.ports.len()).unwrap_or(0);
        *is_cut |= !rule.ports.is_empty() && rule.peers.len() > peers_max;
        rule.peers.truncate(peers_max);
        room -= rule.peers.len() * rule.ports.len();
        taken.push(rule);
    }
    taken
}

struct Reads<'a> {
    namespace: &'a str,
}

impl Reads<'_> {
    fn rule(&self, peers: Option<&[NetworkPolicyPeer]>, ports: Option<&[NetworkPolicyPort]>) -> Rule {
        let peers = match peers {
            None | Some([]) => vec![PeerRule::Anybody],
            Some(peers) => peers.iter().filter_map(|peer| self.peer(peer)).collect(),
        };
        let ports = match ports {
            None | Some([]) => vec![PortRule::Any],
            Some(ports) => ports.iter().filter_map(port).collect(),
        };
        Rule { peers, ports }
    }

    fn peer(&self, peer: &NetworkPolicyPeer) -> Option<PeerRule> {
        if let Some(block) = &peer.ip_block {
            // Pods have no addresses of IPv6.
            let within = Block::parse(&block.cidr)?;
            let except = block.except.iter().flatten().map(|text| Block::parse(text));
            // Of an exception that can't be read nobody knows what it keeps out.
            return Some(PeerRule::Block { within, except: except.collect::<Option<_>>()? });
        }
        let namespaces = match &peer.namespace_selector {
            Some(labels) => Namespaces::Labelled(selector(labels)),
            None if peer.pod_selector.is_some() => Namespaces::Named(self.namespace.to_owned()),
            None => return None,
        };
        let pods = peer.pod_selector.as_ref().map_or_else(LabelSelector::everything, selector);
        Some(PeerRule::Pods(GroupKey { namespaces, pods }))
    }
}

fn port(port: &NetworkPolicyPort) -> Option<PortRule> {
    let protocol = Protocol::parse(port.protocol.as_deref().unwrap_or("TCP"))?;
    match &port.port {
        None => Some(PortRule::Range { protocol, ports: None }),
        Some(IntOrString::Int(first)) => {
            let first = u16::try_from(*first).ok()?;
            let last = port.end_port.map_or(Some(first), |last| u16::try_from(last).ok())?;
            Some(PortRule::Range { protocol, ports: Some((first, last)) })
        }
        Some(IntOrString::String(name)) => Some(PortRule::Named(PortName { name: name.clone(), protocol })),
    }
}

/// One that can't be read selects nothing.
fn selector(selector: &v1::LabelSelector) -> LabelSelector {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
        Some(LabelRequirement { key: key.clone(), operator: LabelOperator::In, values: vec![value.clone()] })
    });
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let operator = match expression.operator.as_str() {
            "In" => LabelOperator::In,
            "NotIn" => LabelOperator::NotIn,
            "Exists" => LabelOperator::Exists,
            "DoesNotExist" => LabelOperator::DoesNotExist,
            _ => return None,
        };
        let values = expression.values.clone().unwrap_or_default();
        Some(LabelRequirement { key: expression.key.clone(), operator, values })
    });
    let requirements: Option<Vec<LabelRequirement>> = labels.chain(expressions).collect();
    requirements.map_or_else(LabelSelector::nothing, LabelSelector::from_requirements)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(spec: Value) -> Policy {
        let object = json!({"metadata": {"name": "p", "namespace": "x"}, "spec": spec});
        Policy::of(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_policy_is_about_the_directions_that_it_names() {
        let directions = |spec| {
            let policy = policy(spec);
            [Direction::Ingress, Direction::Egress].map(|direction| policy.rules(direction).map(<[Rule]>::len))
        };
        assert_eq!(directions(json!({"podSelector": {}})), [Some(0), None]);
        assert_eq!(directions(json!({"podSelector": {}, "egress": []})), [Some(0), Some(0)]);
        assert_eq!(directions(json!({"podSelector": {}, "egress": [{}], "policyTypes": ["Egress"]})), [None, Some(1)]);
        assert_eq!(directions(json!({"podSelector": {}, "ingress": [{}], "policyTypes": ["Egress"]})), [None, Some(0)]);
    }

    #[test]
    fn what_can_not_be_read_allows_nothing() {
        let allowed = |rule: Value| {
            let policy = policy(json!({"podSelector": {}, "ingress": [rule]}));
            policy
                .rules(Direction::Ingress)
                .unwrap()
                .iter()
                .map(|rule| rule.peers.len() * rule.ports.len())
                .sum::<usize>()
        };
        assert_eq!(allowed(json!({})), 1);
        assert_eq!(allowed(json!({"from": [], "ports": []})), 1);
        for rule in [
            json!({"from": [{"ipBlock": {"cidr": "fd00::/8"}}]}),
            json!({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0"]}}]}),
            json!({"from": [{}]}),
            json!({"ports": [{"port": 80, "protocol": "ICMP"}]}),
            json!({"ports": [{"port": 0x1_0000}]}),
        ] {
            assert_eq!(allowed(rule.clone()), 0, "{rule}");
        }
        let odd = policy(json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}}));
        assert_eq!(odd.selector, LabelSelector::nothing());
    }

    #[test]
    fn a_policy_has_bounds() {
        let ports: Vec<Value> = (1..=1000).map(|port| json!({"port": port})).collect();
        let peers: Vec<Value> =
            (0..1000).map(|n| json!({"podSelector": {"matchLabels": {"n": n.to_string()}}})).collect();
        let policy = policy(json!({"podSelector": {}, "ingress": [{"from": peers, "ports": ports}, {}]}));
        let rules = policy.rules(Direction::Ingress).unwrap();
        let pairs: usize = rules.iter().map(|rule| rule.peers.len() * rule.ports.len()).sum();
        assert!(policy.is_cut && pairs <= ALLOWS_MAX && pairs > 0, "{pairs}");
    }
}
