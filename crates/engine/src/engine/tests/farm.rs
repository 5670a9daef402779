//! A cluster on which pods run as long as they are said to, for tests of what time brings.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

pub(super) const SECOND: i64 = 1_000;
/// As short as they are here, all of it happens in a few hundred cycles.
pub(super) const SETTINGS: &str = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n\
                        - plugins:\n  - name: predicates\n  - name: nodeorder\nconfigurations:\n- name: reservation\n  \
                        arguments: {after: 1s, ageBound: 60s}\n";
pub(super) const OFF: &str = "actions: enqueue, allocate, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n\
                   - plugins:\n  - name: predicates\n  - name: nodeorder\nconfigurations:\n- name: reservation\n  \
                   arguments: {enable: false}\n";
pub(super) const AGE_BOUND: i64 = 60 * SECOND;

/// A job as it is submitted.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) name: String,
    pub(super) queue: &'static str,
    pub(super) namespace: &'static str,
    pub(super) profile: &'static str,
    pub(super) pods: u32,
    pub(super) cpu_milli: i64,
    pub(super) run_ms: i64,
    pub(super) limit_ms: Option<i64>,
    pub(super) priority_class: &'static str,
    /// It runs on this node only.
    pub(super) pin: Option<usize>,
    /// Its pods are not to be evicted.
    pub(super) stays: bool,
    /// When it is to have ended.
    pub(super) deadline: Option<TimeMs>,
}

impl Work {
    pub(super) fn new(name: &str, pods: u32, cpu_milli: i64, run_ms: i64) -> Self {
        Self {
            name: name.to_owned(),
            queue: "default",
            namespace: "ns",
            profile: "",
            pods,
            cpu_milli,
            run_ms,
            limit_ms: None,
            priority_class: "",
            pin: None,
            stays: false,
            deadline: None,
        }
    }

    pub(super) fn limited(self) -> Self {
        Self { limit_ms: Some(self.run_ms), ..self }
    }

    /// How long its pods really run: what is over its limit is ended.
    pub(super) fn ends_after(&self) -> i64 {
        self.limit_ms.map_or(self.run_ms, |limit| limit.min(self.run_ms))
    }
}

/// A cluster on which pods run as long as they are said to.
pub(super) struct Farm {
    pub(super) lab: Lab,
    pub(super) works: BTreeMap<String, Work>,
    /// Pods that run, by their end.
    pub(super) ends: BTreeMap<(i64, PodUid), PodFacts>,
    pods: BTreeMap<PodUid, PodFacts>,
    /// When each job's last pod of the minimum was bound.
    pub(super) started: BTreeMap<String, i64>,
    /// Who was evicted, when, and for whom.
    pub(super) evicted: Vec<(i64, Eviction)>,
    /// Who was told that it is expected to be late.
    pub(super) late: BTreeSet<String>,
}

impl Farm {
    pub(super) fn new(config: &str, nodes: &[i64]) -> Self {
        let mut farm = Self {
            lab: Lab::of(config, &[]),
            works: BTreeMap::new(),
            ends: BTreeMap::new(),
            pods: BTreeMap::new(),
            started: BTreeMap::new(),
            evicted: Vec::new(),
            late: BTreeSet::new(),
        };
        for (index, cpu_milli) in nodes.iter().enumerate() {
            farm.node(index, *cpu_milli);
        }
        farm
    }

    /// A node joins, under the label that jobs are pinned by.
    pub(super) fn node(&mut self, index: usize, cpu_milli: i64) {
        let name = format!("n{index}");
        let labels = [("name".to_owned(), name.clone())].into();
        self.lab.apply(Delta::NodeUpsert(NodeFacts { labels, ..node(&name, cpu_milli) }));
    }

    /// An administrator keeps nodes from so many seconds from now on until so many.
    pub(super) fn window(&mut self, name: &str, nodes: &[&str], from: i64, to: Option<i64>, queues: &[&str]) {
        self.lab.apply(Delta::WindowUpsert(WindowFacts {
            name: name.to_owned(),
            nodes: nodes.iter().map(|name| (*name).into()).collect(),
            from: self.lab.now.plus_ms(from * SECOND),
            to: to.map(|to| self.lab.now.plus_ms(to * SECOND)),
            queues: queues.iter().map(|name| (*name).to_owned()).collect(),
            ..WindowFacts::default()
        }));
    }

    /// Where the pod of a job runs.
    pub(super) fn node_of(&self, name: &str) -> Option<&str> {
        let of = |facts: &&PodFacts| facts.group.as_deref() == Some(name);
        self.ends.values().find(of).and_then(|facts| facts.node.as_deref())
    }

    /// A node is gone, and what ran there with it.
    pub(super) fn lose_node(&mut self, index: usize) {
        let name = NodeName::from(format!("n{index}"));
        let there = |facts: &PodFacts| facts.node.as_ref() == Some(&name);
        let lost: Vec<(i64, PodUid)> =
            self.ends.iter().filter(|(_, facts)| there(facts)).map(|(key, _)| key.clone()).collect();
        self.lab.apply(Delta::NodeRemove(name));
        for key in lost {
            let facts = self.ends.remove(&key).unwrap();
            self.lab.apply(Delta::TaskRemove(key.1));
            self.left(&facts.group.unwrap());
        }
    }

    pub(super) fn now(&self) -> i64 {
        self.lab.now.0
    }

    pub(super) fn submit(&mut self, work: &Work) {
        let facts = GroupFacts {
            namespace: work.namespace.to_owned(),
            queue: work.queue.to_owned(),
            created: self.lab.now,
            priority_class: work.priority_class.to_owned(),
            run_profile: work.profile.to_owned(),
            deadline: work.deadline,
            owner: Some(OwnerFacts { kind: "Job".into(), name: work.name.clone(), uid: format!("job-{}", work.name) }),
            status: GroupStatus::default(),
            ..group(&work.name, work.pods)
        };
        let tasks = vec![ShapeTask { count: work.pods, template: self.template(work).into(), ..ShapeTask::default() }];
        self.lab.apply(Delta::ShapeUpsert { owner_uid: format!("job-{}", work.name), tasks, ended: false });
        self.lab.apply(Delta::GroupUpsert(Box::new(facts)));
        self.works.insert(work.name.clone(), work.clone());
    }

    pub(super) fn template(&self, work: &Work) -> PodTemplate {
        let node_selector = work.pin.map(|index| ("name".to_owned(), format!("n{index}"))).into_iter().collect();
        PodTemplate { time_limit_ms: work.limit_ms, node_selector, ..(*pod("", 0, work.cpu_milli).template).clone() }
    }

    /// One cycle and what comes of it at once: pods of what was admitted, starts of what was bound.
    pub(super) fn cycle(&mut self) -> Plan {
        let plan = self.lab.cycle();
        self.late.extend(plan.late.iter().map(|late| late.name.clone()));
        for update in &plan.groups {
            self.lab.world.status_result(&update.namespace, &update.name, true);
        }
        for key in &plan.admitted {
            let work = self.works[key.parts().unwrap().1].clone();
            for index in 0..work.pods {
                let facts = PodFacts {
                    namespace: work.namespace.to_owned(),
                    created: self.lab.now,
                    template: self.template(&work).into(),
                    preemptable: work.stays.then_some(false),
                    ..pod(&work.name, index, work.cpu_milli)
                };
                self.pods.insert(facts.uid.clone(), facts.clone());
                self.lab.pod(facts);
            }
        }
        for bind in &plan.binds {
            self.lab.world.bind_result(&bind.uid, Ok(()), self.lab.now);
            let pod = self.pods.remove(&bind.uid).unwrap();
            let name = pod.group.clone().unwrap();
            let started = Some(self.lab.now);
            let facts = PodFacts { node: Some(bind.node.clone()), phase: PodPhase::Running, started, ..pod };
            self.lab.pod(facts.clone());
            self.ends.insert((self.now() + self.works[&name].ends_after(), bind.uid.clone()), facts);
            self.started.insert(name, self.now());
        }
        for eviction in &plan.evictions {
            self.lab.world.evict_result(&eviction.uid, Ok(()), self.lab.now);
            let key = self.ends.keys().find(|(_, uid)| *uid == eviction.uid).cloned().unwrap();
            let facts = PodFacts { terminating: true, ..self.ends.remove(&key).unwrap() };
            self.lab.pod(facts.clone());
            self.ends.insert((self.now() + SECOND, key.1), facts);
            self.evicted.push((self.now(), eviction.clone()));
        }
        plan
    }

    /// Cycles until nothing is left to do now.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            let plan = self.cycle();
            let wanted = plan.next_wakeup.is_some_and(|at| at <= self.lab.now);
            if plan.binds.is_empty() && plan.admitted.is_empty() && !wanted {
                return;
            }
        }
        panic!("never quiet");
    }

    /// Goes on to `time`, and stops wherever something ends.
    pub(super) fn until(&mut self, time: i64) {
        while self.now() < time {
            let end = self.ends.first_key_value().map(|((end, _), _)| *end).filter(|end| *end <= time);
            self.lab.now = TimeMs(end.unwrap_or(time).min(self.now() + SECOND).max(self.now() + 1));
            while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= self.lab.now.0) {
                let ((end, uid), facts) = entry.remove_entry();
                let name = facts.group.clone().unwrap();
                if !facts.terminating {
                    self.lab.pod(PodFacts { phase: PodPhase::Succeeded, ended: Some(TimeMs(end)), ..facts });
                }
                self.lab.apply(Delta::TaskRemove(uid));
                self.left(&name);
            }
            self.settle();
        }
    }

    /// A pod of the job has left; with the last one the job goes.
    fn left(&mut self, name: &str) {
        if !self.ends.values().any(|other| other.group.as_deref() == Some(name)) {
            self.forget(name);
        }
    }

    /// The job has ended, and is deleted.
    fn forget(&mut self, name: &str) {
        let namespace = self.works[name].namespace.to_owned();
        self.lab.apply(Delta::ShapeRemove { owner_uid: format!("job-{name}") });
        self.lab.apply(Delta::GroupRemove { namespace, name: name.to_owned(), uid: "".into() });
    }

    pub(super) fn has_started(&self, name: &str) -> bool {
        self.started.contains_key(name)
    }
}
