//! Pods reach the outside: what leaves their network is sent in the host's name.
//!
//! One nf_tables table per bridge, named like it. Invariant: made as one transaction, removed with the
//! bridge; nobody else's tables are touched. Called by the agent when it makes and removes its bridge.

use std::fs;
use std::net::Ipv4Addr;

use pumice_linux::netlink::{Message, Netlink, NetlinkError};

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const DELETE_TABLE: u16 = (SUBSYSTEM << 8) | 2;
const NEW_CHAIN: u16 = (SUBSYSTEM << 8) | 3;
const NEW_RULE: u16 = (SUBSYSTEM << 8) | 6;

const CHAIN: &str = "postrouting";
const HOOK_POSTROUTING: u32 = 4;
const PRIORITY_SOURCE_NAT: u32 = 100;
const NETWORK_HEADER: u32 = 1;
const SOURCE_OFFSET: u32 = 12;
const DESTINATION_OFFSET: u32 = 16;
const REGISTER: u32 = 1;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// Sends what goes from `base/prefix` to anywhere else in the host's name.
pub(crate) fn ensure(table: &str, base: Ipv4Addr, prefix: u8) -> Result<(), NetlinkError> {
    // A table from before holds the same rule; starting over keeps it the only one.
    remove(table)?;
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0).to_be_bytes();
    let network = base.octets();
    let messages = vec![
        batch(BATCH_BEGIN),
        message(NEW_TABLE, libc::NLM_F_CREATE).text(1, table),
        message(NEW_CHAIN, libc::NLM_F_CREATE)
            .text(1, table)
            .text(3, CHAIN)
            .nest(4, |hook| {
                hook.attribute(1, &HOOK_POSTROUTING.to_be_bytes()).attribute(2, &PRIORITY_SOURCE_NAT.to_be_bytes())
            })
            .text(7, "nat"),
        message(NEW_RULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND).text(1, table).text(2, CHAIN).nest(4, |list| {
            let list = compare(list, SOURCE_OFFSET, mask, EQUAL, network);
            let list = compare(list, DESTINATION_OFFSET, mask, NOT_EQUAL, network);
            list.nest(1, |element| element.text(1, "masq"))
        }),
        batch(BATCH_END),
    ];
    Netlink::open(libc::NETLINK_NETFILTER)?.batch("translate pods' addresses", messages).map(drop)
}

/// Removes the table; none there is fine.
pub(crate) fn remove(table: &str) -> Result<(), NetlinkError> {
    let messages = vec![batch(BATCH_BEGIN), message(DELETE_TABLE, 0).text(1, table), batch(BATCH_END)];
    match Netlink::open(libc::NETLINK_NETFILTER)?.batch("remove the translation of pods' addresses", messages) {
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(()),
        other => other.map(drop),
    }
}

/// Continues a rule when the address at `offset`, masked, is or is not `network`.
fn compare(list: Message, offset: u32, mask: [u8; 4], operator: u32, network: [u8; 4]) -> Message {
    let number = |value: u32| value.to_be_bytes();
    list.nest(1, |element| {
        element.text(1, "payload").nest(2, |data| {
            data.attribute(1, &number(REGISTER))
                .attribute(2, &number(NETWORK_HEADER))
                .attribute(3, &number(offset))
                .attribute(4, &number(4))
        })
    })
    .nest(1, |element| {
        element.text(1, "bitwise").nest(2, |data| {
            data.attribute(1, &number(REGISTER))
                .attribute(2, &number(REGISTER))
                .attribute(3, &number(4))
                .nest(4, |value| value.attribute(1, &mask))
                .nest(5, |value| value.attribute(1, &[0; 4]))
        })
    })
    .nest(1, |element| {
        element.text(1, "cmp").nest(2, |data| {
            data.attribute(1, &number(REGISTER))
                .attribute(2, &number(operator))
                .nest(3, |value| value.attribute(1, &network))
        })
    })
}

fn message(kind: u16, flags: i32) -> Message {
    Message::new(kind, flags | libc::NLM_F_ACK, &[libc::AF_INET as u8, 0, 0, 0])
}

fn batch(kind: u16) -> Message {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    Message::new(kind, 0, &[libc::AF_UNSPEC as u8, 0, high, low])
}

/// Lets this host pass packets on; says whether it did not before.
pub(crate) fn allow_forwarding() -> std::io::Result<bool> {
    if fs::read_to_string(FORWARDING)?.trim() == "1" {
        return Ok(false);
    }
    fs::write(FORWARDING, "1").map(|()| true)
}

/// Takes back what [`allow_forwarding`] changed.
pub(crate) fn forbid_forwarding() -> std::io::Result<()> {
    fs::write(FORWARDING, "0")
}
