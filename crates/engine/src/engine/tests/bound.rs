//! The bound: a gang that needs all that can be had starts in time against an endless stream of small jobs, what was promised
//! is kept, and a small job that delays nobody starts in the very cycle in which it fits.
//!
//! Each seed is a cluster, a stream and what goes wrong; `PUMICE_BOUND_SEEDS` says how many are run.

use super::farm::{AGE_BOUND, Farm, SECOND, SETTINGS, Work};
use std::collections::BTreeMap;

use super::*;
use crate::ids::NodeId;
use crate::resource_dims::CPU;
use crate::world::end_times::Confidence;
use crate::world::reservations::Reservation;

/// The longest that any small job runs, and so the longest limit.
const LONGEST: i64 = 40 * SECOND;
/// What it may take beyond the bound to be next for long enough, and to be looked at.
const SLACK: i64 = 5 * SECOND;
/// Jobs that wait at a time.
const WAITING_MAX: usize = 12;
const GANG: &str = "gang";
/// Seeds of scenes that went wrong once: a gang stayed on nodes that had turned into such as nothing can be promised on; pods
/// that were told to go were expected to stay for longer than their limit let them, and others passed what was promised; what was kept of a queue's
/// limit was kept on when the last reservation was over.
const BROKEN_ONCE: [u64; 7] = [1_772, 5_419, 8_339, 3_238, 7_630, 1_365, 7_093];

/// Equal seeds give equal numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        i64::try_from((mixed ^ (mixed >> 31)) % u64::try_from(end).unwrap()).unwrap()
    }

    fn one_in(&mut self, times: i64) -> bool {
        self.below(times) == 0
    }
}

/// What a seed stands for.
#[derive(Debug)]
struct Scene {
    nodes: usize,
    cores: i64,
    /// Nodes, the first ones, on which a service runs that never ends: the gang needs all others.
    services: usize,
    /// The gang is of a queue of its own, which may hold just what the gang needs.
    own_queue: bool,
    capability: bool,
    /// The gang has no limit, and nothing like it ever ran.
    endless_gang: bool,
    /// One small job in so many has no limit, but a kind that is known; it may run longer than its kind did.
    learned: i64,
    overruns: bool,
    /// One in so many goes before the gang, until the gang has waited for so long.
    urgent: i64,
    /// When the gang comes, in seconds.
    arrival: i64,
    /// When a node is lost, and for how long, in seconds.
    lost: Option<(i64, i64)>,
    window: Option<Closing>,
}

/// An administrator closes the last node. All in seconds.
#[derive(Debug, Clone, Copy)]
struct Closing {
    /// When he says so.
    at: i64,
    /// After how long it begins.
    begins: i64,
    /// How long it takes.
    long: i64,
}

impl Scene {
    fn new(dice: &mut Dice) -> Self {
        let nodes = 2 + dice.below(4);
        let own_queue = dice.one_in(2);
        let arrival = dice.below(16);
        Self {
            nodes: usize::try_from(nodes).unwrap(),
            cores: 1 + dice.below(4),
            services: usize::try_from(if dice.one_in(3) { 1 + dice.below(nodes - 1) } else { 0 }).unwrap(),
            own_queue,
            capability: own_queue && dice.one_in(2),
            endless_gang: dice.one_in(4),
            learned: if dice.one_in(2) { 2 + dice.below(4) } else { 0 },
            overruns: dice.one_in(2),
            urgent: if dice.one_in(4) { 6 } else { 0 },
            arrival,
            lost: dice.one_in(4).then(|| (arrival + dice.below(90), 1 + dice.below(20))),
            window: dice.one_in(4).then(|| Closing {
                at: arrival + dice.below(60),
                begins: dice.below(40),
                long: 1 + dice.below(30),
            }),
        }
    }

    fn queue(&self) -> &'static str {
        if self.own_queue { "other" } else { "default" }
    }

    fn gang(&self) -> Work {
        let pods = u32::try_from(self.nodes - self.services).unwrap();
        let work = Work::new(GANG, pods, self.cores * 1_000, 5 * SECOND);
        let work = if self.endless_gang { work } else { work.limited() };
        Work { queue: self.queue(), ..work }
    }

    fn small(&self, dice: &mut Dice, index: i64) -> Work {
        let run = (1 + dice.below(LONGEST / SECOND)) * SECOND;
        let cpu_milli = (1 + dice.below(self.cores.min(3))) * 1_000;
        let work = Work::new(&format!("small-{index}"), 1, cpu_milli, run);
        let queue = if dice.one_in(2) { "other" } else { "default" };
        let learned = self.learned > 0 && dice.one_in(self.learned);
        let early = index < self.arrival + 20;
        let work = if learned {
            let longer = if self.overruns && dice.one_in(4) { 3 } else { 1 };
            Work { profile: "known", run_ms: (4 + dice.below(4)) * SECOND * longer, ..work }
        } else {
            work.limited()
        };
        let urgent = early && self.urgent > 0 && dice.one_in(self.urgent);
        Work { queue, priority_class: if urgent { "high" } else { "" }, ..work }
    }

    fn farm(&self) -> Farm {
        let mut farm = Farm::new(SETTINGS, &vec![self.cores * 1_000; self.nodes]);
        let capability: i64 = i64::from(self.gang().pods) * self.cores * 1_000;
        let limit = [("cpu", capability)];
        farm.lab.queue("other", if self.capability { &limit } else { &[] });
        farm.lab.queue("services", &[]);
        farm.lab.apply(Delta::PriorityClassUpsert { name: "high".into(), value: 10, global_default: false });
        farm.lab.apply(Delta::RunsLearned {
            namespace: "ns".into(),
            profile: "known".into(),
            runs_ms: vec![5_000, 6_000, 7_000],
        });
        for index in 0..self.services {
            let service = Work::new(&format!("service-{index}"), 1, 1_000, 1_000_000 * SECOND);
            farm.submit(&Work { queue: "services", pin: Some(index), profile: "service", ..service });
        }
        farm.settle();
        farm
    }
}

/// What has been promised, and what is to be kept of it.
#[derive(Debug, Default)]
struct Watch {
    /// The earliest start that a group was promised.
    promised: BTreeMap<String, i64>,
}

impl Watch {
    /// What was promised holds no longer: more has happened than jobs that come after.
    fn disturbed(&mut self) {
        self.promised.clear();
    }

    fn look(&mut self, farm: &Farm) {
        let (tables, now) = (farm.lab.tables(), farm.now());
        for reservation in tables.reservations.all.iter().filter(|one| one.hard) {
            let name = tables.groups.row(reservation.group).name().to_owned();
            if let Some(forecast) = reservation.forecast.as_ref().filter(|one| one.confidence == Confidence::Certain) {
                let promise = self.promised.entry(name).or_insert(forecast.at.0);
                *promise = (*promise).min(forecast.at.0);
            }
        }
        for (name, promise) in &self.promised {
            let started = farm.started.get(name).copied().unwrap_or(now);
            assert!(started <= *promise, "{name} was promised {promise}, it is {now}: {}", farm.lab.why(name));
        }
        // What is kept by ends that are learned is as good as when it was last looked at.
        let is_fresh = |one: &Reservation| {
            let certain = one.forecast.as_ref().is_none_or(|forecast| forecast.confidence == Confidence::Certain);
            certain || one.renew_at.0 == now + SECOND
        };
        if !tables.reservations.all.iter().all(is_fresh) {
            return;
        }
        let waiting = farm.works.values().filter(|work| work.pods == 1 && !farm.has_started(&work.name));
        for work in waiting {
            if let Some(node) = delays_nobody_on(farm, work) {
                let reserved = &tables.reservations.all;
                panic!("{work:?} could start on n{node} at {now}: {}\n{reserved:#?}", farm.lab.why(&work.name));
            }
        }
    }
}

/// The node on which the job would fit now and delay no reservation, by looking at all of it anew.
fn delays_nobody_on(farm: &Farm, work: &Work) -> Option<usize> {
    let (tables, now) = (farm.lab.tables(), farm.lab.now);
    let group = tables.groups.table.find(&format!("ns/{}", work.name))?;
    // What came after its own is no obstacle.
    let all = &tables.reservations.all;
    let counted = &all[..all.iter().position(|one| one.group == group).unwrap_or(all.len())];
    let end = work.limit_ms.map(|limit| now.plus_ms(limit));
    let queue = farm.lab.queue_id(work.queue);
    let limit = tables.queues.row(queue).capability.iter().find(|(dim, _)| *dim == CPU).map(|(_, limit)| *limit);
    let held = |by: &dyn Fn(crate::ids::TaskId) -> bool| -> i64 {
        let holding = tables.tasks.iter().filter(|(_, row)| row.state.holds_node());
        holding.filter(|(task, _)| by(*task)).map(|(_, row)| tables.classes.row(row.class).demand.get(CPU)).sum()
    };
    let of_queue = |task| tables.task(task).group.is_some_and(|group| tables.groups.row(group).queue == queue);
    if limit.is_some_and(|limit| held(&of_queue) + work.cpu_milli > limit) {
        return None;
    }
    let delays = |node: NodeId, reservation: &Reservation| {
        let Some(forecast) = &reservation.forecast else { return false };
        if end.is_some_and(|end| end <= forecast.at) {
            return false;
        }
        let stays = |task| tables.end_of(task, forecast.confidence, now).is_none_or(|end| end > forecast.at);
        let of_limit = reservation.queue == queue
            && limit.is_some_and(|limit| {
                let needed = crate::world::minimum::missing(tables, reservation.group).total;
                let needed = needed.get(CPU.index()).copied().unwrap_or(0);
                held(&|task| of_queue(task) && stays(task)) + needed + work.cpu_milli > limit
            });
        let on_node = |one: &&Reservation| one.forecast.as_ref().is_some_and(|other| other.at <= forecast.at);
        let before = counted.iter().filter(on_node);
        let needed: i64 = before.map(|one| amount_on(one, node)).sum();
        let there = |task| tables.task(task).node == Some(node) && stays(task);
        let of_node = amount_on(reservation, node) > 0
            && held(&there) + needed + work.cpu_milli > tables.nodes.allocatable(node, CPU);
        of_limit || of_node
    };
    (0..64).find(|index| {
        let Some(node) = tables.nodes.table.find(&format!("n{index}")) else { return false };
        tables.nodes.row(node).known
            && work.pin.is_none_or(|pin| pin == *index)
            && !tables.maintenance_windows.all.iter().any(|window| {
                let ends_before = end.is_some_and(|end| end <= window.from);
                window.nodes.contains(node.index()) && !ends_before
            })
            && tables.nodes.idle(node, CPU) >= work.cpu_milli
            && !counted.iter().any(|reservation| delays(node, reservation))
    })
}

fn amount_on(reservation: &Reservation, node: NodeId) -> i64 {
    let places = reservation.forecast.iter().flat_map(|forecast| &forecast.places);
    let amounts = places.filter(|place| place.node == node).flat_map(|place| &place.amounts);
    amounts.filter(|(dim, _)| *dim == CPU).map(|(_, amount)| *amount).sum()
}

/// Goes on to `time` and looks wherever something has happened.
fn go_on(farm: &mut Farm, watch: &mut Watch, time: i64) {
    while farm.now() < time {
        let end = farm.ends.first_key_value().map_or(time, |((end, _), _)| *end);
        let step = end.max(farm.now() + 1).min(time);
        farm.until(step);
        watch.look(farm);
    }
}

/// Since when all that comes before the gang has started; nothing while something has not.
fn next_since(farm: &Farm, scene: &Scene, began: i64) -> Option<i64> {
    let mut since = began;
    for work in farm.works.values().filter(|work| work.queue == scene.queue() && work.pods == 1) {
        let index: i64 = work.name.strip_prefix("small-").map_or(-1, |index| index.parse().unwrap());
        if index <= scene.arrival || work.priority_class == "high" {
            since = since.max(*farm.started.get(&work.name)?);
        }
    }
    Some(since)
}

/// Runs a scene until the gang has started. False if what came before it took all the time.
fn run(seed: u64) -> bool {
    let mut dice = Dice(seed);
    let scene = Scene::new(&mut dice);
    let (mut farm, mut watch) = (scene.farm(), Watch::default());
    let begin = farm.now();
    let mut undisturbed = begin;
    let most = AGE_BOUND + LONGEST + SLACK;
    for second in 0..scene.arrival + 400 {
        let now = begin + second * SECOND;
        if let Some((at, long)) = scene.lost {
            if second == at {
                farm.lose_node(scene.nodes - 1);
            } else if second == at + long {
                farm.node(scene.nodes - 1, scene.cores * 1_000);
            }
            if second == at || second == at + long {
                watch.disturbed();
                undisturbed = now;
            }
        }
        if let Some(Closing { at, begins, long }) = scene.window {
            if second == at {
                let name = format!("n{}", scene.nodes - 1);
                farm.window("upgrade", &[&name], begins, Some(begins + long), &[]);
                watch.disturbed();
            }
            if (at..=at + begins + long).contains(&second) {
                undisturbed = now;
            }
        }
        // Endless, but no longer than keeps all nodes busy.
        let small = scene.small(&mut dice, second);
        if farm.works.len() - farm.started.len() < WAITING_MAX || second < scene.arrival {
            if small.priority_class == "high" {
                watch.disturbed();
            }
            farm.submit(&small);
        }
        if second == scene.arrival {
            farm.submit(&scene.gang());
        }
        farm.settle();
        watch.look(&farm);
        if farm.has_started(GANG) {
            return true;
        }
        go_on(&mut farm, &mut watch, now + SECOND);
        if let Some(next) = next_since(&farm, &scene, begin + scene.arrival * SECOND) {
            let waited = farm.now() - next.max(undisturbed);
            assert!(
                farm.has_started(GANG) || waited <= most,
                "the gang waits for {waited} of {most}: {}\n{scene:?}",
                farm.lab.why(GANG)
            );
        }
    }
    false
}

// INV-19
#[test]
fn a_gang_that_needs_all_nodes_starts_within_its_bound_and_nobody_waits_without_need() {
    let seeds: u64 = std::env::var_os("PUMICE_BOUND_SEEDS")
        .map_or(16, |text| text.to_str().and_then(|text| text.parse().ok()).expect("PUMICE_BOUND_SEEDS is a number"));
    let first: u64 = std::env::var_os("PUMICE_BOUND_FIRST")
        .map_or(0, |text| text.to_str().and_then(|text| text.parse().ok()).expect("PUMICE_BOUND_FIRST is a number"));
    let mut told = 0;
    assert!(BROKEN_ONCE.into_iter().all(run));
    for seed in first..first + seeds {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(started) => told += u64::from(started),
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("in {told} of {seeds} scenes the gang was next in time, and started in time");
    assert!(4 * told >= 3 * seeds, "only {told} of {seeds} tell anything");
}
