//! What each verb costs kube-apiserver and etcd; and loads a to d there, beside a bare generator that creates the same pods and binds them.
//!
//! Set up as the peers were measured: static nodes, nobody writes the status of pods, no admission of ours, and a new etcd
//! for each load. The programs are those that `tests/realkube/build` makes.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pumice_api::names;
use pumice_bench::cluster::Cluster;
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::loads::{JOBS_IN_FLIGHT, LOADS, Load};
use pumice_bench::machine;
use pumice_bench::objects::{self, NOBODY, NODES, PODS};
use pumice_bench::setting::Setting;
use pumice_bench::verbs;
use pumice_bench::watching::{self, BoundWatch};
use pumice_testkit::RealKube;

const NODE_COUNT: usize = 1_000;
/// Bare pods created and bound at a time.
const IN_FLIGHT: usize = 64;
/// How long a cluster may take to come to rest.
const REST: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("realkube");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    for load in LOADS.into_iter().filter(|load| setting.wants(load.name)) {
        if let Err(error) = runtime.block_on(run(&setting, &mut figures, load)) {
            eprintln!("NOT MEASURED {}: {error:#}", load.name);
        }
    }
    if setting.wants("verbs")
        && let Err(error) = runtime.block_on(each_verb(&setting, &mut figures))
    {
        eprintln!("NOT MEASURED verbs: {error:#}");
    }
    figures.finish();
    ExitCode::SUCCESS
}

/// What the bench `api` measures of our server, here of kube-apiserver and etcd together.
async fn each_verb(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let kube = tokio::task::block_in_place(RealKube::for_load);
    let cluster = Cluster::over_http2(&kube.kubeconfig(), 0).await?;
    let all = || cpu(&kube).values().sum();
    verbs::measure(figures, "verbs", &cluster, [setting.size(20_000), NODE_COUNT], all).await
}

async fn run(setting: &Setting, figures: &mut Figures, load: Load) -> anyhow::Result<()> {
    let nodes = setting.size(NODE_COUNT);
    let load = load.sized(setting, nodes * 32);
    let rate = scheduled(setting, figures, load, nodes).await?;
    // Jobs of one pod cost their job, group and status beside it: what they are measured by is their own rate.
    if load.replicas > 1 {
        let bare = bare(setting, load.pods(), nodes).await?;
        figures.add(&format!("{}/bare", load.name), bare, "pods/s", load.pods());
        figures.add(&format!("{}/of_bare", load.name), rate / bare, "ratio", load.pods());
    }
    Ok(())
}

/// Pods a second from the first create to the last bind.
async fn scheduled(setting: &Setting, figures: &mut Figures, load: Load, nodes: usize) -> anyhow::Result<f64> {
    let mut kube = tokio::task::block_in_place(RealKube::for_load);
    tokio::task::block_in_place(|| {
        kube.install();
        kube.start_component("scheduler", names::USER_SCHEDULER, &["scheduler", "run"]);
        kube.start_component("controllers", names::USER_CONTROLLERS, &["controllers", "run"]);
    });
    let cluster = furnished(&kube, nodes).await?;
    cluster.default_queue().await?;
    let before = cluster.quiet(REST).await?;
    let mut watch = BoundWatch::start(&cluster.client, before).await?;
    let used = cpu(&kube);
    let begin = Instant::now();
    let (created, bound) = tokio::join!(
        load::run(&cluster.client, JOBS_IN_FLIGHT, load.calls()),
        watch.take(load.pods(), setting.limit.max(Duration::from_secs(400)))
    );
    created?;
    let logs = || kube.processes().map(pumice_testkit::Process::tail).collect::<String>();
    let bound = bound.map_err(|error| error.context(logs()))?;
    let (name, pods) = (load.name, load.pods());
    let rate = pods as f64 / (bound[pods - 1].at - begin).as_secs_f64();
    figures.add(&format!("{name}/rate"), rate, "pods/s", pods);
    figures.add(&format!("{name}/first_bind"), (bound[0].at - begin).as_secs_f64() * 1e3, "ms", 1);
    let after = cluster.quiet(REST).await?;
    for (process, time) in cpu(&kube) {
        let spent = time.saturating_sub(used.get(&process).copied().unwrap_or_default());
        figures.add(&format!("{name}/cpu_per_pod/{process}"), spent.as_secs_f64() * 1e3 / pods as f64, "ms", pods);
    }
    for process in kube.processes() {
        let peak = machine::peak_mib(process.pid().unsigned_abs());
        figures.add(&format!("{name}/peak_memory/{}", process.name()), peak, "MiB", 1);
    }
    figures.add(&format!("{name}/writes_per_job"), (after - before) as f64 / load.jobs as f64, "writes", load.jobs);
    for (resource, writes) in watching::writes(&cluster.client, before, after).await? {
        for (verb, count) in [("created", writes.created), ("changed", writes.changed)] {
            let each = count as f64 / load.jobs as f64;
            figures.add(&format!("{name}/writes_per_job/{resource}_{verb}"), each, "writes", load.jobs);
        }
    }
    Ok(rate)
}

/// Pods a second of creates, and then binds, by the same watch.
async fn bare(setting: &Setting, pods: usize, nodes: usize) -> anyhow::Result<f64> {
    let kube = tokio::task::block_in_place(RealKube::for_load);
    let cluster = furnished(&kube, nodes).await?;
    let before = cluster.quiet(REST).await?;
    let mut watch = BoundWatch::start(&cluster.client, before).await?;
    let name = |index: usize| format!("p-{index}");
    let creates = (0..pods).map(|index| Call::create(PODS, &objects::pod(&name(index), NOBODY, None))).collect();
    let binds = (0..pods).map(|index| {
        Call::create(format!("{PODS}/{}/binding", name(index)), &objects::binding(&name(index), index % nodes))
    });
    let binds = binds.collect();
    let begin = Instant::now();
    load::run(&cluster.client, IN_FLIGHT, creates).await?;
    load::run(&cluster.client, IN_FLIGHT, binds).await?;
    let bound = watch.take(pods, setting.limit).await?;
    Ok(pods as f64 / (bound[pods - 1].at - begin).as_secs_f64())
}

/// The cluster with its nodes.
async fn furnished(kube: &RealKube, nodes: usize) -> anyhow::Result<Cluster> {
    let apiserver = kube.processes().find(|process| process.name() == "kube-apiserver");
    let pid = apiserver.map_or(0, |process| process.pid().unsigned_abs());
    let cluster = Cluster::of_kubeconfig(&kube.kubeconfig(), pid).await?;
    cluster.set((0..nodes).map(|node| Call::create(NODES, &objects::static_node(node))).collect()).await?;
    Ok(cluster)
}

/// CPU time of each process so far.
fn cpu(kube: &RealKube) -> BTreeMap<String, Duration> {
    kube.processes()
        .map(|process| (process.name().to_owned(), machine::cpu_time(process.pid().unsigned_abs())))
        .collect()
}
