//! Scheduling: what waits in the ledger meets the nodes of all clusters, in the engine that clusters use.
//!
//! A pool has a [`Pool`] with a World of its own, so that pools decide side by side. The ledger's side, [`PoolView`], tells
//! it only what it can use: runs that hold room, and the first of each queue's lines. What a round finds are proposals;
//! they count once the ledger took them in. Pure: the server gives the time and carries everything to and fro.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pumice_engine::plugin::Registry;
use pumice_engine::{
    Argument, Config, Delta, Eviction, NodeFacts, ObjectName, Plan, PluginConfig, PodUid, QueueFacts, Resources,
    Switches, TimeMs, World, amount_text,
};
use pumice_ledger::{Away, JobId, NodeRef, PRIORITY_FACTOR_MIN, Preemption, PriorityClasses, Proposal, Queue, RunId};

use crate::away::{self, Ways};
use crate::bids::{Bids, Price};
use crate::constraints::{Allowance, Constraints};
use crate::market::{self, Market};
use crate::names::{self, node_name, node_ref};
use crate::plugins::class_shares::{self, ClassShares};
use crate::plugins::home_filter::{self, HomeFilter, Pass};
use crate::plugins::job_order::{self, JobOrder};
use crate::plugins::limits::{self, LimitHandoff, Limits};
use crate::plugins::short_job_penalty::{self, ShortJobPenalty};
use crate::pool_view::PoolUpdate;
use crate::rate_limits::Meter;
use crate::{gang_uniformity, volcano_jobs};

/// The plugin that divides a pool among queues, and its argument for what a queue keeps.
const SHARES: &str = "proportion";
const PROTECTED: &str = "protectedFraction";
/// The action that takes from queues what is beyond their shares.
const RECLAIM: &str = "reclaim";
/// What a queue's weight is at priority factor 1.
const WEIGHT: f64 = 1000.0;

/// Jobs of a group and their nodes.
type Placed = Vec<(JobId, NodeRef)>;

/// The nodes of a pool and what runs and waits there.
#[derive(Debug)]
pub struct Pool {
    name: String,
    pub(crate) world: World,
    /// What the last rounds proposed and nobody settled yet: runs, and what the engine calls them.
    proposed: BTreeMap<RunId, Vec<PodUid>>,
    /// When the engine wants a round even if nothing happens.
    wakes: Option<TimeMs>,
    /// Where the limits of the next round are handed over.
    handoff: Arc<LimitHandoff>,
    /// Labels of which gangs want one value.
    labels: gang_uniformity::Labels,
    /// Who may be away from home, and whose turn it is.
    ways: Ways,
    pass: Arc<Pass>,
    /// Who bids what, where bids decide.
    market: Option<Market>,
    /// How fast runs may be made to leave for shares.
    leaving: Option<Meter>,
}

impl Pool {
    /// A pool without nodes and limits.
    pub fn new(name: &str, classes: &PriorityClasses) -> Self {
        Self::within(name, classes, Arc::default())
    }

    /// A pool without nodes, with these limits.
    pub fn within(name: &str, classes: &PriorityClasses, constraints: Arc<Constraints>) -> Self {
        let handoff = Arc::new(LimitHandoff::default());
        let mut registry = Registry::default();
        let market = constraints.markets.get(name).map(|rules| Market::new(name, *rules, classes));
        let ranks = market.is_none();
        registry.add(job_order::NAME, &[], move |_| Ok(Box::new(JobOrder { ranks })));
        registry.add(gang_uniformity::NAME, &[], |_| Ok(Box::new(gang_uniformity::Uniformity)));
        let (ways, pass) = (Ways::new(&constraints.away, name), Arc::new(Pass::default()));
        let (pool, home, of) = (name.to_owned(), constraints.away.of(name).home, pass.clone());
        registry.add(home_filter::NAME, &[], move |_| {
            Ok(Box::new(HomeFilter { home, pool: pool.clone(), pass: of.clone() }))
        });
        let of = handoff.clone();
        registry.add(short_job_penalty::NAME, &[], move |_| Ok(Box::new(ShortJobPenalty::new(of.clone()))));
        let (pool, limits, hand) = (name.to_owned(), constraints.clone(), handoff.clone());
        registry.add(limits::NAME, &[], move |_| Ok(Box::new(Limits::new(&pool, limits.clone(), hand.clone()))));
        // There are no objects that could say why they wait: who asks is answered.
        let mut config = Config { tells_pods: false, gangs_leave_whole: true, large_first: true, ..Config::default() };
        constraints.placements.of(name).put(&mut config);
        let plugin = |name: &str| PluginConfig {
            name: name.to_owned(),
            switches: Switches::default(),
            arguments: BTreeMap::new(),
        };
        let protected = Argument::Float(constraints.protected.of(name));
        for proportion in config.tiers.iter_mut().flatten().filter(|plugin| plugin.name == SHARES) {
            proportion.arguments.insert(PROTECTED.to_owned(), protected.clone());
        }
        registry.add(class_shares::NAME, &[], |_| Ok(Box::new(ClassShares)));
        // It has a say where the plugin that divides the pool has one.
        for tier in config.tiers.iter_mut().filter(|tier| tier.iter().any(|plugin| plugin.name == SHARES)) {
            tier.push(plugin(class_shares::NAME));
        }
        // After the class's value, before everything that looks at shares.
        config.tiers[0].splice(
            1..1,
            [job_order::NAME, short_job_penalty::NAME, home_filter::NAME, limits::NAME, gang_uniformity::NAME]
                .map(plugin),
        );
        let mut world = World::with_plugins(config, registry);
        for (name, class) in classes {
            let (name, value) = (name.clone(), class.value);
            world.apply(&Delta::PriorityClassUpsert { name, value, global_default: false });
        }
        for delta in ways.classes() {
            world.apply(&delta);
        }
        let mut pool = Self {
            name: name.to_owned(),
            world,
            proposed: BTreeMap::new(),
            wakes: None,
            handoff,
            labels: gang_uniformity::Labels::default(),
            ways,
            pass,
            market,
            leaving: constraints.preemption_rates.get(name).copied().map(Meter::new),
        };
        if pool.is_market() {
            pool.apply(&[Market::queue(WEIGHT as i32)]);
        }
        pool
    }

    /// The pool, as nodes and the configuration name it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether bids decide here.
    pub fn is_market(&self) -> bool {
        self.market.is_some()
    }

    /// What queues bid from now on. Only where [bids decide](Self::is_market) that means anything.
    pub fn bid(&mut self, bids: Arc<Bids>) {
        let told = self.market.as_mut().map(|market| market.bid(bids));
        for delta in told.iter().flatten() {
            self.world.apply(delta);
        }
    }

    /// The price of the pool, as of what it was told last: the bid, from the highest down, with which more than the cutoff of
    /// it is taken.
    pub fn spot_price(&self) -> Option<Price> {
        self.market.as_ref()?.price(&self.world.total())
    }

    /// Takes in what a [`PoolView`] tells.
    pub fn take_in(&mut self, told: Vec<PoolUpdate>) {
        self.world.reserve(told.len());
        for one in told {
            match one {
                PoolUpdate::Run(run) => run.pods().for_each(|pod| self.apply(&[Delta::TaskUpsert(Box::new(pod))])),
                PoolUpdate::Delta(delta) => self.apply(&[*delta]),
            }
        }
    }

    /// Takes in changes of nodes and queues.
    pub fn apply(&mut self, deltas: &[Delta]) {
        if !self.ways.any() {
            return self.tell(deltas);
        }
        for delta in deltas {
            let all = self.ways.expand(delta);
            self.tell(&all);
        }
    }

    fn tell(&mut self, deltas: &[Delta]) {
        for delta in deltas {
            let parts = match delta {
                Delta::NodeUpsert(facts) => self.labels.node(facts),
                Delta::GroupUpsert(facts) => self.labels.gang(facts, &self.world),
                _ => Vec::new(),
            };
            let translated = self.market.as_mut().map(|market| market.translate(delta));
            let told = translated.as_deref().unwrap_or(std::slice::from_ref(delta));
            for delta in parts.iter().chain(told) {
                self.world.apply(delta);
            }
        }
    }

    /// What the next rounds may start; without a word of it, whatever has room.
    pub fn allow(&mut self, allowance: Allowance) {
        self.handoff.give(allowance);
    }

    /// Whether the last round could have started more, had its own limit or a rate let it.
    pub fn cut_short(&self) -> bool {
        self.handoff.cut_short()
    }

    /// One round. Every proposal wants to be [`settled`](Self::settle).
    pub fn round(&mut self, now: TimeMs) -> Vec<Proposal> {
        let again = self.ways.begin(now);
        self.tell(&again);
        let first = self.pass(now);
        let mut proposals = self.proposals(&first, now);
        let settled = self.ways.settled(&first, now);
        self.tell(&settled);
        if self.ways.have_turns() {
            self.pass.set(true);
            self.handoff.go_on(true);
            let second = self.pass(now);
            self.pass.set(false);
            self.handoff.go_on(false);
            self.wakes = [first.next_wakeup, second.next_wakeup].into_iter().flatten().min();
            proposals.extend(self.proposals(&second, now));
        }
        proposals
    }

    fn pass(&mut self, now: TimeMs) -> Plan {
        let plan = self.world.cycle(now);
        self.confirm_groups(&plan);
        self.wakes = plan.next_wakeup;
        plan
    }

    fn proposals(&mut self, plan: &Plan, now: TimeMs) -> Vec<Proposal> {
        let mut proposals = self.leases(plan, now);
        let slow = self.too_fast(plan, now);
        proposals.extend(plan.evictions.iter().filter(|eviction| !slow.contains(&eviction.group)).filter_map(
            |eviction| {
                let run = names::run_of(&eviction.uid)?;
                let known = self.proposed.entry(run).or_default();
                known.push(eviction.uid.clone());
                // Of a Volcano job all pods go with the first.
                if known.len() > 1 {
                    return None;
                }
                let beneficiary = eviction.beneficiary.as_deref().and_then(names::job_of);
                let market = self.market.as_ref();
                let bids =
                    market.and_then(|market| market.reason(&eviction.uid, eviction.beneficiary.as_ref(), beneficiary));
                let reason = bids.unwrap_or_else(|| reason(eviction, beneficiary));
                let preemption = Preemption { reason, beneficiary, requestor: String::new() };
                Some(Proposal::Preempt { run, preemption })
            },
        ));
        proposals
    }

    /// Groups that would leave for somebody's share and stay, since too many have left lately. A gang leaves where one run may.
    fn too_fast<'p>(&mut self, plan: &'p Plan, now: TimeMs) -> BTreeSet<&'p ObjectName> {
        let Some(leaving) = &mut self.leaving else { return BTreeSet::new() };
        let mut groups: BTreeMap<&ObjectName, Vec<&PodUid>> = BTreeMap::new();
        for eviction in plan.evictions.iter().filter(|eviction| eviction.action == RECLAIM) {
            groups.entry(&eviction.group).or_default().push(&eviction.uid);
        }
        let mut slow = BTreeSet::new();
        for (group, uids) in groups {
            if !leaving.take(uids.len(), pumice_ledger::TimeMs(now.0)) {
                uids.iter().for_each(|uid| self.world.evict_result(uid, Err("too many have left lately"), now));
                slow.insert(group);
            }
        }
        slow
    }

    /// Why the last round did not start a group (see [`group_of`]), when it is expected to start, and what would help;
    /// nothing where no round looked at it.
    pub fn why(&mut self, namespace: &str, group: &str) -> Option<String> {
        let mut why = self.world.why(namespace, group)?.to_string();
        let spot = self.spot_price();
        if let Some(bid) = self.market.as_ref().and_then(|market| market.why(namespace, group, spot)) {
            why.push_str(&format!("\n  {bid}"));
        }
        for (group, nodes) in self.ways.groups(group) {
            let held = self.world.why(namespace, &group).map_or_else(|| "not tried".to_owned(), |why| why.to_string());
            why.push_str(&format!(
                "\n  it could also run away from home, on {nodes}, where home jobs go first: {held}"
            ));
        }
        Some(why)
    }

    /// What a queue has here, and what it waits for.
    pub fn queue_why(&self, name: &str) -> Option<String> {
        let mut why = self.world.queue_why(name)?.to_string();
        if let Some(market) = &self.market {
            let all = self.world.queue_why(market::QUEUE).map(|why| why.to_string()).unwrap_or_default();
            why = format!("{}\n  of all queues: {all}", market.queue_why(name, self.spot_price()));
        }
        if self.ways.any()
            && let Some(away) = self.world.queue_why(&away::queue_of_twins(name))
        {
            why = format!("{why}\n  away from home: {away}");
        }
        Some(why)
    }

    /// What a queue holds here, what it deserves, and how much of it waits, in a line.
    pub fn queue_line(&self, name: &str) -> Option<String> {
        let why = self.world.queue_why(name)?;
        let deserved = why.deserved.unwrap_or_default();
        let names: BTreeSet<&String> = why.allocated.keys().chain(deserved.keys()).collect();
        let amount = |amounts: &Resources, name: &str| amount_text(name, amounts.get(name).copied().unwrap_or(0));
        let parts = names.into_iter().filter(|name| *name != "pods").map(|name| {
            let due = if deserved.is_empty() { String::new() } else { format!(" of {}", amount(&deserved, name)) };
            format!("{name} {}{due}", amount(&why.allocated, name))
        });
        let mut line = format!("queue {name}: {}; {} wait", parts.collect::<Vec<_>>().join(", "), why.waiting);
        line.extend(why.held_up.map(|held_up| format!("; {held_up}")));
        Some(line)
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.world.node_count()
    }

    /// When a round is wanted even if nothing happens before.
    pub fn wakes(&self) -> Option<TimeMs> {
        self.wakes
    }

    /// What the plan says of groups would be written on a cluster; here it is known at once.
    fn confirm_groups(&mut self, plan: &Plan) {
        for update in &plan.groups {
            self.world.status_result(&update.namespace, &update.name, true);
        }
    }

    /// Whether the ledger took a proposal.
    pub fn settle(&mut self, proposal: &Proposal, taken: bool, now: TimeMs) {
        let answer = if taken { Ok(()) } else { Err("the ledger has moved on") };
        match proposal {
            Proposal::Lease { .. } | Proposal::LeaseVolcanoJob { .. } => {
                for (job, _) in proposal.starts() {
                    let runs = RunId { job, attempt: 0 }..=RunId { job, attempt: u32::MAX };
                    let Some(run) = self.proposed.range(runs).next().map(|(run, _)| *run) else { continue };
                    for uid in self.proposed.remove(&run).into_iter().flatten() {
                        self.world.bind_result(&uid, answer, now);
                        if !taken {
                            let again = self.ways.again(&uid);
                            self.tell(&again);
                        }
                    }
                }
            }
            Proposal::Preempt { run, .. } => {
                for uid in self.proposed.remove(run).into_iter().flatten() {
                    self.world.evict_result(&uid, answer, now);
                }
            }
            Proposal::Reject { .. } => {}
        }
    }

    /// The binds of a plan, by gang.
    fn leases(&mut self, plan: &Plan, now: TimeMs) -> Vec<Proposal> {
        let mut groups: BTreeMap<&ObjectName, (Placed, Option<Away>)> = BTreeMap::new();
        let mut wholes = volcano_jobs::Bound::default();
        for bind in &plan.binds {
            let (Some(run), Some(at)) = (names::run_of(&bind.uid), node_ref(&bind.node)) else { continue };
            if self.proposed.contains_key(&run) && !wholes.has(run) {
                // It starts already: at home or away, or with those of its pods that an earlier pass found room for.
                self.world.bind_result(&bind.uid, Err("it starts elsewhere"), now);
                continue;
            }
            self.proposed.entry(run).or_default().push(bind.uid.clone());
            let Some(pod) = names::pod_of(&bind.uid) else {
                let (jobs, away) = groups.entry(&bind.group).or_default();
                jobs.push((run.job, at));
                *away = self.ways.away(&bind.uid);
                continue;
            };
            wholes.add(run, at, pod);
        }
        let pool = || self.name.clone();
        let leases = groups.into_values().map(|(jobs, away)| Proposal::Lease { jobs, pool: pool(), away });
        leases.chain(wholes.proposals(&self.name)).collect()
    }
}

/// Why a run has to leave, in words that name for whom.
fn reason(eviction: &Eviction, beneficiary: Option<JobId>) -> String {
    let queue = eviction.beneficiary.as_ref().and_then(ObjectName::parts).map(|(queue, _)| queue);
    match (eviction.action.as_str(), beneficiary, queue) {
        ("preempt", Some(job), Some(queue)) => format!("job {job} of queue {queue} goes before it"),
        (RECLAIM, Some(job), Some(queue)) => {
            format!(
                "its queue holds more than its share, and job {job} of queue {queue} wants what is due to that queue"
            )
        }
        (_, Some(job), _) => format!("{} (job {job})", eviction.message),
        _ => eviction.message.clone(),
    }
}

/// A node of a cluster as the engine knows it.
pub fn node_delta(cluster: &str, mut facts: NodeFacts) -> Delta {
    facts.name = node_name(cluster, &facts.name);
    Delta::NodeUpsert(facts)
}

/// A queue as the engine knows it: a share of 1 / priority factor.
pub fn queue_delta(queue: &Queue) -> Delta {
    #[allow(clippy::cast_possible_truncation)] // bounded by the clamp
    let weight = (WEIGHT / queue.priority_factor.max(PRIORITY_FACTOR_MIN)).round().clamp(1.0, WEIGHT) as i32;
    Delta::QueueUpsert(QueueFacts { name: queue.name.clone(), weight, ..QueueFacts::default() })
}
