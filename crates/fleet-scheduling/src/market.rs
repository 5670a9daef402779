//! Market pools: who bids most has the room.
//!
//! To the engine all jobs of such a pool stand in one queue, in namespaces that are called as their own queues, and what a
//! job bids is its priority: the class first, then the price. So the engine's own order is that of bids, namespaces
//! take turns where bids are equal, and a higher bid makes lower ones leave. Invariant: two jobs have the same
//! priority exactly where class and price are equal, and so neither makes the other leave.
//!
//! Bids are given, never asked for. Jobs away from home bid nothing: they stand in queues of their own, as everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use pumice_engine::{Delta, GroupFacts, ObjectName, PodFacts, PodTemplate, PodUid, QueueFacts, Resources};
use pumice_ledger::{JobId, PriceBand, PriorityClasses};
use rustc_hash::FxHashMap;

use crate::bids::{Bids, Price};
use crate::{away, names};

/// The one queue; no queue's own name has it.
pub(crate) const QUEUE: &str = "(market)";
/// Annotation of a template: the band of its jobs.
const BAND: &str = "pumice.sh/price-band";
/// Priorities lie between this number and its negative: within the 32 bits of the engine, with room between two of them.
const PRIORITY_MAX: i64 = 1_000_000_000;
/// Resources that are not what a pool is full of.
const PODS: &str = "pods";

/// How a market pool tells its price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MarketRules {
    /// Which part of the pool has to be taken before it has a price.
    pub spot_price_cutoff: f64,
}

/// Marks a template with the band of its jobs.
pub(crate) fn mark(template: &mut PodTemplate, band: Option<PriceBand>) {
    template.annotations.extend(band.map(|band| (BAND.to_owned(), band.letter().to_owned())));
}

fn band_of(template: &PodTemplate) -> Option<PriceBand> {
    PriceBand::parse(template.annotations.get(BAND)?)
}

/// What tells bids apart. Lists stand in the order of its fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    class: String,
    queue: String,
    band: Option<PriceBand>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Waits,
    Runs,
    /// It runs and makes no room.
    Stays,
}

impl Key {
    /// What the engine calls the priority class. No two keys have one name.
    fn name(&self) -> String {
        let Self { class, queue, band, stage } = self;
        let stage = match stage {
            Stage::Waits => "waits",
            Stage::Runs => "runs",
            Stage::Stays => "stays",
        };
        let band = band.map_or("-", PriceBand::letter);
        format!("market/{band}/{stage}/{}/{queue}/{class}", queue.len())
    }
}

/// A priority class of the engine.
#[derive(Debug)]
struct Row {
    key: Key,
    value: i32,
    price: Price,
    /// What the engine was told.
    priority: i32,
    tasks: usize,
    /// What those of them hold that have room.
    usage: Resources,
}

impl Row {
    fn level(&self) -> Level {
        Level { value: self.value, price: self.price }
    }
}

#[derive(Debug)]
struct Task {
    class: Arc<str>,
    requests: Option<Resources>,
    gang: Option<GangKey>,
}

/// Namespace and name of a gang's group.
type GangKey = (String, String);

#[derive(Debug, Default)]
struct Gang {
    facts: Option<Box<GroupFacts>>,
    members: BTreeMap<PodUid, Arc<str>>,
    /// The class that the engine was told.
    class: Option<Arc<str>>,
}

/// The market of one pool: the bids that hold there, and the priorities that the engine was told for them.
#[derive(Debug)]
pub(crate) struct Market {
    pool: String,
    rules: MarketRules,
    values: PriorityClasses,
    bids: Arc<Bids>,
    rows: BTreeMap<Arc<str>, Row>,
    ranks: Ranks,
    tasks: FxHashMap<PodUid, Task>,
    gangs: BTreeMap<GangKey, Gang>,
}

impl Market {
    pub(crate) fn new(pool: &str, rules: MarketRules, classes: &PriorityClasses) -> Self {
        Self {
            pool: pool.to_owned(),
            rules,
            values: classes.clone(),
            bids: Arc::default(),
            rows: BTreeMap::new(),
            ranks: Ranks::default(),
            tasks: FxHashMap::default(),
            gangs: BTreeMap::new(),
        }
    }

    /// The one queue as the engine knows it.
    pub(crate) fn queue(weight: i32) -> Delta {
        Delta::QueueUpsert(QueueFacts { name: QUEUE.to_owned(), weight, ..QueueFacts::default() })
    }

    /// Takes in bids; what the engine has to know then. O(kinds of bids + members of gangs), and the engine looks at jobs whose bids change.
    pub(crate) fn bid(&mut self, bids: Arc<Bids>) -> Vec<Delta> {
        if self.bids == bids {
            return Vec::new();
        }
        self.bids = bids;
        self.rows.retain(|_, row| row.tasks > 0);
        for row in self.rows.values_mut() {
            row.price = price(&self.bids, &self.pool, &row.key);
        }
        let used: BTreeSet<Level> = self.rows.values().map(Row::level).collect();
        self.ranks.retain(&used);
        for level in used {
            self.ranks.insert(level);
        }
        let mut told = self.changed();
        told.extend(self.gangs.values_mut().filter_map(|gang| gang.settled(&self.rows)));
        told
    }

    /// Whose priority is not what the engine was told.
    fn changed(&mut self) -> Vec<Delta> {
        let mut told = Vec::new();
        for (name, row) in &mut self.rows {
            let priority = self.ranks.of(row.level());
            if row.priority != priority {
                row.priority = priority;
                told.push(upsert(name, priority));
            }
        }
        told
    }

    /// What the engine is to be told in place of a delta.
    pub(crate) fn translate(&mut self, delta: &Delta) -> Vec<Delta> {
        match delta {
            Delta::TaskUpsert(facts) if is_at_home(facts.queue.as_deref()) => self.task(facts),
            // One that is away now was at home before.
            Delta::TaskUpsert(facts) => {
                self.forget(&facts.uid);
                vec![delta.clone()]
            }
            Delta::TaskRemove(uid) => {
                self.forget(uid);
                vec![delta.clone()]
            }
            Delta::GroupUpsert(facts) if is_at_home(Some(&facts.queue)) => self.gang(facts),
            Delta::GroupRemove { namespace, name, .. } => {
                self.gangs.remove(&(namespace.clone(), name.clone()));
                vec![delta.clone()]
            }
            other => vec![other.clone()],
        }
    }

    fn task(&mut self, facts: &PodFacts) -> Vec<Delta> {
        self.forget(&facts.uid);
        let mut told = Vec::new();
        let stage = match facts.node {
            None => Stage::Waits,
            Some(_) if facts.preemptable == Some(false) => Stage::Stays,
            Some(_) => Stage::Runs,
        };
        let class = self.class(&facts.priority_class, &facts.namespace, band_of(&facts.template), stage, &mut told);
        let holds = facts.node.is_some() && !facts.terminating;
        let requests = holds.then(|| facts.template.requests.clone());
        if let Some(row) = self.rows.get_mut(&class) {
            row.tasks += 1;
            requests.iter().for_each(|requests| add(&mut row.usage, requests, 1));
        }
        let gang = facts.group.as_ref().map(|name| (facts.namespace.clone(), name.clone()));
        if let Some(key) = &gang {
            let gang = self.gangs.entry(key.clone()).or_default();
            gang.members.insert(facts.uid.clone(), class.clone());
            told.extend(gang.settled(&self.rows));
        }
        self.tasks.insert(facts.uid.clone(), Task { class: class.clone(), requests, gang });
        let (queue, priority_class) = (Some(QUEUE.to_owned()), class.to_string());
        told.push(Delta::TaskUpsert(Box::new(PodFacts { queue, priority_class, ..facts.clone() })));
        told
    }

    fn forget(&mut self, uid: &PodUid) {
        let Some(Task { class, requests, gang }) = self.tasks.remove(uid) else { return };
        if let Some(row) = self.rows.get_mut(&class) {
            row.tasks -= 1;
            requests.iter().for_each(|requests| add(&mut row.usage, requests, -1));
        }
        let Some((key, gang)) = gang.and_then(|key| Some((key.clone(), self.gangs.get_mut(&key)?))) else { return };
        gang.members.remove(uid);
        if gang.members.is_empty() && gang.facts.is_none() {
            self.gangs.remove(&key);
        }
    }

    fn gang(&mut self, facts: &GroupFacts) -> Vec<Delta> {
        let mut told = Vec::new();
        let class = self.class(&facts.priority_class, &facts.namespace, None, Stage::Waits, &mut told);
        let gang = self.gangs.entry((facts.namespace.clone(), facts.name.clone())).or_default();
        gang.facts = Some(Box::new(facts.clone()));
        gang.class = None;
        told.extend(gang.settled(&self.rows).or_else(|| gang.update(class)));
        told
    }

    /// The engine's class of a bid, which it is told of if it is new.
    fn class(
        &mut self,
        class: &str,
        queue: &str,
        band: Option<PriceBand>,
        stage: Stage,
        told: &mut Vec<Delta>,
    ) -> Arc<str> {
        let key = Key { class: class.to_owned(), queue: queue.to_owned(), band, stage };
        let name = key.name();
        if let Some((name, _)) = self.rows.get_key_value(name.as_str()) {
            return name.clone();
        }
        let (name, price): (Arc<str>, Price) = (name.into(), price(&self.bids, &self.pool, &key));
        let value = self.values.get(class).map_or(0, |class| class.value);
        let level = Level { value, price };
        if self.ranks.insert(level) {
            told.extend(self.changed());
        }
        let priority = self.ranks.of(level);
        told.push(upsert(&name, priority));
        self.rows.insert(name.clone(), Row { key, value, price, priority, tasks: 0, usage: Resources::new() });
        name
    }

    /// What a group bids, by its name as the engine has it.
    fn of_group(&self, namespace: &str, name: &str) -> Option<&Row> {
        let gang = self.gangs.get(&(namespace.to_owned(), name.to_owned())).and_then(|gang| gang.class.as_ref());
        let class = gang.or_else(|| Some(&self.tasks.get(names::uid_of_single(name)?)?.class))?;
        self.rows.get(class)
    }

    /// Why a run has to make room, and for whom.
    pub(crate) fn reason(&self, uid: &PodUid, beneficiary: Option<&ObjectName>, job: Option<JobId>) -> Option<String> {
        let own = self.rows.get(&self.tasks.get(uid)?.class)?;
        let (namespace, name) = beneficiary?.parts()?;
        let (other, job) = (self.of_group(namespace, name)?, job?);
        let why = if other.value > own.value { "is of a higher class" } else { "bids more" };
        let (own, other, pool) = (own.price, other.price, &self.pool);
        Some(format!("job {job} {why} in market pool {pool}: its bid is {other}, the bid of this job {own}"))
    }

    /// What a group bids, and what room costs.
    pub(crate) fn why(&self, namespace: &str, name: &str, spot: Option<Price>) -> Option<String> {
        let Row { key, price, .. } = self.of_group(namespace, name)?;
        let band = key.band.map_or("no price band".to_owned(), |band| format!("price band {}", band.letter()));
        Some(format!("it bids {price} ({band} of queue {}); {}", key.queue, self.costs(spot)))
    }

    /// What a queue bids, and what room costs.
    pub(crate) fn queue_why(&self, queue: &str, spot: Option<Price>) -> String {
        format!(
            "it is a market, in which queue {queue} bids {}; {}",
            self.bids.text(queue, &self.pool),
            self.costs(spot)
        )
    }

    fn costs(&self, spot: Option<Price>) -> String {
        match spot {
            Some(spot) => format!("the price of the pool is {spot}"),
            None => format!("the pool has no price, of which no more than {} is taken", self.rules.spot_price_cutoff),
        }
    }

    /// The price of the pool: the bid, from the highest down, with which more than the cutoff of any resource is taken.
    pub(crate) fn price(&self, total: &Resources) -> Option<Price> {
        let mut rows: Vec<&Row> = self.rows.values().filter(|row| !row.usage.is_empty()).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.level()));
        let mut taken = Resources::new();
        let is_beyond = |(name, amount): (&String, &i64)| {
            let total = total.get(name).copied().unwrap_or(0);
            #[allow(clippy::cast_precision_loss, reason = "a part of a pool is no exact thing")]
            let part = *amount as f64 / total as f64;
            total > 0 && name != PODS && part > self.rules.spot_price_cutoff
        };
        let sets = rows.into_iter().find(|row| {
            add(&mut taken, &row.usage, 1);
            taken.iter().any(is_beyond)
        });
        sets.map(|row| row.price)
    }
}

impl Gang {
    /// What the engine has to know where the gang's class is another now: it bids what its members bid that bid least, those
    /// that run going before those that wait.
    fn settled(&mut self, rows: &BTreeMap<Arc<str>, Row>) -> Option<Delta> {
        let bid = |class: &Arc<str>| {
            let row = rows.get(class)?;
            Some((row.key.stage == Stage::Waits, row.price, class.clone()))
        };
        let (.., class) = self.members.values().filter_map(bid).min()?;
        self.update(class)
    }

    fn update(&mut self, class: Arc<str>) -> Option<Delta> {
        if self.class.as_ref() == Some(&class) {
            return None;
        }
        let facts = self.facts.as_ref()?;
        let (queue, priority_class) = (QUEUE.to_owned(), class.to_string());
        let told = GroupFacts { queue, priority_class, ..(**facts).clone() };
        self.class = Some(class);
        Some(Delta::GroupUpsert(Box::new(told)))
    }
}

fn is_at_home(queue: Option<&str>) -> bool {
    queue.is_none_or(|queue| away::home_of(queue).is_none())
}

fn upsert(name: &str, value: i32) -> Delta {
    Delta::PriorityClassUpsert { name: name.to_owned(), value, global_default: false }
}

fn price(bids: &Bids, pool: &str, key: &Key) -> Price {
    let bid = bids.of(&key.queue, pool, key.band);
    match key.stage {
        Stage::Waits => bid.queued,
        Stage::Runs => bid.running,
        Stage::Stays => Price::ENDLESS,
    }
}

fn add(sums: &mut Resources, amounts: &Resources, sign: i64) {
    for (name, amount) in amounts {
        let sum = sums.entry(name.clone()).or_default();
        *sum = sum.saturating_add(amount.saturating_mul(sign));
        if *sum == 0 {
            sums.remove(name);
        }
    }
}

/// Priorities for classes and prices, in their order. What comes between two takes the middle, so that the others keep theirs
/// mostly.
#[derive(Debug, Default)]
struct Ranks(BTreeMap<Level, i64>);

/// The class and the price of jobs, in the order in which they go before others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Level {
    /// The value of the class.
    value: i32,
    price: Price,
}

impl Ranks {
    fn retain(&mut self, used: &BTreeSet<Level>) {
        self.0.retain(|level, _| used.contains(level));
    }

    fn of(&self, level: Level) -> i32 {
        self.0.get(&level).and_then(|rank| i32::try_from(*rank).ok()).unwrap_or_default()
    }

    /// Whether the others have new ones, too. O(log n), or O(n) where that is so.
    fn insert(&mut self, level: Level) -> bool {
        if self.0.contains_key(&level) {
            return false;
        }
        let below = self.0.range(..level).next_back().map_or(-PRIORITY_MAX, |(_, rank)| *rank);
        let above =
            self.0.range((Bound::Excluded(level), Bound::Unbounded)).next().map_or(PRIORITY_MAX, |(_, rank)| *rank);
        self.0.insert(level, i64::midpoint(below, above));
        let is_full = above - below < 2;
        if is_full {
            let step = 2 * PRIORITY_MAX / (i64::try_from(self.0.len()).unwrap_or(PRIORITY_MAX) + 1);
            let mut rank = -PRIORITY_MAX;
            for value in self.0.values_mut() {
                rank += step;
                *value = rank;
            }
        }
        is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_keep_the_order_whatever_comes_between() {
        let mut ranks = Ranks::default();
        let mut all: Vec<Level> = Vec::new();
        let at = |step: i32| Level { value: step % 3, price: Price(1.0 / f64::from(step)) };
        for step in 1..400 {
            ranks.insert(at(step));
            all.push(at(step));
        }
        all.sort_unstable();
        let priorities: Vec<i32> = all.iter().map(|level| ranks.of(*level)).collect();
        assert!(priorities.windows(2).all(|pair| pair[0] < pair[1]), "{priorities:?}");
        ranks.retain(&all.iter().copied().take(5).collect());
        assert_eq!(ranks.0.len(), 5);
        let before = ranks.of(all[2]);
        ranks.insert(Level { value: 9, price: Price::ENDLESS });
        assert_eq!(ranks.of(all[2]), before, "others keep theirs");
    }

    #[test]
    fn names_of_classes_are_never_alike() {
        let key = |queue: &str, class: &str| Key {
            class: class.to_owned(),
            queue: queue.to_owned(),
            band: None,
            stage: Stage::Waits,
        };
        assert_ne!(key("a/b", "c").name(), key("a", "b/c").name());
    }
}
