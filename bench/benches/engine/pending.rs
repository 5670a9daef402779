//! A million Jobs that wait to be admitted, of thousands of kinds, beside nodes that are full: what each of them holds in
//! memory, what a cycle costs when nothing or little changes, and what it costs to ask for one of them.

use pumice_bench::figures::Figures;
use pumice_engine::{
    Config, Delta, GroupFacts, GroupPhase, GroupStatus, OwnerFacts, Plan, PodFacts, PodPhase, PodTemplate, QueueFacts,
    ShapeTask, TimeMs, World,
};

use crate::cost;
use crate::worlds::{NOW, node, resources, template};

const NODES: usize = 5_000;
/// Pods on each node: they fill it.
const PODS_PER_NODE: usize = 4;
const QUEUES: usize = 20;
/// Users of each queue, each with a namespace.
const USERS: usize = 25;
/// Kinds of Jobs of each user.
const SHAPES: usize = 10;
const JOBS: usize = 1_000_000;
const ASKED: usize = 2_000;
const IDLE_CYCLES: i64 = 200;
const ENDS: usize = 20;

struct Standing {
    world: World,
    now: TimeMs,
}

fn queue(index: usize) -> String {
    format!("queue-{:02}", index % QUEUES)
}

fn namespace(index: usize) -> String {
    format!("user-{:03}", index % (QUEUES * USERS))
}

fn shape(index: usize) -> PodTemplate {
    let kind = index / (QUEUES * USERS) % SHAPES;
    let user = index % (QUEUES * USERS);
    template(1_000 + 700 * kind as i64 + user as i64, 512 + 64 * kind as i64)
}

fn job(index: usize) -> GroupFacts {
    let name = format!("train-{index:07}");
    let uid = format!("0b2ad1c4-5f0e-4d1b-9f5e-{index:012}");
    GroupFacts {
        namespace: namespace(index),
        name: format!("{name}-{uid}"),
        uid: format!("7c1e44aa-2b9f-4f06-8a51-{index:012}").into(),
        queue: queue(index),
        min_member: 1,
        min_task_member: [("worker".to_owned(), 1)].into(),
        min_resources: Some(shape(index).requests),
        created: TimeMs(NOW.0 - 86_400_000 + 86 * index as i64),
        owner: Some(OwnerFacts { kind: "Job".to_owned(), name, uid }),
        run_profile: "train".to_owned(),
        status: GroupStatus { phase: GroupPhase::Pending, ..GroupStatus::default() },
        ..GroupFacts::default()
    }
}

fn running(index: usize, phase: PodPhase) -> PodFacts {
    PodFacts {
        uid: format!("running-{index}").into(),
        namespace: namespace(index),
        name: format!("running-{index}"),
        mine: true,
        group: Some(format!("running-{index}")),
        role: "worker".to_owned(),
        node: Some(format!("n{:05}", index % NODES).into()),
        phase,
        started: Some(TimeMs(NOW.0 - 60_000)),
        ended: (phase == PodPhase::Succeeded).then_some(NOW),
        template: template(32_000 / PODS_PER_NODE as i64, 1_024).into(),
        ..PodFacts::default()
    }
}

impl Standing {
    /// Full nodes, and queues that hold all that they may.
    fn new() -> Self {
        let mut standing = Self { world: World::new(Config::default()), now: NOW };
        let cpu = (NODES * 32_000 / QUEUES) as i64;
        for index in 0..QUEUES {
            let facts = QueueFacts {
                name: queue(index),
                uid: queue(index),
                weight: 1,
                capability: resources(cpu, 0, 0),
                ..QueueFacts::default()
            };
            standing.apply(Delta::QueueUpsert(facts));
        }
        (0..NODES).for_each(|index| standing.apply(Delta::NodeUpsert(node(index))));
        for index in 0..NODES * PODS_PER_NODE {
            standing.apply(Delta::GroupUpsert(Box::new(GroupFacts {
                namespace: namespace(index),
                name: format!("running-{index}"),
                uid: format!("running-{index}").into(),
                queue: queue(index),
                min_member: 1,
                status: GroupStatus { phase: GroupPhase::Running, running: 1, ..GroupStatus::default() },
                ..GroupFacts::default()
            })));
            standing.apply(Delta::TaskUpsert(Box::new(running(index, PodPhase::Running))));
        }
        standing
    }

    fn apply(&mut self, delta: Delta) {
        self.world.apply(&delta);
    }

    fn submit(&mut self, index: usize) {
        let facts = job(index);
        let owner_uid = facts.owner.as_ref().map(|owner| owner.uid.clone()).unwrap_or_default();
        let tasks = vec![ShapeTask {
            role: "worker".to_owned(),
            count: 1,
            template: shape(index).into(),
            ..ShapeTask::default()
        }];
        self.apply(Delta::ShapeUpsert { owner_uid, tasks, ended: false });
        self.apply(Delta::GroupUpsert(Box::new(facts)));
    }

    /// A cycle, a second after the one before; all that it writes is written.
    fn cycle(&mut self) -> (Plan, cost::Cost) {
        self.now = TimeMs(self.now.0 + 1_000);
        let now = self.now;
        let (plan, cost) = cost::of(|| self.world.cycle(now));
        for update in &plan.groups {
            self.world.status_result(&update.namespace, &update.name, true);
        }
        for bind in &plan.binds {
            self.world.bind_result(&bind.uid, Ok(()), now);
        }
        (plan, cost)
    }
}

fn writes(plan: &Plan) -> usize {
    plan.groups.len() + plan.pods.len() + plan.queues.len() + plan.late.len()
}

fn sorted(mut all: Vec<f64>) -> Vec<f64> {
    all.sort_by(f64::total_cmp);
    all
}

fn middle(all: Vec<f64>) -> f64 {
    let all = sorted(all);
    all[all.len() / 2]
}

/// 1,000,000 Jobs without pods in 5,000 lines.
pub fn million(figures: &mut Figures) {
    let mut standing = Standing::new();
    standing.cycle();
    let before = cost::held_bytes();
    (0..JOBS).for_each(|index| standing.submit(index));
    let loaded = cost::held_bytes();
    let (_, cost) = standing.cycle();
    figures.add("pending/first_cycle", cost.cpu * 1e3, "ms", 1);
    // The first of each queue is admitted after a while, so that room can be reserved for it.
    let mut plan = standing.cycle().0;
    while writes(&plan) + plan.admitted.len() > 0 {
        plan = standing.cycle().0;
    }
    let told = cost::held_bytes();
    figures.add("pending/bytes_per_job", (told - before) as f64 / JOBS as f64, "bytes", JOBS);
    figures.add("pending/reasons_bytes_per_job", (told - loaded) as f64 / JOBS as f64, "bytes", JOBS);
    let mut written = 0;
    let costs = (0..IDLE_CYCLES).map(|_| {
        let (plan, cost) = standing.cycle();
        written += writes(&plan);
        cost.cpu * 1e3
    });
    let nothing_changed = middle(costs.collect());
    figures.add("pending/nothing_changed", nothing_changed, "ms", IDLE_CYCLES as usize);
    figures.add("pending/idle_writes", written as f64, "count", IDLE_CYCLES as usize);
    ends(figures, &mut standing);
    ask(figures, &mut standing);
}

/// A pod ends, a group is admitted in its place, its pod is made and starts.
fn ends(figures: &mut Figures, standing: &mut Standing) {
    let (mut admitting, mut placing, mut started) = (Vec::new(), Vec::new(), 0);
    for index in 0..ENDS {
        standing.apply(Delta::TaskUpsert(Box::new(running(index, PodPhase::Succeeded))));
        let (plan, cost) = standing.cycle();
        admitting.push(cost.cpu * 1e3);
        for key in &plan.admitted {
            let (namespace, group) = key.parts().expect("a group is named by its namespace and name");
            let number: usize = group[6..13].parse().expect("the Job's number");
            standing.apply(Delta::TaskUpsert(Box::new(PodFacts {
                uid: format!("pod-of-{group}").into(),
                namespace: namespace.to_owned(),
                name: format!("{group}-worker-0"),
                mine: true,
                group: Some(group.to_owned()),
                role: "worker".to_owned(),
                created: standing.now,
                template: shape(number).into(),
                ..PodFacts::default()
            })));
        }
        let (plan, cost) = standing.cycle();
        placing.push(cost.cpu * 1e3);
        started += plan.binds.len();
    }
    assert!(started > 0, "what ends makes room");
    figures.add("pending/one_end", middle(admitting), "ms", ENDS);
    figures.add("pending/one_start", middle(placing), "ms", ENDS);
}

/// Why one of them waits: what the last cycle knows, and the whole answer with who holds what and what would help.
fn ask(figures: &mut Figures, standing: &mut Standing) {
    let asked = || (0..ASKED).map(|number| job(number * (JOBS / ASKED) + JOBS / ASKED / 2));
    let reasons = asked().map(|facts| {
        let (reasons, cost) = cost::of(|| standing.world.reasons(&facts.namespace, &facts.name));
        assert!(reasons.is_some_and(|reasons| !reasons.to_string().is_empty()), "{} waits", facts.name);
        cost.cpu * 1e3
    });
    let reasons = sorted(reasons.collect());
    let whole = asked().map(|facts| {
        let (why, cost) = cost::of(|| standing.world.why(&facts.namespace, &facts.name));
        assert!(why.is_some_and(|why| why.line.is_some()), "{} has a place in line", facts.name);
        cost.cpu * 1e3
    });
    let whole = sorted(whole.collect());
    figures.add("pending/reasons_p99", reasons[ASKED * 99 / 100], "ms", ASKED);
    figures.add("pending/why_p50", whole[ASKED / 2], "ms", ASKED);
    figures.add("pending/why_p99", whole[ASKED * 99 / 100], "ms", ASKED);
    figures.add("pending/why_most", whole[ASKED - 1], "ms", ASKED);
}
