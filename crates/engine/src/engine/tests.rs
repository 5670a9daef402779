//! Laws of the world and what a cycle must do, on small worlds made by builders.

use proptest::test_runner::RngSeed;

use crate::plan::Eviction;
use crate::*;

mod autoscaling;
mod bound;
mod circles;
mod claims;
mod coupled;
mod deadlines;
mod dependents;
mod domains;
mod eviction;
mod fairness;
mod farm;
mod gangs;
mod gates;
mod hostile;
mod known;
mod large_first;
mod laws;
mod limits;
mod lines;
mod oracle;
mod orders;
mod reservations;
mod review;
mod saved;
mod sums;
mod told;
mod whole_gangs;
mod why;
mod windows;

/// A world under construction, with the built-in configuration.
pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) now: TimeMs,
}

/// So many cases, the same in every run, so that a change is judged by what it changes; or as much more as
/// `PROPTEST_CASES` asks for, and others each time.
fn cases(ordinary: u32) -> proptest::test_runner::Config {
    /// What proptest does by itself.
    const CASES: u32 = 256;
    let mut config = proptest::test_runner::Config::default();
    if config.cases == CASES && config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(4);
    }
    let cases = u64::from(config.cases) * u64::from(ordinary) / u64::from(CASES);
    proptest::test_runner::Config { cases: u32::try_from(cases).unwrap_or(u32::MAX).max(1), ..config }
}

pub(crate) fn resources(cpu_milli: i64) -> Resources {
    [("cpu".to_owned(), cpu_milli)].into_iter().filter(|(_, amount)| *amount > 0).collect()
}

pub(crate) fn node(name: &str, cpu_milli: i64) -> NodeFacts {
    let mut allocatable = resources(cpu_milli);
    allocatable.extend([("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)]);
    NodeFacts { name: name.into(), allocatable, ..NodeFacts::default() }
}

pub(crate) fn pod(group: &str, index: u32, cpu_milli: i64) -> PodFacts {
    let name = format!("{group}-{index}");
    PodFacts {
        uid: format!("uid-{name}").into(),
        namespace: "ns".to_owned(),
        name,
        mine: true,
        group: Some(group.to_owned()),
        created: TimeMs(i64::from(index)),
        template: PodTemplate { requests: resources(cpu_milli), ..PodTemplate::default() }.into(),
        ..PodFacts::default()
    }
}

pub(crate) fn group(name: &str, min_member: u32) -> GroupFacts {
    GroupFacts {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}").into(),
        min_member,
        status: GroupStatus { phase: GroupPhase::Inqueue, ..GroupStatus::default() },
        ..GroupFacts::default()
    }
}

impl Lab {
    /// Nodes of so many milli-cores, and the default queue.
    pub(crate) fn new(nodes: &[i64]) -> Self {
        Self::with(Config::default(), nodes)
    }

    pub(crate) fn with(config: Config, nodes: &[i64]) -> Self {
        let mut lab = Self { world: World::new(config), now: TimeMs(1_000_000) };
        lab.queue("default", &[]);
        for (index, cpu) in nodes.iter().enumerate() {
            lab.apply(Delta::NodeUpsert(node(&format!("n{index}"), *cpu)));
        }
        lab
    }

    /// The configuration of a file, which must be good.
    pub(crate) fn of(config: &str, nodes: &[i64]) -> Self {
        let (config, warnings) = Config::parse(config).unwrap();
        assert_eq!(warnings, []);
        Self::with(config, nodes)
    }

    pub(crate) fn tables(&self) -> &crate::world::tables::Tables {
        &self.world.tables
    }

    /// The queue of that name.
    pub(crate) fn queue_id(&self, name: &str) -> crate::ids::QueueId {
        self.tables().queues.table.find(name).unwrap()
    }

    /// The group of that name.
    pub(crate) fn group_id(&self, name: &str) -> crate::ids::GroupId {
        self.tables().groups.table.find(&format!("ns/{name}")).unwrap()
    }

    /// The pod of a group.
    pub(crate) fn task_id(&self, group: &str, index: u32) -> crate::ids::TaskId {
        self.tables().tasks.find(&format!("uid-{group}-{index}")).unwrap()
    }

    pub(crate) fn apply(&mut self, delta: Delta) {
        self.world.apply(&delta);
    }

    pub(crate) fn queue(&mut self, name: &str, capability: &[(&str, i64)]) {
        let capability = capability.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
        self.apply(Delta::QueueUpsert(QueueFacts {
            name: name.to_owned(),
            uid: name.to_owned(),
            capability,
            ..QueueFacts::default()
        }));
    }

    /// A group of pods of equal size, already admitted.
    pub(crate) fn gang(&mut self, name: &str, min_member: u32, pods: u32, cpu_milli: i64) {
        let created = TimeMs(self.world.groups().count() as i64);
        self.apply(Delta::GroupUpsert(Box::new(GroupFacts { created, ..group(name, min_member) })));
        for index in 0..pods {
            self.pod(pod(name, index, cpu_milli));
        }
    }

    pub(crate) fn pod(&mut self, facts: PodFacts) {
        self.apply(Delta::TaskUpsert(Box::new(facts)));
    }

    /// The phase of a group.
    pub(crate) fn phase(&self, group: &str) -> GroupPhase {
        self.tables().groups.row(self.group_id(group)).phase
    }

    pub(crate) fn cycle(&mut self) -> Plan {
        let plan = self.world.cycle(self.now);
        let told = |evicted: &Eviction| format!("{} of {} by {}", evicted.name, evicted.group, evicted.action);
        let evictions: Vec<String> = plan.evictions.iter().map(told).collect();
        let binds: Vec<&str> = plan.binds.iter().map(|bind| bind.name.as_str()).collect();
        assert_eq!(self.world.lint(&plan), Vec::<String>::new(), "{binds:?} {evictions:?}");
        plan
    }

    /// Names of the pods that a cycle binds, sorted.
    pub(crate) fn binds(&mut self) -> Vec<String> {
        let mut names: Vec<String> = self.cycle().binds.into_iter().map(|bind| bind.name).collect();
        names.sort();
        names
    }

    pub(crate) fn why(&self, group: &str) -> String {
        self.world.reasons("ns", group).map_or_else(String::new, |reasons| reasons.to_string())
    }
}
