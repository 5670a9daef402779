//! The network of the pods of one data directory: a bridge that has the gateway's address and, of pods of this release, no ports. Each
//! pod has links of its own and is routed to, so that all that pods send meets the [firewall](crate::firewall).
//!
//! Pods that an earlier release started are on the bridge until they end; what they and others send each other is routed where one of
//! both is not on it.
//!
//! Invariant: its name and network follow from the data directory and stay the same for as long as
//! the directory lives, so that a restart finds it, and a teardown finds it without the platform.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use pumice_units::{stable_hash, with_causes};
use serde::{Deserialize, Serialize};

use crate::capabilities;
use crate::firewall::{self, Firewall, Ground};
use crate::nat;
use crate::networks::addresses::{self, PREFIX, RANGE, Subnet};
use crate::networks::resolver;
use pumice_linux::files::{Durability, read_bounded, write_atomic};
use pumice_linux::links;
use pumice_linux::netlink::NetlinkError;

const RECORD_FILE: &str = "network.json";

/// Why there is no bridge.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// No part of the range of nodes' networks is free of routes.
    #[error("every network in {}/{} overlaps a route of this host", RANGE.base, RANGE.prefix)]
    NoFreeNetwork,
    /// What was chosen can't be written down.
    #[error("can't record the network of this node")]
    Record(#[source] std::io::Error),
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// What the links of pods have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodLinks {
    /// The group that they, and the bridge, are in.
    pub group: u32,
    pub gateway: Ipv4Addr,
}

/// What holds pods to their rules on a node.
pub(crate) struct NodeFirewall {
    pub firewall: Firewall,
    pub enforces: bool,
    /// A sentence for each thing that people should know of it.
    pub notes: Vec<String>,
}

impl NodeFirewall {
    /// For pods that share the machine's network.
    pub(crate) fn absent() -> Self {
        NodeFirewall { firewall: Firewall::absent(), enforces: false, notes: Vec::new() }
    }
}

/// The network of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeNetwork {
    pub bridge: String,
    base: Ipv4Addr,
    prefix: u8,
    /// Whether this host passed no packets on before we asked it to.
    #[serde(default)]
    forwarding_was_off: bool,
    /// Why pods can't reach the outside, if so.
    #[serde(skip)]
    pub inside_only: Option<String>,
}

impl NodeNetwork {
    /// The addresses of the bridge and its pods.
    pub(crate) fn subnet(&self) -> Subnet {
        Subnet { base: self.base, prefix: self.prefix }
    }

    /// What the links of its pods have in common.
    pub(crate) fn links(&self) -> PodLinks {
        PodLinks { group: group_of(&self.bridge), gateway: self.subnet().gateway() }
    }

    /// Rules for its pods, where the API answers at this port of the gateway.
    pub(crate) fn firewall(&self, api_port: Option<u16>) -> NodeFirewall {
        let PodLinks { group, gateway } = self.links();
        let name_servers = resolver::name_servers(&resolver::text());
        let ground = Ground { table: self.bridge.clone(), group, gateway, api_port, name_servers };
        let probe = capabilities::try_firewall(&ground).map_err(|error| error.to_string());
        let reason = probe.as_ref().err().map(|reason| {
            format!(
                "no rules for pods' networks ({reason}): pods that NetworkPolicies select, and those of tenants, do not start"
            )
        });
        let enforces = probe.is_ok();
        let notes = reason.into_iter().chain(firewall::note_of_others()).collect();
        NodeFirewall { firewall: Firewall::new(ground, probe), enforces, notes }
    }

    /// Finds or makes the bridge of a node.
    pub(crate) fn ensure(node_dir: &Path, node_hash: u64) -> Result<NodeNetwork, BridgeError> {
        let name = bridge_name(node_hash);
        let mut netlink = links::open()?;
        let there = links::index(&mut netlink, &name)?.is_some();
        let recorded = read_record(node_dir).filter(|network| network.bridge == name);
        let mut network = match recorded {
            Some(network) if there || is_free(network.subnet()) => network,
            _ => {
                let chosen = addresses::choose(node_hash, &routes()).ok_or(BridgeError::NoFreeNetwork)?;
                let (base, prefix) = (chosen.base, PREFIX);
                NodeNetwork { bridge: name, base, prefix, forwarding_was_off: false, inside_only: None }
            }
        };
        match nat::ensure(&network.bridge, network.base, network.prefix).map_err(|error| with_causes(&error)) {
            Ok(()) => match nat::allow_forwarding() {
                Ok(changed) => network.forwarding_was_off |= changed,
                Err(error) => network.inside_only = Some(error.to_string()),
            },
            Err(text) => network.inside_only = Some(text),
        }
        let bytes = serde_json::to_vec(&network).map_err(|error| BridgeError::Record(error.into()))?;
        write_atomic(&node_dir.join(RECORD_FILE), &bytes, Durability::Power).map_err(BridgeError::Record)?;
        let PodLinks { group, gateway } = network.links();
        let index = links::ensure_bridge(&mut netlink, &network.bridge, group, links::hardware_address(gateway))?;
        links::add_address(&mut netlink, index, gateway, network.prefix)?;
        if !links::ports(&mut netlink, index)?.is_empty()
            && let Err(error) = answer_for_others(&network.bridge)
        {
            tracing::warn!(%error, "pods that an earlier release started do not reach pods that start now");
        }
        Ok(network)
    }

    /// Removes the bridge and, with it, whatever still hangs on it.
    pub(crate) fn remove(node_dir: &Path, node_hash: u64) -> Result<(), NetlinkError> {
        let name = bridge_name(node_hash);
        // A kernel without them has nothing to remove.
        let _ = nat::remove(&name);
        let _ = firewall::remove(&name);
        let mut netlink = links::open()?;
        let Some(index) = links::index(&mut netlink, &name)? else { return Ok(()) };
        // What an earlier release made is in no group.
        for port in links::ports(&mut netlink, index)? {
            links::delete(&mut netlink, &port)?;
        }
        // The bridge is in it, too.
        links::delete_group(&mut netlink, group_of(&name))?;
        links::delete(&mut netlink, &name)?;
        let was_off = read_record(node_dir).is_some_and(|network| network.forwarding_was_off);
        if was_off && !other_bridges() {
            let _ = nat::forbid_forwarding();
        }
        Ok(())
    }
}

/// Whether another node of this host still has its bridge.
fn other_bridges() -> bool {
    let links = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names = links.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| {
        name.strip_prefix("pm").is_some_and(|hash| hash.len() == 8 && u32::from_str_radix(hash, 16).is_ok())
    })
}

fn read_record(node_dir: &Path) -> Option<NodeNetwork> {
    serde_json::from_slice(&read_bounded(&node_dir.join(RECORD_FILE), 4096).ok()?).ok()
}

fn routes() -> Vec<Subnet> {
    addresses::parse_routes(&fs::read_to_string("/proc/net/route").unwrap_or_default())
}

fn is_free(subnet: Subnet) -> bool {
    let seed = u64::from(subnet.base.to_bits() >> (32 - PREFIX));
    addresses::choose(seed, &routes()) == Some(subnet)
}

/// Has this host answer pods on the bridge, who take all others for their neighbors, for those that are not on it.
fn answer_for_others(bridge: &str) -> std::io::Result<()> {
    let setting = |folder: &str, name: &str| format!("/proc/sys/net/ipv4/{folder}/{bridge}/{name}");
    fs::write(setting("neigh", "proxy_delay"), "0")?;
    fs::write(setting("conf", "proxy_arp"), "1")
}

/// A number that follows from the bridge's name, which says it. 0 is that of all other links.
fn group_of(bridge: &str) -> u32 {
    let number = bridge.strip_prefix("pm").and_then(|hash| u32::from_str_radix(hash, 16).ok());
    number.unwrap_or_default().max(1)
}

/// At most 15 bytes, as the kernel wants.
fn bridge_name(node_hash: u64) -> String {
    format!("pm{:08x}", node_hash >> 32)
}

/// The host's end of a pod's pair of links.
pub(crate) fn pair_name(node_hash: u64, uid: &str) -> String {
    format!("pv{:012x}", stable_hash(format!("{node_hash}/{uid}").bytes()) >> 16)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::time::Duration;

    use nix::sched::{CloneFlags, unshare};
    use pumice_linux::links::HostEnd;
    use pumice_linux::netlink::Message;
    use pumice_linux::network_namespace as namespace;

    use super::*;

    /// A pod as an earlier release made it: a port of the bridge, to which all others are neighbors. It is in the namespace that this
    /// returns.
    fn earlier_pod(network: &NodeNetwork, address: Ipv4Addr) -> File {
        const IFLA_MASTER: u16 = 10;
        const RTA_GATEWAY: u16 = 5;
        let mut outside = links::open().unwrap();
        let host = namespace::current().unwrap();
        let gateway = network.links().gateway;
        let end = HostEnd { name: "earlier", group: 0, hardware: [2, 0, 0, 0, 0, 7] };
        let (pod, port) = namespace::enter_new(&mut outside, end).unwrap();
        let mut inside = links::open().unwrap();
        let link = links::index(&mut inside, "eth0").unwrap().unwrap();
        links::set_up(&mut inside, link).unwrap();
        links::add_address(&mut inside, link, address, network.prefix).unwrap();
        let route = [libc::AF_INET as u8, 0, 0, 0, libc::RT_TABLE_MAIN, 3, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
        let route =
            Message::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE, &route).attribute(RTA_GATEWAY, &gateway.octets());
        inside.request("add a default route", route).unwrap();
        namespace::enter(host.as_fd()).unwrap();
        let bridge = links::index(&mut outside, &network.bridge).unwrap().unwrap();
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&port.to_ne_bytes());
        // It asks and hears ARP.
        body[12..16].copy_from_slice(&libc::IFF_NOARP.to_ne_bytes());
        let enslave = Message::new(libc::RTM_NEWLINK, 0, &body).attribute(IFLA_MASTER, &bridge.to_ne_bytes());
        outside.request("put a link on a bridge", enslave).unwrap();
        pod
    }

    fn within<T>(pod: &File, work: impl FnOnce() -> T) -> T {
        let host = namespace::current().unwrap();
        namespace::enter(pod.as_fd()).unwrap();
        let done = work();
        namespace::enter(host.as_fd()).unwrap();
        done
    }

    #[test]
    fn pods_of_an_earlier_release_and_of_this_one_reach_each_other() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let alone = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let mut netlink = links::open().unwrap();
            links::set_up(&mut netlink, links::LOOPBACK).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let hash = 7 << 32;
            let network = NodeNetwork::ensure(dir.path(), hash).unwrap();
            let address = |last| Ipv4Addr::from_bits(network.base.to_bits() + last);
            let earlier = earlier_pod(&network, address(2));
            // An agent of this release begins.
            let again = NodeNetwork::ensure(dir.path(), hash).unwrap();
            assert_eq!(again.subnet(), network.subnet());
            let PodLinks { group, gateway } = network.links();
            let end = HostEnd { name: "now", group, hardware: links::hardware_address(gateway) };
            let host = namespace::current().unwrap();
            let (now, link) = namespace::enter_new(&mut netlink, end).unwrap();
            links::lead_to_pod(&mut netlink, link, address(3), gateway).unwrap();
            namespace::configure(address(3), gateway).unwrap();
            namespace::enter(host.as_fd()).unwrap();
            firewall_rules(&network).unwrap();
            let listen = |pod: &File, at| within(pod, || TcpListener::bind((at, 80)).unwrap());
            let _listeners = (listen(&earlier, address(2)), listen(&now, address(3)));
            let reaches = |to| TcpStream::connect_timeout(&SocketAddr::from((to, 80)), Duration::from_secs(10)).is_ok();
            assert!(reaches(address(2)) && reaches(address(3)), "from the host");
            assert!(within(&earlier, || reaches(address(3))), "from an earlier pod");
            assert!(within(&now, || reaches(address(2))), "to an earlier pod");
            NodeNetwork::remove(dir.path(), hash).unwrap();
            assert!(links::members(&mut netlink, group).unwrap().is_empty());
            assert_eq!(links::index(&mut netlink, "earlier").unwrap(), None);
        });
        alone.join().unwrap();
    }

    fn firewall_rules(network: &NodeNetwork) -> Result<(), NetlinkError> {
        let PodLinks { group, gateway } = network.links();
        let table = network.bridge.clone();
        firewall::try_rules(&Ground { table, group, gateway, api_port: None, name_servers: Vec::new() })
    }

    #[test]
    fn names_fit_the_kernels_limit_and_never_change() {
        assert_eq!(stable_hash("a".bytes()), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(bridge_name(u64::MAX), "pmffffffff");
        assert_eq!([u64::MAX, 7 << 32, 0].map(|hash| group_of(&bridge_name(hash))), [u32::MAX, 7, 1]);
        let name = pair_name(1, "0196a3c0-0000-7000-8000-000000000000");
        assert!(name.len() <= 15, "{name}");
        assert_ne!(name, pair_name(2, "0196a3c0-0000-7000-8000-000000000000"));
    }
}
