//! Addresses of pods on this node: which network, and who has which address.
//!
//! Invariant: no two pods share an address; an address just given back is the last to be given again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::Ipv4Addr;

/// Length of a node's prefix: 4093 pods.
pub(crate) const PREFIX: u8 = 20;
/// Where nodes' networks are looked for.
pub(crate) const RANGE: Subnet = Subnet { base: Ipv4Addr::new(10, 64, 0, 0), prefix: 10 };

/// A network of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet {
    /// Its first address.
    pub base: Ipv4Addr,
    /// Its length in bits.
    pub prefix: u8,
}

impl Subnet {
    /// The bridge's own address.
    pub(crate) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base.to_bits() + 1)
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }

    fn overlaps(self, other: Subnet) -> bool {
        let mask = self.mask() & other.mask();
        self.base.to_bits() & mask == other.base.to_bits() & mask
    }
}

/// A network that no route of the host overlaps; `seed` spreads nodes over the range.
pub(crate) fn choose(seed: u64, routes: &[Subnet]) -> Option<Subnet> {
    let count = 1_u64 << (PREFIX - RANGE.prefix);
    (0..count).find_map(|step| {
        let index = u32::try_from(seed.wrapping_add(step) % count).ok()?;
        let base = Ipv4Addr::from_bits(RANGE.base.to_bits() + (index << (32 - PREFIX)));
        let subnet = Subnet { base, prefix: PREFIX };
        (!routes.iter().any(|route| route.overlaps(subnet))).then_some(subnet)
    })
}

/// The networks in `/proc/net/route`, without the default route.
pub(crate) fn parse_routes(text: &str) -> Vec<Subnet> {
    let fields = text.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let routes = fields.filter_map(|fields| {
        let word = |index: usize| u32::from_str_radix(fields.get(index)?, 16).ok().map(u32::swap_bytes);
        let (base, mask) = (word(1)?, word(7)?);
        (mask != 0).then_some(Subnet { base: Ipv4Addr::from_bits(base), prefix: mask.count_ones() as u8 })
    });
    routes.collect()
}

/// Who has which address.
#[derive(Debug)]
pub(crate) struct AddressPool {
    subnet: Subnet,
    next: u32,
    taken: BTreeMap<Ipv4Addr, String>,
}

impl AddressPool {
    /// All addresses of a network but the first two and the last.
    pub(crate) fn new(subnet: Subnet) -> Self {
        AddressPool { subnet, next: 2, taken: BTreeMap::new() }
    }

    /// Remembers an address from before a restart.
    pub(crate) fn restore(&mut self, uid: &str, address: Ipv4Addr) {
        self.taken.insert(address, uid.to_owned());
        let offset = address.to_bits().wrapping_sub(self.subnet.base.to_bits());
        if offset < self.size() {
            self.next = self.next.max(offset + 1);
        }
    }

    /// A free address, or none when all are taken.
    pub(crate) fn take(&mut self, uid: &str) -> Option<Ipv4Addr> {
        let usable = self.size() - 3;
        for _ in 0..usable {
            let offset = if self.next >= self.size() - 1 { 2 } else { self.next };
            self.next = offset + 1;
            let address = Ipv4Addr::from_bits(self.subnet.base.to_bits() + offset);
            if let Entry::Vacant(free) = self.taken.entry(address) {
                free.insert(uid.to_owned());
                return Some(address);
            }
        }
        None
    }

    /// Gives an address back, if it is that pod's.
    pub(crate) fn release(&mut self, uid: &str, address: Ipv4Addr) {
        if self.taken.get(&address).is_some_and(|owner| owner == uid) {
            self.taken.remove(&address);
        }
    }

    fn size(&self) -> u32 {
        1 << (32 - self.subnet.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        let (base, prefix) = text.split_once('/').unwrap();
        Subnet { base: base.parse().unwrap(), prefix: prefix.parse().unwrap() }
    }

    #[test]
    fn a_network_is_free_of_the_hosts_routes() {
        let free = choose(0, &[]).unwrap();
        assert_eq!(free, subnet("10.64.0.0/20"));
        assert_eq!(free.gateway(), Ipv4Addr::new(10, 64, 0, 1));
        assert_eq!(choose(0, &[subnet("10.64.0.0/24")]).unwrap(), subnet("10.64.16.0/20"));
        assert_eq!(choose(1023, &[subnet("10.127.240.128/25")]).unwrap(), subnet("10.64.0.0/20"));
        assert_eq!(choose(7, &[subnet("10.0.0.0/8")]), None);
        assert_eq!(choose(7, &[subnet("192.168.0.0/16")]).unwrap(), subnet("10.64.112.0/20"));
    }

    #[test]
    fn routes_are_read_from_the_kernels_table() {
        let text = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                    eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n\
                    eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\nbroken\n";
        assert_eq!(parse_routes(text), [subnet("192.0.2.0/24")]);
    }

    #[test]
    fn addresses_are_given_once_and_reused_last() {
        let mut pool = AddressPool::new(subnet("10.64.0.0/29"));
        pool.restore("old", Ipv4Addr::new(10, 64, 0, 3));
        let taken: Vec<_> = (0..4).map(|n| pool.take(&n.to_string()).map(|address| address.octets()[3])).collect();
        assert_eq!(taken, [Some(4), Some(5), Some(6), Some(2)]);
        assert_eq!(pool.take("none left"), None);
        pool.release("stranger", Ipv4Addr::new(10, 64, 0, 5));
        assert_eq!(pool.take("none left"), None);
        pool.release("1", Ipv4Addr::new(10, 64, 0, 5));
        assert_eq!(pool.take("new"), Some(Ipv4Addr::new(10, 64, 0, 5)));
    }
}
