//! The whole platform on simulated nodes, beside a bare load generator on the same API server.
//!
//! `raw`: what one create, bind and status patch costs. `bind`: groups and pods exist, then the scheduler is started.
//! `jobs`: loads a to d of the public benchmark, from the first create to the last bind.
//!
//! `PUMICE_BENCH_ONLY=bind/1000`, `PUMICE_BENCH_SCALE=0.1` and `PUMICE_BENCH_SECONDS` choose and bound scenarios.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

mod binding;
mod jobs;
mod platform;
mod raw;

use std::process::ExitCode;

use pumice_bench::figures::Figures;
use pumice_bench::loads::LOADS;
use pumice_bench::setting::Setting;

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("endtoend");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if setting.wants("raw") {
            report("raw", raw::run(&setting, &mut figures).await);
        }
        for nodes in [1000, 5000] {
            for percent in [0, 50, 95] {
                let name = format!("bind/{nodes}_nodes/{percent}_percent_full");
                if setting.wants(&name) {
                    report(&name, binding::run(&setting, &mut figures, &name, nodes, percent).await);
                }
            }
        }
        for (nodes, percent) in [(1000, 0), (1000, 50), (5000, 0), (5000, 50), (5000, 95)] {
            for load in LOADS {
                let name = format!("jobs/{}/{nodes}_nodes/{percent}_percent_full", load.name);
                if setting.wants(&name) {
                    report(&name, jobs::run(&setting, &mut figures, &name, load, nodes, percent).await);
                }
            }
        }
    });
    figures.finish();
    ExitCode::SUCCESS
}

/// A scenario that fails is said and leaves the others their turn; its figures are missing.
fn report(name: &str, outcome: anyhow::Result<()>) {
    if let Err(error) = outcome {
        eprintln!("NOT MEASURED {name}: {error:#}");
    }
}
