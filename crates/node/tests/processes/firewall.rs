//! Networks of pods: NetworkPolicies as Kubernetes says them, tenants apart, and nobody who is not what his packets say.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pumice_linux::links;
use pumice_linux::network_namespace as namespace;
use serde_json::{Value, json};

use crate::firewall_ground::{
    HOST, METADATA, Net, OUTSIDE, PORTS, accept, alone, claim, forge, give, has, has_rules, hears, make_namespace,
    make_outside, matrix, put_policy, remove_policy, remove_rules, start, start_as, until,
};
use crate::node::TestNode;

const NAMESPACES: [&str; 3] = ["x", "y", "z"];
const API_PORT: u16 = 6443;

/// Pods a, b and c in x, y and z, all of which listen.
async fn nine_pods(node: &TestNode) -> BTreeMap<String, Net> {
    let mut pods = BTreeMap::new();
    for namespace in NAMESPACES {
        make_namespace(node, namespace).await;
        for name in ["a", "b", "c"] {
            let pod = start(node, namespace, name).await;
            PORTS.iter().for_each(|port| pod.listen(*port));
            pods.insert(format!("{namespace}/{name}"), pod);
        }
    }
    pods
}

/// What reaches what where nothing is refused, but for what `is_refused` by source, destination and port.
fn all_but(pods: &BTreeMap<String, Net>, is_refused: impl Fn(&str, &str, u16) -> bool) -> Vec<String> {
    let pairs = pods.keys().flat_map(|from| pods.keys().map(move |to| (from, to))).filter(|(from, to)| from != to);
    let all = pairs.flat_map(|(from, to)| PORTS.map(|port| (from, to, port)));
    let reached = all.filter(|(from, to, port)| !is_refused(from, to, *port));
    reached.map(|(from, to, port)| format!("{from} {to} {port}")).collect()
}

type Refused = fn(&str, &str, u16) -> bool;

#[test]
fn policies_refuse_what_kubernetes_says() {
    alone(None, || async {
        let node = TestNode::start().await;
        let pods = nine_pods(&node).await;
        assert_eq!(matrix(&pods), all_but(&pods, |_, _, _| false), "without policies all reach all");
        let a_only = json!({"matchLabels": {"pod": "a"}});
        let cases: [(&str, &str, Value, Refused); 8] = [
            ("nothing comes to x", "x", json!({"podSelector": {}, "policyTypes": ["Ingress"]}), |_, to, _| {
                to.starts_with("x/")
            }),
            ("nothing leaves x", "x", json!({"podSelector": {}, "policyTypes": ["Egress"]}), |from, _, _| {
                from.starts_with("x/")
            }),
            (
                "a of x hears its namespace",
                "x",
                json!({"podSelector": a_only, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]}),
                |from, to, _| to == "x/a" && !from.starts_with("x/"),
            ),
            (
                "a of x hears b of y at a port with a name",
                "x",
                json!({"podSelector": a_only, "policyTypes": ["Ingress"], "ingress": [{
                    "from": [{"namespaceSelector": {"matchLabels": {"ns": "y"}}, "podSelector": {"matchLabels": {"pod": "b"}}}],
                    "ports": [{"port": "web", "protocol": "TCP"}]}]}),
                |from, to, port| to == "x/a" && !(from == "y/b" && port == 81),
            ),
            (
                "a of x hears all b or all of z",
                "x",
                json!({"podSelector": a_only, "policyTypes": ["Ingress"], "ingress": [{
                    "from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"pod": "b"}}},
                             {"namespaceSelector": {"matchExpressions": [{"key": "ns", "operator": "In", "values": ["z"]}]}}]}]}),
                |from, to, _| to == "x/a" && !from.ends_with("/b") && !from.starts_with("z/"),
            ),
            (
                "a of x speaks to a range of ports",
                "x",
                json!({"podSelector": a_only, "policyTypes": ["Egress"], "egress": [
                    {"ports": [{"port": 79, "endPort": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}]}),
                |from, _, port| from == "x/a" && port != 80,
            ),
            (
                "what is allowed by protocol alone",
                "x",
                json!({"podSelector": a_only, "policyTypes": ["Ingress", "Egress"], "ingress": [{"ports": [{"protocol": "UDP"}]}],
                    "egress": [{"ports": [{"protocol": "TCP"}]}]}),
                |_, to, _| to == "x/a",
            ),
            (
                "all is allowed by name",
                "x",
                json!({"podSelector": {}, "ingress": [{}], "egress": [{}],
                "policyTypes": ["Ingress", "Egress"]}),
                |_, _, _| false,
            ),
        ];
        for (what, namespace, spec, is_refused) in cases {
            put_policy(&node, namespace, "p", spec).await;
            let expected = all_but(&pods, is_refused);
            until(what, || matrix(&pods) == expected);
            remove_policy(&node, namespace, "p").await;
        }
        until("all reach all", || matrix(&pods) == all_but(&pods, |_, _, _| false));
        // Of several what one allows.
        put_policy(&node, "x", "none", json!({"podSelector": {}, "policyTypes": ["Ingress"]})).await;
        let from_a = json!([{"from": [{"podSelector": a_only, "namespaceSelector": {}}]}]);
        put_policy(&node, "x", "some", json!({"podSelector": a_only, "policyTypes": ["Ingress"], "ingress": from_a}))
            .await;
        let refused = |from: &str, to: &str, _| to.starts_with("x/") && !(to == "x/a" && from.ends_with("/a"));
        until("of several policies", || matrix(&pods) == all_but(&pods, refused));
        // The host reaches all of its pods.
        let host = namespace::current().unwrap();
        let reached = |pod: &Net| {
            namespace::enter(host.as_fd()).unwrap();
            std::net::TcpStream::connect((pod.address, 80)).is_ok()
        };
        assert!(pods.values().all(reached));
        remove_policy(&node, "x", "some").await;
        remove_policy(&node, "x", "none").await;
        let b = pods["y/b"].address;
        let block = json!([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": [format!("{b}/32")]}}]}]);
        put_policy(&node, "x", "p", json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": block})).await;
        until("a block with an exception", || {
            matrix(&pods) == all_but(&pods, |from, to, _| to.starts_with("x/") && from == "y/b")
        });
    });
}

/// Two tenants, and a namespace that is nobody's.
struct Tenants {
    node: TestNode,
    alice: Net,
    alices_other: Net,
    bob: Net,
    nobody: Net,
    sockets: BTreeMap<&'static str, UdpSocket>,
    outside: Net,
    host: [TcpListener; 2],
    gateway: Ipv4Addr,
}

impl Tenants {
    async fn make() -> Tenants {
        let outside = make_outside();
        let mut node = TestNode::without_agent().await;
        node.api_port = Some(API_PORT);
        node.start_agent().await;
        for name in NAMESPACES {
            make_namespace(&node, name).await;
        }
        let (alice, alices_other) = (start(&node, "x", "a").await, start(&node, "x", "b").await);
        let (bob, nobody) = (start(&node, "y", "a").await, start(&node, "z", "a").await);
        let all = [("alice", &alice), ("alice's other", &alices_other), ("bob", &bob), ("nobody", &nobody)];
        all.iter().for_each(|(_, pod)| pod.listen(80));
        let sockets = all.into_iter().map(|(name, pod)| (name, pod.udp(5000))).collect();
        let gateway = node.handle().gateway().unwrap();
        let listen = |address, port| TcpListener::bind((address, port)).unwrap();
        accept(listen(gateway, API_PORT));
        accept(listen(gateway, 53));
        let host = [listen(gateway, 0), listen(HOST, 0)];
        host.iter().for_each(|listener| accept(listener.try_clone().unwrap()));
        Tenants { node, alice, alices_other, bob, nobody, sockets, outside, host, gateway }
    }

    async fn give(&self) {
        give(&self.node, "x", "alice").await;
        give(&self.node, "y", "bob").await;
        until("alice and bob are apart", || !self.alice.reaches(self.bob.address, 80));
    }

    /// Ways from one tenant to where he must not, by name, with whether each leads there now.
    fn ways_out(&self) -> Vec<(&'static str, bool)> {
        let Tenants { alice, alices_other, bob, nobody, .. } = self;
        let [gateway, host] = &self.host;
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let bobs = &self.sockets["bob"];
        let to_bob = SocketAddrV4::new(bob.address, 5000);
        let forged = |source: Ipv4Addr, payload: &'static [u8]| {
            alice.within(|| forge(source, to_bob, payload).unwrap());
            hears(bobs, payload)
        };
        vec![
            ("TCP to another tenant", alice.reaches(bob.address, 80)),
            ("UDP to another tenant", alice.reaches_by_udp(bobs)),
            ("an echo to another tenant", alice.pings(bob.address)),
            ("TCP to nobody's pod", alice.reaches(nobody.address, 80)),
            ("UDP to nobody's pod", alice.reaches_by_udp(&self.sockets["nobody"])),
            ("TCP from nobody's pod", nobody.reaches(alice.address, 80)),
            ("UDP from nobody's pod", nobody.reaches_by_udp(&self.sockets["alice"])),
            ("TCP from the outside", self.outside.reaches(alice.address, 80)),
            ("a port of the host at the gateway", alice.reaches(self.gateway, port(gateway))),
            ("a port of the host at its other address", alice.reaches(HOST, port(host))),
            ("an echo to the host's other address", alice.pings(HOST)),
            ("metadata of the cloud", alice.reaches(METADATA, 80)),
            (
                "a packet that says it is another tenant's",
                forged(Ipv4Addr::from_bits(bob.address.to_bits() + 9), b"forged 1"),
            ),
            ("a packet that says it is another pod's of its own", forged(alices_other.address, b"forged 2")),
            ("a packet that says it is from the outside", forged(OUTSIDE, b"forged 3")),
        ]
    }
}

fn refused(ways: &[(&'static str, bool)]) -> Vec<&'static str> {
    ways.iter().filter(|(_, leads)| !leads).map(|(name, _)| *name).collect()
}

fn tenants_are_apart(bridge_calls: u8) {
    alone(Some(bridge_calls), || async {
        let mut tenants = Tenants::make().await;
        tenants.give().await;
        let ways = tenants.ways_out();
        assert_eq!(refused(&ways).len(), ways.len(), "{ways:?}");
        let Tenants { alice, alices_other, bob, nobody, .. } = &tenants;
        // What is theirs.
        assert!(alice.reaches(alices_other.address, 80) && alice.pings(alices_other.address));
        assert!(alice.reaches_by_udp(&tenants.sockets["alice's other"]) && alices_other.reaches(alice.address, 80));
        for pod in [alice, bob, nobody] {
            assert!(pod.reaches(tenants.gateway, API_PORT), "the API");
            assert!(pod.reaches(tenants.gateway, 53), "DNS");
            assert!(pod.reaches(OUTSIDE, 80), "the outside, as before");
        }
        assert!(nobody.reaches(METADATA, 80) && nobody.reaches(HOST, tenants.host[1].local_addr().unwrap().port()));
        // No policy of a tenant's own opens what is closed between tenants.
        let open = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}]});
        put_policy(&tenants.node, "x", "open", open.clone()).await;
        put_policy(&tenants.node, "y", "open", open).await;
        thread::sleep(Duration::from_millis(300));
        let ways = tenants.ways_out();
        assert_eq!(refused(&ways).len(), ways.len(), "{ways:?}");
        // With the controls off each way leads there.
        let bridge = tenants.node.bridge();
        tenants.node.stop_agent().await;
        assert!(has_rules(&bridge), "rules outlive the agent as pods do");
        remove_rules(&bridge);
        let ways = tenants.ways_out();
        assert_eq!(refused(&ways), Vec::<&str>::new());
    });
}

#[test]
fn tenants_are_apart_where_bridged_packets_meet_iptables() {
    tenants_are_apart(1);
}

#[test]
fn tenants_are_apart_where_bridged_packets_meet_nothing() {
    tenants_are_apart(0);
}

#[test]
fn what_a_pod_claims_by_arp_is_nothing_to_others() {
    alone(None, || async {
        let node = TestNode::start().await;
        let (victim, thief, third) = (
            start(&node, "default", "a").await,
            start(&node, "default", "b").await,
            start(&node, "default", "c").await,
        );
        victim.listen(80);
        let gateway = node.handle().gateway().unwrap();
        thief.listen(80);
        // What the thief hears at the victim's address.
        thief.within(|| {
            let mut netlink = links::open().unwrap();
            links::add_address(&mut netlink, links::LOOPBACK, victim.address, 32).unwrap();
        });
        let stolen = thief.within(|| UdpSocket::bind((victim.address, 5000)).unwrap());
        let hardware = links::hardware_address(thief.address);
        for address in [victim.address, gateway] {
            thief.within(|| claim(address, hardware).unwrap());
        }
        let own = victim.udp(5000);
        assert!(third.reaches(victim.address, 80) && third.reaches_by_udp(&own) && !hears(&stolen, b"hello"));
        let host = UdpSocket::bind((gateway, 0)).unwrap();
        host.send_to(b"from the host", (victim.address, 5000)).unwrap();
        assert!(hears(&own, b"from the host") && !hears(&stolen, b"from the host"));
        // Whatever it asks, its link has the host alone, which answers to nobody's names.
        assert!(thief.reaches(third.address, 80) || !third.reaches(thief.address, 81));
    });
}

#[test]
fn nothing_of_ipv6_leaves_a_pod() {
    alone(None, || async {
        let node = TestNode::start().await;
        let pod = start(&node, "default", "a").await;
        let text = pod.within(|| std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default());
        let links: Vec<&str> = text.lines().filter_map(|line| line.split_ascii_whitespace().last()).collect();
        assert!(links.iter().all(|link| *link == "lo"), "{text}");
    });
}

#[test]
fn rules_hold_while_the_agent_comes_and_goes() {
    alone(None, || async {
        let mut tenants = Tenants::make().await;
        tenants.give().await;
        let bridge = tenants.node.bridge();
        let over = AtomicBool::new(false);
        let Tenants { node, alice, bob, sockets, .. } = &mut tenants;
        let to = SocketAddrV4::new(bob.address, 5000);
        let (alice, bobs, over) = (&*alice, &sockets["bob"], &over);
        thread::scope(|scope| {
            let sending = scope.spawn(move || {
                alice.within(|| {
                    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                    let mut sent = 0_u32;
                    while !over.load(Ordering::Relaxed) {
                        sent += u32::from(socket.send_to(b"hello", to).is_ok());
                        thread::sleep(Duration::from_micros(200));
                    }
                    sent
                })
            });
            tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(async {
                    for _ in 0..3 {
                        node.kill_agent().await;
                        assert!(has_rules(&bridge));
                        node.start_agent().await;
                        // It has taken in all there is once a pod starts.
                        let name = format!("p{}", rand_name());
                        start(node, "default", &name).await;
                    }
                });
            });
            over.store(true, Ordering::Relaxed);
            assert!(sending.join().unwrap() > 100);
        });
        assert!(!hears(bobs, b"hello"), "a packet came through while the agent was away");
        // What somebody removed comes back.
        remove_rules(&bridge);
        until("the rules are there again", || {
            thread::sleep(Duration::from_millis(50));
            has_rules(&bridge)
        });
        assert!(!alice.reaches(bob.address, 80));
        tenants.node.stop_agent().await;
        pumice_node::tear_down(&tenants.node.data_dir.path().join("data"), Some(Duration::ZERO), |_, _| {}).unwrap();
        assert!(!has_rules(&bridge), "nothing is left");
    });
}

/// A name that no pod has had.
fn rand_name() -> u128 {
    pumice_clock::now().as_nanosecond().unsigned_abs()
}

#[test]
fn two_platforms_leave_each_others_rules_alone() {
    alone(None, || async {
        let (mut one, other) = (TestNode::start().await, TestNode::start().await);
        let mut pods = Vec::new();
        for node in [&one, &other] {
            make_namespace(node, "x").await;
            make_namespace(node, "y").await;
            pods.push((start(node, "x", "a").await, start(node, "y", "a").await));
            give(node, "x", "alice").await;
            give(node, "y", "bob").await;
        }
        for (alice, bob) in &pods {
            bob.listen(80);
            alice.listen(81);
            until("alice and bob are apart", || !alice.reaches(bob.address, 80));
        }
        // A tenant of one is a stranger to the other.
        assert!(!pods[0].0.reaches(pods[1].0.address, 81) && !pods[1].0.reaches(pods[0].0.address, 81));
        let bridges = [one.bridge(), other.bridge()];
        one.stop_agent().await;
        pumice_node::tear_down(&one.data_dir.path().join("data"), Some(Duration::ZERO), |_, _| {}).unwrap();
        assert!(!has_rules(&bridges[0]) && has_rules(&bridges[1]));
        assert!(!pods[1].0.reaches(pods[1].1.address, 80));
        let third = start(&other, "default", "third").await;
        third.listen(80);
        assert!(other.handle().gateway().is_some() && std::net::TcpStream::connect((third.address, 80)).is_ok());
    });
}

#[test]
fn a_pods_first_process_meets_its_rules() {
    const BASH: &str = "/bin/bash";
    if !has(BASH) {
        return;
    }
    alone(None, || async {
        let node = TestNode::start().await;
        let target = start(&node, "default", "target").await;
        let socket = target.udp(5000);
        let egress = json!({"podSelector": {"matchLabels": {"quiet": "yes"}}, "policyTypes": ["Egress"]});
        put_policy(&node, "default", "quiet", egress).await;
        let script = format!("exec {BASH} -c 'echo -n hello >/dev/udp/{}/5000; sleep 1000'", target.address);
        for number in 0..10 {
            start_as(&node, "default", &format!("quiet{number}"), json!({"quiet": "yes"}), &script).await;
        }
        assert!(!hears(&socket, b"hello"), "a pod's first process spoke before its rules");
        start_as(&node, "default", "loud", json!({}), &script).await;
        assert!(hears(&socket, b"hello"));
    });
}
