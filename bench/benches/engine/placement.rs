//! Placing: how many pods a second of CPU, and what one costs beside the plain loop.

use pumice_bench::figures::Figures;
use pumice_engine::Plan;

use crate::worlds::{Builder, Group, NOW, PLACING, template};
use crate::{baseline, cost};

/// Pods that the plain loop places for comparison: it takes the same for each.
const BASELINE_PODS: usize = 500;

/// One cycle; all of `pods` must be placed.
pub fn cycle(figures: &mut Figures, name: &str, builder: &mut Builder, pods: usize) -> f64 {
    let (plan, cost): (Plan, _) = cost::of(|| builder.world.cycle(NOW));
    assert_eq!(plan.binds.len(), pods, "{name}");
    figures.add(&format!("{name}/rate"), pods as f64 / cost.cpu, "pods/s", pods);
    figures.add(&format!("{name}/cpu"), cost.cpu * 1e3, "ms", 1);
    figures.add(&format!("{name}/allocations_per_pod"), cost.allocations as f64 / pods as f64, "count", pods);
    figures.add(&format!("{name}/peak"), cost.peak_mib, "MiB", 1);
    cost.cpu / pods as f64
}

/// The same with the plain loop beside it.
fn beside_loop(figures: &mut Figures, name: &str, builder: &mut Builder, nodes: usize, requests: &[[i64; 2]]) {
    let pods = requests.len();
    let each = cycle(figures, name, builder, pods);
    let some = requests.iter().copied().take(BASELINE_PODS);
    let (placed, cost) = cost::of(|| baseline::place(nodes, some));
    figures.add(&format!("{name}/loop_cpu_per_pod"), cost.cpu / placed as f64 * 1e6, "us", placed);
    figures.add(&format!("{name}/times_loop"), cost.cpu / placed as f64 / each, "x", placed);
}

/// 100,000 equal pods on 10,000 nodes, in 1,000 gangs.
pub fn equal(figures: &mut Figures) {
    let mut builder = Builder::new(PLACING, 10_000);
    for index in 0..1_000 {
        builder.group(&Group::new(format!("g{index}"), 100, 100, template(1_000, 200)));
    }
    beside_loop(figures, "equal", &mut builder, 10_000, &vec![[1_000, 200]; 100_000]);
}

fn request(class: usize) -> [i64; 2] {
    [100 + 2 * class as i64, 64 + (class as i64 * 7) % 997]
}

/// 100,000 pods of 1,000 kinds, 100 of a kind after each other.
pub fn classes_in_runs(figures: &mut Figures) {
    let mut builder = Builder::new(PLACING, 10_000);
    let mut requests = Vec::new();
    for index in 0..1_000 {
        let [cpu, memory] = request(index);
        builder.group(&Group::new(format!("g{index}"), 100, 100, template(cpu, memory)));
        requests.extend([[cpu, memory]; 100]);
    }
    beside_loop(figures, "runs", &mut builder, 10_000, &requests);
}

/// The same with the kinds mixed: every pod its own group, the next of another kind.
pub fn classes_shuffled(figures: &mut Figures) {
    let mut builder = Builder::new(PLACING, 10_000);
    let mut requests = Vec::new();
    for index in 0..100_000_usize {
        let [cpu, memory] = request(index.wrapping_mul(7_919) % 1_000);
        builder.group(&Group::new(format!("g{index}"), 1, 1, template(cpu, memory)));
        requests.push([cpu, memory]);
    }
    beside_loop(figures, "shuffled", &mut builder, 10_000, &requests);
}

/// 5,000 gangs of 20.
pub fn gangs(figures: &mut Figures) {
    let mut builder = Builder::new(PLACING, 10_000);
    for index in 0..5_000 {
        builder.group(&Group::new(format!("g{index}"), 20, 20, template(1_000, 200)));
    }
    beside_loop(figures, "gangs", &mut builder, 10_000, &vec![[1_000, 200]; 100_000]);
}

/// What a placement costs on 100 nodes and on 10,000.
pub fn growth(figures: &mut Figures) {
    let mut each = Vec::new();
    // As many pods on both: one world of 10,000 nodes, and 100 worlds of 100.
    for (nodes, worlds) in [(100, 100), (10_000, 1)] {
        let build = |_| {
            let mut builder = Builder::new(PLACING, nodes);
            for index in 0..nodes / 10 {
                builder.group(&Group::new(format!("g{index}"), 100, 100, template(1_000, 200)));
            }
            builder
        };
        let mut builders: Vec<Builder> = (0..worlds).map(build).collect();
        let (placed, cost) =
            cost::of(|| builders.iter_mut().map(|builder| builder.world.cycle(NOW).binds.len()).sum::<usize>());
        assert_eq!(placed, 100_000);
        figures.add(&format!("growth/{nodes}/cpu_per_pod"), cost.cpu / placed as f64 * 1e6, "us", placed);
        each.push(cost.cpu);
    }
    figures.add("growth/ratio", each[1] / each[0], "x", 2);
}
