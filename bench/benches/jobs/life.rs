//! Jobs from the first create to the end of their last pod.

use std::time::{Duration, Instant};

use pumice_bench::cluster::{Bare, Beside};
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::loads::{JOBS_IN_FLIGHT, Load};
use pumice_bench::objects::{JOBS, job};
use pumice_bench::setting::Setting;
use pumice_node::Faults;
use serde_json::json;

use crate::controllers::Controllers;
use crate::told::{self, Told};

/// Large nodes, so that all pods have room at once.
const SHAPE: &str = "cpu=128,memory=256Gi,pods=128";
const PODS_OF_A_NODE: usize = 128;
/// How long a pod runs.
const DURATION: &str = "5s";
/// A life may take longer than other scenarios: each pod is made, bound, run and ended.
const LIMIT_MIN: Duration = Duration::from_secs(300);
const REST: Duration = Duration::from_secs(60);

/// The CPU and memory of the controllers, and what they write.
pub async fn run(setting: &Setting, figures: &mut Figures, load: Load) -> anyhow::Result<()> {
    let load = load.sized(setting, usize::MAX);
    let (name, pods) = (load.name, load.pods());
    let nodes = pods.div_ceil(PODS_OF_A_NODE) + 1;
    let mut server = Bare::with(nodes, SHAPE, Faults::default(), Beside::Scheduler).await?;
    let controllers = Controllers::start(&mut server).await?;
    let mut told = Told::start(server.store())?;
    let before = server.cluster.quiet(REST).await?;
    let (used, begin) = (controllers.used(), Instant::now());
    load::run(&server.cluster.client, JOBS_IN_FLIGHT, calls(load)).await?;
    let completed = told.completed(load.jobs, setting.limit.max(LIMIT_MIN)).await;
    completed.map_err(|error| error.context(controllers.complaints()))?;
    figures.add(&format!("{name}/rate"), pods as f64 / begin.elapsed().as_secs_f64(), "pods/s", pods);
    let after = server.cluster.quiet(REST).await?;
    let now = controllers.used();
    let cpu = (now.cpu - used.cpu).as_secs_f64() * 1e3 / pods as f64;
    let kib_of_a_pod = |mib: f64| (mib - used.memory_mib) * 1024.0 / pods as f64;
    figures.add(&format!("{name}/cpu_per_pod"), cpu, "ms", pods);
    figures.add(&format!("{name}/memory_per_pod"), kib_of_a_pod(now.memory_mib), "KiB", pods);
    figures.add(&format!("{name}/memory_per_pod_most"), kib_of_a_pod(controllers.peak_mib()), "KiB", pods);
    figures.add(&format!("{name}/memory"), now.memory_mib, "MiB", 1);
    figures.add(&format!("{name}/writes_per_pod"), (after - before) as f64 / pods as f64, "writes", pods);
    let seen = told.seen();
    figures.add(&format!("{name}/writes_a_job"), seen.changes as f64 / load.jobs as f64, "writes", load.jobs);
    figures.add(&format!("{name}/writes_a_second_most"), seen.changes_a_second_most as f64, "writes", seen.changes);
    let (what, bytes) = told::largest(server.store());
    println!("# the largest object there is: {what}, {bytes} bytes");
    figures.add(&format!("{name}/largest_object"), bytes.max(seen.largest) as f64 / 1e3, "kB", 1);
    drop(controllers);
    server.end().await
}

fn calls(load: Load) -> Vec<Call> {
    let call = |index: usize| {
        let mut job = job(&format!("j-{index}"), load.replicas);
        let annotations = json!({"annotations": {"pumice.sh/simulated-duration": DURATION}});
        job["spec"]["tasks"][0]["template"]["metadata"] = annotations;
        Call::create(JOBS, &job)
    };
    (0..load.jobs).map(call).collect()
}
