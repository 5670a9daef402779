//! What the controllers take: 10,000 jobs of one pod and one job of 100,000 from the first create to the last pod's end, and
//! one more job beside many pods of others.
//!
//! The controllers are a process of their own, so that its CPU and memory are theirs alone; the API server with its disk, the
//! scheduler and the simulated nodes are this process. `PUMICE_BENCH_ONLY=many`, `one` or `beside` chooses.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

mod beside;
mod controllers;
mod life;
mod told;

use std::process::ExitCode;

use pumice_bench::figures::Figures;
use pumice_bench::loads::Load;
use pumice_bench::setting::Setting;

const LIVES: [Load; 2] =
    [Load { name: "many", jobs: 10_000, replicas: 1 }, Load { name: "one", jobs: 1, replicas: 100_000 }];

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("jobs");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for load in LIVES.into_iter().filter(|load| setting.wants(load.name)) {
            if let Err(error) = life::run(&setting, &mut figures, load).await {
                eprintln!("NOT MEASURED {}: {error:#}", load.name);
            }
        }
        if setting.wants("beside")
            && let Err(error) = beside::run(&setting, &mut figures).await
        {
            eprintln!("NOT MEASURED beside: {error:#}");
        }
    });
    figures.finish();
    ExitCode::SUCCESS
}
