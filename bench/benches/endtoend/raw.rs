//! What single operations cost: `pumice up` with no work of its own, and the load generator over its socket.

use std::time::Duration;

use pumice_bench::cluster::Cluster;
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::machine;
use pumice_bench::objects::{NOBODY, PODS, binding, pod};
use pumice_bench::setting::Setting;
use serde_json::json;

use crate::platform::Measured;

/// Calls in flight, as in the public figures of kube-apiserver.
const IN_FLIGHT: usize = 64;
const NODES: usize = 1000;

pub async fn run(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let pods = setting.size(10_000);
    let up = Measured::start(NODES, true).await?;
    let creates = (0..pods).map(|index| Call::create(PODS, &pod(&format!("p-{index}"), NOBODY, None))).collect();
    measure(figures, "create", &up.cluster, creates).await?;
    let patch = |index: usize| {
        let condition = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]);
        let status = json!({"conditions": condition, "message": format!("m {index}")});
        Call::patch(format!("{PODS}/p-{index}/status"), &json!({ "status": status }))
    };
    measure(figures, "status_patch", &up.cluster, (0..pods).map(patch).collect()).await?;
    // Bound pods are moved to Running by the nodes: one more status write for each bind, and its CPU, are in this.
    let bind = |index: usize| {
        let name = format!("p-{index}");
        Call::create(format!("{PODS}/{name}/binding"), &binding(&name, index % NODES))
    };
    measure(figures, "bind_and_run", &up.cluster, (0..pods).map(bind).collect()).await?;
    figures.add("raw/peak_memory", machine::peak_mib(up.cluster.pid), "MiB", 1);
    Ok(())
}

async fn measure(figures: &mut Figures, name: &str, cluster: &Cluster, calls: Vec<Call>) -> anyhow::Result<()> {
    cluster.quiet(Duration::from_secs(20)).await?;
    let own = std::process::id();
    let (server, client) = (cluster.cpu(), machine::cpu_time(own));
    let outcome = load::run(&cluster.client, IN_FLIGHT, calls).await?;
    let count = outcome.times.len();
    let each = |used: Duration| used.as_secs_f64() * 1e3 / count as f64;
    figures.add(&format!("raw/{name}/rate"), outcome.rate(), "per s", count);
    figures.times(&format!("raw/{name}/time"), &outcome.times);
    cluster.quiet(Duration::from_secs(20)).await?;
    figures.add(&format!("raw/{name}/cpu_server"), each(cluster.cpu() - server), "ms", count);
    figures.add(&format!("raw/{name}/cpu_client"), each(machine::cpu_time(own) - client), "ms", count);
    Ok(())
}
