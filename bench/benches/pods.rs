//! Real pods of a program that does nothing, beside the same number of fork, exec and wait in the same run; and whose CPU it is.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use pumice_bench::cluster::Cluster;
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::machine;
use pumice_bench::objects::{JOBS, SCHEDULER};
use pumice_bench::setting::Setting;
use pumice_testkit::{Platform, Setup, eventually};
use serde_json::{Value, json};

const PODS: usize = 1_000;
const PROGRAM: &str = "true";
/// Bare programs at a time, one for each core of two.
const AT_A_TIME: usize = 2;

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("pods");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    if let Err(error) = runtime.block_on(run(&setting, &mut figures)) {
        eprintln!("NOT MEASURED: {error:#}");
    }
    figures.finish();
    ExitCode::SUCCESS
}

async fn run(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let pods = setting.size(PODS);
    let per_pod = |used: Duration| used.as_secs_f64() * 1e3 / pods as f64;
    let (begin, before) = (Instant::now(), machine::busy());
    tokio::task::block_in_place(|| bare(pods))?;
    let rate = pods as f64 / begin.elapsed().as_secs_f64();
    figures.add("bare/rate", rate, "per s", pods);
    figures.add("bare/cpu", per_pod(machine::busy() - before), "ms", pods);

    let flags = ["--cpu=64", "--memory=256Gi", &format!("--pods={}", pods + 10)].map(str::to_owned).to_vec();
    let platform = tokio::task::block_in_place(|| Platform::start(Setup { flags }));
    let pid = platform.pid().and_then(|pid| u32::try_from(pid).ok()).context("it runs")?;
    let cluster = Cluster::of_kubeconfig(&platform.data_dir().join("kubeconfig"), pid).await?;
    cluster.quiet(setting.limit).await?;
    let (begin, before, own) = (Instant::now(), machine::busy(), cluster.cpu());
    load::run(&cluster.client, 1, vec![Call::create(JOBS, &job(pods))]).await?;
    tokio::task::block_in_place(|| {
        eventually("the job is through", || {
            let found = platform.get("jobs.batch.volcano.sh", "many").ok_or("no job")?;
            // Asked for rarely: each question takes CPU from what is measured.
            std::thread::sleep(Duration::from_millis(200));
            if found["status"]["state"]["phase"] == "Completed" { Ok(()) } else { Err(found["status"].to_string()) }
        });
    });
    let wall = begin.elapsed();
    let (all, own) = (machine::busy() - before, cluster.cpu() - own);
    figures.add("pods/rate", pods as f64 / wall.as_secs_f64(), "per s", pods);
    figures.add("pods/of_bare", pods as f64 / wall.as_secs_f64() / rate, "ratio", pods);
    figures.add("pods/cpu", per_pod(all), "ms", pods);
    figures.add("pods/cpu_platform", per_pod(own), "ms", pods);
    // Each pod's shim, its set-up in namespaces and cgroups, and the program.
    figures.add("pods/cpu_shims_and_programs", per_pod(all.saturating_sub(own)), "ms", pods);
    Ok(())
}

/// Runs the program so many times.
fn bare(count: usize) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME)
            .map(|worker| {
                scope.spawn(move || {
                    (worker..count).step_by(AT_A_TIME).try_for_each(|_| {
                        let status = Command::new(PROGRAM).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
                        anyhow::ensure!(status.success(), "{PROGRAM}: {status}");
                        Ok(())
                    })
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
    })
}

fn job(pods: usize) -> Value {
    let container = json!({"name": "main", "image": "none", "command": [PROGRAM],
        "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "many"},
        "spec": {"schedulerName": SCHEDULER, "minAvailable": 1, "queue": "default",
            "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
            "tasks": [{"name": "w", "replicas": pods, "template": template}]},
    })
}
