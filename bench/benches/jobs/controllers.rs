//! The controllers as a process of their own.
//!
//! Invariant: `pumice controllers run` with the flags of an installation, but for the Lease, and the rights of its user.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use pumice_api::names;
use pumice_bench::cluster::Bare;
use pumice_bench::machine;
use pumice_testkit::{Process, binary};

const START_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How the store names queues.
const QUEUES: &str = "scheduling.volcano.sh/queues";

/// A running `pumice controllers run`.
pub struct Controllers {
    process: Process,
}

/// What the controllers have used.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    pub cpu: Duration,
    pub memory_mib: f64,
}

impl Controllers {
    /// Starts them and waits until they have looked at the default queue.
    pub async fn start(server: &mut Bare) -> anyhow::Result<Controllers> {
        let kubeconfig = server.serve(names::USER_CONTROLLERS).await?;
        let mut command = Command::new(binary("pumice"));
        command.args(["controllers", "run", "--leader-elect=false", "--log=warn", "--kubeconfig"]).arg(kubeconfig);
        let mut controllers = Controllers { process: Process::start("controllers", &mut command, server.scratch()) };
        let begin = Instant::now();
        loop {
            let queue = server.store().find(QUEUES, "", names::DEFAULT_QUEUE);
            let has_state = queue.is_some_and(|queue| String::from_utf8_lossy(&queue.body).contains("\"Open\""));
            if has_state {
                return Ok(controllers);
            }
            let ended = controllers.process.ended().is_some();
            ensure!(!ended && begin.elapsed() < START_WITHIN, "they do not work: {}", controllers.process.tail());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What they have used so far, and the memory that they hold now.
    pub fn used(&self) -> Used {
        Used { cpu: machine::cpu_time(self.pid()), memory_mib: machine::resident_mib(self.pid()) }
    }

    /// The most memory that they have held.
    pub fn peak_mib(&self) -> f64 {
        machine::peak_mib(self.pid())
    }

    /// What they complained about; there should be nothing.
    pub fn complaints(&self) -> String {
        self.process.tail()
    }

    fn pid(&self) -> u32 {
        self.process.pid().unsigned_abs()
    }
}
