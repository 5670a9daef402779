//! One write, a hundred watchers: what each more costs, and how soon the last has heard of it.

use std::time::Instant;

use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::objects::{NOBODY, PODS, pod};
use pumice_bench::setting::Setting;
use pumice_bench::watching::BoundWatch;
use serde_json::json;
use tokio::task::JoinSet;

use crate::server::Server;

const WATCHERS: usize = 100;
const WRITES: usize = 2_000;
const IN_FLIGHT: usize = 16;

pub async fn run(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let writes = setting.size(WRITES);
    let mut costs = Vec::new();
    for watchers in [0, WATCHERS] {
        let server = Server::start().await?;
        let cluster = &server.cluster;
        let revision = cluster.revision().await?;
        let mut told = JoinSet::new();
        for _ in 0..watchers {
            let mut watch = BoundWatch::start(&cluster.client, revision).await?;
            let limit = setting.limit;
            told.spawn(async move { watch.take(writes, limit).await });
        }
        // Bound from the start: a watch for binds tells of each once.
        let bound = |index: usize| {
            let mut pod = pod(&format!("p-{index}"), NOBODY, None);
            pod["spec"]["nodeName"] = json!("nowhere");
            Call::create(PODS, &pod)
        };
        let (before, begin) = (cluster.cpu(), Instant::now());
        load::run(&cluster.client, IN_FLIGHT, (0..writes).map(bound).collect()).await?;
        let mut last = begin;
        while let Some(watch) = told.join_next().await {
            last = watch??.last().map_or(last, |bound| bound.at.max(last));
        }
        if watchers > 0 {
            let rate = (writes * watchers) as f64 / (last - begin).as_secs_f64();
            figures.add("fanout/events", rate, "per s", writes * watchers);
        }
        costs.push((cluster.cpu() - before).as_secs_f64() * 1e6 / writes as f64);
    }
    figures.add("fanout/cpu_per_write_alone", costs[0], "us", writes);
    figures.add("fanout/cpu_per_event", (costs[1] - costs[0]) / WATCHERS as f64, "us", writes * WATCHERS);
    Ok(())
}
