//! Making room: within a queue by priority, and among queues by their shares.

use pumice_bench::figures::Figures;
use pumice_engine::{Delta, QueueFacts};

use crate::cost;
use crate::worlds::{Builder, Group, NOW, resources, template};

const PREEMPTING: &str = "actions: allocate, preempt
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: predicates
  - name: nodeorder
";

const RECLAIMING: &str = "actions: allocate, reclaim
tiers:
- plugins:
  - name: priority
  - name: gang
    enableReclaimable: false
  - name: conformance
    enableReclaimable: false
- plugins:
  - name: predicates
  - name: capacity
    enableHierarchy: true
  - name: nodeorder
";

/// 1,000 nodes full of 10,000 pods, all of which leave for 10,000 jobs of higher priority.
pub fn preempt(figures: &mut Figures) {
    let mut builder = Builder::new(PREEMPTING, 1_000);
    builder.apply(Delta::PriorityClassUpsert { name: "high".to_owned(), value: 1_000, global_default: false });
    for index in 0..1_000_usize {
        let on = |_| Some(format!("n{index:05}").into());
        builder.place(&Group::new(format!("low{index}"), 1, 10, template(3_200, 200)), on);
    }
    for index in 0..10_000 {
        let mut group = Group::new(format!("high{index}"), 1, 1, template(3_200, 200));
        group.priority_class = "high".to_owned();
        builder.group(&group);
    }
    let (plan, cost) = cost::of(|| builder.world.cycle(NOW));
    figures.add("preempt/victims", plan.evictions.len() as f64, "pods", 1);
    figures.add("preempt/cpu", cost.cpu * 1e3, "ms", 1);
    figures.add("preempt/peak", cost.peak_mib, "MiB", 1);
    assert_eq!(plan.evictions.len(), 10_000);
}

/// 1,000 leaf queues in a tree of depth 4: half of them hold all of 1,000 nodes, the other half want their share.
pub fn reclaim(figures: &mut Figures) {
    let mut builder = Builder::new(RECLAIMING, 1_000);
    let queue = |name: String, parent: String, cpu: i64| {
        let deserved = resources(cpu * 1_000, (cpu * 8) << 10, 0);
        Delta::QueueUpsert(QueueFacts { name, parent: Some(parent), weight: 1, deserved, ..QueueFacts::default() })
    };
    builder.apply(Delta::QueueUpsert(QueueFacts { name: "root".to_owned(), weight: 1, ..QueueFacts::default() }));
    for one in 0..10 {
        builder.apply(queue(format!("q{one}"), "root".to_owned(), 3_200));
        for two in 0..10 {
            builder.apply(queue(format!("q{one}-{two}"), format!("q{one}"), 320));
            for three in 0..10 {
                builder.apply(queue(format!("q{one}-{two}-{three}"), format!("q{one}-{two}"), 32));
            }
        }
    }
    let leaf = |index: usize| format!("q{}-{}-{}", index / 100, index / 10 % 10, index % 10);
    for index in 0..1_000_usize {
        let mut group = Group::new(format!("held{index}"), 1, 16, template(2_000, 200));
        group.queue = leaf(index / 2 * 2);
        builder.place(&group, |_| Some(format!("n{index:05}").into()));
    }
    for index in 0..500_usize {
        let mut group = Group::new(format!("wants{index}"), 1, 16, template(2_000, 200));
        group.queue = leaf(index * 2 + 1);
        builder.group(&group);
    }
    let (plan, cost) = cost::of(|| builder.world.cycle(NOW));
    figures.add("reclaim/victims", plan.evictions.len() as f64, "pods", 1);
    figures.add("reclaim/cpu", cost.cpu * 1e3, "ms", 1);
    figures.add("reclaim/peak", cost.peak_mib, "MiB", 1);
}
