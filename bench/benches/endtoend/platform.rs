//! A `pumice up` with simulated nodes and nothing else.

use std::path::PathBuf;

use anyhow::Context;
use pumice_bench::cluster::{Cluster, SHAPE};
use pumice_testkit::{Platform, Setup};

/// A running platform; it ends when dropped.
pub struct Measured {
    platform: Platform,
    hold: tempfile::TempDir,
    pub cluster: Cluster,
}

impl Measured {
    /// With the scheduler running, or held until [`Measured::start_scheduler`].
    pub async fn start(nodes: usize, held: bool) -> anyhow::Result<Measured> {
        let hold = tempfile::tempdir()?;
        let mut flags = vec![
            "--local-node=false".to_owned(),
            format!("--simulated-nodes={nodes}"),
            format!("--simulated-node-shape={SHAPE}"),
        ];
        if held {
            flags.extend(["--scheduler-after".to_owned(), go(&hold).display().to_string()]);
        }
        let platform = Platform::start(Setup { flags });
        let pid = platform.pid().and_then(|pid| u32::try_from(pid).ok()).context("it runs")?;
        let cluster = Cluster::of_kubeconfig(&platform.data_dir().join("kubeconfig"), pid).await?;
        Ok(Measured { platform, hold, cluster })
    }

    /// Lets a held scheduler start.
    pub fn start_scheduler(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(go(&self.hold), "")?)
    }

    /// What it logged, of which there should be nothing.
    pub fn log(&self) -> String {
        let log = self.platform.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

fn go(hold: &tempfile::TempDir) -> PathBuf {
    hold.path().join("go")
}
