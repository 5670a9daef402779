//! Work that stands: what a cycle costs when nearly all of a million pods can't be placed.

use pumice_bench::figures::Figures;
use pumice_engine::{Delta, PodFacts, PodPhase, TimeMs};

use crate::cost;
use crate::worlds::{Builder, Group, NOW, PLACING, resources, template};

const NODES: usize = 1_000;

/// Fills every node with a pod of another scheduler, and gives its delta.
fn filler(node: usize, cpu_milli: i64) -> Delta {
    Delta::TaskUpsert(Box::new(PodFacts {
        uid: format!("filler-{node}").into(),
        namespace: "ns".to_owned(),
        name: format!("filler-{node}"),
        node: Some(format!("n{node:05}").into()),
        phase: PodPhase::Running,
        template: pumice_engine::PodTemplate { requests: resources(cpu_milli, 0, 0), ..Default::default() }.into(),
        ..PodFacts::default()
    }))
}

/// 1,000,000 pending pods of 200 kinds in 20,000 gangs; 100 nodes change and take 500 pods at most.
pub fn million(figures: &mut Figures) {
    let (mut builder, cost) = cost::of(|| {
        let mut builder = Builder::new(PLACING, NODES);
        (0..NODES).for_each(|node| builder.apply(filler(node, 31_900)));
        for index in 0..20_000_i64 {
            let template = template(5_000 + 10 * (index % 200), 200);
            builder.group(&Group::new(format!("g{index}"), 5, 50, template));
        }
        builder
    });
    figures.add("standing/memory", cost.peak_mib, "MiB", 1_000_000);
    let (plan, cost) = cost::of(|| builder.world.cycle(NOW));
    assert!(plan.binds.is_empty());
    figures.add("standing/first_cycle", cost.cpu * 1e3, "ms", 1);
    let (plan, cost) = cost::of(|| builder.world.cycle(NOW));
    assert!(plan.binds.is_empty());
    figures.add("standing/nothing_changed", cost.cpu * 1e3, "ms", 1);
    let (mut placed, mut costs) = (0, Vec::new());
    for round in 0..5 {
        for node in 0..100 {
            builder.apply(filler(round * 100 + node, 7_000));
        }
        let now = TimeMs(NOW.0 + 60_000 * (1 + round as i64));
        let (plan, cost) = cost::of(|| builder.world.cycle(now));
        assert!((300..=500).contains(&plan.binds.len()), "{} placed", plan.binds.len());
        placed += plan.binds.len();
        costs.push(cost);
    }
    costs.sort_by(|left, right| left.cpu.total_cmp(&right.cpu));
    figures.add("standing/cycle", costs[2].cpu * 1e3, "ms", 5);
    figures.add("standing/placed_per_cycle", placed as f64 / 5.0, "pods", 5);
    figures.add("standing/allocations_per_cycle", costs[2].allocations as f64, "count", 5);
}

/// 10,000 bound pods and 10,000 that fit nowhere: a cycle after a node's heartbeat.
pub fn idle(figures: &mut Figures) {
    let mut builder = Builder::new(PLACING, NODES);
    for index in 0..500_usize {
        let on = |pod: u32| Some(format!("n{:05}", (index * 20 + pod as usize) % NODES).into());
        builder.place(&Group::new(format!("b{index}"), 20, 20, template(1_000, 200)), on);
        builder.group(&Group::new(format!("w{index}"), 20, 20, template(40_000, 200)));
    }
    builder.world.cycle(NOW);
    let (_, cost) = cost::of(|| (1..=200).for_each(|second| drop(builder.world.cycle(TimeMs(NOW.0 + 1_000 * second)))));
    figures.add("idle/cycle", cost.cpu * 1e3 / 200.0, "ms", 200);
}
