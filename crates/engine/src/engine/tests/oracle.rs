//! A brute-force oracle: on small random worlds an independent bookkeeper (`naive`) tries everything and says what must
//! have happened. Nothing that fits stays pending, nothing is over, gangs come whole, everything ends.

use std::collections::BTreeSet;

use proptest::prelude::*;

use self::naive::{Naive, Pod};
use self::scene::{Amounts, RESOURCES, Scene, UNITS, as_amounts, flat, priority_class, tree};
use super::*;

mod found;
mod naive;
pub(super) mod scene;

/// Cycles without anything from outside until all is quiet.
const CYCLES_MAX: usize = 40;

/// Under which configuration, and what it promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    Shipped,
    Stock,
    Binpack,
    Capacity,
    /// Plugins that know no shares decide about victims of other queues, as in Volcano's usual layout of tiers.
    Tiers,
    Strict,
}

const STOCK: &str = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  \
                     - name: conformance\n- plugins:\n  - name: overcommit\n  - name: drf\n  - name: predicates\n  \
                     - name: proportion\n  - name: nodeorder\n";
const BINPACK: &str = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n  \
                       - name: conformance\n- plugins:\n  - name: predicates\n  - name: binpack\n";
/// As shipped, capacity is among those that decide about victims of other queues: they alone know shares.
const CAPACITY: &str = "actions: enqueue, allocate, preempt, reclaim, backfill\ntiers:\n- plugins:\n  - name: priority\n  \
                        - name: gang\n    enablePreemptable: false\n    enableReclaimable: false\n    \
                        enableJobStarving: false\n  - name: conformance\n    enableReclaimable: false\n- plugins:\n  \
                        - name: conformance\n    enablePreemptable: false\n  - name: predicates\n  \
                        - name: capacity\n    enableHierarchy: true\n  - name: nodeorder\n";
const TIERS: &str = "actions: enqueue, allocate, preempt, reclaim, backfill\ntiers:\n- plugins:\n  - name: priority\n  \
                     - name: gang\n    enablePreemptable: false\n    enableJobStarving: false\n  - name: conformance\n\
                     - plugins:\n  - name: predicates\n  - name: capacity\n    enableHierarchy: true\n  \
                     - name: nodeorder\n";
const STRICT: &str = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n\
                      - plugins:\n  - name: predicates\n  - name: nodeorder\nconfigurations:\n- name: fairness\n  \
                      arguments: {strict: true}\n";

impl Setting {
    pub(super) const ALL: [Self; 6] =
        [Self::Shipped, Self::Stock, Self::Binpack, Self::Capacity, Self::Tiers, Self::Strict];

    pub(super) fn config(self) -> Config {
        let text = match self {
            Self::Shipped => return Config::default(),
            Self::Stock => STOCK,
            Self::Binpack => BINPACK,
            Self::Capacity => CAPACITY,
            Self::Tiers => TIERS,
            Self::Strict => STRICT,
        };
        let (config, warnings) = Config::parse(text).unwrap();
        assert_eq!(warnings, []);
        config
    }

    /// Pods whose class says so are never evicted.
    fn protects(self) -> bool {
        matches!(self, Self::Shipped | Self::Capacity | Self::Tiers)
    }

    fn has_tree(self) -> bool {
        matches!(self, Self::Capacity | Self::Tiers)
    }
}

/// What a queue deserved in the last cycle.
fn deserved_by(world: &World, queue: &str) -> Resources {
    let queue = world.queues().into_iter().find(|view| *view.name == *queue);
    queue.and_then(|view| view.deserved).unwrap_or_default()
}

/// The engine and the bookkeeper side by side.
struct Trial {
    setting: Setting,
    lab: Lab,
    naive: Naive,
    serial: u32,
    /// Since something happened outside.
    seen: BTreeSet<Loss>,
}

/// One group lost some of a resource to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Loss {
    loser: usize,
    winner: usize,
    resource: usize,
}

impl Trial {
    fn new(setting: Setting, scene: &Scene) -> Self {
        let lab = Lab::with(setting.config(), &[]);
        let naive = Naive::new(scene, setting.has_tree());
        let mut trial = Self { setting, lab, naive, serial: 0, seen: BTreeSet::new() };
        for (index, node) in scene.nodes.iter().enumerate() {
            trial.lab.apply(Delta::NodeUpsert(node.facts(index)));
        }
        for queue in &scene.queues {
            trial.lab.apply(Delta::QueueUpsert(queue.facts(&scene.queues)));
        }
        for priority in 0..3 {
            let (name, value) = (priority_class(priority), priority as i32);
            trial.lab.apply(Delta::PriorityClassUpsert { name, value, global_default: false });
        }
        for (index, group) in scene.groups.iter().enumerate() {
            trial.lab.apply(Delta::GroupUpsert(Box::new(group.facts(index, &scene.queues))));
            for plan in &group.pods {
                let node = plan.runs.filter(|node| trial.naive.may_run(index, plan, *node));
                trial.make(Pod { group: index, plan: plan.clone(), serial: 0, node, ended: false, leaves_in: None });
            }
        }
        trial
    }

    fn make(&mut self, mut pod: Pod) {
        self.serial += 1;
        pod.serial = self.serial;
        let facts = self.facts(&pod);
        self.naive.pods.insert(facts.uid.clone(), pod);
        self.lab.pod(facts);
    }

    fn facts(&self, pod: &Pod) -> PodFacts {
        let facts = pod.plan.facts(pod.group, self.naive.scene.groups[pod.group].namespace, pod.serial);
        let phase = match pod.node {
            Some(_) => PodPhase::Running,
            None if pod.ended => PodPhase::Succeeded,
            None => PodPhase::Pending,
        };
        PodFacts { node: pod.node.map(|node| format!("n{node}").into()), phase, ..facts }
    }

    fn tell(&mut self, uid: &str) {
        let facts = self.facts(&self.naive.pods[uid]);
        self.lab.pod(facts);
    }

    /// One cycle and all that comes of it. False if nothing did.
    fn step(&mut self) -> bool {
        let plan = self.lab.cycle();
        for update in &plan.groups {
            self.lab.world.status_result(&update.namespace, &update.name, true);
        }
        self.bound(&plan);
        let leaving = self.leave();
        self.evicted(&plan);
        self.lab.now = self.lab.now.plus_ms(1_000);
        leaving
            || !plan.binds.is_empty()
            || !plan.evictions.is_empty()
            || !plan.pipelined.is_empty()
            || !plan.admitted.is_empty()
    }

    fn bound(&mut self, plan: &Plan) {
        let mut groups = BTreeSet::new();
        for bind in &plan.binds {
            let node: usize = bind.node[1..].parse().unwrap();
            let pod = self.naive.pods.get_mut(&bind.uid).expect("only pods that were made are bound");
            assert!(pod.node.is_none() && !pod.ended, "{bind:?}");
            pod.node = Some(node);
            let (group, plan) = (pod.group, pod.plan.clone());
            assert!(self.naive.suits(&plan, node), "{bind:?}");
            groups.insert(group);
            self.lab.world.bind_result(&bind.uid, Ok(()), self.lab.now);
            self.tell(&bind.uid);
        }
        assert_eq!(self.naive.over(), Vec::<String>::new());
        for group in groups {
            let (occupied, min) = (self.naive.occupied(group), self.naive.scene.groups[group].min);
            assert!(occupied >= min, "g{group} starts with {occupied} of {min}");
        }
    }

    /// Pods that were told to leave go when their time has come, and are made again. True if any is on its way.
    fn leave(&mut self) -> bool {
        let uids: Vec<PodUid> =
            self.naive.pods.iter().filter(|(_, pod)| pod.leaves_in.is_some()).map(|(uid, _)| uid.clone()).collect();
        for uid in &uids {
            let pod = self.naive.pods.get_mut(uid).unwrap();
            match pod.leaves_in {
                Some(0) => self.replace(uid),
                left => pod.leaves_in = left.map(|left| left - 1),
            }
        }
        !uids.is_empty()
    }

    fn replace(&mut self, uid: &str) {
        let old = self.naive.pods.remove(uid).unwrap();
        self.lab.apply(Delta::TaskRemove(uid.into()));
        self.make(Pod { node: None, leaves_in: None, ..old });
    }

    fn evicted(&mut self, plan: &Plan) {
        let mut lost = Vec::new();
        for eviction in &plan.evictions {
            let lingers = self.naive.scene.lingers;
            let setting = self.setting;
            let pod = self.naive.pods.get_mut(&eviction.uid).expect("only pods that were made are evicted");
            assert!(pod.node.is_some() && pod.leaves_in.is_none(), "{eviction:?}");
            assert!(!(setting.protects() && pod.plan.protected), "{eviction:?}");
            pod.leaves_in = Some(lingers);
            let (group, amounts) = (pod.group, pod.plan.amounts);
            self.lab.world.evict_result(&eviction.uid, Ok(()), self.lab.now);
            if lingers == 0 {
                self.replace(&eviction.uid);
            }
            if let Some(beneficiary) = &eviction.beneficiary {
                let winner: usize = beneficiary.split_once("/g").unwrap().1.parse().unwrap();
                let taken = (0..RESOURCES.len()).filter(|at| amounts[*at] > 0);
                lost.extend(taken.map(|resource| Loss { loser: group, winner, resource }));
            }
        }
        for Loss { loser, winner, resource } in lost.iter().copied() {
            let back = winner != loser && self.seen.contains(&Loss { loser: winner, winner: loser, resource });
            assert!(!back, "g{loser} and g{winner} take {} from each other", RESOURCES[resource]);
        }
        self.seen.extend(lost);
    }

    fn until_quiet(&mut self) {
        self.seen.clear();
        for _ in 0..CYCLES_MAX {
            // Twice: what a cycle has learned may let the next one act.
            if !self.step() && !self.step() {
                return;
            }
        }
        panic!("still moving after {CYCLES_MAX} cycles");
    }

    /// What queues may hold where shares are limits.
    fn shares(&self) -> Option<Vec<Amounts>> {
        let views = self.lab.world.queues();
        let deserved = |queue: &scene::QueuePlan| {
            let view = views.iter().find(|view| view.name == queue.name);
            let deserved = view.and_then(|view| view.deserved.clone()).unwrap_or_default();
            let all = |index: usize| self.naive.scene.nodes.iter().map(|node| node.amounts[index]).sum::<i64>();
            let mut amounts = as_amounts(&deserved);
            for (index, amount) in amounts.iter_mut().enumerate() {
                // One that deserves all there is has no limit of its own.
                if *amount >= all(index) {
                    *amount = i64::MAX / 4;
                }
            }
            amounts
        };
        (self.setting == Setting::Stock).then(|| self.naive.scene.queues.iter().map(deserved).collect())
    }

    /// Groups of which something waits although there is a way to place it.
    fn left_behind(&self) -> Vec<usize> {
        let shares = self.shares();
        let groups = 0..self.naive.scene.groups.len();
        let waits = |group: &usize| {
            let missing = self.naive.scene.groups[*group].min as usize > self.naive.of_group(*group).count();
            !missing && !self.naive.waiting(*group).is_empty()
        };
        let mut found = Vec::new();
        let mut held_up = BTreeSet::new();
        let mut groups: Vec<usize> = groups.filter(waits).collect();
        // Gangs that have started come last.
        let started = |group: usize| {
            let idle = self.naive.waiting(group).iter().filter(|pod| pod.plan.amounts == [0; 3]).count() as u32;
            self.naive.occupied(group) + idle >= self.naive.scene.groups[group].min
        };
        let priority = |group: usize| std::cmp::Reverse(self.naive.scene.groups[group].priority);
        groups.sort_by_key(|group| (priority(*group), started(*group)));
        for group in groups {
            let plan = &self.naive.scene.groups[group];
            if self.setting == Setting::Strict && held_up.contains(&plan.queue) {
                continue;
            }
            if self.naive.could_go_on(group, shares.as_deref()) {
                found.push(group);
            } else if self.naive.occupied(group) < plan.min.max(1) && self.naive.fits_empty(group) {
                held_up.insert(plan.queue);
            }
        }
        found
    }

    fn check(&self) {
        let left = self.left_behind();
        let why = |group: &usize| {
            let namespace = format!("ns{}", self.naive.scene.groups[*group].namespace);
            let reasons = self.lab.world.reasons(&namespace, &format!("g{group}"));
            format!("g{group}: {}", reasons.map_or_else(String::new, |reasons| reasons.to_string()))
        };
        assert!(left.is_empty(), "left waiting: {:?}\n{:?}", left.iter().map(why).collect::<Vec<_>>(), self.naive);
    }

    /// Ends the pod that was made first, of those that run.
    fn end_one(&mut self) -> bool {
        let runs = |pod: &&Pod| pod.node.is_some() && pod.leaves_in.is_none();
        let Some(serial) = self.naive.pods.values().filter(runs).map(|pod| pod.serial).min() else { return false };
        let uid = self.naive.pods.iter().find(|(_, pod)| pod.serial == serial).unwrap().0.clone();
        let pod = self.naive.pods.get_mut(&uid).unwrap();
        pod.node = None;
        pod.ended = true;
        self.tell(&uid);
        true
    }

    fn play(setting: Setting, scene: &Scene) {
        let mut trial = Self::new(setting, scene);
        trial.until_quiet();
        trial.check();
        while trial.end_one() {
            trial.until_quiet();
            trial.check();
        }
        for group in 0..scene.groups.len() {
            // By Volcano's rules a share smaller than any pod lets none start.
            let done = trial.naive.waiting(group).is_empty() || setting == Setting::Stock;
            assert!(done || !trial.naive.could_go_on(group, None), "g{group} never ran: {:?}", trial.naive);
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn with_what_is_shipped(scene in flat()) {
        Trial::play(Setting::Shipped, &scene);
    }

    #[test]
    fn with_volcanos_default(scene in flat()) {
        Trial::play(Setting::Stock, &scene);
    }

    #[test]
    fn with_binpack(scene in flat()) {
        Trial::play(Setting::Binpack, &scene);
    }

    #[test]
    fn with_a_tree_of_capacities(scene in tree()) {
        Trial::play(Setting::Capacity, &scene);
    }

    #[test]
    fn with_capacities_behind_other_tiers(scene in tree()) {
        Trial::play(Setting::Tiers, &scene);
    }

    #[test]
    fn in_strict_order(scene in flat()) {
        Trial::play(Setting::Strict, &scene);
    }

    /// Per resource all there is, or all that is wanted and allowed, give or take a unit a queue.
    #[test]
    fn shares_add_up(scene in flat()) {
        let mut trial = Trial::new(Setting::Stock, &scene);
        trial.lab.cycle();
        for (index, (resource, unit)) in RESOURCES.into_iter().zip(UNITS).enumerate() {
            let total: i64 = scene.nodes.iter().map(|node| node.amounts[index]).sum();
            let wanted = |queue: usize| {
                let of_queue = scene.groups.iter().filter(|group| group.queue == queue);
                let wanted = of_queue.flat_map(|group| &group.pods).map(|pod| pod.amounts[index]).sum::<i64>();
                wanted.min(scene.queues[queue].capability[index].filter(|limit| *limit > 0 || index == 2).unwrap_or(total)).min(total)
            };
            let expected = unit * total.min((0..scene.queues.len()).map(wanted).sum());
            let deserved = |queue: &scene::QueuePlan| deserved_by(&trial.lab.world, &queue.name).get(resource).copied();
            let shared: i64 = scene.queues.iter().filter_map(deserved).sum();
            prop_assert!((shared - expected).abs() <= scene.queues.len() as i64, "{resource}: {shared} of {expected}");
        }
    }
}
