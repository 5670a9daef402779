//! A pod's network namespace: made by its shim, gone with its last process.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use nix::sched::{CloneFlags, unshare};

use super::spec::Network;
use pumice_linux::links;
use pumice_linux::netlink::NetlinkError;

/// The name of a pod's link.
const POD_LINK: &str = "eth0";

/// Whose programs may send echoes: a first and a last group.
const PING_GROUPS: &str = "/proc/sys/net/ipv4/ping_group_range";
const EVERYBODY: &str = "0 2147483647";

/// Why a pod has no network.
#[derive(Debug, thiserror::Error)]
pub enum PodNetworkError {
    /// The kernel gave no network namespace.
    #[error("can't make a network namespace")]
    Unshare(#[source] nix::Error),
    /// The new namespace can't be named to the kernel.
    #[error("can't open the new network namespace")]
    OpenNamespace(#[source] std::io::Error),
    /// The bridge is gone.
    #[error("the bridge {bridge} is not there; restart the node agent")]
    BridgeGone { bridge: String },
    /// The pod's link did not show up in its namespace.
    #[error("the pod's link is not in its namespace")]
    LinkGone,
    /// The kernel refused a step.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// Moves this process into a new network namespace with an address on the bridge.
pub(crate) fn enter(network: &Network) -> Result<(), PodNetworkError> {
    match network {
        Network::Host => Ok(()),
        Network::Bridge { bridge, veth, address, prefix, gateway } => {
            let mut outside = links::open()?;
            let master = links::index(&mut outside, bridge)?
                .ok_or_else(|| PodNetworkError::BridgeGone { bridge: bridge.clone() })?;
            unshare(CloneFlags::CLONE_NEWNET).map_err(PodNetworkError::Unshare)?;
            let own = File::open("/proc/self/ns/net").map_err(PodNetworkError::OpenNamespace)?;
            links::create_pair(&mut outside, veth, master, POD_LINK, links::hardware_address(*address), own.as_fd())?;
            configure(*address, *prefix, *gateway)?;
            // Echoes need no right to packets of any kind then; a kernel without it needs one.
            let _ = std::fs::write(PING_GROUPS, EVERYBODY);
            Ok(())
        }
    }
}

fn configure(address: Ipv4Addr, prefix: u8, gateway: Ipv4Addr) -> Result<(), PodNetworkError> {
    let mut inside = links::open()?;
    links::set_up(&mut inside, links::LOOPBACK)?;
    let link = links::index(&mut inside, POD_LINK)?.ok_or(PodNetworkError::LinkGone)?;
    links::add_address(&mut inside, link, address, prefix)?;
    links::set_up(&mut inside, link)?;
    links::add_default_route(&mut inside, link, gateway)?;
    Ok(())
}
