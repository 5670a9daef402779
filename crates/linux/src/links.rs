//! Links, addresses and routes: the few requests that a bridge with pods on it needs.
//!
//! Invariant: nothing is left half made: what fails after creating a link removes it again, or the
//! link goes with its namespace. Called by the shim (a pod's own end) and the agent (the bridge).

use std::ffi::CString;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::netlink::{Message, Netlink, NetlinkError, attributes};

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
/// `IN6_ADDR_GEN_MODE_NONE` of `linux/if_link.h`.
const ADDR_GEN_MODE_NONE: u8 = 1;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const LINK_BYTES: usize = 16;
const CREATE: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

/// The loopback link's index in every network namespace.
pub const LOOPBACK: u32 = 1;

/// A socket for links, addresses and routes of the current network namespace.
pub fn open() -> Result<Netlink, NetlinkError> {
    Netlink::open(libc::NETLINK_ROUTE)
}

/// The index of a link, if there is one of that name.
pub fn index(netlink: &mut Netlink, name: &str) -> Result<Option<u32>, NetlinkError> {
    let message = Message::new(libc::RTM_GETLINK, 0, &link(0, 0)).text(IFLA_IFNAME, name);
    match netlink.request("look for a link", message) {
        Ok(replies) => Ok(replies.first().and_then(|reply| link_index(reply))),
        Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a bridge that is up and returns its index; one of that name may be there already. Its hardware address is one of its
/// own: else the kernel takes that of a port, another one whenever ports come or go, and pods that know the one before are not
/// heard for up to a minute.
pub fn ensure_bridge(netlink: &mut Netlink, name: &str, hardware: [u8; 6]) -> Result<u32, NetlinkError> {
    if let Some(found) = index(netlink, name)? {
        let message = Message::new(libc::RTM_NEWLINK, 0, &link(found, 0)).attribute(IFLA_ADDRESS, &hardware);
        netlink.request("give a bridge its address", message)?;
        set_up(netlink, found)?;
        return Ok(found);
    }
    let message = Message::new(libc::RTM_NEWLINK, CREATE, &link(0, libc::IFF_UP))
        .text(IFLA_IFNAME, name)
        .attribute(IFLA_ADDRESS, &hardware)
        .nest(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
    netlink.request("create a bridge", message)?;
    index(netlink, name)?.ok_or_else(|| NetlinkError::gone("create a bridge"))
}

/// Makes a pair of links: `name` here, up, on the bridge `bridge`; `peer` in the namespace `target`.
pub fn create_pair(
    netlink: &mut Netlink,
    name: &str,
    bridge: u32,
    peer: &str,
    target: BorrowedFd<'_>,
) -> Result<(), NetlinkError> {
    let far_end = |end: Message| {
        let end = with_one_queue(end.raw(&link(0, 0)).text(IFLA_IFNAME, peer));
        end.attribute(IFLA_NET_NS_FD, &target.as_raw_fd().to_ne_bytes())
    };
    let near_end = Message::new(libc::RTM_NEWLINK, CREATE, &link(0, 0)).text(IFLA_IFNAME, name);
    let near_end = with_one_queue(near_end).attribute(IFLA_MASTER, &bridge.to_ne_bytes());
    let message = near_end.nest(IFLA_LINKINFO, |info| {
        info.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |data| data.nest(VETH_INFO_PEER, far_end))
    });
    netlink.request("create a pair of links on a bridge", message)?;
    // This end is a port of the bridge and nothing more. With an address of its own the kernel would tell all others of it, for
    // each pod. It would choose one when the other end is up. A kernel may do without this protocol.
    let up = Message::new(libc::RTM_NEWLINK, 0, &link(0, libc::IFF_UP)).text(IFLA_IFNAME, name);
    let alone = netlink.request("have a link without an address", without_own_address(up.clone()));
    alone.or_else(|_| netlink.request("set a link up", up)).map(drop)
}

/// The kernel makes queues for each CPU otherwise, and files for each of them; packets of a pair wait in none.
fn with_one_queue(end: Message) -> Message {
    let one = 1_u32.to_ne_bytes();
    end.attribute(IFLA_NUM_TX_QUEUES, &one).attribute(IFLA_NUM_RX_QUEUES, &one)
}

/// Has the kernel give a link no address of IPv6 by itself.
fn without_own_address(link: Message) -> Message {
    link.nest(IFLA_AF_SPEC, |families| {
        families.nest(libc::AF_INET6 as u16, |ipv6| ipv6.attribute(IFLA_INET6_ADDR_GEN_MODE, &[ADDR_GEN_MODE_NONE]))
    })
}

/// Gives the link `name` of this thread's network its addresses, sets it up, and sends everything without a better route to `gateway`
/// through it. It has none of IPv6: nothing of a pod's network has, and the kernel would tell it to all pods.
pub fn configure(
    netlink: &mut Netlink,
    name: &str,
    address: Ipv4Addr,
    prefix: u8,
    gateway: Ipv4Addr,
) -> Result<(), NetlinkError> {
    let named = |flags| Message::new(libc::RTM_NEWLINK, 0, &link(0, flags)).text(IFLA_IFNAME, name);
    // Before it is up. A kernel may do without this protocol.
    let _ = netlink.request("have a link without an address", without_own_address(named(0)));
    let up = named(libc::IFF_UP).attribute(IFLA_ADDRESS, &hardware_address(address));
    netlink.request("set a link up", up)?;
    let index = index_here(name).ok_or_else(|| NetlinkError::gone("give a link an address"))?;
    add_address(netlink, index, address, prefix)?;
    add_default_route(netlink, index, gateway)
}

/// The index of a link of this thread's network; [`index`] has the kernel tell all that it knows of it.
#[allow(unsafe_code)]
fn index_here(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name is a C string that lives until the call returns.
    let found = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (found != 0).then_some(found)
}

/// Sets a link up.
pub fn set_up(netlink: &mut Netlink, index: u32) -> Result<(), NetlinkError> {
    netlink.request("set a link up", Message::new(libc::RTM_NEWLINK, 0, &link(index, libc::IFF_UP))).map(drop)
}

/// Gives a link an address; having it already is fine.
pub fn add_address(netlink: &mut Netlink, index: u32, address: Ipv4Addr, prefix: u8) -> Result<(), NetlinkError> {
    let mut body = vec![libc::AF_INET as u8, prefix, 0, 0];
    body.extend(index.to_ne_bytes());
    let message = Message::new(libc::RTM_NEWADDR, CREATE, &body)
        .attribute(IFA_LOCAL, &address.octets())
        .attribute(IFA_ADDRESS, &address.octets());
    match netlink.request("add an address", message) {
        Err(error) if error.errno() == Some(libc::EEXIST) => Ok(()),
        other => other.map(drop),
    }
}

/// Sends everything without a better route to `gateway`.
pub fn add_default_route(netlink: &mut Netlink, index: u32, gateway: Ipv4Addr) -> Result<(), NetlinkError> {
    const TABLE_MAIN: u8 = 254;
    const PROTOCOL_BOOT: u8 = 3;
    const TYPE_UNICAST: u8 = 1;
    let body = [libc::AF_INET as u8, 0, 0, 0, TABLE_MAIN, PROTOCOL_BOOT, 0, TYPE_UNICAST, 0, 0, 0, 0];
    let message = Message::new(libc::RTM_NEWROUTE, CREATE, &body)
        .attribute(RTA_GATEWAY, &gateway.octets())
        .attribute(RTA_OIF, &index.to_ne_bytes());
    netlink.request("add a default route", message).map(drop)
}

/// Removes a link; none there is fine.
pub fn delete(netlink: &mut Netlink, name: &str) -> Result<(), NetlinkError> {
    let Some(found) = index(netlink, name)? else { return Ok(()) };
    match netlink.request("delete a link", Message::new(libc::RTM_DELLINK, 0, &link(found, 0))) {
        Err(error) if error.errno() == Some(libc::ENODEV) => Ok(()),
        other => other.map(drop),
    }
}

/// Names of the links on a bridge.
pub fn ports(netlink: &mut Netlink, bridge: u32) -> Result<Vec<String>, NetlinkError> {
    let message = Message::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &link(0, 0));
    let replies = netlink.batch_dump("list links", message)?;
    let on_bridge = replies.iter().filter_map(|reply| {
        let rest = reply.get(LINK_BYTES..)?;
        let master = attributes(rest).find(|(kind, _)| *kind == IFLA_MASTER)?.1;
        let name = attributes(rest).find(|(kind, _)| *kind == IFLA_IFNAME)?.1;
        let name = std::str::from_utf8(name.strip_suffix(&[0]).unwrap_or(name)).ok()?;
        (master == bridge.to_ne_bytes()).then(|| name.to_owned())
    });
    Ok(on_bridge.collect())
}

/// The fixed part of a link message.
fn link(index: u32, flags: i32) -> [u8; LINK_BYTES] {
    let mut body = [0; LINK_BYTES];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&flags.to_ne_bytes());
    body
}

fn link_index(reply: &[u8]) -> Option<u32> {
    reply.get(4..8)?.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A hardware address made from an address, so that a reused address is reached at once.
pub fn hardware_address(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x0a, 0x58, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    fn hardware_of(netlink: &mut Netlink, name: &str) -> Vec<u8> {
        let message = Message::new(libc::RTM_GETLINK, 0, &link(0, 0)).text(IFLA_IFNAME, name);
        let replies = netlink.request("look for a link", message).unwrap();
        attributes(&replies[0][LINK_BYTES..]).find(|(kind, _)| *kind == IFLA_ADDRESS).unwrap().1.to_vec()
    }

    #[test]
    fn a_bridge_keeps_its_hardware_address_whatever_comes_to_it() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let alone = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let namespace = File::open("/proc/thread-self/ns/net").unwrap();
            let mut netlink = open().unwrap();
            let hardware = hardware_address(Ipv4Addr::new(10, 1, 2, 1));
            let bridge = ensure_bridge(&mut netlink, "bridge", hardware).unwrap();
            for pod in 0..4 {
                let (name, peer) = (format!("host{pod}"), format!("pod{pod}"));
                create_pair(&mut netlink, &name, bridge, &peer, namespace.as_fd()).unwrap();
                assert_eq!(hardware_of(&mut netlink, "bridge"), hardware, "{name} came");
            }
            delete(&mut netlink, "host1").unwrap();
            assert_eq!(ensure_bridge(&mut netlink, "bridge", hardware).unwrap(), bridge);
            assert_eq!(hardware_of(&mut netlink, "bridge"), hardware);
        });
        alone.join().unwrap();
    }
}
