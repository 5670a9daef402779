//! The rules of a node as changes of its table: all of it, or what is new.
//!
//! ```text
//!   prerouting: what a pod sends ──forged, IPv6?──> drop
//!               └─ of a tenant, to this host or to link-local ──not API, not DNS──> drop
//!   forward:    to or from a pod ──> pods: another tenant's? drop ──> policies: what egress and ingress allow
//!   input:      from a pod ──> what egress allows
//! ```
//!
//! Invariant: no chain has a policy but to accept, and each begins by asking whether a packet is of a link of this node's pods, so that
//! nothing else of the machine is ever refused here. Whether two pods are of one tenant is asked of each packet, whatever connections
//! there are.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use pumice_linux::netlink::Message;

use super::nft::{A, B, Batch, C, EQUAL, Entry, Hook, Leads, NOT_EQUAL, Part, Shape, Target, Verdict, kinds, parts};
use super::rule_set::{Allow, Chain, Changes, Direction, Element, Peers, Ports, RuleSet};

const HOOK_PREROUTING: u32 = 0;
const HOOK_INPUT: u32 = 1;
const HOOK_FORWARD: u32 = 2;
/// After connections are looked up and before destinations are translated, so that a port of the host that leads elsewhere is still one.
const PRIORITY_MANGLE: i32 = -150;
const PRIORITY_FILTER: i32 = 0;

/// Addresses of all tenants' pods.
const TENANTS: &str = "tenants";
/// Which chain is that of an address's tenant.
const OWNERS: &str = "owners";
const INGRESS: &str = "ingress";
const EGRESS: &str = "egress";

const FROM_TENANT: &str = "from-tenant";
const TO_HOST: &str = "tenant-to-host";
const PODS: &str = "pods";
const POLICIES: &str = "policies";

const DNS_PORT: u16 = 53;
/// Addresses of a link alone: the metadata of clouds, too.
const LINK_LOCAL: ([u8; 4], [u8; 4]) = ([255, 255, 0, 0], [169, 254, 0, 0]);

const ADDRESS: Shape = Shape { key_kind: kinds::ADDRESS, key_bytes: 4, leads_to: None };
const NAMED_PORT: Shape =
    Shape { key_kind: (kinds::ADDRESS << 6 | kinds::PROTOCOL) << 6 | kinds::PORT, key_bytes: 12, leads_to: None };

/// What of a node's rules never changes while its agent runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ground {
    /// The name of the table, which is the bridge's.
    pub table: String,
    /// The group of links of this node's pods.
    pub group: u32,
    pub gateway: Ipv4Addr,
    /// Where the API answers, at the gateway.
    pub api_port: Option<u16>,
    /// Who answers pods' questions for names, but for the gateway.
    pub name_servers: Vec<Ipv4Addr>,
}

/// Puts the table with these rules in the place of what is there of that name.
pub(super) fn replace(ground: &Ground, rules: &RuleSet) -> Vec<Message> {
    let mut batch = Batch::new(&ground.table);
    // One that is not there can't be deleted.
    batch.new_table();
    batch.delete_table();
    batch.new_table();
    batch.new_set(TENANTS, ADDRESS);
    batch.new_set(OWNERS, Shape { leads_to: Some(Leads::Verdict), ..ADDRESS });
    batch.new_set(INGRESS, Shape { leads_to: Some(Leads::Verdict), ..ADDRESS });
    batch.new_set(EGRESS, Shape { leads_to: Some(Leads::Verdict), ..ADDRESS });
    for chain in [TO_HOST, FROM_TENANT, POLICIES, PODS] {
        batch.new_chain(chain, None);
    }
    let hooks = [
        ("prerouting", HOOK_PREROUTING, PRIORITY_MANGLE),
        ("input", HOOK_INPUT, PRIORITY_FILTER),
        ("forward", HOOK_FORWARD, PRIORITY_FILTER),
    ];
    for (chain, number, priority) in hooks {
        batch.new_chain(chain, Some(Hook { number, priority }));
    }
    for (chain, rule) in standing_rules(ground) {
        batch.new_rule(chain, &rule);
    }
    add(&mut batch, ground, rules);
    batch.finish()
}

/// Puts into the table what is new, and takes out what is over.
pub(super) fn change(ground: &Ground, changes: &Changes) -> Vec<Message> {
    let mut batch = Batch::new(&ground.table);
    // First, so that an address can get another chain.
    for (set, entries) in entries(&changes.removed) {
        batch.delete_elements(&set, &entries);
    }
    add(&mut batch, ground, &changes.added);
    for (number, chain) in &changes.removed.chains {
        batch.delete_chain(&chain_name(chain.direction, *number));
    }
    for number in &changes.removed.tenants {
        batch.delete_chain(&tenant_name(*number));
        batch.delete_set(&tenant_name(*number));
    }
    for number in &changes.removed.groups {
        batch.delete_set(&group_name(*number));
    }
    for number in &changes.removed.named {
        batch.delete_set(&named_name(*number));
    }
    batch.finish()
}

/// For a node that is taken off the machine.
pub(super) fn remove(table: &str) -> Vec<Message> {
    let mut batch = Batch::new(table);
    batch.delete_table();
    batch.finish()
}

fn add(batch: &mut Batch, ground: &Ground, rules: &RuleSet) {
    for number in &rules.tenants {
        let name = tenant_name(*number);
        batch.new_set(&name, ADDRESS);
        batch.new_chain(&name, None);
        let to_pod = parts::output_group(EQUAL, ground.group);
        let to_own = [to_pod.clone(), is_in(parts::destination(A), &name)].concat();
        let then = |parts: Vec<Part>, verdict| [parts, vec![Part::Then(verdict)]].concat();
        batch.new_rule(&name, &then(to_own, Verdict::Goto(POLICIES.to_owned())));
        batch.new_rule(&name, &then(to_pod, Verdict::Drop));
        batch.new_rule(&name, &[Part::Then(Verdict::Goto(POLICIES.to_owned()))]);
    }
    for number in &rules.groups {
        batch.new_set(&group_name(*number), ADDRESS);
    }
    for number in &rules.named {
        batch.new_set(&named_name(*number), NAMED_PORT);
    }
    for (number, Chain { direction, allowed }) in &rules.chains {
        let name = chain_name(*direction, *number);
        batch.new_chain(&name, None);
        for allow in allowed {
            batch.new_rule(&name, &allow_rule(*direction, allow));
        }
        batch.new_rule(&name, &[Part::Then(Verdict::Drop)]);
    }
    for (set, entries) in entries(rules) {
        batch.new_elements(&set, &entries);
    }
}

/// Elements by the sets that they are in.
fn entries(rules: &RuleSet) -> BTreeMap<String, Vec<Entry>> {
    let mut sets: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for (address, elements) in &rules.elements {
        let address = address.octets();
        for element in elements {
            let mut put =
                |set: String, key: Vec<u8>, leads_to| sets.entry(set).or_default().push(Entry { key, leads_to });
            match element {
                Element::Tenant(number) => {
                    let chain = Verdict::Goto(tenant_name(*number));
                    put(TENANTS.to_owned(), address.to_vec(), None);
                    put(tenant_name(*number), address.to_vec(), None);
                    put(OWNERS.to_owned(), address.to_vec(), Some(Target::Verdict(chain)));
                }
                Element::Group(number) => put(group_name(*number), address.to_vec(), None),
                Element::Named { set, protocol, port } => {
                    let [high, low] = port.to_be_bytes();
                    // Each part of a key takes whole registers.
                    let key = [address, [protocol.number(), 0, 0, 0], [high, low, 0, 0]].concat();
                    put(named_name(*set), key, None);
                }
                Element::Ingress(number) => {
                    let chain = Verdict::Jump(chain_name(Direction::Ingress, *number));
                    put(INGRESS.to_owned(), address.to_vec(), Some(Target::Verdict(chain)));
                }
                Element::Egress(number) => {
                    let chain = Verdict::Jump(chain_name(Direction::Egress, *number));
                    put(EGRESS.to_owned(), address.to_vec(), Some(Target::Verdict(chain)));
                }
            }
        }
    }
    sets
}

/// Of the set of a tenant's addresses, and of the chain for what they send.
fn tenant_name(number: u32) -> String {
    format!("tenant-{number}")
}

fn group_name(number: u32) -> String {
    format!("peers-{number}")
}

fn named_name(number: u32) -> String {
    format!("ports-{number}")
}

fn chain_name(direction: Direction, number: u32) -> String {
    match direction {
        Direction::Ingress => format!("ingress-{number}"),
        Direction::Egress => format!("egress-{number}"),
    }
}

/// What a policy allows comes back to where the chain was called; the chain's last rule refuses the rest.
fn allow_rule(direction: Direction, allow: &Allow) -> Vec<Part> {
    let peer = match direction {
        Direction::Ingress => parts::source(A),
        Direction::Egress => parts::destination(A),
    };
    let mut rule = Vec::new();
    match &allow.peers {
        Peers::Anybody => {}
        Peers::Group(number) => rule.extend([peer, Part::In { set: group_name(*number), from: A }]),
        Peers::Block { within, except } => {
            let blocks = [(within, parts::is as fn(&[u8]) -> Part)].into_iter();
            for (block, compare) in blocks.chain(except.iter().map(|block| (block, parts::is_not as fn(&[u8]) -> Part)))
            {
                let mask = Part::Mask(block.mask().to_be_bytes());
                rule.extend([peer.clone(), mask, compare(&block.network().octets())]);
            }
        }
    }
    match &allow.ports {
        Ports::Any => {}
        Ports::Range { protocol, ports } => {
            rule.extend(parts::protocol(protocol.number()));
            if let Some((first, last)) = ports {
                let bounds = [parts::at_least(&first.to_be_bytes()), parts::at_most(&last.to_be_bytes())];
                rule.push(parts::port(A));
                rule.extend(bounds);
            }
        }
        Ports::Named(number) => {
            let set = named_name(*number);
            rule.extend([parts::destination(A), parts::protocol_to(B), parts::port(C), Part::In { set, from: A }]);
        }
    }
    rule.push(Part::Then(Verdict::Return));
    rule
}

/// Rules that are there whatever pods there are.
fn standing_rules(ground: &Ground) -> Vec<(&'static str, Vec<Part>)> {
    let mut rules = prerouting(ground);
    rules.extend(to_host(ground));
    rules.extend(between_pods(ground));
    rules
}

fn rule(chain: &'static str, conditions: &[Vec<Part>], verdict: Verdict) -> (&'static str, Vec<Part>) {
    let mut parts = conditions.concat();
    parts.push(Part::Then(verdict));
    (chain, parts)
}

fn is_in(part: Part, set: &str) -> Vec<Part> {
    vec![part, Part::In { set: set.to_owned(), from: A }]
}

fn is_tenants(part: Part) -> Vec<Part> {
    is_in(part, TENANTS)
}

/// What pods send, before anything becomes of it.
fn prerouting(ground: &Ground) -> Vec<(&'static str, Vec<Part>)> {
    const CHAIN: &str = "prerouting";
    let dns = |server: &Ipv4Addr| {
        let protocols = [libc::IPPROTO_UDP, libc::IPPROTO_TCP];
        protocols.map(|protocol| rule(FROM_TENANT, &dns_at(*server, protocol as u8), Verdict::Return))
    };
    let (mask, link_local) = LINK_LOCAL;
    let mut rules = vec![
        rule(CHAIN, &[parts::input_group(NOT_EQUAL, ground.group)], Verdict::Return),
        rule(CHAIN, &[parts::is_not_ipv4()], Verdict::Drop),
        rule(CHAIN, &[parts::is_forged()], Verdict::Drop),
        rule(CHAIN, &[is_tenants(parts::source(A))], Verdict::Goto(FROM_TENANT.to_owned())),
        rule(FROM_TENANT, &[parts::is_reply()], Verdict::Return),
        rule(FROM_TENANT, &[parts::is_related()], Verdict::Return),
        rule(FROM_TENANT, &[parts::is_not_unicast()], Verdict::Goto(TO_HOST.to_owned())),
    ];
    rules.extend(ground.name_servers.iter().flat_map(dns));
    let to_link_local = vec![parts::destination(A), Part::Mask(mask), parts::is(&link_local)];
    rules.push(rule(FROM_TENANT, &[to_link_local], Verdict::Drop));
    rules
}

/// What tenants' pods send to this host.
fn to_host(ground: &Ground) -> Vec<(&'static str, Vec<Part>)> {
    let servers = ground.name_servers.iter().chain([&ground.gateway]);
    let mut rules: Vec<_> = servers
        .flat_map(|server| {
            let protocols = [libc::IPPROTO_UDP, libc::IPPROTO_TCP];
            protocols.map(|protocol| rule(TO_HOST, &dns_at(*server, protocol as u8), Verdict::Return))
        })
        .collect();
    if let Some(port) = ground.api_port {
        let to_api = at(ground.gateway, libc::IPPROTO_TCP as u8, port);
        rules.push(rule(TO_HOST, &to_api, Verdict::Return));
    }
    rules.push(rule(TO_HOST, &[], Verdict::Drop));
    rules
}

fn dns_at(server: Ipv4Addr, protocol: u8) -> [Vec<Part>; 3] {
    at(server, protocol, DNS_PORT)
}

fn at(address: Ipv4Addr, protocol: u8, port: u16) -> [Vec<Part>; 3] {
    [
        vec![parts::destination(A), parts::is(&address.octets())],
        parts::protocol(protocol),
        vec![parts::port(A), parts::is(&port.to_be_bytes())],
    ]
}

/// What is sent on to and from pods, and from pods to this host.
fn between_pods(ground: &Ground) -> Vec<(&'static str, Vec<Part>)> {
    let group = ground.group;
    let (from_pod, to_pod) = (parts::input_group(EQUAL, group), parts::output_group(EQUAL, group));
    let between = [from_pod.clone(), to_pod.clone()].concat();
    let to_policies = || Verdict::Goto(POLICIES.to_owned());
    let verdict_of = |part: Part, set: &str| vec![part, Part::VerdictOf { set: set.to_owned() }];
    let (egress, ingress) = (verdict_of(parts::source(A), EGRESS), verdict_of(parts::destination(A), INGRESS));
    vec![
        rule("forward", std::slice::from_ref(&from_pod), Verdict::Goto(PODS.to_owned())),
        rule("forward", std::slice::from_ref(&to_pod), Verdict::Goto(PODS.to_owned())),
        rule(PODS, &[parts::is_not_ipv4()], Verdict::Drop),
        (PODS, [from_pod.clone(), verdict_of(parts::source(A), OWNERS)].concat()),
        rule(PODS, &[between, is_tenants(parts::destination(A))], Verdict::Drop),
        rule(
            PODS,
            &[parts::input_group(NOT_EQUAL, group), is_tenants(parts::destination(A)), parts::is_new()],
            Verdict::Drop,
        ),
        rule(PODS, &[], to_policies()),
        rule(POLICIES, &[parts::is_reply()], Verdict::Accept),
        rule(POLICIES, &[parts::is_related()], Verdict::Accept),
        (POLICIES, [from_pod.clone(), egress.clone()].concat()),
        (POLICIES, [to_pod, ingress].concat()),
        rule("input", &[parts::input_group(NOT_EQUAL, group)], Verdict::Return),
        rule("input", &[parts::is_reply()], Verdict::Return),
        rule("input", &[parts::is_related()], Verdict::Return),
        ("input", egress),
    ]
}
