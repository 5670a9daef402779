//! Links, addresses and routes: the few requests that pods behind a gateway need.
//!
//! Each pod has a pair of links that nothing else is on, and this host has a route to the pod's one address through its end of it. So
//! whatever a pod sends is routed, and meets the rules for what is.
//!
//! Invariant: nothing is left half made: what fails after creating a link removes it again, or the
//! link goes with its namespace. Called by the shim (a pod's own end) and the agent (the gateway).

use std::ffi::CString;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::netlink::{Message, Netlink, NetlinkError, attributes};

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_GROUP: u16 = 27;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_EXT_MASK: u16 = 29;
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
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// `NUD_PERMANENT` of `linux/neighbour.h`: never looked up, never forgotten.
const NEIGHBOR_PERMANENT: u16 = 0x80;
/// `RTEXT_FILTER_SKIP_STATS` of `linux/rtnetlink.h`.
const WITHOUT_COUNTERS: u32 = 1 << 3;
/// The gateway of a route is on its link, whatever the addresses say.
const RTNH_F_ONLINK: u32 = 4;
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
    Ok(find(netlink, name)?.as_deref().and_then(link_index))
}

/// The group of a link, if there is one of that name.
pub fn group(netlink: &mut Netlink, name: &str) -> Result<Option<u32>, NetlinkError> {
    let found = find(netlink, name)?;
    let group = found.as_deref().and_then(|reply| {
        let value = attributes(reply.get(LINK_BYTES..)?).find(|(kind, _)| *kind == IFLA_GROUP)?.1;
        value.first_chunk::<4>().map(|bytes| u32::from_ne_bytes(*bytes))
    });
    Ok(group)
}

fn find(netlink: &mut Netlink, name: &str) -> Result<Option<Vec<u8>>, NetlinkError> {
    let message = Message::new(libc::RTM_GETLINK, 0, &link(0, 0)).text(IFLA_IFNAME, name);
    let message = message.attribute(IFLA_EXT_MASK, &WITHOUT_COUNTERS.to_ne_bytes());
    match netlink.request("look for a link", message) {
        Ok(replies) => Ok(replies.into_iter().next()),
        Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a bridge that is up and returns its index; one of that name may be there already. It is in `group`, as the pairs of links of
/// its pods are. Its hardware address is one of its own: else the kernel takes that of a port, another one whenever ports come or go,
/// and pods that know the one before are not heard for up to a minute.
pub fn ensure_bridge(netlink: &mut Netlink, name: &str, group: u32, hardware: [u8; 6]) -> Result<u32, NetlinkError> {
    if let Some(found) = index(netlink, name)? {
        let message = Message::new(libc::RTM_NEWLINK, 0, &link(found, 0))
            .attribute(IFLA_ADDRESS, &hardware)
            .attribute(IFLA_GROUP, &group.to_ne_bytes());
        netlink.request("give a bridge its address", message)?;
        set_up(netlink, found)?;
        return Ok(found);
    }
    let message = Message::new(libc::RTM_NEWLINK, CREATE, &link(0, libc::IFF_UP))
        .text(IFLA_IFNAME, name)
        .attribute(IFLA_ADDRESS, &hardware)
        .attribute(IFLA_GROUP, &group.to_ne_bytes())
        .nest(IFLA_LINKINFO, |info| info.text(IFLA_INFO_KIND, "bridge"));
    netlink.request("create a bridge", message)?;
    index(netlink, name)?.ok_or_else(|| NetlinkError::gone("create a bridge"))
}

/// The host's end of a pair of links.
#[derive(Debug, Clone, Copy)]
pub struct HostEnd<'a> {
    pub name: &'a str,
    /// Which links are of one node's pods: rules name it, and all of it can be removed at once.
    pub group: u32,
    /// That of the gateway, so that a pod knows it without asking.
    pub hardware: [u8; 6],
}

/// Makes a pair of links: one here, up; `peer` in the namespace `target`. Returns the index of the one here.
pub fn create_pair(
    netlink: &mut Netlink,
    end: HostEnd<'_>,
    peer: &str,
    target: BorrowedFd<'_>,
) -> Result<u32, NetlinkError> {
    let far_end = |far: Message| {
        let far = with_one_queue(far.raw(&link(0, 0)).text(IFLA_IFNAME, peer));
        far.attribute(IFLA_NET_NS_FD, &target.as_raw_fd().to_ne_bytes())
    };
    let near_end = Message::new(libc::RTM_NEWLINK, CREATE, &link(0, 0)).text(IFLA_IFNAME, end.name);
    let near_end =
        with_one_queue(near_end).attribute(IFLA_ADDRESS, &end.hardware).attribute(IFLA_GROUP, &end.group.to_ne_bytes());
    let message = near_end.nest(IFLA_LINKINFO, |info| {
        info.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |data| data.nest(VETH_INFO_PEER, far_end))
    });
    netlink.request("create a pair of links", message)?;
    // This end has no address of its own, or the kernel would choose one of IPv6 when the other end is up. It hears and asks no ARP:
    // what a pod claims to be is nothing to this host. A kernel may do without IPv6.
    let flags = libc::IFF_UP | libc::IFF_NOARP;
    let up = Message::new(libc::RTM_NEWLINK, 0, &link(0, flags)).text(IFLA_IFNAME, end.name);
    let alone = netlink.request("have a link without an address", without_own_address(up.clone()));
    alone.or_else(|_| netlink.request("set a link up", up))?;
    index(netlink, end.name)?.ok_or_else(|| NetlinkError::gone("create a pair of links"))
}

/// Leads what is for `address` to the pod behind a link of this host, which speaks to it as `gateway`.
pub fn lead_to_pod(netlink: &mut Netlink, link: u32, address: Ipv4Addr, gateway: Ipv4Addr) -> Result<(), NetlinkError> {
    let body = route(u32::BITS as u8, libc::RT_SCOPE_LINK, 0);
    let route = Message::new(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE | libc::NLM_F_ACK, &body)
        .attribute(RTA_DST, &address.octets())
        .attribute(RTA_PREFSRC, &gateway.octets())
        .attribute(RTA_OIF, &link.to_ne_bytes());
    let steps = vec![neighbor(link, address, hardware_address(address)), route];
    netlink.batch("lead to a pod", steps).map(drop)
}

/// Who is at `address` behind a link, so that nobody asks.
fn neighbor(link: u32, address: Ipv4Addr, hardware: [u8; 6]) -> Message {
    // `struct ndmsg`.
    let mut body = vec![libc::AF_INET as u8, 0, 0, 0];
    body.extend(link.to_ne_bytes());
    body.extend(NEIGHBOR_PERMANENT.to_ne_bytes());
    body.extend([0, 0]);
    Message::new(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE | libc::NLM_F_ACK, &body)
        .attribute(NDA_DST, &address.octets())
        .attribute(NDA_LLADDR, &hardware)
}

/// The fixed part of a route of IPv4 in the main table to a destination of `length` bits.
fn route(length: u8, scope: u8, flags: u32) -> [u8; 12] {
    const PROTOCOL_BOOT: u8 = 3;
    let mut body = [0; 12];
    let start = [libc::AF_INET as u8, length, 0, 0, libc::RT_TABLE_MAIN, PROTOCOL_BOOT, scope, libc::RTN_UNICAST];
    body[..8].copy_from_slice(&start);
    body[8..].copy_from_slice(&flags.to_ne_bytes());
    body
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

/// Gives the link `name` of this thread's network its one address, sets it up, and sends everything to `gateway` through it. It has none
/// of IPv6: nothing of a pod's network has.
pub fn configure(netlink: &mut Netlink, name: &str, address: Ipv4Addr, gateway: Ipv4Addr) -> Result<(), NetlinkError> {
    let named = |flags| Message::new(libc::RTM_NEWLINK, 0, &link(0, flags)).text(IFLA_IFNAME, name);
    // Before it is up. A kernel may do without this protocol.
    let _ = netlink.request("have a link without an address", without_own_address(named(0)));
    let up = named(libc::IFF_UP).attribute(IFLA_ADDRESS, &hardware_address(address));
    netlink.request("set a link up", up)?;
    let index = index_here(name).ok_or_else(|| NetlinkError::gone("give a link an address"))?;
    add_address(netlink, index, address, u32::BITS as u8)?;
    let route =
        Message::new(libc::RTM_NEWROUTE, CREATE | libc::NLM_F_ACK, &route(0, libc::RT_SCOPE_UNIVERSE, RTNH_F_ONLINK))
            .attribute(RTA_GATEWAY, &gateway.octets())
            .attribute(RTA_OIF, &index.to_ne_bytes());
    netlink.batch("add a default route", vec![neighbor(index, gateway, hardware_address(gateway)), route]).map(drop)
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

/// Removes a link; none there is fine.
pub fn delete(netlink: &mut Netlink, name: &str) -> Result<(), NetlinkError> {
    let Some(found) = index(netlink, name)? else { return Ok(()) };
    match netlink.request("delete a link", Message::new(libc::RTM_DELLINK, 0, &link(found, 0))) {
        Err(error) if error.errno() == Some(libc::ENODEV) => Ok(()),
        other => other.map(drop),
    }
}

/// Removes all links of a group, with the pods' ends of pairs; none there is fine.
pub fn delete_group(netlink: &mut Netlink, group: u32) -> Result<(), NetlinkError> {
    let message = Message::new(libc::RTM_DELLINK, 0, &link(0, 0)).attribute(IFLA_GROUP, &group.to_ne_bytes());
    match netlink.request("delete the links of pods", message) {
        Err(error) if error.errno() == Some(libc::ENODEV) => Ok(()),
        other => other.map(drop),
    }
}

/// Names of the links on a bridge.
pub fn ports(netlink: &mut Netlink, bridge: u32) -> Result<Vec<String>, NetlinkError> {
    names_with(netlink, IFLA_MASTER, bridge)
}

/// Names of the links of a group.
pub fn members(netlink: &mut Netlink, group: u32) -> Result<Vec<String>, NetlinkError> {
    names_with(netlink, IFLA_GROUP, group)
}

/// Names of the links that have this number as an attribute.
fn names_with(netlink: &mut Netlink, attribute: u16, wanted: u32) -> Result<Vec<String>, NetlinkError> {
    let message = Message::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &link(0, 0));
    let replies = netlink.batch_dump("list links", message)?;
    let found = replies.iter().filter_map(|reply| {
        let rest = reply.get(LINK_BYTES..)?;
        let number = attributes(rest).find(|(kind, _)| *kind == attribute)?.1;
        let name = attributes(rest).find(|(kind, _)| *kind == IFLA_IFNAME)?.1;
        let name = std::str::from_utf8(name.strip_suffix(&[0]).unwrap_or(name)).ok()?;
        (number == wanted.to_ne_bytes()).then(|| name.to_owned())
    });
    Ok(found.collect())
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

    /// Runs `test` in a network of its own, as root.
    fn alone(test: impl FnOnce(&mut Netlink) + Send + 'static) {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let alone = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            test(&mut open().unwrap());
        });
        alone.join().unwrap();
    }

    #[test]
    fn a_bridge_has_the_hardware_address_that_it_is_given() {
        alone(|netlink| {
            let hardware = hardware_address(Ipv4Addr::new(10, 1, 2, 1));
            let bridge = ensure_bridge(netlink, "bridge", 7, hardware).unwrap();
            assert_eq!(hardware_of(netlink, "bridge"), hardware);
            let other = hardware_address(Ipv4Addr::new(10, 1, 3, 1));
            assert_eq!(ensure_bridge(netlink, "bridge", 7, other).unwrap(), bridge);
            assert_eq!(hardware_of(netlink, "bridge"), other);
        });
    }

    #[test]
    fn a_group_of_links_goes_and_no_other() {
        alone(|netlink| {
            let namespace = File::open("/proc/thread-self/ns/net").unwrap();
            let hardware = hardware_address(Ipv4Addr::new(10, 1, 2, 1));
            ensure_bridge(netlink, "bridge", 7, hardware).unwrap();
            for (number, group) in [7, 7, 8].into_iter().enumerate() {
                let (name, peer) = (format!("host{number}"), format!("pod{number}"));
                let end = HostEnd { name: &name, group, hardware };
                create_pair(netlink, end, &peer, namespace.as_fd()).unwrap();
            }
            assert_eq!((group(netlink, "bridge").unwrap(), group(netlink, "host2").unwrap()), (Some(7), Some(8)));
            assert_eq!(group(netlink, "none").unwrap(), None);
            delete_group(netlink, 7).unwrap();
            for name in ["bridge", "host0", "pod0", "host1", "pod1"] {
                assert_eq!(index(netlink, name).unwrap(), None, "{name}");
            }
            assert!(index(netlink, "host2").unwrap().is_some() && index(netlink, "pod2").unwrap().is_some());
            delete_group(netlink, 7).unwrap();
        });
    }
}
