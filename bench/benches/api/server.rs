//! `pumice apiserver` by itself.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use pumice_bench::cluster::Cluster;
use pumice_testkit::{Process, binary};
use tempfile::TempDir;

/// How long one with very many objects may take to start.
const START_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running server; it ends with this.
pub struct Server {
    /// How it is reached.
    pub cluster: Cluster,
    process: Process,
    directory: TempDir,
}

impl Server {
    /// One without objects.
    pub async fn start() -> anyhow::Result<Server> {
        let directory = tempfile::Builder::new().prefix("pumice-bench-").tempdir()?;
        let (process, cluster) = start(&directory).await?;
        Ok(Server { cluster, process, directory })
    }

    /// The same for calls over HTTP/2.
    pub async fn over_http2(&self) -> anyhow::Result<Cluster> {
        Cluster::over_http2(&self.directory.path().join("data/kubeconfig"), self.cluster.pid).await
    }

    /// Kills it as a crash would and starts it again: how long it takes until it answers.
    pub async fn again(&mut self) -> anyhow::Result<Duration> {
        self.process.crash();
        // Written when it listens; an old one would name the port of before.
        std::fs::remove_file(self.directory.path().join("data/kubeconfig"))?;
        let begin = Instant::now();
        (self.process, self.cluster) = start(&self.directory).await?;
        Ok(begin.elapsed())
    }
}

async fn start(directory: &TempDir) -> anyhow::Result<(Process, Cluster)> {
    let data = directory.path().join("data");
    let mut command = Command::new(binary("pumice"));
    command.args(["apiserver", "--port", "0", "--data-dir"]).arg(&data);
    let process = Process::start("apiserver", &mut command, directory.path());
    let kubeconfig = data.join("kubeconfig");
    let deadline = Instant::now() + START_WITHIN;
    loop {
        if kubeconfig.exists()
            && let Ok(cluster) = Cluster::of_kubeconfig(&kubeconfig, process.pid().unsigned_abs()).await
            && cluster.revision().await.is_ok()
        {
            return Ok((process, cluster));
        }
        if Instant::now() > deadline {
            return Err(anyhow::anyhow!("{}", process.tail())).context("the API server does not start");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
