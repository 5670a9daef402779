//! What tests of the firewall stand on: a node in a network of its own, pods in several namespaces, an outside, and attempts to reach.
//!
//! Attempts are made by threads of the test in a pod's network, with all rights there: as a pod could at most.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use nix::sched::{CloneFlags, unshare};
use pumice_linux::links::{self, HostEnd};
use pumice_linux::netlink::{Message, Netlink};
use pumice_linux::network_namespace as namespace;
use serde_json::{Value, json};

use crate::harness::is_root;
use crate::node::{NODE, TestNode, sh};

/// How long what is refused is tried.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a rule may take to be as wanted.
const DEADLINE: Duration = Duration::from_secs(30);
pub const PORTS: [u16; 2] = [80, 81];
/// Somebody beyond this machine, and its address for metadata.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// This machine's other address.
pub const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const BRIDGE_CALLS: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// Runs a test in a network of its own, with bridged packets shown to iptables or not, where this kernel can.
pub fn alone<F: Future<Output = ()>>(bridge_calls: Option<u8>, test: impl FnOnce() -> F + Send + 'static) {
    if !is_root() {
        return;
    }
    let thread = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        links::set_up(&mut links::open().unwrap(), links::LOOPBACK).unwrap();
        if let Some(value) = bridge_calls {
            match std::fs::write(BRIDGE_CALLS, value.to_string()) {
                Ok(()) => assert_eq!(std::fs::read_to_string(BRIDGE_CALLS).unwrap().trim(), value.to_string()),
                Err(error) => eprintln!("vacuous: {BRIDGE_CALLS}: {error}"),
            }
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        runtime.block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A pod that runs, by its network.
#[derive(Debug)]
pub struct Net {
    pub address: Ipv4Addr,
    namespace: File,
}

impl Net {
    /// Runs something in it.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                namespace::enter(self.namespace.as_fd()).unwrap();
                work()
            });
            inside.join().unwrap()
        })
    }

    pub fn reaches(&self, address: Ipv4Addr, port: u16) -> bool {
        self.within(|| TcpStream::connect_timeout(&SocketAddr::from((address, port)), PATIENCE).is_ok())
    }

    /// Whether what it sends by UDP comes to a socket.
    pub fn reaches_by_udp(&self, to: &UdpSocket) -> bool {
        let address = to.local_addr().unwrap();
        self.within(|| UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"hello", address).is_ok()) && hears(to, b"hello")
    }

    /// Whether an echo comes back.
    pub fn pings(&self, address: Ipv4Addr) -> bool {
        self.within(|| ping(address).is_ok())
    }

    /// Listens for good.
    pub fn listen(&self, port: u16) {
        let listener = self.within(|| TcpListener::bind((self.address, port)).unwrap());
        accept(listener);
    }

    pub fn udp(&self, port: u16) -> UdpSocket {
        self.within(|| UdpSocket::bind((self.address, port)).unwrap())
    }
}

/// Accepts for good.
pub fn accept(listener: TcpListener) {
    thread::spawn(move || listener.incoming().for_each(drop));
}

/// Whether these bytes come to a socket soon.
pub fn hears(socket: &UdpSocket, expected: &[u8]) -> bool {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; 64];
    socket.recv(&mut bytes).is_ok_and(|length| &bytes[..length] == expected)
}

fn ping(address: Ipv4Addr) -> io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
    let made = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::empty(), SockProtocol::Icmp)?;
    let socket = UdpSocket::from(made);
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send_to(&[8, 0, 0xf7, 0xff, 0, 0, 0, 0], (address, 0))?;
    let mut bytes = [0; 64];
    socket.recv(&mut bytes).map(drop)
}

/// Makes a namespace.
pub async fn make_namespace(node: &TestNode, name: &str) {
    let object = json!({"metadata": {"name": name, "labels": {"ns": name}}});
    let object: Namespace = serde_json::from_value(object).unwrap();
    Api::all(node.admin.clone()).create(&PostParams::default(), &object).await.unwrap();
}

/// Says whose a namespace is.
pub async fn give(node: &TestNode, name: &str, tenant: &str) {
    let patch = json!({"metadata": {"labels": {pumice_api::names::TENANT: tenant}}});
    let namespaces: Api<Namespace> = Api::all(node.admin.clone());
    namespaces.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Starts a pod that does nothing, and waits until it runs.
pub async fn start(node: &TestNode, namespace: &str, name: &str) -> Net {
    start_as(node, namespace, name, json!({}), "exec sleep 1000").await
}

pub async fn start_as(node: &TestNode, namespace: &str, name: &str, labels: Value, script: &str) -> Net {
    let mut object = json!({"metadata": {"name": name, "labels": {"pod": name}}, "spec": {
        "nodeName": NODE, "restartPolicy": "Never", "containers": [sh(script)]}});
    for (key, value) in labels.as_object().unwrap() {
        object["metadata"]["labels"][key] = value.clone();
    }
    object["spec"]["containers"][0]["ports"] = json!([{"name": "web", "containerPort": PORTS[1]}]);
    let pods: Api<Pod> = Api::namespaced(node.admin.clone(), namespace);
    let pod: Pod = serde_json::from_value(object).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let waiting = async {
        loop {
            let pod = pods.get(name).await.unwrap();
            let status = pod.status.clone().unwrap_or_default();
            if status.phase.as_deref() == Some("Running") {
                let shim = node.shim_pid(&pod);
                let namespace = File::open(format!("/proc/{shim}/ns/net")).unwrap();
                return Net { address: status.pod_ip.unwrap().parse().unwrap(), namespace };
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("{namespace}/{name} never ran"))
}

pub async fn put_policy(node: &TestNode, namespace: &str, name: &str, spec: Value) {
    let object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec});
    let object: NetworkPolicy = serde_json::from_value(object).unwrap();
    let policies: Api<NetworkPolicy> = Api::namespaced(node.admin.clone(), namespace);
    policies.create(&PostParams::default(), &object).await.unwrap();
}

pub async fn remove_policy(node: &TestNode, namespace: &str, name: &str) {
    let policies: Api<NetworkPolicy> = Api::namespaced(node.admin.clone(), namespace);
    policies.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Waits until something is as wanted.
pub fn until(what: &str, mut check: impl FnMut() -> bool) {
    let begun = pumice_clock::monotonic();
    while !check() {
        assert!(begun.elapsed() < DEADLINE, "waited in vain until {what}");
    }
}

/// All pairs of pods and ports by name, such as `x/a y/b 80`, that reach each other.
pub fn matrix(pods: &BTreeMap<String, Net>) -> Vec<String> {
    let from_one = |(name, pod): (&String, &Net)| {
        let targets = pods.iter().filter(|(other, _)| *other != name);
        let all = targets.flat_map(|(other, target)| PORTS.map(|port| (other.clone(), target.address, port)));
        let reached = all.filter(|(_, address, port)| pod.reaches(*address, *port));
        reached.map(|(other, _, port)| format!("{name} {other} {port}")).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let all: Vec<_> = pods.iter().map(|pod| scope.spawn(move || from_one(pod))).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

/// Makes a machine beyond this one, with an address for metadata. It answers at port 80 of both.
pub fn make_outside() -> Net {
    let mut netlink = links::open().unwrap();
    let here = namespace::current().unwrap();
    let (namespace, link) = thread::scope(|scope| {
        let making = scope.spawn(|| {
            let mut outside = links::open().unwrap();
            let end = HostEnd { name: "out0", group: 0, hardware: links::hardware_address(HOST) };
            let made = namespace::enter_new(&mut outside, end).unwrap();
            namespace::configure(OUTSIDE, HOST).unwrap();
            let mut inside = links::open().unwrap();
            links::add_address(&mut inside, links::LOOPBACK, METADATA, 32).unwrap();
            namespace::enter(here.as_fd()).unwrap();
            made
        });
        making.join().unwrap()
    });
    links::add_address(&mut netlink, link, HOST, 32).unwrap();
    links::lead_to_pod(&mut netlink, link, OUTSIDE, HOST).unwrap();
    route_to_metadata(&mut netlink);
    let outside = Net { address: OUTSIDE, namespace };
    for address in [OUTSIDE, METADATA] {
        accept(outside.within(|| TcpListener::bind((address, 80)).unwrap()));
    }
    outside
}

fn route_to_metadata(netlink: &mut Netlink) {
    const RTA_DST: u16 = 1;
    const RTA_GATEWAY: u16 = 5;
    let body =
        [libc::AF_INET as u8, 32, 0, 0, libc::RT_TABLE_MAIN, 3, libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST, 0, 0, 0, 0];
    let message = Message::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE, &body)
        .attribute(RTA_DST, &METADATA.octets())
        .attribute(RTA_GATEWAY, &OUTSIDE.octets());
    netlink.request("lead to the metadata", message).unwrap();
}

/// Takes a node's rules away, as the controls are off then.
pub fn remove_rules(bridge: &str) {
    const SUBSYSTEM: u16 = 10;
    const DELETE_TABLE: u16 = (SUBSYSTEM << 8) | 2;
    let edge = |kind| Message::new(kind, 0, &[0, 0, 0, SUBSYSTEM as u8]);
    let delete = Message::new(DELETE_TABLE, libc::NLM_F_ACK, &[1, 0, 0, 0]).text(1, bridge);
    let mut netlink = Netlink::open(libc::NETLINK_NETFILTER).unwrap();
    netlink.batch("remove the rules", vec![edge(0x10), delete, edge(0x11)]).unwrap();
}

/// Whether a node's rules are there.
pub fn has_rules(bridge: &str) -> bool {
    const GET_TABLE: u16 = (10 << 8) | 1;
    let mut netlink = Netlink::open(libc::NETLINK_NETFILTER).unwrap();
    netlink.request("look for the rules", Message::new(GET_TABLE, 0, &[1, 0, 0, 0]).text(1, bridge)).is_ok()
}

/// Sends a packet of UDP that says it is from `source`.
pub fn forge(source: Ipv4Addr, to: SocketAddrV4, payload: &[u8]) -> io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
    let raw = socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), SockProtocol::Raw)?;
    let length = (28 + payload.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    // The kernel fills in the identification and the checksum.
    packet.extend([0, 0, 0, 0, 64, libc::IPPROTO_UDP as u8, 0, 0]);
    packet.extend(source.octets());
    packet.extend(to.ip().octets());
    packet.extend(4000_u16.to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(((8 + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    UdpSocket::from(raw).send_to(&packet, to).map(drop)
}

/// Says by ARP to everybody on its link that it is at `address`.
pub fn claim(address: Ipv4Addr, hardware: [u8; 6]) -> io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    const ARP: u16 = 0x0806;
    let raw = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None)?;
    let index = links::index(&mut links::open().unwrap(), "eth0").unwrap().unwrap();
    let mut frame = [0xff; 6].to_vec();
    frame.extend(hardware);
    frame.extend(ARP.to_be_bytes());
    for operation in [1_u8, 2] {
        let mut frame = frame.clone();
        frame.extend([0, 1, 8, 0, 6, 4, 0, operation]);
        frame.extend(hardware);
        frame.extend(address.octets());
        frame.extend([0xff; 6]);
        frame.extend(address.octets());
        send_frame(std::os::fd::AsRawFd::as_raw_fd(&raw), index, &frame)?;
    }
    Ok(())
}

#[allow(unsafe_code)]
fn send_frame(raw: i32, index: u32, frame: &[u8]) -> io::Result<()> {
    // SAFETY: all zeroes is an address of this kind.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_ifindex = index as i32;
    to.sll_halen = 6;
    // SAFETY: both buffers live until the call returns, and their lengths are theirs.
    let sent = unsafe {
        libc::sendto(
            raw,
            frame.as_ptr().cast(),
            frame.len(),
            0,
            std::ptr::from_ref(&to).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether there is a file here; a test that stands on a program of the machine says so where there is none.
pub fn has(program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        eprintln!("not run: needs {program}");
    }
    there
}
