//! Tables with running and waiting pods, for the tests of plugins that choose victims.

use crate::facts::{
    Delta, GroupFacts, GroupPhase, GroupStatus, NodeFacts, PodFacts, PodPhase, PodTemplate, QueueFacts,
};
use crate::ids::{TaskId, TimeMs};
use crate::world::tables::Tables;

pub(crate) struct Bench {
    pub(crate) tables: Tables,
}

impl Bench {
    /// One node, `n0`, and the default queue.
    pub(crate) fn new() -> Self {
        let mut bench = Self { tables: Tables::new("default") };
        bench.apply(Delta::QueueUpsert(QueueFacts { name: "default".to_owned(), ..QueueFacts::default() }));
        bench.node("n0", |_| {});
        bench
    }

    pub(crate) fn apply(&mut self, delta: Delta) {
        self.tables.apply(&delta);
    }

    pub(crate) fn node(&mut self, name: &str, change: impl Fn(&mut NodeFacts)) {
        let allocatable = [("cpu", 10_000), ("memory", 64 << 30), ("pods", 110)];
        let mut facts = NodeFacts {
            name: name.into(),
            allocatable: allocatable.map(|(name, amount)| (name.to_owned(), amount)).into(),
            ..NodeFacts::default()
        };
        change(&mut facts);
        self.apply(Delta::NodeUpsert(facts));
    }

    pub(crate) fn group(&mut self, name: &str, min_member: u32, change: impl Fn(&mut GroupFacts)) {
        let mut facts = GroupFacts {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}").into(),
            min_member,
            status: GroupStatus { phase: GroupPhase::Inqueue, ..GroupStatus::default() },
            ..GroupFacts::default()
        };
        change(&mut facts);
        self.apply(Delta::GroupUpsert(Box::new(facts)));
    }

    pub(crate) fn class(&mut self, name: &str, value: i32) {
        self.apply(Delta::PriorityClassUpsert { name: name.to_owned(), value, global_default: false });
    }

    /// A pod that runs on `n0`.
    pub(crate) fn running(&mut self, group: &str, index: u32, change: impl Fn(&mut PodFacts)) -> TaskId {
        self.pod(group, index, |pod| {
            pod.node = Some("n0".into());
            pod.phase = PodPhase::Running;
            change(pod);
        })
    }

    /// A pod without a node.
    pub(crate) fn pending(&mut self, group: &str, index: u32, change: impl Fn(&mut PodFacts)) -> TaskId {
        self.pod(group, index, change)
    }

    fn pod(&mut self, group: &str, index: u32, change: impl Fn(&mut PodFacts)) -> TaskId {
        let name = format!("{group}-{index}");
        let mut facts = PodFacts {
            uid: format!("uid-{name}").into(),
            namespace: "ns".to_owned(),
            name,
            mine: true,
            group: Some(group.to_owned()),
            created: TimeMs(i64::from(index)),
            template: PodTemplate { requests: [("cpu".to_owned(), 1_000)].into(), ..PodTemplate::default() }.into(),
            ..PodFacts::default()
        };
        change(&mut facts);
        let uid = facts.uid.clone();
        self.apply(Delta::TaskUpsert(Box::new(facts)));
        self.tables.tasks.find(&uid).expect("applied just now")
    }
}
