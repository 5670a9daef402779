//! The engine alone: CPU time, peak memory and allocations of a cycle, beside a plain loop over tasks and nodes that
//! decides by the same policy. One core, no I/O. `PUMICE_BENCH_ONLY=name,name` runs only these scenarios.

mod armada;
mod baseline;
mod cost;
mod coupled;
mod eviction;
mod pending;
mod placement;
mod standing;
mod worlds;

use pumice_bench::figures::Figures;

#[global_allocator]
static ALLOCATOR: cost::Counting = cost::Counting;

type Scenario = (&'static str, fn(&mut Figures));

const SCENARIOS: &[Scenario] = &[
    ("equal", placement::equal),
    ("runs", placement::classes_in_runs),
    ("shuffled", placement::classes_shuffled),
    ("gangs", placement::gangs),
    ("growth", placement::growth),
    ("apart", coupled::apart),
    ("spread", coupled::spread),
    ("topology", coupled::topology),
    ("preempt", eviction::preempt),
    ("reclaim", eviction::reclaim),
    ("standing", standing::million),
    ("idle", standing::idle),
    ("pending", pending::million),
    ("armada", armada::tables),
];

#[allow(clippy::disallowed_methods)] // which scenarios to run is told by the environment
fn main() {
    let only = std::env::var("PUMICE_BENCH_ONLY").unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only.split(',').any(|one| one == name);
    let mut figures = Figures::open("engine");
    for (name, run) in SCENARIOS.iter().filter(|(name, _)| wanted(name)) {
        println!("# {name}");
        run(&mut figures);
    }
    std::process::exit(i32::from(!figures.finish()));
}
