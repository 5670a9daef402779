//! The components of `up`: who each is, and what happens when one ends.

use std::convert::Infallible;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt as _;
use pumice_api::names;
use pumice_apiserver::ApiServer;
use pumice_auth::Identity;
use pumice_cluster::{Client, client_over};
use pumice_controllers::{FinishedKind, TakenIn};
use pumice_history::pending::Watched;
use pumice_history::{LastRuns, Location};
use pumice_node::{ShimProgram, SimulatedHandle, SimulatedOptions};
use pumice_scheduler::{AskRuns, PastRuns};
use pumice_units::Quantity;
use tokio_util::sync::CancellationToken;

use crate::args::UpArgs;
use crate::args::node::{ImagesArg, MachineArgs};
use crate::forbidden_tenants;
use crate::image;
use crate::output::note;
use crate::parts::Parts;
use crate::up::late::{self, Late, Part};

/// How often a file that is waited for is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Days from which a scheduler learns how long pods run.
const LEARNED_DAYS: u32 = 30;
/// How long it is tried to find out, and the pause between two attempts.
const LEARNED_WITHIN: Duration = Duration::from_secs(30);
const LEARNED_PAUSE: Duration = Duration::from_millis(100);

/// The running components. Dropping it ends them without their leave; see [`Components::end`].
pub struct Components {
    running: Parts,
    parts: [Part; 4],
    simulated: Option<SimulatedHandle>,
}

impl Components {
    /// Starts history, controllers, scheduler and nodes, each as a user of its own; pods are told of the API's `port` and see nothing
    /// of the `hidden` folders.
    pub fn start(
        api: &ApiServer,
        late: &Late,
        (args, history): (&UpArgs, Option<Location>),
        (data, hidden): (&Path, Vec<PathBuf>),
        port: u16,
    ) -> Result<Components> {
        let node = late.node_name.as_str();
        let mut components = Components { running: Parts::default(), parts: late.parts.clone(), simulated: None };
        let client = |user: &str| client_over(api.client_service(Identity::new(user, [] as [&str; 0])));

        // First of all: what goes before it looks has an unknown end.
        let (mut past_runs, mut taken_in) = (None, None);
        if let Some(place) = history {
            let days = args.history.keep.history_days;
            let history =
                pumice_history::Options { client: client(names::USER_HISTORY), location: place, days }.build();
            past_runs = Some(ask_for_runs(history.handle()));
            taken_in = Some(ask_for_progress(history.handle()));
            let _ = late.history.set(history.handle());
            components.spawn(late::HISTORY, |stop| async move {
                history.run(stop).await;
                Ok::<(), Infallible>(())
            });
        }

        let mut options = pumice_scheduler::Options::new(client(names::USER_SCHEDULER));
        args.scheduling.apply(&mut options);
        options.past_runs = past_runs;
        options.record = (!args.no_recording).then(|| args.keep.options(data.join("recording")));
        let mut controlling = pumice_controllers::Options::new(client(names::USER_CONTROLLERS));
        controlling.scheduler_names.clone_from(&options.scheduler_names);
        controlling.enabled = controlling.enabled.with_workloads();
        controlling.retention = Some(args.retention.own());
        controlling.taken_in = taken_in;
        controlling.forbidden_tenants = forbidden_tenants::of_this_machine();
        let mut directories = pumice_directory::Options::new(client(names::USER_CONTROLLERS));
        directories.reads_machine = true;
        directories.forbidden = controlling.forbidden_tenants.clone();
        let controllers = controlling.build();
        components.spawn(late::CONTROLLERS, |stop| controllers.run(stop));
        components.spawn(late::DIRECTORIES, |stop| directories.build().run(stop));

        let scheduler = options.build().context("start the scheduler")?;
        let _ = late.scheduler.set(scheduler.handle());
        let after = args.scheduler_after.clone();
        components.spawn(late::SCHEDULER, |stop| async move {
            if appears(after.as_deref(), &stop).await { Box::pin(scheduler.run(stop)).await } else { Ok(()) }
        });

        if args.runs_pods() {
            let agent = client_over(api.client_service(Identity::node(node)));
            let mut options = node_options(&args.node, data, node, agent)?;
            options.hidden = hidden;
            options.api_port = Some(port);
            options.default_profile = args.api.profile().enforced();
            let agent = options.build().context("start the node agent")?;
            tell_what_is_missing(&agent.handle());
            let _ = late.node.set(agent.handle());
            components.spawn(late::NODE_AGENT, |stop| agent.run(stop));
        }
        if args.simulated.simulated_nodes > 0 {
            let options = SimulatedOptions {
                client: client(names::USER_NODE),
                nodes: args.simulated.simulated_nodes,
                shape: args.simulated.simulated_node_shape.clone(),
                faults: args.simulated.simulated_faults,
            };
            let simulated = options.build().context("start the simulated nodes")?;
            components.simulated = Some(simulated.handle());
            components.spawn(late::SIMULATED_NODES, |stop| simulated.run(stop));
        }
        Ok(components)
    }

    /// The simulated nodes, if there are some.
    pub fn simulated(&self) -> Option<SimulatedHandle> {
        self.simulated.clone()
    }

    fn spawn<F, E>(&mut self, name: &'static str, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let part = self.parts.iter().find(|part| part.name == name).cloned();
        self.running.spawn(name, |stop| {
            let task = run(stop);
            async move {
                let runs = |runs| part.iter().for_each(|part| part.runs(runs));
                runs(true);
                let ended = task.await;
                runs(false);
                ended
            }
        });
    }

    /// Waits for the first component that ends by itself, which none of them should.
    pub async fn failure(&mut self) -> anyhow::Error {
        self.running.failure().await
    }

    /// Asks all components to end and waits for them.
    pub async fn end(self) -> Result<()> {
        self.running.end().await
    }
}

/// Tells a scheduler that begins how long pods ran before. A history that is not there by then is not waited for: what came
/// late would be taken for newer than what was seen meanwhile.
fn ask_for_runs(history: pumice_history::Handle) -> AskRuns {
    Arc::new(move || {
        let history = history.clone();
        async move {
            let asked = async {
                loop {
                    match history.last_runs(LEARNED_DAYS).await {
                        Ok(runs) => break runs,
                        Err(why) => tracing::debug!(why, "the history does not say yet how long pods ran"),
                    }
                    tokio::time::sleep(LEARNED_PAUSE).await;
                }
            };
            let Ok(runs) = tokio::time::timeout(LEARNED_WITHIN, asked).await else {
                tracing::warn!("the scheduler begins without knowing how long pods ran before");
                return Vec::new();
            };
            let parts = |LastRuns { namespace, profile, runs_ms }| PastRuns { namespace, profile, runs_ms };
            runs.into_iter().map(parts).collect()
        }
        .boxed()
    })
}

/// Tells the controllers what may be removed because the history has it.
fn ask_for_progress(history: pumice_history::Handle) -> TakenIn {
    Arc::new(move |kind, version| {
        let watched = match kind {
            FinishedKind::Job => Some(Watched::Jobs),
            FinishedKind::BatchJob => Some(Watched::KubernetesJobs),
            FinishedKind::Pod => Some(Watched::Pods),
            // There is no history of flows, but of the Jobs that go with them.
            FinishedKind::JobFlow => None,
        };
        history.has_taken_in(watched, version)
    })
}

/// Waits until a file is there, if one is named; `false` when `stop` came first.
async fn appears(file: Option<&Path>, stop: &CancellationToken) -> bool {
    let Some(file) = file else { return true };
    while !file.exists() {
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
    true
}

include!(concat!(env!("OUT_DIR"), "/shim.rs"));

/// Which program shims are: the small one that this one carries, else this one.
pub fn shim_program() -> Result<ShimProgram> {
    let program = std::env::current_exe().context("find this program's own file")?;
    Ok(ShimProgram { embedded: SHIM, program, args: vec!["shim".into()] })
}

/// Says to a user without root what pods go without, and what gives it. As root, a machine lacks little, and the log says it.
pub fn tell_what_is_missing(agent: &pumice_node::Handle) {
    if !nix::unistd::Uid::effective().is_root() {
        agent.capabilities().notes.iter().for_each(|lack| note(format_args!("pumice: without root, {lack}")));
    }
}

/// What the agent of this machine is told.
pub fn node_options(args: &MachineArgs, data: &Path, name: &str, client: Client) -> Result<pumice_node::Options> {
    let mut options = pumice_node::Options::new(client, data.to_owned(), name.to_owned(), shim_program()?);
    options.image_map = match &args.image_map {
        Some(map) => Some(std::path::absolute(map).with_context(|| format!("make {} absolute", map.display()))?),
        None => None,
    };
    options.images = match args.images {
        ImagesArg::Registry => Some(Arc::new(image::open(data, &args.registry)?)),
        ImagesArg::Host => None,
    };
    options.cpu_milli = amount("--cpu", args.cpu.as_deref())?.map(|cpu| cpu.cpu_milli());
    options.memory_bytes = amount("--memory", args.memory.as_deref())?.map(|memory| memory.value());
    options.pods_max = args.pods;
    options.pod_pids_max = u32::try_from(args.pod_pids_limit).ok().filter(|limit| *limit > 0);
    let log_size = amount("--container-log-max-size", args.container_log_max_size.as_deref())?;
    if let Some(size) = log_size {
        options.log_bytes_max = u64::try_from(size.value()).unwrap_or(0);
        ensure!(options.log_bytes_max > 0, "--container-log-max-size must be more than nothing; try 256Mi");
    }
    options.own_process = true;
    // A pod without an image is this machine as its user knows it, so it finds the same programs.
    if let Some(path) = std::env::var_os("PATH").and_then(|path| path.into_string().ok()).filter(|p| !p.is_empty()) {
        options.default_path = path;
    }
    Ok(options)
}

fn amount(flag: &str, text: Option<&str>) -> Result<Option<Quantity>> {
    let parse = |text: &str| {
        let parsed: Quantity =
            text.parse().with_context(|| format!("{flag} {text:?} is no quantity; try 4, 500m or 8Gi"))?;
        ensure!(!parsed.is_negative(), "{flag} {text:?} is less than nothing; try 4, 500m or 8Gi");
        Ok(parsed)
    };
    text.map(parse).transpose()
}
