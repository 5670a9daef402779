//! The host's network, and rights over one's own.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use nix::errno::Errno;

use super::syscall::{call, open};
use super::{done, is_so};
use crate::facts::Facts;
use crate::table::{Control, PodKind, Row};

const fn row(name: &'static str, control: Control, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    Row { name, attempt, pod: PodKind::Usual, control }
}

const fn hosts(name: &'static str, attempt: fn(&Facts) -> io::Result<()>) -> Row {
    row(name, Control::OwnNetwork, attempt)
}

const RAW: Control = Control::Capability("NET_RAW");
const ADMIN: Control = Control::Capability("NET_ADMIN");

pub const ROWS: &[Row] = &[
    hosts("connect to the host's loopback", |facts| TcpStream::connect((Ipv4Addr::LOCALHOST, facts.port)).map(drop)),
    hosts("connect to an abstract socket of the host", |facts| {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&facts.socket)?).map(drop)
    }),
    hosts("see the link that pods are connected to", |facts| {
        is_so(fs::read_to_string("/proc/net/dev")?.contains(&facts.bridge))
    }),
    hosts("listen at the host's address of the pods' network", |facts| {
        let host = facts.gateway.split(':').next().unwrap_or_default();
        TcpListener::bind((host, 0)).map(drop)
    }),
    row("open a socket for packets", RAW, |_| socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop)),
    row("open a raw socket", RAW, |_| socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP).map(drop)),
    row("set flags of a link", ADMIN, |_| raise_loopback()),
    row("add a route", ADMIN, |_| add_route()),
    row("talk to the hypervisor", Control::Seccomp, |_| socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0).map(drop)),
];

pub const NOT_HELD_YET: &[Row] = &[
    row(
        "connect to a service of the host at the pods' gateway",
        Control::Missing("a tenant's namespace, whose pods reach the API and DNS of the host alone"),
        |facts| TcpStream::connect(&facts.gateway).map(drop),
    ),
    row("connect to a service of another pod", Control::Missing("a NetworkPolicy, or a tenant's namespace"), |facts| {
        TcpStream::connect(&facts.neighbor_service).map(drop)
    }),
];

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    Ok(open!(SYS_socket, family, kind | libc::SOCK_CLOEXEC, protocol)?)
}

/// Sets the flags of this network's loopback so that it works, as it does already but in a new network.
pub fn raise_loopback() -> io::Result<()> {
    let any = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut request = [0_u8; size_of::<libc::ifreq>()];
    request[..2].copy_from_slice(b"lo");
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as u16;
    request[libc::IFNAMSIZ..][..2].copy_from_slice(&flags.to_ne_bytes());
    done(call!(SYS_ioctl, any.as_raw_fd(), libc::SIOCSIFFLAGS, request.as_mut_slice()))
}

/// Adds a route to an address for documentation by way of the loopback of the container's own network.
fn add_route() -> io::Result<()> {
    const LOOPBACK: u32 = 1;
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE;
    let mut message = Vec::new();
    message.extend(44_u32.to_ne_bytes());
    message.extend(libc::RTM_NEWROUTE.to_ne_bytes());
    message.extend((flags as u16).to_ne_bytes());
    message.extend([0; 8]);
    // `struct rtmsg`: a route of 32 bits in the main table, set at boot, over a link, to one host.
    let link = libc::RT_SCOPE_LINK;
    message.extend([libc::AF_INET as u8, 32, 0, 0, libc::RT_TABLE_MAIN, libc::RTPROT_BOOT, link, libc::RTN_UNICAST]);
    message.extend([0; 4]);
    attribute(&mut message, libc::RTA_DST, [203, 0, 113, 7]);
    attribute(&mut message, libc::RTA_OIF, LOOPBACK.to_ne_bytes());
    let mut netlink = File::from(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?);
    netlink.write_all(&message)?;
    let mut answer = [0; 128];
    let length = netlink.read(&mut answer)?;
    let code = answer[..length].get(16..20).and_then(|code| code.try_into().ok()).map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(Errno::from_raw(-code).into()),
        None => is_so(false),
    }
}

fn attribute(message: &mut Vec<u8>, kind: u16, value: [u8; 4]) {
    message.extend(8_u16.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
}
