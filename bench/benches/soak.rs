//! Many short pods over few full nodes: with slow, failing and reordered binds and nodes that refuse; and a million of
//! them for the memory. A pod that a node refuses for want of room is a mistake of the scheduler's books.
//!
//! `PUMICE_BENCH_ONLY=faults` or `million` chooses; both together take long, so `make bench` leaves them to `NAME=soak`.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use pumice_bench::cluster::{Bare, Beside};
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::machine;
use pumice_bench::objects::{PODS, SCHEDULER, pod_spec};
use pumice_bench::setting::Setting;
use pumice_bench::unreliable::Met;
use pumice_bench::watching::EndWatch;
use serde_json::{Value, json};

const NODES: usize = 200;
/// Small nodes, so that they are full.
const SHAPE: &str = "cpu=8,memory=32Gi,pods=16";
/// Pods that exist at a time: more than there is room for.
const ALIVE: usize = 3_000;
const IN_FLIGHT: usize = 64;
/// Given up when no pod ends for so long.
const STALLED: Duration = Duration::from_secs(60);
/// What a node says that refuses a pod on purpose.
const ON_PURPOSE: &str = "UnexpectedAdmissionError";
/// The memory is compared with what it was by then: caches are full, and of a million pods as many events are kept as ever.
const WARM_PERCENT: usize = 80;

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("soak");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (name, pods, with_faults) in [("faults", 300_000, true), ("million", 1_000_000, false)] {
            if setting.wants(name)
                && let Err(error) = run(&mut figures, name, setting.size(pods), with_faults).await
            {
                eprintln!("NOT MEASURED {name}: {error:#}");
            }
        }
    });
    ExitCode::from(u8::from(!figures.finish()))
}

async fn run(figures: &mut Figures, name: &str, pods: usize, with_faults: bool) -> anyhow::Result<()> {
    let met = Arc::new(Met::default());
    let (faults, beside) = if with_faults {
        ("seed=7,refused=0.01,start=200ms", Beside::Unreliable { seed: 7, met: Arc::clone(&met) })
    } else {
        ("seed=7", Beside::Scheduler)
    };
    let server = Bare::with(NODES, SHAPE, faults.parse()?, beside).await?;
    let begin = Instant::now();
    let run = drive(&server, pods).await?;
    let wall = begin.elapsed();
    let counts = server.simulated.counts();
    figures.add(&format!("{name}/succeeded"), run.succeeded as f64, "pods", pods);
    figures.add(&format!("{name}/rate"), run.succeeded as f64 / wall.as_secs_f64(), "pods/s", pods);
    figures.add(&format!("{name}/refused_by_mistake"), counts.refused as f64, "pods", pods);
    figures.add(&format!("{name}/refused_on_purpose"), counts.faults as f64, "pods", pods);
    figures.add(&format!("{name}/failed_otherwise"), run.failed as f64, "pods", pods);
    for (what, count) in
        [("refused", &met.refused), ("lost", &met.lost), ("unanswered", &met.unanswered)] as [(&str, &AtomicU64); 3]
    {
        figures.add(&format!("{name}/binds_{what}"), count.load(Ordering::Relaxed) as f64, "binds", pods);
    }
    figures.add(&format!("{name}/memory_warm"), run.memory_warm, "MiB", 1);
    figures.add(&format!("{name}/memory_end"), run.memory_end, "MiB", 1);
    figures.add(&format!("{name}/memory_growth"), run.memory_end / run.memory_warm, "ratio", 1);
    server.end().await
}

#[derive(Debug, Default)]
struct Run {
    succeeded: usize,
    failed: usize,
    memory_warm: f64,
    memory_end: f64,
}

/// Keeps `ALIVE` pods there until as many as asked for have succeeded; one that failed is made again under another name.
async fn drive(server: &Bare, pods: usize) -> anyhow::Result<Run> {
    let cluster = &server.cluster;
    let mut watch = EndWatch::start(&cluster.client, cluster.revision().await?).await?;
    let (mut run, mut made, mut wanted, mut ended) = (Run::default(), 0, pods, Vec::new());
    let mut tenth = 0;
    loop {
        let alive = made - run.succeeded - (wanted - pods);
        let more = (ALIVE.saturating_sub(alive)).min(wanted - made);
        let mut calls = std::mem::take(&mut ended);
        calls.extend((made..made + more).map(|index| Call::create(PODS, &short_pod(index))));
        made += more;
        load::run(&cluster.client, IN_FLIGHT, calls).await?;
        if run.succeeded == pods {
            run.memory_end = machine::resident_mib(cluster.pid);
            return Ok(run);
        }
        let news = watch.next(STALLED).await;
        for pod in news.with_context(|| format!("{} of {pods} pods have succeeded", run.succeeded))? {
            ended.push(Call::delete(&format!("{PODS}/{}", pod.name)));
            if pod.succeeded {
                run.succeeded += 1;
            } else {
                wanted += 1;
                run.failed += usize::from(pod.reason != ON_PURPOSE);
            }
        }
        if run.succeeded * 10 / pods > tenth {
            tenth = run.succeeded * 10 / pods;
            let memory = machine::resident_mib(cluster.pid);
            println!("# {} of {pods} pods, {memory:.0} MiB", run.succeeded);
            if run.memory_warm == 0.0 && run.succeeded * 100 >= pods * WARM_PERCENT {
                run.memory_warm = memory;
            }
        }
    }
}

/// Pods of 24 sizes that last 0.2 to 1.8 seconds.
fn short_pod(index: usize) -> Value {
    let cpu = [1, 2, 4][index % 3].to_string();
    let memory = format!("{}Gi", [1, 2, 3, 4, 5, 6, 7, 9][index % 8]);
    let duration = format!("{}ms", 200 + index.wrapping_mul(7_919) % 1_601);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("p-{index}"), "annotations": {"pumice.sh/simulated-duration": duration}},
        "spec": pod_spec(SCHEDULER, &cpu, &memory),
    })
}
