//! Volcano Jobs from the first create to the last bind, beside a generator that makes the same writes and decides nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pumice_bench::cluster::Bare;
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::loads::{JOBS_IN_FLIGHT, Load};
use pumice_bench::machine;
use pumice_bench::objects::{EVENTS, GROUPS, JOBS, NOBODY, PODS, QUEUES, binding, event, group, pod};
use pumice_bench::setting::Setting;
use pumice_bench::watching::{self, BoundWatch, Writes};
use serde_json::json;

use crate::platform::Measured;

const IN_FLIGHT: usize = 128;

pub async fn run(
    setting: &Setting,
    figures: &mut Figures,
    name: &str,
    load: Load,
    nodes: usize,
    percent: usize,
) -> anyhow::Result<()> {
    let nodes = setting.size(nodes);
    let load = load.sized(setting, nodes * ((32_000 - 320 * percent) / 1000));
    let (rate, writes) = scheduled(setting, figures, name, load, (nodes, percent)).await?;
    let bare = bare(load, &writes, (nodes, percent)).await?;
    figures.add(&format!("{name}/bare"), bare, "pods/s", load.pods());
    figures.add(&format!("{name}/of_bare"), rate / bare, "ratio", load.pods());
    Ok(())
}

type Counted = BTreeMap<&'static str, Writes>;

/// Pods a second, and the writes up to the last bind.
async fn scheduled(
    setting: &Setting,
    figures: &mut Figures,
    name: &str,
    load: Load,
    (nodes, percent): (usize, usize),
) -> anyhow::Result<(f64, Counted)> {
    let up = Measured::start(nodes, false).await?;
    let cluster = &up.cluster;
    cluster.fill(nodes, percent).await?;
    let before = cluster.quiet(Duration::from_secs(30)).await?;
    let mut watch = BoundWatch::start(&cluster.client, before).await?;
    let (cpu, own) = (cluster.cpu(), machine::cpu_time(std::process::id()));
    let (jobs, pods) = (load.calls(), load.pods());
    let begin = Instant::now();
    let (created, bound) =
        tokio::join!(load::run(&cluster.client, JOBS_IN_FLIGHT, jobs), watch.take(pods, setting.limit));
    let created = created?;
    let bound = bound.map_err(|error| error.context(up.log()))?;
    let wall = bound[pods - 1].at - begin;
    let last = bound.iter().map(|bound| bound.revision).max().unwrap_or(0);
    let rate = pods as f64 / wall.as_secs_f64();
    let per_pod = |used: Duration| used.as_secs_f64() * 1e3 / pods as f64;
    figures.add(&format!("{name}/rate"), rate, "pods/s", pods);
    figures.add(&format!("{name}/jobs_created"), created.wall.as_secs_f64(), "s", load.jobs);
    figures.add(&format!("{name}/first_bind"), (bound[0].at - begin).as_secs_f64() * 1e3, "ms", 1);
    figures.add(&format!("{name}/cpu_per_pod"), per_pod(cluster.cpu() - cpu), "ms", pods);
    let after = cluster.quiet(Duration::from_secs(60)).await?;
    figures.add(&format!("{name}/cpu_per_pod_settled"), per_pod(cluster.cpu() - cpu), "ms", pods);
    figures.add(
        &format!("{name}/cpu_client_per_pod"),
        per_pod(machine::cpu_time(std::process::id()) - own),
        "ms",
        pods,
    );
    figures.add(&format!("{name}/writes_per_pod"), (last - before) as f64 / pods as f64, "writes", pods);
    figures.add(&format!("{name}/writes_per_pod_settled"), (after - before) as f64 / pods as f64, "writes", pods);
    figures.add(&format!("{name}/peak_memory"), machine::peak_mib(cluster.pid), "MiB", 1);
    let writes = watching::writes(&cluster.client, before, last).await?;
    for (resource, writes) in &writes {
        for (verb, count) in [("created", writes.created), ("changed", writes.changed)] {
            let each = count as f64 / pods as f64;
            figures.add(&format!("{name}/writes_per_pod/{resource}_{verb}"), each, "writes", pods);
        }
    }
    Ok((rate, writes))
}

/// Pods a second of a generator that makes the same number of writes of each kind on the same server, in memory and
/// with the same disk, without scheduler and controllers.
async fn bare(load: Load, writes: &Counted, (nodes, percent): (usize, usize)) -> anyhow::Result<f64> {
    let server = Bare::start(nodes, false).await?;
    let cluster = &server.cluster;
    cluster.fill(nodes, percent).await?;
    cluster.quiet(Duration::from_secs(30)).await?;
    let of = |resource: &str| writes.get(resource).copied().unwrap_or_default();
    let mut first = load.calls();
    first.extend((0..load.jobs).map(|j| Call::create(GROUPS, &group(&format!("g-{j}"), load.replicas))));
    let mut second: Vec<Call> = Vec::new();
    for index in 0..load.pods() {
        let group = format!("g-{}", index / load.replicas);
        second.push(Call::create(PODS, &pod(&format!("p-{index}"), NOBODY, Some(&group))));
    }
    let mut third: Vec<Call> = Vec::new();
    // Groups have no path of their own for the status.
    let running = |round: usize| json!({"status": {"running": round}});
    let job_status = |round| Call::patch(format!("{JOBS}/j-{}/status", round % load.jobs), &running(round));
    let group_status = |round| Call::patch(format!("{GROUPS}/g-{}", round % load.jobs), &running(round));
    let queue = |round| Call::patch(format!("{QUEUES}/default/status"), &running(round));
    // In life an object is written by one call at a time; where there are few, the generator's would collide.
    let mut one_by_one: Vec<Call> = (1..=of("queues").changed).map(queue).collect();
    let mut patches: Vec<Call> = (1..=of("jobs").changed).map(job_status).collect();
    patches.extend((1..=of("podgroups").changed).map(group_status));
    if load.jobs < 4 * IN_FLIGHT {
        one_by_one.append(&mut patches);
    }
    let events = 0..of("events").created;
    patches.extend(events.map(|index| Call::create(EVENTS, &event(&format!("e-{index}"), &format!("p-{index}")))));
    // Spread evenly among the binds, as they are in life.
    let mut left = patches.into_iter();
    let each = left.len().div_ceil(load.pods().max(1));
    for index in 0..load.pods() {
        let name = format!("p-{index}");
        third.push(Call::create(format!("{PODS}/{name}/binding"), &binding(&name, index % nodes)));
        third.extend(left.by_ref().take(each));
    }
    let begin = Instant::now();
    for calls in [first, second] {
        load::run(&cluster.client, IN_FLIGHT, calls).await?;
    }
    let (third, one_by_one) =
        tokio::join!(load::run(&cluster.client, IN_FLIGHT, third), load::run(&cluster.client, 1, one_by_one));
    third?;
    one_by_one?;
    let wall = begin.elapsed();
    server.end().await?;
    Ok(load.pods() as f64 / wall.as_secs_f64())
}
