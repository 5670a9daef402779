//! The firewall of a node's pods: NetworkPolicies, tenants kept apart, and no forged addresses.
//!
//! One nf_tables table per node, named like its bridge, about links of its own pods only. What a pod may follows from namespaces and
//! policies as the API server has them and from the pods of this node, by [`world`] (pure); [`transaction`] has it written.
//!
//! ```text
//!   namespaces, policies ──watch──┐
//!   pods of this node ──loop──────┴─> queue ──> world ──> rules ──what changed──> kernel, as one transaction
//! ```
//!
//! Invariant: a pod's rules are in force before its first process runs ([`Firewall::admit`]), and rules of before stay in force until all
//! facts of a new agent are there. The table outlives the agent, as pods do, and goes with the bridge. Called by the agent.

mod interned;
mod nft;
mod others;
mod policy;
mod rule_set;
#[cfg(test)]
mod tests;
mod transaction;
mod world;

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Api, Client};
use pumice_cluster::{Change, WatchScope, watch, watch_optional};
use pumice_linux::netlink::{Message, Netlink, NetlinkError};
use pumice_units::with_causes;
use tokio::sync::{Notify, watch as watch_channel};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use policy::{Policy, PortName};
use rule_set::{Changes, Protocol, RuleSet};
pub(crate) use transaction::Ground;
pub(crate) use world::Labels;
use world::{CHAIN_MAX, PodFacts, World};

/// How often it is made sure that nobody has removed the table, as who loads rules of his own anew may do.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Why a pod may not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "network policies or the limits between tenants are about this pod, and this node can't enforce them: {reason}; \
     have the kernel load nf_tables with nft_ct, nft_fib_inet and nf_conntrack"
)]
pub(crate) struct FirewallError {
    reason: String,
}

/// Something that rules may follow from.
#[derive(Debug)]
enum Event {
    Namespaces(Change<(String, Labels)>),
    Policies(Change<(String, Policy)>),
    /// A namespace as a pod of it was told of it.
    Namespace {
        name: String,
        labels: Labels,
    },
    Pod {
        uid: String,
        facts: Option<PodFacts>,
    },
    /// All pods that were here before are told of.
    PodsKnown,
    /// It is time to see whether the table is there.
    Look,
}

/// What has been heard and what of it is in force.
#[derive(Default)]
struct State {
    world: World,
    namespaces_known: bool,
    policies_known: bool,
    pods_known: bool,
    /// None where it is not known.
    in_force: Option<RuleSet>,
    /// Why it is not in force.
    error: Option<String>,
    /// Whether the kernel can't, and is not asked again.
    is_idle: bool,
    /// The table goes now, and is not made again.
    is_over: bool,
}

/// Rules for the pods of a node.
pub(crate) struct Firewall {
    /// Whether no pod has a network of its own.
    is_absent: bool,
    ground: Ground,
    queue: Mutex<Vec<Event>>,
    woken: Notify,
    state: Mutex<State>,
    /// Whether what was there at the start is in force, or can't be.
    is_ready: watch_channel::Sender<bool>,
}

impl Firewall {
    /// For a node whose pods share the machine's network.
    pub(crate) fn absent() -> Firewall {
        let (table, gateway) = (String::new(), Ipv4Addr::UNSPECIFIED);
        let ground = Ground { table, group: 0, gateway, api_port: None, name_servers: Vec::new() };
        let firewall = Firewall { is_absent: true, ..Firewall::new(ground, Ok(())) };
        firewall.is_ready.send_replace(true);
        firewall
    }

    /// For a node whose kernel can, or can't for this reason.
    pub(crate) fn new(ground: Ground, probe: Result<(), String>) -> Firewall {
        let error = probe.err();
        let state = State { is_idle: error.is_some(), error, ..State::default() };
        Firewall {
            is_absent: false,
            ground,
            queue: Mutex::default(),
            woken: Notify::new(),
            state: Mutex::new(state),
            is_ready: watch_channel::Sender::new(false),
        }
    }

    /// A pod of this node came or changed. Takes no time.
    pub(crate) fn tell_of_pod(&self, uid: &str, pod: &Pod, address: Ipv4Addr) {
        self.push(Event::Pod { uid: uid.to_owned(), facts: Some(facts_of(pod, address)) });
    }

    /// A pod is there of which the API server has said nothing yet.
    pub(crate) fn tell_of_found_pod(&self, uid: &str, namespace: &str, address: Ipv4Addr) {
        let facts = PodFacts { namespace: namespace.to_owned(), labels: Labels::new(), address, ports: Vec::new() };
        self.push(Event::Pod { uid: uid.to_owned(), facts: Some(facts) });
    }

    /// A pod has ended, and its address may be another one's.
    pub(crate) fn tell_of_end(&self, uid: &str) {
        self.push(Event::Pod { uid: uid.to_owned(), facts: None });
    }

    /// All pods that were on this node before this agent were told of.
    pub(crate) fn tell_of_all_pods(&self) {
        self.push(Event::PodsKnown);
    }

    /// Waits until what was there at the start is in force.
    pub(crate) async fn ready(&self) {
        // The sender is ours: it can't be gone.
        let _ = self.is_ready.subscribe().wait_for(|is_ready| *is_ready).await;
    }

    /// Has all that was told come into force, for a pod that is about to start; blocks. Its namespace, which may be new, has these labels.
    pub(crate) fn admit(&self, uid: &str, namespace: Option<(&str, &Labels)>) -> Result<(), FirewallError> {
        if let Some((name, labels)) = namespace {
            self.push(Event::Namespace { name: name.to_owned(), labels: labels.clone() });
        }
        let mut state = self.state();
        self.settle(&mut state);
        match &state.error {
            Some(reason) if state.world.concerns(uid) => Err(FirewallError { reason: reason.clone() }),
            _ => Ok(()),
        }
    }

    /// Follows the API server until `shutdown`.
    pub(crate) async fn run(self: Arc<Self>, client: Client, shutdown: CancellationToken) {
        if self.is_absent {
            return;
        }
        let namespaces = watch(Api::<Namespace>::all(client.clone()), WatchScope::default());
        let policies = watch_optional(Api::<NetworkPolicy>::all(client), WatchScope::default());
        let (mut namespaces, mut policies) = (std::pin::pin!(namespaces), std::pin::pin!(policies));
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(change) = namespaces.next() => self.push(Event::Namespaces(change.map(labels_of))),
                Some(change) = policies.next() => self.push(Event::Policies(change.map(policy_of))),
                () = self.woken.notified() => {}
                _ = looks.tick() => self.push(Event::Look),
            }
            let firewall = Arc::clone(&self);
            let settled = tokio::task::spawn_blocking(move || {
                let mut state = firewall.state();
                firewall.settle(&mut state);
            });
            if let Err(error) = settled.await {
                tracing::error!(%error, "rules of the pods' network were not looked at");
            }
        }
    }

    /// Ends all changes: the table is about to go, and with it what this is for.
    pub(crate) fn end(&self) {
        self.state().is_over = true;
    }

    fn push(&self, event: Event) {
        if self.is_absent {
            return;
        }
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.woken.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what was told, in its order, and brings what follows into force.
    fn settle(&self, state: &mut State) {
        let events = std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events {
            self.take_in(state, event);
        }
        for uid in state.world.take_cut() {
            tracing::warn!(
                uid,
                max = CHAIN_MAX,
                "network policies allow a pod more pairs of peers and ports than are looked at; the rest is refused"
            );
        }
        if !(state.namespaces_known && state.policies_known && state.pods_known) || state.is_over {
            return;
        }
        if !state.is_idle {
            self.enforce(state);
        }
        self.is_ready.send_if_modified(|is_ready| !std::mem::replace(is_ready, true));
    }

    fn take_in(&self, state: &mut State, event: Event) {
        let world = &mut state.world;
        match event {
            Event::Namespaces(Change::Replace(all)) => {
                world.replace_namespaces(HashMap::from_iter(all));
                state.namespaces_known = true;
            }
            Event::Namespaces(Change::Applied((name, labels))) => world.set_namespace(&name, Some(labels)),
            Event::Namespaces(Change::Deleted((name, _))) => world.set_namespace(&name, None),
            Event::Namespace { name, labels } if !world.knows_namespace(&name) => {
                world.set_namespace(&name, Some(labels));
            }
            Event::Namespace { .. } => {}
            Event::Policies(Change::Replace(all)) => {
                all.iter().for_each(|(name, policy)| tell_of_cut(name, policy));
                world.replace_policies(all);
                state.policies_known = true;
            }
            Event::Policies(Change::Applied((name, policy))) => {
                tell_of_cut(&name, &policy);
                let namespace = policy.namespace.clone();
                world.set_policy(&namespace, &name, Some(policy));
            }
            Event::Policies(Change::Deleted((name, policy))) => world.set_policy(&policy.namespace, &name, None),
            Event::Pod { uid, facts } => world.set_pod(&uid, facts),
            Event::PodsKnown => state.pods_known = true,
            Event::Look if state.in_force.is_some() && !is_there(&self.ground.table) => {
                tracing::warn!(
                    table = self.ground.table,
                    "the rules of the pods' network were removed by somebody; made again"
                );
                state.in_force = None;
            }
            Event::Look => {}
        }
    }

    fn enforce(&self, state: &mut State) {
        let rules = state.world.rules();
        let changed = match &mut state.in_force {
            Some(before) => {
                let changes = Changes::between(before, rules);
                if changes.is_empty() {
                    return;
                }
                let changed = send(transaction::change(&self.ground, &changes));
                changed.map(|()| changes.apply(before))
            }
            None => Err(NetlinkError::gone("change rules that are not known")),
        };
        // Somebody may have removed the table.
        let done = changed.or_else(|_| send(transaction::replace(&self.ground, rules)));
        match done {
            Ok(()) => {
                if state.in_force.as_ref() != Some(rules) {
                    state.in_force = Some(rules.clone());
                }
                if state.error.take().is_some() {
                    tracing::info!("the rules of the pods' network are in force again");
                }
            }
            Err(error) => {
                let text = with_causes(&error);
                tracing::error!(error = text, "the rules of the pods' network are not in force, will try again");
                state.in_force = None;
                state.error = Some(text);
            }
        }
    }
}

/// Removes a node's table; none there is fine.
pub(crate) fn remove(table: &str) -> Result<(), NetlinkError> {
    match send(transaction::remove(table)) {
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

/// Makes the rules of a node without pods in this thread's network, to see whether the kernel can.
pub(crate) fn try_rules(ground: &Ground) -> Result<(), NetlinkError> {
    send(transaction::replace(ground, &RuleSet::default()))
}

/// A sentence about rules of others by which pods may reach nobody, if there are such.
pub(crate) fn note_of_others() -> Option<String> {
    let dropping = others::dropping().unwrap_or_default();
    (!dropping.is_empty()).then(|| {
        format!(
            "this machine's firewall drops what pods send where it has no rule for it (chain {}): let links pv+ through, or pods reach \
             neither each other nor the outside",
            dropping.join(", chain ")
        )
    })
}

fn is_there(table: &str) -> bool {
    let asked = Netlink::open(libc::NETLINK_NETFILTER)
        .and_then(|mut netlink| netlink.request("look for the rules of the pods' network", nft::get_table(table)));
    asked.err().and_then(|error| error.errno()) != Some(libc::ENOENT)
}

fn send(messages: Vec<Message>) -> Result<(), NetlinkError> {
    // One that was refused may have more to say, which the next request would take for its answer.
    Netlink::open(libc::NETLINK_NETFILTER)?.batch("change the rules of the pods' network", messages).map(drop)
}

fn tell_of_cut(name: &str, policy: &Policy) {
    if policy.is_cut {
        tracing::warn!(
            namespace = policy.namespace,
            name,
            max = policy::ALLOWS_MAX,
            "a network policy allows more pairs of peers and ports than are looked at; the rest is refused"
        );
    }
}

fn labels_of(namespace: Namespace) -> (String, Labels) {
    (namespace.metadata.name.unwrap_or_default(), namespace.metadata.labels.unwrap_or_default())
}

fn policy_of(object: NetworkPolicy) -> (String, Policy) {
    let policy = Policy::of(&object);
    (object.metadata.name.unwrap_or_default(), policy)
}

/// What rules need to know of a pod at this address.
fn facts_of(pod: &Pod, address: Ipv4Addr) -> PodFacts {
    let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let ports = containers.flat_map(|container| container.ports.iter().flatten()).filter_map(|port| {
        let protocol = Protocol::parse(port.protocol.as_deref().unwrap_or("TCP"))?;
        let name = PortName { name: port.name.clone()?, protocol };
        Some((name, u16::try_from(port.container_port).ok()?))
    });
    let ports: BTreeSet<(String, Protocol, u16)> = ports.map(|(key, port)| (key.name, key.protocol, port)).collect();
    PodFacts {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        address,
        ports: ports.into_iter().map(|(name, protocol, port)| (PortName { name, protocol }, port)).collect(),
    }
}
