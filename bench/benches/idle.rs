//! What an idle platform costs, and how soon it answers: one pod at a time, beside the sync time of the same disk in the same
//! run; and 10,000 bound pods with 10,000 that fit nowhere.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use pumice_bench::cluster::{Cluster, SHAPE};
use pumice_bench::figures::{Figures, percentile};
use pumice_bench::load::{self, Call};
use pumice_bench::machine;
use pumice_bench::objects::{NOBODY, PODS, SCHEDULER, node_name, pod, pod_spec};
use pumice_bench::setting::Setting;
use pumice_bench::watching::BoundWatch;
use pumice_testkit::{Platform, Setup};
use serde_json::json;

const NODES: usize = 1000;
/// How long nothing is done while CPU is counted.
const WINDOW: Duration = Duration::from_secs(20);
/// Without a write for this long, the platform has told all: it tells some things only when they have lasted five seconds, such
/// as the group of a pod alone.
const REST: Duration = Duration::from_secs(8);

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("idle");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for (name, outcome) in
            [("latency", latency(&setting, &mut figures).await), ("load", standing(&setting, &mut figures).await)]
        {
            if let Err(error) = outcome {
                eprintln!("NOT MEASURED {name}: {error:#}");
            }
        }
    });
    figures.finish();
    ExitCode::SUCCESS
}

async fn start(nodes: usize) -> anyhow::Result<(Platform, Cluster)> {
    let flags =
        ["--local-node=false".into(), format!("--simulated-nodes={nodes}"), format!("--simulated-node-shape={SHAPE}")];
    let platform = Platform::start(Setup { flags: flags.to_vec() });
    let pid = platform.pid().and_then(|pid| u32::try_from(pid).ok()).context("it runs")?;
    let cluster = Cluster::of_kubeconfig(&platform.data_dir().join("kubeconfig"), pid).await?;
    Ok((platform, cluster))
}

/// One pod after the other.
async fn latency(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    if !setting.wants("latency") {
        return Ok(());
    }
    let (platform, cluster) = start(setting.size(NODES)).await?;
    let revision = cluster.quiet(Duration::from_secs(20)).await?;
    let mut watch = BoundWatch::start(&cluster.client, revision).await?;
    let (mut times, mut syncs, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..setting.size(300).max(5) {
        let create = vec![Call::create(PODS, &pod(&format!("p-{index}"), SCHEDULER, None))];
        let begin = Instant::now();
        load::run(&cluster.client, 1, create).await?;
        let bound = watch.take(1, setting.limit).await?.remove(0);
        // The first one warms up.
        if index > 0 {
            times.push(bound.at - begin);
            commits.push(bound.revision.saturating_sub(bound.created_revision) + 1);
        }
        // What follows the bind (Running, the group's object) is to be over, and the disk the same for both.
        tokio::time::sleep(Duration::from_millis(30)).await;
        syncs.extend(machine::sync_times(platform.scratch(), 2));
    }
    let (p50, p99) = figures.times("latency/create_to_bound", &times);
    figures.times("latency/sync_4k", &syncs);
    figures.add("latency/p50_over_bound", p50 / (2.0 * percentile(&syncs, 50) + 2.0), "ratio", times.len());
    figures.add("latency/p99_over_bound", p99 / (3.0 * percentile(&syncs, 99) + 2.0), "ratio", times.len());
    commits.sort_unstable();
    let median = commits[commits.len() / 2];
    figures.add("latency/commits_to_bind", median as f64, "commits", commits.len());
    figures.add("latency/commits_to_bind_most", *commits.last().unwrap_or(&0) as f64, "commits", commits.len());
    Ok(())
}

/// Bound pods and pods that fit nowhere, and nothing to do.
async fn standing(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    if !setting.wants("load") {
        return Ok(());
    }
    let (nodes, pods) = (setting.size(NODES), setting.size(10_000));
    let (_platform, cluster) = start(nodes).await?;
    let bound = (0..pods).map(|index| {
        let mut pod = pod(&format!("bound-{index}"), NOBODY, None);
        pod["spec"]["nodeName"] = json!(node_name(index % nodes));
        Call::create(PODS, &pod)
    });
    cluster.set(bound.collect()).await?;
    let waiting = (0..pods).map(|index| {
        let spec = pod_spec(SCHEDULER, "64", "200Mi");
        let pod =
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("waits-{index}")}, "spec": spec});
        Call::create(PODS, &pod)
    });
    cluster.set(waiting.collect()).await?;
    let begin = Instant::now();
    let before = cluster.quiet_for(REST, setting.limit).await?;
    figures.add("load/settled_after", begin.elapsed().saturating_sub(REST).as_secs_f64(), "s", 1);
    let cpu = cluster.cpu();
    let begin = Instant::now();
    tokio::time::sleep(if setting.scale < 0.1 { WINDOW / 10 } else { WINDOW }).await;
    let (used, wall) = (cluster.cpu() - cpu, begin.elapsed());
    figures.add("load/cpu", used.as_secs_f64() / wall.as_secs_f64(), "cores", 2 * pods);
    let after = cluster.revision().await?;
    figures.add("load/writes", (after - before) as f64 / wall.as_secs_f64(), "per s", 2 * pods);
    figures.add("load/peak_memory", machine::peak_mib(cluster.pid), "MiB", 1);
    Ok(())
}
