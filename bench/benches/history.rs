//! What the history costs: rows that its writer takes in a second on SQLite, and a load of pods with and without it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pumice_bench::cluster::{Cluster, SHAPE};
use pumice_bench::figures::Figures;
use pumice_bench::load;
use pumice_bench::loads::{JOBS_IN_FLIGHT, Load};
use pumice_bench::setting::Setting;
use pumice_bench::watching::BoundWatch;
use pumice_history::facts::{Facts as _, Fate, Seen, SeenPod};
use pumice_history::pending::{Entry, Pending, Watched};
use pumice_history::rows::Row;
use pumice_history::{Database, Location};
use pumice_testkit::{Platform, Setup};
use serde_json::json;

const PODS: usize = 50_000;
const LOAD: Load = Load { name: "pods", jobs: 500, replicas: 20 };
const NODES: usize = 1_000;
/// Each way of running the load, one after the other: the difference is small beside what runs differ in.
const ROUNDS: usize = 2;
/// Phases that a pod is seen in.
const PHASES: [&str; 4] = ["Pending", "Pending", "Running", "Succeeded"];

#[allow(clippy::disallowed_methods)] // a benchmark's own clock
fn main() -> anyhow::Result<()> {
    let setting = Setting::read();
    let mut figures = Figures::open("history");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if setting.wants("writer") {
        runtime.block_on(writer(&setting, &mut figures))?;
    }
    if setting.wants("load") {
        runtime.block_on(loads(&setting, &mut figures))?;
    }
    std::process::exit(i32::from(!figures.finish()));
}

/// Rows a second, in batches as they come under load and in those that 20 ms bring.
#[allow(clippy::disallowed_methods)] // a benchmark's own clock
async fn writer(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let pods = setting.size(PODS);
    let began = Instant::now();
    let rows: Vec<Row> = (0..pods * PHASES.len()).map(|n| row(n % pods, n / pods)).collect::<Result<_, _>>()?;
    let each = began.elapsed().as_secs_f64() * 1e9 / rows.len() as f64;
    figures.add("writer/parse_and_fold", each, "ns", rows.len());
    for batch in [1_000, 20] {
        let rows = &rows[..if batch == 20 { rows.len() / 10 } else { rows.len() }];
        let folder = tempfile::tempdir()?;
        let database = Database::open(&Location::File(folder.path().join("history.db"))).await?;
        let mut pending = Pending::new(BTreeMap::new());
        let began = Instant::now();
        for (number, some) in rows.chunks(batch).enumerate() {
            for row in some {
                let entry =
                    Entry::Changed { watched: Watched::Pods, version: number.to_string(), rows: vec![row.clone()] };
                pending.add(database.dialect(), entry, 0);
            }
            database.commit(&pending.take(database.dialect())).await?;
        }
        let seconds = began.elapsed().as_secs_f64();
        figures.add(&format!("writer/batches_of_{batch}"), rows.len() as f64 / seconds, "rows/s", rows.len());
        database.close().await;
        let bytes = std::fs::metadata(folder.path().join("history.db"))?.len();
        if batch == 1_000 {
            figures.add("writer/bytes_per_pod", bytes as f64 / pods as f64, "B", pods);
        }
    }
    Ok(())
}

/// What a version of a pod says.
fn row(pod: usize, version: usize) -> anyhow::Result<Row> {
    let job = pod / 20;
    let seen: SeenPod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("job-{job}-main-{}", pod % 20), "namespace": "default", "uid": format!("{pod:08x}-0000-7000-8000-{job:012x}"),
            "resourceVersion": (version * 1_000_000 + pod).to_string(), "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {"volcano.sh/task-spec": "main", "volcano.sh/task-index": (pod % 20).to_string()},
            "ownerReferences": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": format!("job-{job}"),
                "uid": format!("{job:08x}-0000-7000-8000-000000000000"), "controller": true}],
        },
        "spec": {"nodeName": format!("node-{}", pod % 1_000),
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": PHASES[version]},
    }))?;
    let mut rows = Vec::new();
    seen.rows(Fate::There, Seen(1), &mut rows);
    rows.pop().context("a pod of a job has a row")
}

async fn loads(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let nodes = setting.size(NODES);
    let load = LOAD.sized(setting, nodes * 32);
    let mut taken = [[0.0; 2]; 2];
    for _ in 0..ROUNDS {
        for (which, with) in [false, true].into_iter().enumerate() {
            let (rate, cpu) = run(load, nodes, with, setting.limit).await?;
            taken[which][0] += rate / ROUNDS as f64;
            taken[which][1] += cpu / ROUNDS as f64;
        }
    }
    let [without, with] = taken;
    for (name, [rate, cpu]) in [("without", without), ("with", with)] {
        figures.add(&format!("load/{name}/rate"), rate, "pods/s", load.pods() * ROUNDS);
        figures.add(&format!("load/{name}/cpu_per_pod"), cpu, "ms", load.pods() * ROUNDS);
    }
    figures.add("load/rate_with_of_without", with[0] / without[0], "ratio", load.pods() * ROUNDS);
    figures.add("load/cpu_with_of_without", with[1] / without[1], "ratio", load.pods() * ROUNDS);
    Ok(())
}

/// Pods bound in a second, and CPU that each took until all was settled.
#[allow(clippy::disallowed_methods)] // a benchmark's own clock
async fn run(load: Load, nodes: usize, history: bool, limit: Duration) -> anyhow::Result<(f64, f64)> {
    let flags = vec![
        "--local-node=false".to_owned(),
        format!("--simulated-nodes={nodes}"),
        format!("--simulated-node-shape={SHAPE}"),
        format!("--history={history}"),
    ];
    let platform = Platform::start(Setup { flags });
    let pid = platform.pid().and_then(|pid| u32::try_from(pid).ok()).context("it runs")?;
    let cluster = Cluster::of_kubeconfig(&platform.data_dir().join("kubeconfig"), pid).await?;
    let before = cluster.quiet(Duration::from_secs(30)).await?;
    let mut watch = BoundWatch::start(&cluster.client, before).await?;
    let (cpu, pods) = (cluster.cpu(), load.pods());
    let began = Instant::now();
    let created = load::run(&cluster.client, JOBS_IN_FLIGHT, load.calls());
    let (created, bound) = tokio::join!(created, watch.take(pods, limit));
    created?;
    let bound = bound.with_context(|| platform.log())?;
    let wall = bound[pods - 1].at - began;
    cluster.quiet(Duration::from_secs(60)).await?;
    let used = cluster.cpu() - cpu;
    Ok((pods as f64 / wall.as_secs_f64(), used.as_secs_f64() * 1e3 / pods as f64))
}
