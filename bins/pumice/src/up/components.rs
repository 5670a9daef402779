//! The components of `up`: who each is, and what happens when one ends.

use std::future::Future;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use pumice_apiserver::ApiServer;
use pumice_auth::Identity;
use pumice_cluster::client_over;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::UpArgs;
use crate::up::late::Late;

/// The running components. Dropping it ends them without their leave; see [`Components::end`].
pub struct Components {
    tasks: JoinSet<(&'static str, Result<()>)>,
    shutdown: CancellationToken,
}

impl Components {
    /// Starts controllers, scheduler and node agent, each as a user of its own.
    pub fn start(api: &ApiServer, late: &Late, args: &UpArgs, data: &Path, node: &str) -> Result<Components> {
        let mut components = Components { tasks: JoinSet::new(), shutdown: CancellationToken::new() };
        let client = |user: &str| client_over(api.client_service(Identity::new(user, [] as [&str; 0])));

        let controllers = pumice_controllers::Options { client: client(pumice_api::names::USER_CONTROLLERS) }.build();
        components.spawn("controllers", |stop| controllers.run(stop));

        let scheduler = pumice_scheduler::Options {
            client: client(pumice_api::names::USER_SCHEDULER),
            scheduler_names: pumice_api::names::SCHEDULERS_UP.iter().map(|name| (*name).to_owned()).collect(),
            config: args.scheduler_conf.clone(),
        }
        .build()
        .context("start the scheduler")?;
        let _ = late.scheduler.set(scheduler.handle());
        components.spawn("scheduler", |stop| scheduler.run(stop));

        let agent = node_options(args, data, node, client(pumice_api::names::USER_NODE))?
            .build()
            .context("start the node agent")?;
        let _ = late.node.set(agent.handle());
        components.spawn("node agent", |stop| agent.run(stop));
        Ok(components)
    }

    fn spawn<F, E>(&mut self, name: &'static str, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let task = run(self.shutdown.clone());
        self.tasks.spawn(async move { (name, task.await.map_err(anyhow::Error::new)) });
    }

    /// Waits for the first component that ends by itself, which none of them should.
    pub async fn failure(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Ok((name, Err(error)))) => error.context(format!("the {name} failed")),
            Some(Ok((name, Ok(())))) => anyhow::anyhow!("the {name} ended before its time"),
            Some(Err(panic)) => anyhow::Error::new(panic).context("a component panicked"),
            None => anyhow::anyhow!("no component runs"),
        }
    }

    /// Asks all components to end and waits for them.
    pub async fn end(mut self) -> Result<()> {
        self.shutdown.cancel();
        let mut failed = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok((_, Ok(()))) => {}
                Ok((name, Err(error))) => failed.push(format!("{name}: {error:#}")),
                Err(panic) => failed.push(panic.to_string()),
            }
        }
        if failed.is_empty() { Ok(()) } else { bail!("not everything ended well: {}", failed.join("; ")) }
    }
}

/// The name of this machine's node: its host name.
pub fn node_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .trim()
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' })
        .collect();
    let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if name.is_empty() { "this-machine".to_owned() } else { name.to_owned() }
}
