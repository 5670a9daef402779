//! Real pods of a program that does nothing, beside the same program in containers of `runc`, as a task of HyperQueue, and bare, in the
//! same run; and whose CPU time it is.
//!
//! All processes count, and the kernel's own threads: what the machine was busy with, less its rate at rest.

#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)] // a benchmark has its own clock; counts become figures

#[path = "../../../crates/node/tests/like_runc/masked.rs"]
mod masked;
#[path = "../../../crates/node/tests/like_runc/runc.rs"]
#[allow(dead_code, clippy::unwrap_used, missing_docs, reason = "a test's harness, which uses more of it")]
mod runc;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use http_body_util::BodyExt;
use pumice_bench::cluster::Cluster;
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::machine;
use pumice_bench::objects::SCHEDULER;
use pumice_bench::setting::Setting;
use pumice_testkit::{Files, Platform, Registry, Setup, TestImage, binary};
use runc::Runc;
use serde_json::{Value, json};

const PODS: usize = 1_000;
const PROGRAM: &str = "/usr/bin/true";
/// Rows, and the profiles that their namespaces enforce. Pods of `image` run the same program from an image.
const ROWS: [(&str, &str); 3] = [("baseline", "baseline"), ("image", "baseline"), ("restricted", "restricted")];
/// Bare programs and containers of `runc` at a time, one for each core of two.
const AT_A_TIME: usize = 2;
/// How long the machine is watched at rest, and how long after the last pod what it left is waited for, at full size.
const REST: Duration = Duration::from_secs(60);
const SETTLE: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(100);
// What containers of `runc` are limited to, and a pod is: as the agent does it.
const HOSTNAME: &str = "many-w-0";
const GROUPS: &str = "/mnt";
const MEMORY_BYTES: i64 = 256 << 20;
const CPU_REQUEST_MILLI: i64 = 10;
const CPU_LIMIT_MILLI: i64 = 1000;
const PROCESSES_MAX: i64 = 4096;

fn main() -> ExitCode {
    let setting = Setting::read();
    let mut figures = Figures::open("pods");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let mut measured = peers(&setting, &mut figures);
    if ROWS.iter().any(|(row, _)| setting.wants(row)) {
        measured = measured.and(runtime.block_on(pods(&setting, &mut figures)));
    }
    if let Err(error) = measured {
        eprintln!("NOT MEASURED: {error:#}");
    }
    figures.finish();
    ExitCode::SUCCESS
}

/// What a machine at rest is busy with, in seconds a second.
struct Rest(f64);

impl Rest {
    fn watch(setting: &Setting) -> Rest {
        let (begin, before) = (Instant::now(), machine::busy());
        std::thread::sleep(REST.mul_f64(setting.scale.clamp(0.05, 1.0)));
        Rest((machine::busy() - before).as_secs_f64() / begin.elapsed().as_secs_f64())
    }

    /// Runs `work` on `count` of something, and writes how many a second that were and what each took.
    fn measure(
        &self,
        figures: &mut Figures,
        row: &str,
        count: usize,
        work: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Taken> {
        let (begin, before, kernel) = (Instant::now(), machine::busy(), machine::kernel_threads());
        work().with_context(|| row.to_owned())?;
        let rate = count as f64 / begin.elapsed().as_secs_f64();
        // What the kernel takes down later is a part of it.
        std::thread::sleep(SETTLE);
        let busy = (machine::busy() - before).as_secs_f64() - self.0 * begin.elapsed().as_secs_f64();
        let cpu_ms = busy * 1e3 / count as f64;
        figures.add(&format!("{row}/rate"), rate, "per s", count);
        figures.add(&format!("{row}/cpu"), cpu_ms, "ms", count);
        let kernel = (machine::kernel_threads() - kernel).as_secs_f64() * 1e3 / count as f64;
        figures.add(&format!("{row}/cpu_kernel_threads"), kernel, "ms", count);
        Ok(Taken { rate, cpu_ms })
    }
}

/// What one row took.
struct Taken {
    rate: f64,
    cpu_ms: f64,
}

/// The same program without the platform.
fn peers(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let count = setting.size(PODS);
    let rest = Rest::watch(setting);
    figures.add("rest/busy", rest.0, "cores", 1);
    if setting.wants("bare") {
        rest.measure(figures, "bare", count, || each(count, bare))?;
    }
    if setting.wants("runc") {
        install_runc();
        let runc = Runc::find(Path::new(PROGRAM)).context("runc is not there: apt-get install runc")?;
        rest.measure(figures, "runc", count, || {
            each(count, || {
                let end = runc.end(&[PROGRAM]);
                anyhow::ensure!(end == "code 0", "{end}");
                Ok(())
            })
        })?;
    }
    if setting.wants("hyperqueue")
        && let Err(error) = HyperQueue::start(count)
            .and_then(|tasks| rest.measure(figures, "hyperqueue", count, || tasks.run()).map(drop))
    {
        eprintln!("NOT MEASURED: hyperqueue: {error:#}");
    }
    Ok(())
}

/// Does something so many times, by two threads.
fn each(count: usize, work: impl Fn() -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let worker = |first| move || (first..count).step_by(AT_A_TIME).try_for_each(|_| work());
        let workers: Vec<_> = (0..AT_A_TIME).map(|first| scope.spawn(worker(first))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?)
    })
}

fn bare() -> anyhow::Result<()> {
    let status = Command::new(PROGRAM).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "{PROGRAM}: {status}");
    Ok(())
}

/// Debian's package, where it is missing and this user may install it.
fn install_runc() {
    if Command::new("runc").arg("--version").stdout(Stdio::null()).status().is_err() {
        let _ = Command::new("apt-get").args(["install", "--yes", "--quiet", "runc"]).stdout(Stdio::null()).status();
    }
}

/// Server, worker and client of HyperQueue, by `bench/python/ways.py`: it makes ready, runs, and ends, each when told.
struct HyperQueue {
    program: std::process::Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl HyperQueue {
    fn start(tasks: usize) -> anyhow::Result<HyperQueue> {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/run");
        let pumice = binary("pumice");
        let mut program = Command::new(run);
        program.arg("ways").arg(pumice.parent().unwrap_or(&pumice));
        program.args(["hyperqueue_true", "process", &tasks.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = program.spawn().context("start bench/python/run ways")?;
        let answers = BufReader::new(program.stdout.take().context("its output is a pipe")?);
        let mut queue = HyperQueue { program, answers };
        anyhow::ensure!(queue.answer()? == "ready", "it could not make ready: its package comes from PyPI");
        Ok(queue)
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).context("read its answer")?;
        Ok(line.trim().to_owned())
    }

    fn say(&mut self, word: &str) -> anyhow::Result<()> {
        let mut input = self.program.stdin.as_ref().context("its input is a pipe")?;
        writeln!(input, "{word}").context("tell it")
    }

    fn run(mut self) -> anyhow::Result<()> {
        self.say("run")?;
        let seconds = self.answer()?;
        anyhow::ensure!(seconds.parse::<f64>().is_ok(), "it failed: {seconds:?}");
        Ok(())
    }
}

impl Drop for HyperQueue {
    fn drop(&mut self) {
        let _ = self.say("end");
        let _ = self.program.wait();
    }
}

/// Pods of namespaces that enforce a profile.
async fn pods(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let count = setting.size(PODS);
    let registry = Registry::start();
    let mut files = Files::new();
    files.of_machine(PROGRAM);
    let (of_registry, _) = registry.put("bench/true", "1", &TestImage::busybox().with_layer(files.end()));
    let directory = tempfile::tempdir()?;
    let settings = directory.path().join("registries.yaml");
    registry.settings(&settings);
    let flags = ["--cpu=64", "--memory=256Gi", "--images=registry", &format!("--pods={}", 3 * count)];
    let mut flags = flags.map(str::to_owned).to_vec();
    flags.push(format!("--registries={}", settings.display()));
    let platform = tokio::task::block_in_place(|| Platform::start(Setup { flags }));
    let pid = platform.pid().and_then(|pid| u32::try_from(pid).ok()).context("it runs")?;
    let cluster = Cluster::of_kubeconfig(&platform.data_dir().join("kubeconfig"), pid).await?;
    for (row, profile) in ROWS.into_iter().filter(|(row, _)| setting.wants(row)) {
        let image = if row == "image" { &of_registry } else { "pumice.sh/host" };
        let labels = json!({"pod-security.kubernetes.io/enforce": profile});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": row, "labels": labels}});
        load::run(&cluster.client, 1, vec![Call::create("/api/v1/namespaces", &namespace)]).await?;
        // What is made once, for the first pods.
        run_job(&cluster, &job(row, "first", image, 4), setting.limit).await?;
        cluster.quiet(setting.limit).await?;
        let rest = tokio::task::block_in_place(|| Rest::watch(setting));
        let own = cluster.cpu();
        let handle = tokio::runtime::Handle::current();
        let many = job(row, "many", image, count);
        let taken = tokio::task::block_in_place(|| {
            rest.measure(figures, row, count, || handle.block_on(run_job(&cluster, &many, setting.limit)))
        })?;
        let own_ms = (cluster.cpu() - own).as_secs_f64() * 1e3 / count as f64;
        figures.add(&format!("{row}/cpu_platform"), own_ms, "ms", count);
        let cores = std::thread::available_parallelism()?.get() as f64;
        figures.add(&format!("{row}/rate_of_cores"), taken.rate * taken.cpu_ms / 1e3 / cores, "ratio", count);
    }
    Ok(())
}

/// Runs a Job to its end.
async fn run_job(cluster: &Cluster, job: &Value, limit: Duration) -> anyhow::Result<()> {
    let word = |field: &str| job["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (word("namespace"), word("name"));
    let path = format!("/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs");
    load::run(&cluster.client, 1, vec![Call::create(&path, job)]).await?;
    let begin = Instant::now();
    loop {
        // Looked at rarely: each look takes CPU from what is measured.
        tokio::time::sleep(LOOK_EVERY).await;
        let request = http::Request::get(format!("{path}/{name}")).body(Vec::new().into())?;
        let body = cluster.client.send(request).await?.into_body().collect().await?.to_bytes();
        let found: Value = serde_json::from_slice(&body)?;
        match found["status"]["state"]["phase"].as_str() {
            Some("Completed") => return Ok(()),
            Some("Failed" | "Aborted") => anyhow::bail!("the job failed: {}", found["status"]),
            _ => anyhow::ensure!(begin.elapsed() < limit, "the job is not through: {}", found["status"]),
        }
    }
}

fn job(namespace: &str, name: &str, image: &str, pods: usize) -> Value {
    let mut container = json!({"name": "main", "image": image, "command": [PROGRAM],
        "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}}});
    if namespace == "restricted" {
        container["securityContext"] = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}});
    }
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"schedulerName": SCHEDULER, "minAvailable": 1, "queue": "default",
            "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
            "tasks": [{"name": "w", "replicas": pods, "template": template}]},
    })
}
