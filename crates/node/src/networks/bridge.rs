//! The bridge that pods of one data directory share.
//!
//! Invariant: its name and network follow from the data directory and stay the same for as long as
//! the directory lives, so that a restart finds it, and a teardown finds it without the platform.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use pumice_units::{stable_hash, with_causes};
use serde::{Deserialize, Serialize};

use crate::nat;
use crate::networks::addresses::{self, PREFIX, RANGE, Subnet};
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
        let gateway = network.subnet().gateway();
        let index = links::ensure_bridge(&mut netlink, &network.bridge, links::hardware_address(gateway))?;
        links::add_address(&mut netlink, index, gateway, network.prefix)?;
        Ok(network)
    }

    /// Removes the bridge and, with it, whatever still hangs on it.
    pub(crate) fn remove(node_dir: &Path, node_hash: u64) -> Result<(), NetlinkError> {
        let name = bridge_name(node_hash);
        // A kernel without it has nothing to remove.
        let _ = nat::remove(&name);
        let mut netlink = links::open()?;
        let Some(index) = links::index(&mut netlink, &name)? else { return Ok(()) };
        for port in links::ports(&mut netlink, index)? {
            links::delete(&mut netlink, &port)?;
        }
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
    use super::*;

    #[test]
    fn names_fit_the_kernels_limit_and_never_change() {
        assert_eq!(stable_hash("a".bytes()), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(bridge_name(u64::MAX), "pmffffffff");
        let name = pair_name(1, "0196a3c0-0000-7000-8000-000000000000");
        assert!(name.len() <= 15, "{name}");
        assert_ne!(name, pair_name(2, "0196a3c0-0000-7000-8000-000000000000"));
    }
}
