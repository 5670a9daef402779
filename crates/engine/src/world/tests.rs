//! Laws of the world and what a cycle must do, on small worlds made by builders.

use crate::*;

mod gangs;
mod laws;
mod limits;
mod review;
mod told;

/// A world under construction, with the built-in configuration.
pub(super) struct Lab {
    pub(super) world: World,
    pub(super) now: TimeMs,
}

pub(super) fn resources(cpu_milli: i64) -> Resources {
    [("cpu".to_owned(), cpu_milli)].into_iter().filter(|(_, amount)| *amount > 0).collect()
}

pub(super) fn node(name: &str, cpu_milli: i64) -> NodeFacts {
    let mut allocatable = resources(cpu_milli);
    allocatable.extend([("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)]);
    NodeFacts { name: name.to_owned(), allocatable, ..NodeFacts::default() }
}

pub(super) fn pod(group: &str, index: u32, cpu_milli: i64) -> PodFacts {
    let name = format!("{group}-{index}");
    PodFacts {
        uid: format!("uid-{name}"),
        namespace: "ns".to_owned(),
        name,
        mine: true,
        group: Some(group.to_owned()),
        created: TimeMs(i64::from(index)),
        template: PodTemplate { requests: resources(cpu_milli), ..PodTemplate::default() },
        ..PodFacts::default()
    }
}

pub(super) fn group(name: &str, min_member: u32) -> GroupFacts {
    GroupFacts {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        min_member,
        status: GroupStatus { phase: GroupPhase::Inqueue, ..GroupStatus::default() },
        ..GroupFacts::default()
    }
}

impl Lab {
    /// Nodes of so many milli-cores, and the default queue.
    pub(super) fn new(nodes: &[i64]) -> Self {
        Self::with(Config::default(), nodes)
    }

    pub(super) fn with(config: Config, nodes: &[i64]) -> Self {
        let mut lab = Self { world: World::new(config), now: TimeMs(1_000_000) };
        lab.queue("default", &[]);
        for (index, cpu) in nodes.iter().enumerate() {
            lab.apply(Delta::NodeUpsert(node(&format!("n{index}"), *cpu)));
        }
        lab
    }

    pub(super) fn apply(&mut self, delta: Delta) {
        self.world.apply(&delta);
    }

    pub(super) fn queue(&mut self, name: &str, capability: &[(&str, i64)]) {
        let capability = capability.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
        self.apply(Delta::QueueUpsert(QueueFacts {
            name: name.to_owned(),
            uid: name.to_owned(),
            capability,
            ..QueueFacts::default()
        }));
    }

    /// A group of pods of equal size, already admitted.
    pub(super) fn gang(&mut self, name: &str, min_member: u32, pods: u32, cpu_milli: i64) {
        let created = TimeMs(self.world.groups().count() as i64);
        self.apply(Delta::GroupUpsert(Box::new(GroupFacts { created, ..group(name, min_member) })));
        for index in 0..pods {
            self.pod(pod(name, index, cpu_milli));
        }
    }

    pub(super) fn pod(&mut self, facts: PodFacts) {
        self.apply(Delta::TaskUpsert(Box::new(facts)));
    }

    pub(super) fn cycle(&mut self) -> Plan {
        let plan = self.world.cycle(self.now);
        assert_eq!(self.world.lint(&plan), Vec::<String>::new());
        plan
    }

    /// Names of the pods that a cycle binds, sorted.
    pub(super) fn binds(&mut self) -> Vec<String> {
        let mut names: Vec<String> = self.cycle().binds.into_iter().map(|bind| bind.name).collect();
        names.sort();
        names
    }

    pub(super) fn why(&self, group: &str) -> String {
        self.world.reasons("ns", group).map_or_else(String::new, ToString::to_string)
    }
}
