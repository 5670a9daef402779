//! What rules do to packets, beside what Kubernetes says that policies do, read anew from the objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use proptest::prelude::*;
use pumice_api::names::TENANT;
use serde_json::{Value, json};

use super::policy::{Policy, PortName};
use super::rule_set::{Allow, Block, Chain, Changes, Direction, Element, Peers, Ports, Protocol, RuleSet};
use super::send;
use super::transaction::{self, Ground};
use super::world::{Labels, PodFacts, World};

#[derive(Debug, Clone, Copy)]
struct Packet {
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    port: u16,
}

/// What the table does with the first packet between two addresses, as its chains say.
fn passes(rules: &RuleSet, packet: Packet) -> bool {
    let none = BTreeSet::new();
    let of = |address| rules.elements.get(&address).unwrap_or(&none);
    let tenant = |address| of(address).iter().find(|element| matches!(element, Element::Tenant(_)));
    let allowed = |address, direction| {
        let chain = of(address).iter().find_map(|element| match (element, direction) {
            (Element::Ingress(number), Direction::Ingress) | (Element::Egress(number), Direction::Egress) => {
                Some(number)
            }
            _ => None,
        });
        let Some(number) = chain else { return true };
        let Chain { direction: of_chain, allowed } = &rules.chains[number];
        assert_eq!(*of_chain, direction);
        allowed.iter().any(|allow| is_allowed(rules, allow, direction, packet))
    };
    tenant(packet.source) == tenant(packet.destination)
        && allowed(packet.source, Direction::Egress)
        && allowed(packet.destination, Direction::Ingress)
}

fn is_allowed(rules: &RuleSet, allow: &Allow, direction: Direction, packet: Packet) -> bool {
    let has = |address, wanted| rules.elements.get(&address).is_some_and(|elements| elements.contains(&wanted));
    let peer = if direction == Direction::Ingress { packet.source } else { packet.destination };
    let within = |block: &Block| peer.to_bits() & block.mask() == block.network().to_bits();
    let peers = match &allow.peers {
        Peers::Anybody => true,
        Peers::Group(number) => rules.groups.contains(number) && has(peer, Element::Group(*number)),
        Peers::Block { within: block, except } => within(block) && !except.iter().any(within),
    };
    let ports = match &allow.ports {
        Ports::Any => true,
        Ports::Range { protocol, ports } => {
            protocol.number() == packet.protocol
                && ports.is_none_or(|(first, last)| (first..=last).contains(&packet.port))
        }
        Ports::Named(set) => [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().any(|protocol| {
            let element = Element::Named { set: *set, protocol, port: packet.port };
            protocol.number() == packet.protocol && has(packet.destination, element)
        }),
    };
    peers && ports
}

/// Objects as the API has them.
#[derive(Debug, Clone, Default)]
struct Objects {
    namespaces: BTreeMap<String, Labels>,
    policies: BTreeMap<(String, String), Value>,
    pods: BTreeMap<String, PodFacts>,
}

/// What the documentation of NetworkPolicy says, and that of tenants, without anything of the firewall.
fn should_pass(objects: &Objects, packet: Packet) -> bool {
    let pod = |address| objects.pods.values().find(|pod| pod.address == address);
    let tenant = |address| pod(address).and_then(|pod| objects.namespaces.get(&pod.namespace)?.get(TENANT));
    if tenant(packet.source) != tenant(packet.destination) {
        return false;
    }
    [("Ingress", packet.destination, packet.source), ("Egress", packet.source, packet.destination)].into_iter().all(
        |(kind, subject, peer)| {
            let Some(subject) = pod(subject) else { return true };
            let about: Vec<(&String, &Value)> = objects
                .policies
                .iter()
                .filter(|((namespace, _), spec)| {
                    *namespace == subject.namespace
                        && spec["policyTypes"].as_array().unwrap().contains(&json!(kind))
                        && has_labels(&spec["podSelector"], &subject.labels)
                })
                .map(|((namespace, _), spec)| (namespace, spec))
                .collect();
            about.is_empty()
                || about.into_iter().any(|(namespace, spec)| {
                    let (field, peers) = if kind == "Ingress" { ("ingress", "from") } else { ("egress", "to") };
                    spec[field].as_array().into_iter().flatten().any(|rule| {
                        let mut listed = rule[peers].as_array().into_iter().flatten().peekable();
                        let by_peer = listed.peek().is_none()
                            || listed.any(|listed| is_peer(objects, listed, namespace, peer, pod(peer)));
                        let mut ports = rule["ports"].as_array().into_iter().flatten().peekable();
                        let by_port =
                            ports.peek().is_none() || ports.any(|port| is_port(port, packet, pod(packet.destination)));
                        by_peer && by_port
                    })
                })
        },
    )
}

fn has_labels(selector: &Value, labels: &Labels) -> bool {
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    wanted.into_iter().all(|(key, value)| labels.get(key).is_some_and(|label| label == value))
        && expressions.all(|expression| {
            let label = labels.get(expression["key"].as_str().unwrap());
            let listed = label
                .is_some_and(|label| expression["values"].as_array().is_some_and(|all| all.contains(&json!(label))));
            match expression["operator"].as_str().unwrap() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => label.is_some(),
                _ => label.is_none(),
            }
        })
}

fn is_peer(objects: &Objects, listed: &Value, own: &str, address: Ipv4Addr, pod: Option<&PodFacts>) -> bool {
    if listed["ipBlock"].is_object() {
        let within = |cidr: &Value| {
            let (base, length) = cidr.as_str().unwrap().split_once('/').unwrap();
            let (base, length): (Ipv4Addr, u32) = (base.parse().unwrap(), length.parse().unwrap());
            let shift = 32 - length;
            shift == 32 || base.to_bits() >> shift == address.to_bits() >> shift
        };
        let mut except = listed["ipBlock"]["except"].as_array().into_iter().flatten();
        return within(&listed["ipBlock"]["cidr"]) && !except.any(within);
    }
    let Some(pod) = pod else { return false };
    let namespace = match &listed["namespaceSelector"] {
        Value::Null => pod.namespace == own,
        selector => objects.namespaces.get(&pod.namespace).is_some_and(|labels| has_labels(selector, labels)),
    };
    namespace && (listed["podSelector"].is_null() || has_labels(&listed["podSelector"], &pod.labels))
}

fn is_port(port: &Value, packet: Packet, destination: Option<&PodFacts>) -> bool {
    let protocol = match port["protocol"].as_str().unwrap_or("TCP") {
        "TCP" => 6,
        "UDP" => 17,
        _ => 132,
    };
    let number = match &port["port"] {
        Value::Null => true,
        Value::String(name) => destination.is_some_and(|pod| {
            pod.ports
                .iter()
                .any(|(key, number)| key.name == *name && key.protocol.number() == protocol && *number == packet.port)
        }),
        number => {
            let first = number.as_u64().unwrap();
            (first..=port["endPort"].as_u64().unwrap_or(first)).contains(&u64::from(packet.port))
        }
    };
    protocol == packet.protocol && number
}

fn selector() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        (0..3_usize).prop_map(|value| json!({"matchLabels": {"pod": NAMES[value]}})),
        (0..3_usize).prop_map(
            |value| json!({"matchExpressions": [{"key": "pod", "operator": "In", "values": [NAMES[value], "c"]}]})
        ),
        (0..3_usize).prop_map(
            |value| json!({"matchExpressions": [{"key": "pod", "operator": "NotIn", "values": [NAMES[value]]}]})
        ),
        Just(json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]})),
        Just(json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]})),
    ]
}

fn namespace_selector() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        (0..3_usize).prop_map(|value| json!({"matchLabels": {"ns": NAMESPACES[value]}})),
        Just(json!({"matchExpressions": [{"key": "ns", "operator": "NotIn", "values": ["x"]}]})),
    ]
}

fn peer() -> impl Strategy<Value = Value> {
    prop_oneof![
        selector().prop_map(|pods| json!({"podSelector": pods})),
        namespace_selector().prop_map(|namespaces| json!({"namespaceSelector": namespaces})),
        (namespace_selector(), selector())
            .prop_map(|(namespaces, pods)| json!({"namespaceSelector": namespaces, "podSelector": pods})),
        (0_u8..=32, 0_u8..=33, 0_u8..12).prop_map(|(length, except, last)| {
            let mut block = json!({"ipBlock": {"cidr": format!("10.0.0.{last}/{length}")}});
            if except <= 32 {
                block["ipBlock"]["except"] = json!([format!("10.0.0.{last}/{except}")]);
            }
            block
        }),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = prop_oneof![Just(Some("TCP")), Just(Some("UDP")), Just(Some("SCTP")), Just(None)];
    let number = prop_oneof![
        Just(json!({})),
        (80_u16..84).prop_map(|port| json!({"port": port})),
        (80_u16..84, 0_u16..3).prop_map(|(port, more)| json!({"port": port, "endPort": port + more})),
        Just(json!({"port": "web"})),
        Just(json!({"port": "dns"})),
    ];
    (protocol, number).prop_map(|(protocol, mut port)| {
        if let Some(protocol) = protocol {
            port["protocol"] = json!(protocol);
        }
        port
    })
}

fn rules(peers: &'static str) -> impl Strategy<Value = Value> {
    let rule = (prop::collection::vec(peer(), 0..3), prop::collection::vec(port(), 0..3))
        .prop_map(move |(listed, ports)| json!({peers: listed, "ports": ports}));
    prop::collection::vec(rule, 0..3).prop_map(Value::Array)
}

fn policy_spec() -> impl Strategy<Value = Value> {
    let types = prop_oneof![Just(json!(["Ingress"])), Just(json!(["Egress"])), Just(json!(["Ingress", "Egress"]))];
    (selector(), types, rules("from"), rules("to")).prop_map(|(pods, types, ingress, egress)| {
        json!({"podSelector": pods, "policyTypes": types, "ingress": ingress, "egress": egress})
    })
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Namespace(usize, Option<Option<u8>>),
    Policy(usize, usize, Option<Value>),
    Pod(usize, Option<(usize, usize, bool, bool)>),
}

const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const NAMES: [&str; 3] = ["a", "b", "c"];

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..3_usize, prop::option::of(prop::option::of(0_u8..2))).prop_map(|(name, tenant)| Step::Namespace(name, tenant)),
        3 => (0..3_usize, 0..3_usize, prop::option::weighted(0.8, policy_spec())).prop_map(|(ns, name, spec)| Step::Policy(ns, name, spec)),
        4 => (0..9_usize, prop::option::weighted(0.9, (0..3_usize, 0..3_usize, any::<bool>(), any::<bool>()))).prop_map(|(n, pod)| Step::Pod(n, pod)),
    ]
}

fn namespace_labels(name: &str, tenant: Option<u8>) -> Labels {
    let mut labels = Labels::from([("ns".to_owned(), name.to_owned())]);
    labels.extend(tenant.map(|tenant| (TENANT.to_owned(), tenant.to_string())));
    labels
}

fn apply(step: Step, objects: &mut Objects, world: &mut World) {
    match step {
        Step::Namespace(index, tenant) => {
            let name = NAMESPACES[index].to_owned();
            let labels = tenant.map(|tenant| namespace_labels(&name, tenant));
            world.set_namespace(&name, labels.clone());
            match labels {
                Some(labels) => drop(objects.namespaces.insert(name, labels)),
                None => drop(objects.namespaces.remove(&name)),
            }
        }
        Step::Policy(namespace, name, spec) => {
            let key = (NAMESPACES[namespace].to_owned(), format!("p{name}"));
            let policy = spec.as_ref().map(|spec| read(&key.0, &key.1, spec));
            world.set_policy(&key.0, &key.1, policy);
            match spec {
                Some(spec) => drop(objects.policies.insert(key, spec)),
                None => drop(objects.policies.remove(&key)),
            }
        }
        Step::Pod(number, pod) => {
            let (uid, address) = (format!("u{number}"), Ipv4Addr::new(10, 0, 0, number as u8 + 1));
            let pod = pod.map(|(namespace, label, has_tier, has_ports)| {
                let mut labels = Labels::from([("pod".to_owned(), NAMES[label].to_owned())]);
                if has_tier {
                    labels.insert("tier".to_owned(), "front".to_owned());
                }
                let name = |name: &str, protocol| PortName { name: name.to_owned(), protocol };
                let ports = [(name("web", Protocol::Tcp), 81), (name("dns", Protocol::Udp), 82)];
                let ports = ports.into_iter().filter(|_| has_ports).collect();
                PodFacts { namespace: NAMESPACES[namespace].to_owned(), labels, address, ports }
            });
            world.set_pod(&uid, pod.clone());
            match pod {
                Some(pod) => drop(objects.pods.insert(uid, pod)),
                None => drop(objects.pods.remove(&uid)),
            }
        }
    }
}

fn read(namespace: &str, name: &str, spec: &Value) -> Policy {
    let object = json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec});
    Policy::of(&serde_json::from_value::<NetworkPolicy>(object).unwrap())
}

fn packets() -> impl Iterator<Item = Packet> {
    let addresses = || (1..=11_u8).map(|last| Ipv4Addr::new(10, 0, 0, last));
    let kinds = [(6, 80), (6, 81), (6, 83), (17, 82), (132, 80), (1, 0)];
    addresses().flat_map(move |source| {
        addresses()
            .filter(move |destination| *destination != source)
            .flat_map(move |destination| kinds.map(|(protocol, port)| Packet { source, destination, protocol, port }))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Whatever comes in whatever order, packets pass as the documents say, and the changes of each step lead to the same rules.
    #[test]
    fn packets_pass_as_policies_and_tenants_say(steps in prop::collection::vec(step(), 1..25)) {
        let (mut objects, mut world) = (Objects::default(), World::default());
        let mut in_force = RuleSet::default();
        for (name, index) in NAMESPACES.into_iter().zip(0..) {
            apply(Step::Namespace(index, Some(None)), &mut objects, &mut world);
            prop_assert!(world.knows_namespace(name));
        }
        for step in steps {
            apply(step, &mut objects, &mut world);
            Changes::between(&in_force, world.rules()).apply(&mut in_force);
            prop_assert_eq!(&in_force, world.rules());
        }
        for packet in packets() {
            prop_assert_eq!(passes(&in_force, packet), should_pass(&objects, packet), "{:?} {:#?}", packet, objects);
        }
        // Nothing is left of what nobody names.
        for number in 0..3 {
            for namespace in 0..3 {
                apply(Step::Policy(namespace, number, None), &mut objects, &mut world);
            }
        }
        let rules = world.rules();
        prop_assert!(rules.groups.is_empty() && rules.named.is_empty() && rules.chains.is_empty(), "{:?}", rules);
    }
}

#[test]
fn lists_replace_what_was_there() {
    let mut world = World::default();
    let namespace = |name: &str, tenant| (name.to_owned(), namespace_labels(name, tenant));
    world.replace_namespaces(HashMap::from([namespace("x", Some(1)), namespace("y", None)]));
    let spec = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
    world.replace_policies(vec![("p".to_owned(), read("y", "p", &spec))]);
    for (uid, namespace, last) in [("1", "x", 1), ("2", "y", 2)] {
        let address = Ipv4Addr::new(10, 0, 0, last);
        let pod = PodFacts { namespace: namespace.to_owned(), labels: Labels::new(), address, ports: Vec::new() };
        world.set_pod(uid, Some(pod));
        assert!(world.concerns(uid));
    }
    world.replace_policies(Vec::new());
    world.replace_namespaces(HashMap::from([namespace("y", None)]));
    assert!(!world.concerns("1") && !world.concerns("2") && !world.knows_namespace("x"));
    assert_eq!(*world.rules(), RuleSet::default());
}

/// Runs a test in a network of its own, as root.
fn alone(test: impl FnOnce() + Send + 'static) {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let alone = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        test();
    });
    alone.join().unwrap();
}

fn ground() -> Ground {
    let (gateway, server) = (Ipv4Addr::new(10, 0, 0, 100), Ipv4Addr::new(192, 0, 2, 53));
    Ground { table: "pm00000007".to_owned(), group: 7, gateway, api_port: Some(6443), name_servers: vec![server] }
}

/// Whether the machine's own program shows all rules, where it has one: it gives up over a table that it can't read.
fn people_can_read_it() -> bool {
    let shown = std::process::Command::new("nft").args(["list", "ruleset"]).output();
    shown.map_or(true, |shown| shown.status.success() && shown.stdout.windows(10).any(|text| text == b"pm00000007"))
}

/// Whatever comes in whatever order, the kernel takes each change as it is written.
#[test]
fn the_kernel_takes_every_change() {
    alone(|| {
        let config = ProptestConfig { cases: 24, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let steps = prop::collection::vec(step(), 1..25);
        let tried = runner.run(&steps, |steps| {
            let (mut objects, mut world) = (Objects::default(), World::default());
            let mut in_force = RuleSet::default();
            send(transaction::replace(&ground(), &in_force)).unwrap();
            for step in steps {
                apply(step, &mut objects, &mut world);
                let changes = Changes::between(&in_force, world.rules());
                if !changes.is_empty() {
                    let sent = send(transaction::change(&ground(), &changes));
                    prop_assert!(sent.is_ok(), "{:?} {:#?}", sent, changes);
                    changes.apply(&mut in_force);
                }
            }
            send(transaction::replace(&ground(), &in_force)).unwrap();
            prop_assert!(people_can_read_it(), "{:#?}", in_force);
            Ok(())
        });
        tried.unwrap();
        super::remove(&ground().table).unwrap();
        super::remove(&ground().table).unwrap();
    });
}

/// 1,000 pods in 10 namespaces and 100 policies that name each other's pods.
fn many() -> World {
    let mut world = World::default();
    for number in 0..100 {
        let namespace = format!("n{}", number % 10);
        let labels = json!({"matchLabels": {"app": format!("a{}", number % 20)}});
        let spec = json!({"podSelector": labels, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": labels}, {"namespaceSelector": {}, "podSelector": labels}], "ports": [{"port": 80 + number}]}],
            "egress": [{"to": [{"podSelector": labels}]}, {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]});
        world.set_policy(&namespace, &format!("p{number}"), Some(read(&namespace, &format!("p{number}"), &spec)));
    }
    for number in 0..1000 {
        world.set_pod(&number.to_string(), Some(one_of_many(number)));
    }
    world
}

fn one_of_many(number: u32) -> PodFacts {
    PodFacts {
        namespace: format!("n{}", number % 10),
        labels: Labels::from([("app".to_owned(), format!("a{}", number % 20))]),
        address: Ipv4Addr::from_bits(0x0a00_0000 + number),
        ports: Vec::new(),
    }
}

#[test]
fn a_pod_among_many_is_a_few_elements() {
    let mut world = many();
    let before = world.rules().clone();
    world.set_pod("new", Some(one_of_many(1000)));
    let changes = Changes::between(&before, world.rules());
    let added: usize = changes.added.elements.values().map(BTreeSet::len).sum();
    assert!(changes.added.chains.is_empty() && changes.removed == RuleSet::default(), "{changes:?}");
    assert!((3..=8).contains(&added), "{added} elements");
}

/// Far above what it takes: some hundred milliseconds for all and one or two for a pod, without optimization.
#[test]
fn many_are_in_force_at_once() {
    const BOUND: Duration = Duration::from_secs(10);
    alone(|| {
        let begun = pumice_clock::monotonic();
        let mut world = many();
        let compiled = begun.elapsed();
        send(transaction::replace(&ground(), world.rules())).unwrap();
        let written = begun.elapsed() - compiled;
        let before = world.rules().clone();
        let begun = pumice_clock::monotonic();
        world.set_pod("new", Some(one_of_many(1000)));
        send(transaction::change(&ground(), &Changes::between(&before, world.rules()))).unwrap();
        let one = begun.elapsed();
        eprintln!("compiled in {compiled:?}, written in {written:?}, one more in {one:?}");
        assert!(compiled < BOUND && written < BOUND && one < BOUND / 10);
    });
}
