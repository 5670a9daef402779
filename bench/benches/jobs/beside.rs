//! How soon one more job has its pod, and what it costs, beside pods of other jobs that stand there.
//!
//! Nobody schedules: groups are let in by the bench as soon as they are there, so that the time is the controllers' own.

use std::time::{Duration, Instant};

use anyhow::ensure;
use pumice_bench::cluster::{Bare, Beside, SHAPE};
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::objects::{GROUPS, JOBS, job};
use pumice_bench::setting::Setting;
use pumice_cluster::Client;
use pumice_node::Faults;
use pumice_store::{EventKind, Watch};
use serde_json::json;
use tokio::task::JoinSet;

use crate::controllers::{Controllers, Used};

/// Pods that stand there, in how many further jobs they come.
const STANDING: [(usize, usize); 3] = [(1_000, 10), (10_000, 9), (100_000, 9)];
/// Jobs one after another.
const PROBES: usize = 200;
/// What follows a pod's creation is to be over before the next job.
const PAUSE: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What one more job cost.
struct Cost {
    p50_ms: f64,
    cpu_ms: f64,
    used: Used,
}

pub async fn run(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let mut server = Bare::with(1, SHAPE, Faults::default(), Beside::Nobody).await?;
    let controllers = Controllers::start(&mut server).await?;
    let mut admitting = JoinSet::new();
    let groups = server.store().watch("scheduling.volcano.sh/podgroups", None, None)?;
    admitting.spawn(admit(groups, server.cluster.client.clone()));
    let (mut costs, mut standing) = (Vec::new(), 0);
    for (total, jobs) in STANDING {
        let wanted = setting.size(total);
        let replicas = (wanted - standing).div_ceil(jobs);
        let others = (0..jobs).map(|index| Call::create(JOBS, &job(&format!("of-{total}-{index}"), replicas)));
        let there = server.store().count("pods", None) + jobs * replicas;
        load::run(&server.cluster.client, jobs, others.collect()).await?;
        stand(&server, there, setting.limit).await?;
        standing += jobs * replicas;
        server.cluster.quiet(REST).await?;
        costs.push(probe(setting, figures, &server, &controllers, total).await?);
    }
    let (first, last) = (&costs[0], &costs[costs.len() - 1]);
    let grown = (last.used.memory_mib - first.used.memory_mib) * 1024.0;
    let pods = standing - setting.size(STANDING[0].0);
    figures.add("beside/memory_per_pod", grown / pods.max(1) as f64, "KiB", pods);
    figures.add("beside/time_growth", last.p50_ms / first.p50_ms, "ratio", PROBES);
    figures.add("beside/cpu_growth", last.cpu_ms / first.cpu_ms, "ratio", PROBES);
    drop((controllers, admitting));
    server.end().await
}

/// Waits until so many pods are there.
async fn stand(server: &Bare, pods: usize, limit: Duration) -> anyhow::Result<()> {
    let begin = Instant::now();
    loop {
        let there = server.store().count("pods", None);
        if there >= pods {
            return Ok(());
        }
        ensure!(begin.elapsed() < limit, "{there} of {pods} pods are there after {limit:?}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Jobs of one pod, one after another.
async fn probe(
    setting: &Setting,
    figures: &mut Figures,
    server: &Bare,
    controllers: &Controllers,
    total: usize,
) -> anyhow::Result<Cost> {
    let probes = setting.size(PROBES).max(10);
    let mut pods = server.store().watch("pods", None, None)?;
    let (before, mut times) = (controllers.used(), Vec::with_capacity(probes));
    for index in 0..probes {
        let name = format!("one-more-{total}-{index}");
        let create = vec![Call::create(JOBS, &job(&name, 1))];
        let begin = Instant::now();
        load::run(&server.cluster.client, 1, create).await?;
        let made = tokio::time::timeout(setting.limit, added(&mut pods, &format!("{name}-main-0"))).await;
        ensure!(matches!(made, Ok(true)), "{name} has no pod: {}", controllers.complaints());
        times.push(begin.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    server.cluster.quiet(REST).await?;
    let used = controllers.used();
    let cpu_ms = (used.cpu - before.cpu).as_secs_f64() * 1e3 / probes as f64;
    let (p50_ms, _) = figures.times(&format!("beside/{total}/pod_after"), &times);
    figures.add(&format!("beside/{total}/cpu_per_job"), cpu_ms, "ms", probes);
    figures.add(&format!("beside/{total}/memory"), used.memory_mib, "MiB", 1);
    Ok(Cost { p50_ms, cpu_ms, used })
}

/// Waits for the creation of a pod.
async fn added(pods: &mut Watch, name: &str) -> bool {
    while let Ok(event) = pods.next().await {
        if event.kind == EventKind::Added && &*event.object.key.name == name {
            return true;
        }
    }
    false
}

/// Lets every group in, as a scheduler with room for all would. Groups have no path of their own for the status.
async fn admit(mut groups: Watch, client: Client) {
    while let Ok(event) = groups.next().await {
        if event.kind == EventKind::Added {
            let path = format!("{GROUPS}/{}", event.object.key.name);
            let call = Call::patch(path, &json!({"status": {"phase": "Inqueue"}}));
            if let Err(error) = load::run(&client, 1, vec![call]).await {
                eprintln!("a group is not let in: {error:#}");
            }
        }
    }
}
