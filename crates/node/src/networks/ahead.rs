//! Network namespaces that are made before there is a pod for them.
//!
//! The kernel makes them one by one, and a pod that starts would wait for those of all others that do. So a thread makes some
//! ahead from the first pod on. Invariant: each is given out once, by value, and never comes back; there are [`AHEAD_MAX`] at most.
//! Nothing but a descriptor of this process holds one that waits: however the process ends, the kernel then removes it and
//! its links. Called by the loop over pods.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pumice_linux::links::{self, HostEnd};
use pumice_linux::netlink::{Netlink, NetlinkError};
use pumice_linux::network_namespace::{self as namespace, NamespaceError};
use pumice_units::with_causes;

use crate::networks::bridge::{PodLinks, pair_name};

/// Namespaces that wait for a pod.
pub(crate) const AHEAD_MAX: usize = 16;
/// Pause after one could not be made.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A network namespace that no pod has yet.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub namespace: OwnedFd,
    /// The index of this host's end of its link, which leads nowhere yet.
    pub link: u32,
}

impl Ahead {
    /// Leads an address to it.
    pub(crate) fn lead(self, address: Ipv4Addr, gateway: Ipv4Addr) -> Result<OwnedFd, NetlinkError> {
        links::lead_to_pod(&mut links::open()?, self.link, address, gateway)?;
        Ok(self.namespace)
    }
}

/// A stock that a thread fills; both end together.
pub(crate) struct NamespacesAhead {
    links: PodLinks,
    node_hash: u64,
    shared: Arc<Shared>,
    begun: bool,
}

#[derive(Default)]
struct Shared {
    stock: Mutex<Stock>,
    changed: Condvar,
}

#[derive(Default)]
struct Stock {
    ready: Vec<Ahead>,
    over: bool,
}

impl NamespacesAhead {
    /// Makes none before the first was asked for.
    pub(crate) fn new(links: PodLinks, node_hash: u64) -> Self {
        NamespacesAhead { links, node_hash, shared: Arc::default(), begun: false }
    }

    /// A namespace that is nobody else's, if one is ready; its link has no address yet.
    pub(crate) fn take(&mut self) -> Option<Ahead> {
        if !self.begun {
            self.begun = true;
            self.begin();
        }
        let taken = self.shared.stock().ready.pop();
        self.shared.changed.notify_one();
        taken
    }

    fn begin(&self) {
        let (shared, links, node_hash) = (Arc::clone(&self.shared), self.links, self.node_hash);
        // A thread of its own, since it goes in and out of networks.
        let begun = thread::Builder::new().name("pod-networks".to_owned()).spawn(move || {
            if let Err(error) = shared.fill(links, node_hash) {
                tracing::warn!(
                    error = with_causes(&error),
                    "no networks of pods are made ahead; each pod makes its own"
                );
            }
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "no networks of pods are made ahead; each pod makes its own");
        }
    }
}

impl Drop for NamespacesAhead {
    fn drop(&mut self) {
        let mut stock = self.shared.stock();
        stock.over = true;
        stock.ready.clear();
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the stock full until it is over. An error leaves this thread in whatever network it is.
    fn fill(&self, pod_links: PodLinks, node_hash: u64) -> Result<(), NamespaceError> {
        let host = namespace::current()?;
        let mut outside = links::open()?;
        for serial in 0_u64.. {
            if !self.wait_for_room() {
                break;
            }
            // Other agents of this machine, and this data directory's agent before this one, have other names for theirs.
            let outer = pair_name(node_hash, &format!("{}/{serial}", std::process::id()));
            let made = make(&mut outside, pod_links, &outer);
            namespace::enter(host.as_fd())?;
            match made {
                Ok(made) => self.put(made),
                Err(error) => {
                    tracing::debug!(error = with_causes(&error), "a network was not made ahead, will try again");
                    self.pause();
                }
            }
        }
        Ok(())
    }

    /// Whether there is another one to make.
    fn wait_for_room(&self) -> bool {
        let full = |stock: &mut Stock| !stock.over && stock.ready.len() >= AHEAD_MAX;
        !self.changed.wait_while(self.stock(), full).unwrap_or_else(PoisonError::into_inner).over
    }

    fn put(&self, made: Ahead) {
        let mut stock = self.stock();
        if !stock.over {
            stock.ready.push(made);
        }
    }

    fn pause(&self) {
        let wait = self.changed.wait_timeout_while(self.stock(), AGAIN_AFTER, |stock| !stock.over);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }
}

fn make(outside: &mut Netlink, links: PodLinks, outer: &str) -> Result<Ahead, NamespaceError> {
    let end = HostEnd { name: outer, group: links.group, hardware: links::hardware_address(links.gateway) };
    let (namespace, link) = namespace::enter_new(outside, end)?;
    Ok(Ahead { namespace: namespace.into(), link })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nix::sched::{CloneFlags, unshare};
    use nix::sys::stat::fstat;
    use pumice_clock as clock;

    use super::*;

    const LINKS: PodLinks = PodLinks { group: 77, gateway: Ipv4Addr::new(10, 1, 2, 1) };
    const DEADLINE: Duration = Duration::from_secs(30);

    /// Runs `test` in a network of its own, with a gateway.
    fn with_gateway(test: impl FnOnce(&mut Netlink) + Send + 'static) {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        let alone = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let mut netlink = links::open().unwrap();
            let hardware = links::hardware_address(LINKS.gateway);
            // As on a node, it is of the group, too; what is counted here are pairs.
            let bridge = links::ensure_bridge(&mut netlink, "bridge", 0, hardware).unwrap();
            links::add_address(&mut netlink, bridge, LINKS.gateway, 24).unwrap();
            test(&mut netlink);
        });
        alone.join().unwrap();
    }

    fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = clock::monotonic();
        while !is_so() {
            assert!(clock::monotonic() < begun + DEADLINE, "waited in vain for {what}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn is_full(ahead: &NamespacesAhead) -> bool {
        ahead.shared.stock().ready.len() == AHEAD_MAX
    }

    #[test]
    fn each_namespace_is_given_out_once_and_goes_with_who_has_it() {
        with_gateway(|netlink| {
            let mut ahead = NamespacesAhead::new(LINKS, 7);
            assert!(ahead.take().is_none(), "the first pod waits for nothing");
            let mut given = Vec::new();
            for _ in 0..3 {
                wait_for("a full stock", || is_full(&ahead));
                given.extend(std::iter::from_fn(|| ahead.take()).take(AHEAD_MAX));
            }
            assert!(given.len() >= 3 * AHEAD_MAX, "{}", given.len());
            let host = namespace::current().unwrap();
            let identity = |file: &OwnedFd| fstat(file).unwrap().st_ino;
            let of = |ahead: &Ahead| identity(&ahead.namespace);
            let different: BTreeSet<u64> = given.iter().map(of).chain([identity(&host.into())]).collect();
            assert_eq!(different.len(), given.len() + 1);
            wait_for("a full stock", || is_full(&ahead));
            let mut ports = |expected: usize| {
                let mut found = 0;
                wait_for(&format!("{expected} ports"), || {
                    found = links::members(netlink, LINKS.group).unwrap().len();
                    found == expected
                });
            };
            ports(given.len() + AHEAD_MAX);
            // The kernel removes links with their namespace.
            given.truncate(5);
            ports(5 + AHEAD_MAX);
            drop(ahead);
            ports(5);
        });
    }

    #[test]
    fn a_link_has_an_address_when_it_is_its_pods() {
        with_gateway(|netlink| {
            let mut ahead = NamespacesAhead::new(LINKS, 8);
            let host = namespace::current().unwrap();
            ahead.take();
            wait_for("a full stock", || is_full(&ahead));
            let pod = ahead.take().unwrap();
            let address = Ipv4Addr::new(10, 1, 2, 9);
            links::lead_to_pod(netlink, pod.link, address, LINKS.gateway).unwrap();
            namespace::enter(pod.namespace.as_fd()).unwrap();
            namespace::configure(address, LINKS.gateway).unwrap();
            let listener = std::net::TcpListener::bind("10.1.2.9:0").unwrap();
            namespace::enter(host.as_fd()).unwrap();
            std::net::TcpStream::connect_timeout(&listener.local_addr().unwrap(), DEADLINE).unwrap();
        });
    }

    #[test]
    fn what_can_not_be_made_is_not_waited_for() {
        with_gateway(|netlink| {
            // A link has the name of the first one.
            let name = pair_name(9, &format!("{}/0", std::process::id()));
            links::ensure_bridge(netlink, &name, 0, links::hardware_address(LINKS.gateway)).unwrap();
            let mut ahead = NamespacesAhead::new(LINKS, 9);
            assert!(ahead.take().is_none() && ahead.take().is_none());
        });
    }
}
