//! A pod's network namespace: made ahead by the agent or now by its shim, gone with its last process.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::unistd::dup2_stdin;

use super::program;
use super::spec::Network;
use pumice_linux::links::{self, HostEnd};
use pumice_linux::netlink::NetlinkError;
use pumice_linux::network_namespace::{self as namespace, NamespaceError};

/// Why a pod has no network.
#[derive(Debug, thiserror::Error)]
pub enum PodNetworkError {
    /// The bridge that has the gateway's address is gone.
    #[error("the bridge {bridge} is not there; restart the node agent")]
    BridgeGone { bridge: String },
    #[error("can't close the network namespace that was given to the shim")]
    Close(#[source] io::Error),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The kernel refused a step.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// Moves this process into a network namespace of the pod's own, with an address behind the gateway: `own`, which belongs to the pod's
/// users, if they are its own. The one that standard input is, if the agent has given one, is no other pod's; the agent has led the
/// address to it.
pub(crate) fn enter(network: &Network, own: Option<&File>) -> Result<(), PodNetworkError> {
    // The prefix is that of the node's network, and of no use to a pod that reaches all others by way of the gateway.
    let Network::Bridge { bridge, veth, address, prefix: _, gateway } = network else { return Ok(()) };
    let given = io::stdin();
    if own.is_none() && namespace::is_one(given.as_fd()) {
        namespace::enter(given.as_fd())?;
        // It ends with the pod, whatever this process goes on with.
        let null = program::null().map_err(PodNetworkError::Close)?;
        dup2_stdin(null).map_err(|errno| PodNetworkError::Close(errno.into()))?;
    } else {
        let mut outside = links::open()?;
        let group = links::group(&mut outside, bridge)?
            .ok_or_else(|| PodNetworkError::BridgeGone { bridge: bridge.clone() })?;
        let outer = HostEnd { name: veth, group, hardware: links::hardware_address(*gateway) };
        let (_, link) = match own {
            Some(own) => namespace::enter_empty(&mut outside, outer, own.as_fd())?,
            None => namespace::enter_new(&mut outside, outer)?,
        };
        links::lead_to_pod(&mut outside, link, *address, *gateway)?;
    }
    Ok(namespace::configure(*address, *gateway)?)
}
