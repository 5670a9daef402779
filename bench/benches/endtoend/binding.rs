//! Binds alone: groups and pods exist, then the scheduler is started; beside binds of the bare load generator.

use std::time::{Duration, Instant};

use pumice_bench::cluster::{Bare, Cluster};
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::machine;
use pumice_bench::objects::{GROUPS, NOBODY, PODS, SCHEDULER, binding, group, pod};
use pumice_bench::setting::Setting;
use pumice_bench::watching::BoundWatch;

use crate::platform::Measured;

const PODS_MAX: usize = 10_000;
const MEMBERS: usize = 100;
/// Calls of the bare generator in flight: more than are of use on a few cores.
const IN_FLIGHT: usize = 128;

pub async fn run(
    setting: &Setting,
    figures: &mut Figures,
    name: &str,
    nodes: usize,
    percent: usize,
) -> anyhow::Result<()> {
    let nodes = setting.size(nodes);
    // Pods of one core fit into what is left of 32.
    let room = nodes * ((32_000 - 320 * percent) / 1000);
    let count = room.min(setting.size(PODS_MAX));
    let scheduled = scheduled(setting, figures, name, (nodes, percent, count)).await?;
    let socket = {
        let up = Measured::start(nodes, false).await?;
        bare(&up.cluster, setting, (nodes, percent, count)).await?
    };
    let memory = {
        let server = Bare::start(nodes, true).await?;
        let rate = bare(&server.cluster, setting, (nodes, percent, count)).await?;
        server.end().await?;
        rate
    };
    figures.add(&format!("{name}/bare_by_socket"), socket, "pods/s", count);
    figures.add(&format!("{name}/bare_in_memory"), memory, "pods/s", count);
    figures.add(&format!("{name}/of_bare_by_socket"), scheduled / socket, "ratio", count);
    figures.add(&format!("{name}/of_bare_in_memory"), scheduled / memory, "ratio", count);
    Ok(())
}

/// Pods a second from the start of the scheduler to the last bind.
async fn scheduled(
    setting: &Setting,
    figures: &mut Figures,
    name: &str,
    (nodes, percent, count): (usize, usize, usize),
) -> anyhow::Result<f64> {
    let up = Measured::start(nodes, true).await?;
    let cluster = &up.cluster;
    cluster.default_queue().await?;
    cluster.fill(nodes, percent).await?;
    let groups = count.div_ceil(MEMBERS);
    let members = |index: usize| MEMBERS.min(count - index * MEMBERS);
    cluster.set((0..groups).map(|g| Call::create(GROUPS, &group(&format!("g-{g}"), members(g)))).collect()).await?;
    let pods = (0..count).map(|index| {
        let group = format!("g-{}", index / MEMBERS);
        Call::create(PODS, &pod(&format!("p-{index}"), SCHEDULER, Some(&group)))
    });
    cluster.set(pods.collect()).await?;
    let revision = cluster.quiet(Duration::from_secs(30)).await?;
    let mut watch = BoundWatch::start(&cluster.client, revision).await?;
    let cpu = cluster.cpu();
    let begin = Instant::now();
    up.start_scheduler()?;
    let bound = watch.take(count, setting.limit).await?;
    let wall = bound[count - 1].at - begin;
    let rate = count as f64 / wall.as_secs_f64();
    figures.add(&format!("{name}/rate"), rate, "pods/s", count);
    figures.add(&format!("{name}/first_bind"), (bound[0].at - begin).as_secs_f64() * 1e3, "ms", 1);
    cluster.quiet(Duration::from_secs(30)).await?;
    let used = (cluster.cpu() - cpu).as_secs_f64() * 1e3 / count as f64;
    figures.add(&format!("{name}/cpu_per_pod"), used, "ms", count);
    figures.add(&format!("{name}/peak_memory"), machine::peak_mib(cluster.pid), "MiB", 1);
    Ok(rate)
}

/// Binds a second of the load generator, by the same watch.
async fn bare(
    cluster: &Cluster,
    setting: &Setting,
    (nodes, percent, count): (usize, usize, usize),
) -> anyhow::Result<f64> {
    cluster.fill(nodes, percent).await?;
    let pods = (0..count).map(|index| Call::create(PODS, &pod(&format!("p-{index}"), NOBODY, None)));
    cluster.set(pods.collect()).await?;
    let revision = cluster.quiet(Duration::from_secs(30)).await?;
    let mut watch = BoundWatch::start(&cluster.client, revision).await?;
    let binds = (0..count).map(|index| {
        let name = format!("p-{index}");
        Call::create(format!("{PODS}/{name}/binding"), &binding(&name, index % nodes))
    });
    let binds: Vec<Call> = binds.collect();
    let begin = Instant::now();
    load::run(&cluster.client, IN_FLIGHT, binds).await?;
    let bound = watch.take(count, setting.limit).await?;
    Ok(count as f64 / (bound[count - 1].at - begin).as_secs_f64())
}
