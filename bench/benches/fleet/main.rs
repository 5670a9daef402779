//! The fleet's server in one process: jobs submitted through its API, how late events are under that, what queued jobs hold
//! and what rounds cost beside them, how soon a leader starts with them or takes over, and Armada's full rounds through our
//! whole round.
//!
//! Everything that is written goes to SQLite in a file, and to Postgres where there is one: that of `PUMICE_BENCH_POSTGRES`
//! (`postgres://USER@HOST/NAME`), else Debian's, which is started here. `PUMICE_BENCH_ONLY` has words of the scenarios'
//! names: `queued`, `start/sqlite`, `whole`, `submit/postgres`, `lag/sqlite` and so on.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

mod homes;
mod lag;
mod memory;
mod queued;
mod raw;
mod start;
mod submit;
mod takeover;
mod took;
mod whole;
mod work;

use std::process::ExitCode;

use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;

use homes::Homes;

#[global_allocator]
static ALLOCATOR: memory::Counted = memory::Counted;

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("fleet");
    if setting.wants("queued") {
        queued::run(&setting, &mut figures);
    }
    let mut homes =
        Homes::find(|home| ["start", "submit", "lag"].iter().any(|of| setting.wants(&format!("{of}/{home}"))));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(&setting, &mut figures, &mut homes));
    if figures.finish() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(setting: &Setting, figures: &mut Figures, homes: &mut Homes) {
    let failed = |scenario: &str, error: anyhow::Error| eprintln!("NOT MEASURED {scenario}: {error:#}");
    if setting.wants("whole")
        && let Err(error) = whole::run(setting, figures, homes).await
    {
        failed("whole", error);
    }
    for home in homes.names() {
        for of in ["start", "submit", "lag"] {
            let scenario = format!("{of}/{home}");
            if !setting.wants(&scenario) {
                continue;
            }
            let outcome = match of {
                "start" => start::run(setting, figures, homes, home).await,
                "submit" => submit::run(setting, figures, homes, home).await,
                _ => lag::run(setting, figures, homes, home).await,
            };
            if let Err(error) = outcome {
                failed(&scenario, error);
            }
        }
    }
}
